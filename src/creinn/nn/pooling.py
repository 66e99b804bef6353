"""Pooling: both bounds are pooled alike, since every pooling here is monotone in each of its inputs."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.interval import Interval, as_interval
from creinn.nn.reshape import LinearMap


class _Maximum(torch.nn.Module):
    """Mixin for a max pooling layer: the bounds have their maxima in different places, so no index is given back."""

    __constants__: list[str]
    _pool: Callable[..., Any]
    _dims: int

    @property
    def return_indices(self) -> bool:
        """Never."""
        return False

    @return_indices.setter
    def return_indices(self, value: bool) -> None:
        if value:
            raise ValueError(f"{type(self).__name__} cannot return indices: the bounds differ in them.")

    def forward(self, x: Interval | Tensor) -> Interval:
        """Pool both bounds; a maximum over infinite ones is NaN, for what has overflowed may be anything."""
        x = as_interval(x)
        return (x if x.nonnegative else x.each(lambda t: torch.add(t, t, alpha=0))).channelwise(self._maxima)

    def _maxima(self, x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and x.requires_grad):
            return super().forward(x)
        arguments = {name: getattr(self, name) for name in self.__constants__} | {"return_indices": True}
        maxima: Tensor = _Maxima.apply(x, functools.partial(self._pool, **arguments), self._dims)[0]
        return maxima


class _Maxima(torch.autograd.Function):
    """Keeps the places of the maxima, and not the bounds, which nothing else keeps."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, pool: Callable[[Tensor], tuple[Tensor, Tensor]], dims: int) -> tuple[Tensor, Tensor]:
        return pool(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Any, int], output: tuple[Tensor, Tensor]) -> None:
        ctx.shape, ctx.dims = inputs[0].shape, inputs[2]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1].int())  # half of what torch keeps: no image has 2 ** 31 pixels

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, None, None]:
        (places,) = ctx.saved_tensors  # in the image as one row
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


class AvgPool1d(LinearMap, torch.nn.AvgPool1d):
    """Interval version of ``torch.nn.AvgPool1d``."""


class AvgPool2d(LinearMap, torch.nn.AvgPool2d):
    """Interval version of ``torch.nn.AvgPool2d``; ``divisor_override`` must be positive."""

    @functools.wraps(torch.nn.AvgPool2d.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.divisor_override is not None and self.divisor_override <= 0:
            raise ValueError(f"AvgPool2d needs divisor_override > 0, got {self.divisor_override}.")


class AdaptiveAvgPool1d(LinearMap, torch.nn.AdaptiveAvgPool1d):
    """Interval version of ``torch.nn.AdaptiveAvgPool1d``."""


class AdaptiveAvgPool2d(LinearMap, torch.nn.AdaptiveAvgPool2d):
    """Interval version of ``torch.nn.AdaptiveAvgPool2d``.

    Example:
        >>> AdaptiveAvgPool2d(1)(Interval(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2))).upper.item()
        1.0
    """


class AdaptiveMaxPool1d(_Maximum, torch.nn.AdaptiveMaxPool1d):
    """Interval version of ``torch.nn.AdaptiveMaxPool1d``."""

    _pool, _dims = staticmethod(F.adaptive_max_pool1d), 1


class AdaptiveMaxPool2d(_Maximum, torch.nn.AdaptiveMaxPool2d):
    """Interval version of ``torch.nn.AdaptiveMaxPool2d``."""

    _pool, _dims = staticmethod(F.adaptive_max_pool2d), 2
