"""Interval convolutions in one, two and three dimensions."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.interval import Interval, as_interval
from creinn.nn._onepixel import may_crop, one_pixel
from creinn.nn._operations import Convolution, Matrix
from creinn.nn._product import interval_affine
from creinn.nn.parameters import IntervalParameters


class _IntervalConv(IntervalParameters, torch.nn.modules.conv._ConvNd):
    """Convolution with interval weights; takes every argument of torch's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._add_radii()

    def forward(self, x: Interval | Tensor) -> Interval:
        """Map ``(N, in_channels, ...)`` or ``(in_channels, ...)`` to the convolved intervals."""
        x = as_interval(x)
        batch = x if x.ndim == self.weight.ndim else x.unsqueeze(0)
        y = self._one_pixel(batch)
        if y is None:
            operation, batch = convolution(self, batch)
            y = interval_affine(operation, batch, self.weight, self.weight_radius, self.bias, self.bias_radius)
        return y if x.ndim == self.weight.ndim else y.squeeze(0)

    def _one_pixel(self, x: Interval) -> Interval | None:
        """The result by a matrix product if it is one pixel per image (:mod:`creinn.nn._onepixel`), else ``None``."""
        window = one_pixel(self, tuple(x.shape[2:])) if may_crop(self) else None
        if window is None:
            return None
        kernel, image = ((slice(None), slice(None), *slices) for slices in window)
        center, radius = (t[kernel].flatten(1) for t in (self.weight, self.weight_radius))
        pixels = x.channelwise(lambda t: t[image].flatten(1), linear=True)
        y = interval_affine(Matrix(), pixels, center, radius, self.bias, self.bias_radius)
        return y.channelwise(lambda t: t.view(*t.shape, *(1,) * (x.ndim - 2)), linear=True)


def convolution(layer: Any, x: Interval) -> tuple[Convolution, Interval]:
    """What a convolutional layer does, and its input with what is not zeros on both sides padded already."""
    sides = layer._reversed_padding_repeated_twice
    before, after = sides[::2][::-1], sides[1::2][::-1]
    if layer.padding_mode == "zeros" and before == after:
        return Convolution(layer.stride, tuple(before), layer.dilation, layer.groups), x
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = x.channelwise(lambda t: F.pad(t, sides, mode), linear=True)
    return Convolution(layer.stride, (0,) * len(before), layer.dilation, layer.groups), padded


class Conv1d(_IntervalConv, torch.nn.Conv1d):
    """Interval version of ``torch.nn.Conv1d``."""


class Conv2d(_IntervalConv, torch.nn.Conv2d):
    """Interval version of ``torch.nn.Conv2d``.

    Example:
        >>> Conv2d(3, 16, 3, padding="same", groups=1)(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 16, 8, 8])
    """


class Conv3d(_IntervalConv, torch.nn.Conv3d):
    """Interval version of ``torch.nn.Conv3d``."""
