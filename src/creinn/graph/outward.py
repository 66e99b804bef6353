r"""Interval operations in float64 that are rounded outwards.

The inputs are intervals in float64. The outputs contain the results in real numbers. In the
following, :math:`u = 2^{-53}`, :math:`\gamma_k = ku / (1 - ku)`, *tiny* is the smallest normal
number and :math:`F = 2 \sqrt{\text{tiny}}`.

**Sums.** The error of a computed sum of :math:`n` products, in any order, fused or not, is at most
:math:`\gamma_n \sum |w_i x_i|`, plus tiny for each underflow. The function :func:`widen_by_error`
adds :math:`g` times the sum of the magnitudes and :math:`8F`, with :math:`g = ku / (1 - 2ku)` and
:math:`k = n + 40`. The 40 additional roundings include those of the magnitudes and of the addition.
A single operation is a sum of one term.

**Functions** (exp, log1p, tanh, erf, ...). The relative error in float64 is assumed to be less than
:math:`2^{-44}`, which is a hundred times the error in the documentation of the functions. For a
function of the form :math:`x\,h(x)` the error can also be :math:`2^{-44}` of :math:`|x|`. The
arithmetic is assumed to be IEEE with rounding to nearest. Subnormal numbers can be flushed to zero.
"""

import torch
from torch import Tensor

from creinn.interval import Interval, as_interval

UNIT = 2.0**-53
TINY = 2.0**-1022
FLOOR = 2.0**-510  # F
FUNCTION = 512  # the error of a function, as a number of roundings: 2 ** -44

Bounds = tuple[Tensor, Tensor]


def growth(terms: int) -> float:
    """Return the relative error ``g`` of a sum with this number of terms."""
    share = (terms + 40) * UNIT
    return share / (1 - 2 * share)


def widen_by_error(lower: Tensor, upper: Tensor, magnitude: Tensor, terms: int = 1) -> Bounds:
    """Widen the bounds by the error of a sum of terms with this total magnitude.

    Example:
        >>> third = torch.ones(1).double() / 3
        >>> lower, upper = widen_by_error(third, third, third)
        >>> (lower < third).item(), (upper - lower).item() < 1e-14
        (True, True)
    """
    error = growth(terms) * magnitude + 8 * FLOOR
    return lower - error, upper + error


def outward(y: Interval, magnitude: Tensor | None = None, terms: int = 1) -> Interval:
    """Widen a computed interval; the default magnitude is the one of its bounds."""
    magnitude = magnitude_of(y) if magnitude is None else magnitude
    lower, upper = widen_by_error(y.lower, y.upper, magnitude, terms)
    return Interval._of_parts(lower.clamp_min(0) if y.nonnegative else lower, upper, y.nonnegative)


def above(y: Tensor, magnitude: Tensor | None = None, terms: int = 1) -> Tensor:
    """Return an upper bound of the real number with the computed value ``y``."""
    return widen_by_error(y, y, y.abs() if magnitude is None else magnitude, terms)[1]


def magnitude_of(x: Interval) -> Tensor:
    """Return the maximum of the absolute values in each interval."""
    return torch.maximum(x.lower.abs(), x.upper.abs())


def center_radius(x: Interval) -> Bounds:
    """Return the center and the radius of an interval that contains ``x``."""
    center = (x.lower + x.upper) / 2
    return center, above(torch.maximum(x.upper - center, center - x.lower))


def total(x: Interval, dim: int) -> Interval:
    """Return the sum over a dimension."""
    return outward(x.sum(dim), magnitude_of(x).sum(dim), x.shape[dim])


def exact_double(x: Tensor) -> Tensor:
    """Convert to float64 without flushing the subnormal numbers of float32 to zero.

    Raises:
        ValueError: If the dtype is not float32 or float64, or if the device is not a CPU.
    """
    if not x.is_floating_point() or (x.dtype == torch.float64 and x.device.type == "cpu"):
        return x
    if x.dtype != torch.float32 or x.device.type != "cpu":
        raise ValueError(
            f"Rigorous bounds need float32 or float64 on a CPU, found {x.dtype} on {x.device}. "
            "Call model.float().cpu() first."
        )
    bits = x.view(torch.int32)
    subnormal = (bits & 0x7FFFFFFF).double() * 2.0**-149
    is_small = (bits & 0x7F800000) == 0
    return torch.where(is_small, torch.where(bits < 0, -subnormal, subnormal), x.double())


def exact_box(x: Interval | Tensor) -> Interval:
    """Convert the bounds of the inputs to float64; a rounded center is not used."""
    x = as_interval(x)
    lower = exact_double(x.lower)
    if x.is_point:
        return Interval._of_point(lower)
    return Interval._of_parts(lower, exact_double(x.upper), x.nonnegative)
