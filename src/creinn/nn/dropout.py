"""Dropout: one mask for both bounds, so that a dropped unit is the point zero and the order of the bounds is kept."""

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.interval import Interval, as_interval


class _Dropout(torch.nn.Module):
    """Mixin for a torch dropout layer."""

    p: float
    training: bool

    def forward(self, x: Interval | Tensor) -> Interval:
        """Drop the same units of both bounds; the identity in eval mode."""
        x = as_interval(x)
        if not self.training or self.p == 0:
            return x
        mask = F.dropout(torch.ones(self._mask_shape(x), dtype=x.dtype, device=x.device), self.p)
        return x.each(lambda t: t * mask)

    def _mask_shape(self, x: Interval) -> tuple[int, ...]:
        return tuple(x.shape)


class Dropout(_Dropout, torch.nn.Dropout):
    """Interval version of ``torch.nn.Dropout``."""


class _ChannelDropout(_Dropout):
    """Mixin for dropout of whole channels."""

    _spatial: int

    def _mask_shape(self, x: Interval) -> tuple[int, ...]:
        if x.ndim not in (self._spatial + 1, self._spatial + 2):
            expected = f"{self._spatial + 1} or {self._spatial + 2}"
            raise ValueError(f"{type(self).__name__} expects {expected} dimensions, got shape {tuple(x.shape)}.")
        return (*x.shape[: x.ndim - self._spatial], *(1,) * self._spatial)


class Dropout1d(_ChannelDropout, torch.nn.Dropout1d):
    """Interval version of ``torch.nn.Dropout1d``."""

    _spatial = 1


class Dropout2d(_ChannelDropout, torch.nn.Dropout2d):
    """Interval version of ``torch.nn.Dropout2d``."""

    _spatial = 2
