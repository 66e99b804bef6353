"""Activation functions, which return the range over each interval.

Monotone functions are applied to both bounds. GELU, SiLU, Mish and
Hardswish have one minimum: the smallest value is at the point of the
interval nearest to it, and the largest at one of the bounds.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from creinn.interval import Interval, as_interval, stack_parts
from creinn.nn._operations import interval_version
from creinn.numerics import relu_


class _Activation(nn.Module):
    """Mixin without ``inplace``, because intervals can share their tensors."""

    inplace = property(lambda self: False, lambda self, value: None)


class _Monotone(_Activation):
    _nonnegative: bool | None = None  # of the result; None: as the input

    def forward(self, x: Interval | Tensor) -> Interval:
        """Apply the function to both bounds; NaN for infinite bounds."""
        x = as_interval(x)
        nonnegative = x.nonnegative if self._nonnegative is None else self._nonnegative
        values = x.lower if x.is_point else x.bounds
        result = torch.add(super().forward(values), values, alpha=0)
        if x.is_point:
            return Interval._of_point(result, nonnegative)
        lower, upper = Interval._of_bounds(result)._pair
        # The rounding can differ for equal bounds.
        return Interval._of_parts(lower, torch.where(upper < lower, lower, upper), nonnegative)


class _Valley(_Activation):
    """Mixin for a function with one minimum at ``_bottom``."""

    _bottom: float

    def forward(self, x: Interval | Tensor) -> Interval:
        """Return the range over the interval."""
        x, function = as_interval(x), super().forward
        if x.is_point:
            return Interval._of_point(function(x.lower), x.nonnegative)
        bottom = torch.clamp(torch.full_like(x.lower, self._bottom), x.lower, x.upper)
        at_lower, at_upper, least = function(x.lower), function(x.upper), function(bottom)
        # Because of rounding, the value at a bound can be below the minimum.
        lower = torch.minimum(least, torch.minimum(at_lower, at_upper))
        return Interval._of_parts(lower, torch.maximum(at_lower, at_upper), x.nonnegative)


class _ReLU(torch.autograd.Function):
    """Differentiable :func:`relu_` that saves only its result."""

    generate_vmap_rule = True

    @staticmethod
    def forward(center_radius: Tensor) -> Tensor:
        result = center_radius.clone()
        result.select(1, 1).clamp_min_(0)
        return relu_(result)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        center, radius = ctx.saved_tensors[0].unbind(1)
        of_center, of_radius = gradient.unbind(1)
        half = (of_center + of_radius) * center.sign() / 2  # 0 if no bound is positive
        both = (center - radius).sign()  # 1 if both bounds are positive, else 0
        return stack_parts(torch.lerp(half, of_center, both), torch.lerp(half, of_radius, both))


class ReLU(_Monotone, nn.ReLU):
    """Interval version of ``torch.nn.ReLU``."""

    _nonnegative = True

    def forward(self, x: Interval | Tensor) -> Interval:
        """Apply ReLU to the bounds, or to the center and the radius."""
        x = as_interval(x)
        if x.is_point or x.ndim < 2 or not x.has_center_radius:
            return super().forward(x)
        return Interval._of_center_radius(_ReLU.apply(x.center_radius), nonnegative=True)


ReLU6 = interval_version(_Monotone, nn.ReLU6, _nonnegative=True)
SELU = interval_version(_Monotone, nn.SELU)
Sigmoid = interval_version(_Monotone, nn.Sigmoid, _nonnegative=True)
Tanh = interval_version(_Monotone, nn.Tanh)
SiLU = interval_version(_Valley, nn.SiLU, _bottom=-1.278464542761074)
Mish = interval_version(_Valley, nn.Mish, _bottom=-1.1924312145154952)
Hardswish = interval_version(_Valley, nn.Hardswish, _bottom=-1.5)


class LeakyReLU(_Monotone, nn.LeakyReLU):
    """Interval version of ``torch.nn.LeakyReLU`` with a slope ``>= 0``."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope)
        if not negative_slope >= 0:
            raise ValueError(f"LeakyReLU needs a slope >= 0, got {negative_slope=}.")


class ELU(_Monotone, nn.ELU):
    """Interval version of ``torch.nn.ELU`` with ``alpha >= 0``."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        if not alpha >= 0:
            raise ValueError(f"ELU needs alpha >= 0, got {alpha}.")
        super().__init__(alpha)


class Softplus(_Monotone, nn.Softplus):
    r"""Interval version of ``torch.nn.Softplus`` with ``beta > 0``.

    If :math:`\beta x` is above the threshold :math:`t`, torch returns
    :math:`x`. The range includes both sides of this jump.

    Example:
        >>> Softplus(5.0, 2.0)(Interval([0.39], [0.401]))  # at 0.4 from 0.4254 to 0.4
        Interval(lower=tensor([0.4000]), upper=tensor([0.4254]))
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        if not beta > 0:
            raise ValueError(f"Softplus needs beta > 0, got {beta}.")
        super().__init__(beta, threshold)
        self._nonnegative = True if threshold >= 0 else None

    def forward(self, x: Interval | Tensor) -> Interval:
        """Return the range over the interval."""
        x, y = as_interval(x), super().forward(x)
        if y.is_point:
            return y
        beta, threshold = self.beta, self.threshold
        across = (x.lower * beta <= threshold) & (x.upper * beta > threshold)
        before = max(threshold, 0.0) + math.log1p(math.exp(-abs(threshold)))
        lower = torch.where(across, y.lower.clamp_max(threshold / beta), y.lower)
        upper = torch.where(across, y.upper.clamp_min(before / beta), y.upper)
        return Interval._of_parts(lower, upper, y.nonnegative)


class Hardtanh(_Monotone, nn.Hardtanh):
    """Interval version of ``torch.nn.Hardtanh``."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(min_val, max_val)
        self._nonnegative = True if min_val >= 0 else False if max_val < 0 else None


class GELU(_Valley, nn.GELU):
    """Interval version of ``torch.nn.GELU``."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate)
        self._bottom = -0.7517915246935645 if approximate == "none" else -0.7524614220710162
