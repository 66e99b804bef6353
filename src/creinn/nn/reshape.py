"""Layers that move values or drop them: flatten, identity, padding, dropout."""

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
    """Interval version of ``torch.nn.Identity``; takes and ignores any arguments, as torch's does."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """The argument as an interval."""
        return as_interval(x)


class LinearMap(torch.nn.Module):
    """Mixin for a layer of torch that is linear and does not decrease, as padding and averages: one call for both."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Act on both bounds, or on centre and radius."""
        return as_interval(x).channelwise(super().forward, linear=True)


class ZeroPad1d(LinearMap, torch.nn.ZeroPad1d):
    """Interval version of ``torch.nn.ZeroPad1d``."""


class ZeroPad2d(LinearMap, torch.nn.ZeroPad2d):
    """Interval version of ``torch.nn.ZeroPad2d``."""


class ZeroPad3d(LinearMap, torch.nn.ZeroPad3d):
    """Interval version of ``torch.nn.ZeroPad3d``."""


class ReflectionPad2d(LinearMap, torch.nn.ReflectionPad2d):
    """Interval version of ``torch.nn.ReflectionPad2d``."""


class ReplicationPad2d(LinearMap, torch.nn.ReplicationPad2d):
    """Interval version of ``torch.nn.ReplicationPad2d``."""


class _Dropout(torch.nn.Module):
    """Mixin for a dropout layer of torch: one mask for both bounds, so that a dropped unit is the point zero."""

    p: float
    training: bool
    _spatial = 0  # so many dimensions are dropped as one

    def forward(self, x: Interval | Tensor) -> Interval:
        """Drop the same units of both bounds; the identity in eval mode."""
        x, spatial = as_interval(x), self._spatial
        if not self.training or self.p == 0:
            return x
        if spatial and x.ndim not in (spatial + 1, spatial + 2):
            expected = f"{spatial + 1} or {spatial + 2}"
            raise ValueError(f"{type(self).__name__} expects {expected} dimensions, got shape {tuple(x.shape)}.")
        shape = (*x.shape[: x.ndim - spatial], *(1,) * spatial)
        mask = F.dropout(torch.ones(shape, dtype=x.dtype, device=x.device), self.p)
        return x.each(lambda t: t * mask)


class Dropout(_Dropout, torch.nn.Dropout):
    """Interval version of ``torch.nn.Dropout``."""


class Dropout1d(_Dropout, torch.nn.Dropout1d):
    """Interval version of ``torch.nn.Dropout1d``."""

    _spatial = 1


class Dropout2d(_Dropout, torch.nn.Dropout2d):
    """Interval version of ``torch.nn.Dropout2d``."""

    _spatial = 2
