"""Interval versions of pooling, padding, dropout, flatten and identity layers.

All of them are non-decreasing functions of each input.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.interval import Interval, as_interval


class Flatten(torch.nn.Flatten):
    """Interval version of ``torch.nn.Flatten``."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Flatten both bounds."""
        return as_interval(x).flatten(self.start_dim, self.end_dim)


class Identity(torch.nn.Identity):
    """Interval version of ``torch.nn.Identity``; the arguments are ignored."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Return the input as an interval."""
        return as_interval(x)


class _LinearMap(torch.nn.Module):
    """Mixin for linear layers with weights ``>= 0``, such as padding and averages."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Apply the layer to the bounds, or to the center and the radius."""
        return as_interval(x).channelwise(super().forward, linear=True)


class ZeroPad1d(_LinearMap, torch.nn.ZeroPad1d):
    """Interval version of ``torch.nn.ZeroPad1d``."""


class ZeroPad2d(_LinearMap, torch.nn.ZeroPad2d):
    """Interval version of ``torch.nn.ZeroPad2d``."""


class ZeroPad3d(_LinearMap, torch.nn.ZeroPad3d):
    """Interval version of ``torch.nn.ZeroPad3d``."""


class ReflectionPad2d(_LinearMap, torch.nn.ReflectionPad2d):
    """Interval version of ``torch.nn.ReflectionPad2d``."""


class ReplicationPad2d(_LinearMap, torch.nn.ReplicationPad2d):
    """Interval version of ``torch.nn.ReplicationPad2d``."""


class AvgPool1d(_LinearMap, torch.nn.AvgPool1d):
    """Interval version of ``torch.nn.AvgPool1d``."""


class AvgPool2d(_LinearMap, torch.nn.AvgPool2d):
    """Interval version of ``torch.nn.AvgPool2d``.

    ``divisor_override`` must be positive.
    """

    @functools.wraps(torch.nn.AvgPool2d.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.divisor_override is not None and self.divisor_override <= 0:
            raise ValueError(f"AvgPool2d needs divisor_override > 0, got {self.divisor_override}.")


class AdaptiveAvgPool1d(_LinearMap, torch.nn.AdaptiveAvgPool1d):
    """Interval version of ``torch.nn.AdaptiveAvgPool1d``."""


class AdaptiveAvgPool2d(_LinearMap, torch.nn.AdaptiveAvgPool2d):
    """Interval version of ``torch.nn.AdaptiveAvgPool2d``.

    Example:
        >>> x = Interval(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2))
        >>> AdaptiveAvgPool2d(1)(x).upper.item()
        1.0
    """


class _Maximum(torch.nn.Module):
    """Mixin for max pooling without indices.

    The indices can differ between the bounds.
    """

    __constants__: list[str]
    _pool: Callable[..., Any]
    _dims: int

    def _refuse_indices(self, wanted: bool) -> None:
        if wanted:
            raise ValueError(
                f"{type(self).__name__} cannot return indices, which can differ for the bounds."
            )

    return_indices = property(lambda self: False, _refuse_indices)

    def forward(self, x: Interval | Tensor) -> Interval:
        """Pool both bounds; the result is NaN if one of them is infinite."""
        x = as_interval(x)
        return (
            x if x.nonnegative else x.map_monotone(lambda t: torch.add(t, t, alpha=0))
        ).channelwise(self._maxima)

    def _maxima(self, x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and x.requires_grad):
            return super().forward(x)
        arguments = {name: getattr(self, name) for name in self.__constants__} | {
            "return_indices": True
        }
        maxima: Tensor = _Maxima.apply(x, functools.partial(self._pool, **arguments), self._dims)[0]
        return maxima


class _Maxima(torch.autograd.Function):
    """Max pooling that saves the indices of the maxima instead of its input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, pool: Callable[[Tensor], tuple[Tensor, Tensor]], dims: int
    ) -> tuple[Tensor, Tensor]:
        return pool(x)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Any, int], output: tuple[Tensor, Tensor]
    ) -> None:
        ctx.shape, ctx.dims = inputs[0].shape, inputs[2]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1].int())  # needs half of the memory of int64

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors  # indices in the flattened image
        first = -ctx.dims
        image = gradient.new_zeros(ctx.shape).flatten(first)
        image = image.scatter_add(-1, places.long().flatten(first), gradient.flatten(first))
        return image.view(ctx.shape), None, None


class MaxPool1d(_Maximum, torch.nn.MaxPool1d):
    """Interval version of ``torch.nn.MaxPool1d``."""

    _pool, _dims = staticmethod(F.max_pool1d), 1


class MaxPool2d(_Maximum, torch.nn.MaxPool2d):
    """Interval version of ``torch.nn.MaxPool2d``."""

    _pool, _dims = staticmethod(F.max_pool2d), 2


class AdaptiveMaxPool1d(_Maximum, torch.nn.AdaptiveMaxPool1d):
    """Interval version of ``torch.nn.AdaptiveMaxPool1d``."""

    _pool, _dims = staticmethod(F.adaptive_max_pool1d), 1


class AdaptiveMaxPool2d(_Maximum, torch.nn.AdaptiveMaxPool2d):
    """Interval version of ``torch.nn.AdaptiveMaxPool2d``."""

    _pool, _dims = staticmethod(F.adaptive_max_pool2d), 2


class _Dropout(torch.nn.Module):
    """Mixin for dropout with the same mask for both bounds.

    A dropped unit is ``[0, 0]``.
    """

    p: float
    training: bool
    _spatial = 0  # the number of dimensions that share one value of the mask

    def forward(self, x: Interval | Tensor) -> Interval:
        """Drop the same units of both bounds; in eval mode this is the identity."""
        x, spatial = as_interval(x), self._spatial
        if not self.training or self.p == 0:
            return x
        if spatial and x.ndim not in (spatial + 1, spatial + 2):
            expected = f"{spatial + 1} or {spatial + 2}"
            raise ValueError(
                f"{type(self).__name__} expects {expected} dimensions, got shape {tuple(x.shape)}."
            )
        shape = (*x.shape[: x.ndim - spatial], *(1,) * spatial)
        mask = F.dropout(torch.ones(shape, dtype=x.dtype, device=x.device), self.p)
        return x.map_monotone(lambda t: t * mask)


class Dropout(_Dropout, torch.nn.Dropout):
    """Interval version of ``torch.nn.Dropout``."""


class Dropout1d(_Dropout, torch.nn.Dropout1d):
    """Interval version of ``torch.nn.Dropout1d``."""

    _spatial = 1


class Dropout2d(_Dropout, torch.nn.Dropout2d):
    """Interval version of ``torch.nn.Dropout2d``."""

    _spatial = 2
