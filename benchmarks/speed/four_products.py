r"""Interval layers by four separate products, a common form: what one block product is held against.

A family of layers named as in ``torch.nn``. ``Linear`` and ``Conv1d/2d/3d`` take an interval known to be ``>= 0`` to

.. math::
    \underline o = \underline W^+ \underline a + \underline W^- \overline a,\quad
    \overline o = \overline W^+ \overline a + \overline W^- \underline a

(sim_full_o_lower_upper) by one call for each term, with weights made anew at every call. Points take two products and
signed intervals the general form, both as in :mod:`creinn.nn`, as does every other layer.
"""

# mypy: disable-error-code="misc, override"
# Layers take and give Interval where torch's signatures say Tensor.

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from creinn import nn as inn
from creinn.interval import Interval, as_interval
from creinn.nn.affine import IntervalParameters
from creinn.numerics import valid_radius


def four_products(op: Callable[..., Tensor], x: Interval, layer: IntervalParameters) -> Interval:
    """Exact bounds of an affine layer for ``x >= 0``."""
    radius = valid_radius(layer.weight_radius)
    low, high = layer.weight - radius, layer.weight + radius
    bias_low: Tensor | None = None
    bias_high: Tensor | None = None
    if layer.bias is not None and layer.bias_radius is not None:
        bias_radius = valid_radius(layer.bias_radius)
        bias_low, bias_high = layer.bias - bias_radius, layer.bias + bias_radius
    lower = op(x.lower, low.clamp_min(0), bias_low) + op(x.upper, low.clamp_max(0), None)
    upper = op(x.upper, high.clamp_min(0), bias_high) + op(x.lower, high.clamp_max(0), None)
    return Interval._of_parts(lower, upper)


class Linear(inn.Linear):
    """``creinn.nn.Linear`` by four products."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Map ``(..., in_features)`` to ``(..., out_features)``."""
        x = as_interval(x)
        return four_products(F.linear, x, self) if _takes(x) else super().forward(x)


class _Conv:
    def forward(self, x: Interval | Tensor) -> Interval:
        """Map ``(N, in_channels, ...)`` to the convolved intervals."""
        x = as_interval(x)
        return four_products(self._conv_forward, x, self) if _takes(x) else super().forward(x)  # type: ignore


class Conv1d(_Conv, inn.Conv1d):
    """``creinn.nn.Conv1d`` by four products."""


class Conv2d(_Conv, inn.Conv2d):
    """``creinn.nn.Conv2d`` by four products."""


class Conv3d(_Conv, inn.Conv3d):
    """``creinn.nn.Conv3d`` by four products."""


def _takes(x: Interval) -> bool:
    return x.nonnegative and not x.is_point


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(inn, name)
