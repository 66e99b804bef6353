"""Interval convolutions in one, two and three dimensions."""

from typing import Any

import torch
from torch import Tensor

from creinn.interval import Interval, as_interval
from creinn.nn.parameters import IntervalParameters, valid_radius
from creinn.product import interval_affine


class _IntervalConv(IntervalParameters, torch.nn.modules.conv._ConvNd):
    """Convolution with interval weights; takes every argument of torch's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._add_radii()

    def forward(self, x: Interval | Tensor) -> Interval:
        """Map ``(N, in_channels, ...)`` or ``(in_channels, ...)`` to the convolved intervals."""
        x = as_interval(x)
        batch = x if x.ndim == self.weight.ndim else x.unsqueeze(0)
        bias_radius = None if self.bias_radius is None else valid_radius(self.bias_radius)
        radius = valid_radius(self.weight_radius)
        y = interval_affine(self._conv_forward, batch, self.weight, radius, self.bias, bias_radius, self.groups)
        return y if x.ndim == self.weight.ndim else y.squeeze(0)


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
