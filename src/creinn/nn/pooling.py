"""Interval versions of layers that are non-decreasing in each input."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creinn.interval import Interval, as_interval
from creinn.nn._operations import interval_version


class Flatten(nn.Flatten):
    """Interval version of ``torch.nn.Flatten``."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Flatten both bounds."""
        return as_interval(x).flatten(self.start_dim, self.end_dim)


class Identity(nn.Identity):
    """Interval version of ``torch.nn.Identity``."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Return the input as an interval."""
        return as_interval(x)


class _LinearMap(nn.Module):
    """Mixin for linear layers with weights ``>= 0``."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Apply the layer to the bounds, or to the center and the radius."""
        return as_interval(x).channelwise(super().forward, linear=True)


ZeroPad1d = interval_version(_LinearMap, nn.ZeroPad1d)
ZeroPad2d = interval_version(_LinearMap, nn.ZeroPad2d)
ZeroPad3d = interval_version(_LinearMap, nn.ZeroPad3d)
ReflectionPad2d = interval_version(_LinearMap, nn.ReflectionPad2d)
ReplicationPad2d = interval_version(_LinearMap, nn.ReplicationPad2d)
AvgPool1d = interval_version(_LinearMap, nn.AvgPool1d)
AdaptiveAvgPool1d = interval_version(_LinearMap, nn.AdaptiveAvgPool1d)
AdaptiveAvgPool2d = interval_version(_LinearMap, nn.AdaptiveAvgPool2d)


class AvgPool2d(_LinearMap, nn.AvgPool2d):
    """Interval version of ``torch.nn.AvgPool2d`` with a divisor ``> 0``."""

    @functools.wraps(nn.AvgPool2d.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.divisor_override is not None and self.divisor_override <= 0:
            raise ValueError(f"AvgPool2d needs divisor_override > 0, got {self.divisor_override}.")


class _Maximum(nn.Module):
    """Mixin for max pooling without indices."""

    __constants__: list[str]
    _pool: Callable[..., Any]
    _dims: int

    @property
    def return_indices(self) -> bool:
        """Always False."""
        return False

    @return_indices.setter
    def return_indices(self, value: bool) -> None:
        if value:
            raise ValueError(f"{type(self).__name__} needs return_indices=False, got {value}.")

    def forward(self, x: Interval | Tensor) -> Interval:
        """Pool both bounds; NaN for infinite bounds."""
        x = as_interval(x)
        if not x.nonnegative:
            x = x.map_monotone(lambda t: torch.add(t, t, alpha=0))
        return x.channelwise(self._maxima)

    def _maxima(self, x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and x.requires_grad):
            return super().forward(x)
        arguments = {name: getattr(self, name) for name in self.__constants__}
        pool = functools.partial(self._pool, **{**arguments, "return_indices": True})
        maxima: Tensor = _Maxima.apply(x, pool, self._dims)[0]
        return maxima


class _Maxima(torch.autograd.Function):
    """Max pooling that saves indices as int32 instead of its input."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, pool: Callable[[Tensor], Any], dims: int) -> Any:
        return pool(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.shape, ctx.dims = inputs[0].shape, inputs[2]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1].int())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, None, None]:
        (indices,) = ctx.saved_tensors  # in the flattened image
        first = -ctx.dims
        image = gradient.new_zeros(ctx.shape).flatten(first)
        image = image.scatter_add(-1, indices.long().flatten(first), gradient.flatten(first))
        return image.view(ctx.shape), None, None


def _max_pool(layer: type[Any], function: Callable[..., Any]) -> Any:
    dims = int(layer.__name__[-2])
    return interval_version(_Maximum, layer, _pool=staticmethod(function), _dims=dims)


MaxPool1d = _max_pool(nn.MaxPool1d, F.max_pool1d)
MaxPool2d = _max_pool(nn.MaxPool2d, F.max_pool2d)
AdaptiveMaxPool1d = _max_pool(nn.AdaptiveMaxPool1d, F.adaptive_max_pool1d)
AdaptiveMaxPool2d = _max_pool(nn.AdaptiveMaxPool2d, F.adaptive_max_pool2d)


class _Dropout(nn.Module):
    """Mixin for dropout with the same mask for both bounds."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Replace random units by ``[0, 0]`` in training mode."""
        x = as_interval(x)
        if not self.training or self.p == 0:
            return x
        mask = super().forward(torch.ones_like(x.lower))
        return x.map_monotone(lambda t: t * mask)


Dropout = interval_version(_Dropout, nn.Dropout)
Dropout1d = interval_version(_Dropout, nn.Dropout1d)
Dropout2d = interval_version(_Dropout, nn.Dropout2d)
