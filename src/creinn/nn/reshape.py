"""Layers that move values without changing them: flatten, padding, identity."""

import torch
from torch import Tensor

from creinn.interval import Interval, as_interval


class Flatten(torch.nn.Flatten):
    """Interval version of ``torch.nn.Flatten``."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Flatten both bounds."""
        return as_interval(x).flatten(self.start_dim, self.end_dim)


class Identity(torch.nn.Identity):
    """Interval version of ``torch.nn.Identity``; takes and ignores any arguments, as torch's does."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """The argument as an interval."""
        return as_interval(x)


class _Pad(torch.nn.Module):
    """Mixin for a padding layer of torch."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Pad both bounds."""
        return as_interval(x).channelwise(super().forward, linear=True)


class ZeroPad1d(_Pad, torch.nn.ZeroPad1d):
    """Interval version of ``torch.nn.ZeroPad1d``."""


class ZeroPad2d(_Pad, torch.nn.ZeroPad2d):
    """Interval version of ``torch.nn.ZeroPad2d``."""


class ZeroPad3d(_Pad, torch.nn.ZeroPad3d):
    """Interval version of ``torch.nn.ZeroPad3d``."""


class ReflectionPad2d(_Pad, torch.nn.ReflectionPad2d):
    """Interval version of ``torch.nn.ReflectionPad2d``."""


class ReplicationPad2d(_Pad, torch.nn.ReplicationPad2d):
    """Interval version of ``torch.nn.ReplicationPad2d``."""
