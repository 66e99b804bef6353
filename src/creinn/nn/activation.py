"""Activations: the exact range of an element-wise function over each interval.

Monotone functions act on both bounds; Softplus is one but for a jump at torch's threshold. Functions with a single
valley (GELU, SiLU, Mish, Hardswish: falling, then rising) attain their minimum at the bottom of the valley or at the
bound nearest to it, and their maximum at one of the bounds.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from creinn.interval import Interval, as_interval
from creinn.nn._moments import relu_moments


class _Monotone(torch.nn.Module):
    """Mixin for a torch activation that is monotone non-decreasing."""

    _nonnegative: bool | None = None  # is the result >= 0? None: if the argument is

    def forward(self, x: Interval | Tensor) -> Interval:
        """Act on both bounds."""
        return monotone(super().forward, as_interval(x), self._nonnegative)


class _Valley(torch.nn.Module):
    """Mixin for a torch activation that falls up to ``_bottom`` and rises from there."""

    _bottom: float

    def forward(self, x: Interval | Tensor) -> Interval:
        """True range over the interval."""
        return valley(super().forward, as_interval(x), self._bottom)


def monotone(function: Callable[[Tensor], Tensor], x: Interval, nonnegative: bool | None = None) -> Interval:
    """Range of a monotone non-decreasing element-wise function; NaN where a bound is infinite.

    A value that has overflowed may be anything: a function that is constant far out, such as ReLU at minus infinity,
    must not make a number of it again.
    """
    nonnegative = x.nonnegative if nonnegative is None else nonnegative
    values = x.lower if x.is_point else x.bounds
    result = torch.add(function(values), values, alpha=0)
    return Interval._of_point(result, nonnegative) if x.is_point else Interval._of_bounds(result, nonnegative)


def valley(function: Callable[[Tensor], Tensor], x: Interval, bottom: float) -> Interval:
    """Range of an element-wise function that falls to ``bottom``, rises from there, and is >= 0 for ``x >= 0``."""
    if x.is_point:
        return Interval._of_point(function(x.lower), x.nonnegative)
    at_lower, at_upper = function(x.lower), function(x.upper)
    least = function(torch.clamp(torch.full_like(x.lower, bottom), x.lower, x.upper))
    # The computed function is flat at the bottom up to rounding: the ends may lie a hair below it.
    lower = torch.minimum(least, torch.minimum(at_lower, at_upper))
    return Interval._of_parts(lower, torch.maximum(at_lower, at_upper), x.nonnegative)


def _require_monotone(name: str, argument: str, value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{name} with {argument}={value} is not monotone; its interval version needs {argument} >= 0.")


class ReLU(_Monotone, torch.nn.ReLU):
    """Interval version of ``torch.nn.ReLU``; never in place, since an interval's tensors may be shared."""

    _nonnegative = True

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=False)

    def forward(self, x: Interval | Tensor) -> Interval:
        """Act on both bounds, by way of centre and radius if the interval has these."""
        x = as_interval(x)
        if x.is_point or x.ndim < 2 or not x.has_moments:
            return super().forward(x)
        return Interval._of_moments(relu_moments(x.moments), nonnegative=True)


class ReLU6(_Monotone, torch.nn.ReLU6):
    """Interval version of ``torch.nn.ReLU6``; never in place, since an interval's tensors may be shared."""

    _nonnegative = True

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=False)


class LeakyReLU(_Monotone, torch.nn.LeakyReLU):
    """Interval version of ``torch.nn.LeakyReLU``; the slope must be >= 0."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        _require_monotone("LeakyReLU", "negative_slope", negative_slope)
        super().__init__(negative_slope, inplace=False)


class ELU(_Monotone, torch.nn.ELU):
    """Interval version of ``torch.nn.ELU``; ``alpha`` must be >= 0."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        _require_monotone("ELU", "alpha", alpha)
        super().__init__(alpha, inplace=False)


class SELU(_Monotone, torch.nn.SELU):
    """Interval version of ``torch.nn.SELU``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=False)


class Softplus(_Monotone, torch.nn.Softplus):
    r"""Interval version of ``torch.nn.Softplus``; ``beta`` must be > 0.

    Torch computes :math:`x` where :math:`\beta x` is above the threshold :math:`t`, and so jumps down there, from
    :math:`\ln(1 + e^t) / \beta` to :math:`t / \beta`. Intervals across the jump get both ends of it.

    Example:
        >>> Softplus(5.0, 2.0)(Interval([0.39], [0.401]))   # at 0.4 from 0.4254 down to 0.4
        Interval(lower=tensor([0.4000]), upper=tensor([0.4254]))
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        if not beta > 0:
            raise ValueError(f"Softplus needs beta > 0, got {beta}.")
        super().__init__(beta, threshold)
        self._nonnegative = True if threshold >= 0 else None

    def forward(self, x: Interval | Tensor) -> Interval:
        """Range over the interval, the jump included."""
        x, y = as_interval(x), super().forward(x)
        if x.is_point:
            return y
        across = (x.lower * self.beta <= self.threshold) & (x.upper * self.beta > self.threshold)
        below = self.threshold / self.beta
        above = (max(self.threshold, 0.0) + math.log1p(math.exp(-abs(self.threshold)))) / self.beta
        return Interval._of_parts(
            torch.where(across, y.lower.clamp_max(below), y.lower),
            torch.where(across, y.upper.clamp_min(above), y.upper),
            y.nonnegative,
        )


class Sigmoid(_Monotone, torch.nn.Sigmoid):
    """Interval version of ``torch.nn.Sigmoid``."""

    _nonnegative = True


class Tanh(_Monotone, torch.nn.Tanh):
    """Interval version of ``torch.nn.Tanh``."""


class Hardtanh(_Monotone, torch.nn.Hardtanh):
    """Interval version of ``torch.nn.Hardtanh``.

    A range that ends below zero makes every value negative, so the fact "non-negative" is kept only where ``max_val >=
    0``.
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(min_val, max_val, inplace=False)
        if min_val >= 0:
            self._nonnegative = True
        elif max_val < 0:
            self._nonnegative = False


class GELU(_Valley, torch.nn.GELU):
    """Interval version of ``torch.nn.GELU``, both forms of ``approximate``, with its true range."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate)
        self._bottom = -0.7517915246935645 if approximate == "none" else -0.7524614220710162


class SiLU(_Valley, torch.nn.SiLU):
    """Interval version of ``torch.nn.SiLU`` with its true range.

    Example:
        >>> SiLU()(Interval(torch.tensor([-2.0]), torch.tensor([0.0]))).lower   # the valley at -1.278
        tensor([-0.2785])
    """

    _bottom = -1.278464542761074

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=False)


class Mish(_Valley, torch.nn.Mish):
    """Interval version of ``torch.nn.Mish`` with its true range."""

    _bottom = -1.1924312145154952

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=False)


class Hardswish(_Valley, torch.nn.Hardswish):
    """Interval version of ``torch.nn.Hardswish`` with its true range."""

    _bottom = -1.5

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=False)
