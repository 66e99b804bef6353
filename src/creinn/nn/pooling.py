"""Pooling: both bounds are pooled alike, since every pooling here is monotone in each of its inputs."""

from typing import Any

import torch
from torch import Tensor

from creinn.interval import Interval, as_interval


class _Pool(torch.nn.Module):
    """Mixin for a torch pooling layer; channels are pooled apart, so both bounds go through in one call."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Pool both bounds."""
        return as_interval(x).channelwise(super().forward)


class _IndexFree(_Pool):
    """Mixin for a max pooling layer: the bounds have their maxima in different places, so no index is given back."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if getattr(self, "return_indices", False):
            raise ValueError(f"{type(self).__name__} cannot return indices: the bounds differ in them.")


class MaxPool1d(_IndexFree, torch.nn.MaxPool1d):
    """Interval version of ``torch.nn.MaxPool1d``."""


class MaxPool2d(_IndexFree, torch.nn.MaxPool2d):
    """Interval version of ``torch.nn.MaxPool2d``."""


class AvgPool1d(_Pool, torch.nn.AvgPool1d):
    """Interval version of ``torch.nn.AvgPool1d``."""


class AvgPool2d(_Pool, torch.nn.AvgPool2d):
    """Interval version of ``torch.nn.AvgPool2d``; ``divisor_override`` must be positive."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.divisor_override is not None and self.divisor_override <= 0:
            raise ValueError(f"AvgPool2d needs divisor_override > 0, got {self.divisor_override}.")


class AdaptiveAvgPool1d(_Pool, torch.nn.AdaptiveAvgPool1d):
    """Interval version of ``torch.nn.AdaptiveAvgPool1d``."""


class AdaptiveAvgPool2d(_Pool, torch.nn.AdaptiveAvgPool2d):
    """Interval version of ``torch.nn.AdaptiveAvgPool2d``.

    Example:
        >>> AdaptiveAvgPool2d(1)(Interval(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2))).upper.item()
        1.0
    """


class AdaptiveMaxPool1d(_IndexFree, torch.nn.AdaptiveMaxPool1d):
    """Interval version of ``torch.nn.AdaptiveMaxPool1d``."""


class AdaptiveMaxPool2d(_IndexFree, torch.nn.AdaptiveMaxPool2d):
    """Interval version of ``torch.nn.AdaptiveMaxPool2d``."""
