r"""Operations of intervals in float64 that are rounded outwards.

In: intervals in float64. Out: intervals that contain the results in real numbers. Let
:math:`u = 2^{-53}`, :math:`\gamma_k = ku / (1 - ku)`, *tiny* the least normal number and
:math:`F = 2 \sqrt{\text{tiny}}`.

**Sums.** A computed sum of :math:`n` products, in any order, fused or not, errs by at most
:math:`\gamma_n \sum |w_i x_i|`, plus tiny for each underflow. :func:`widen_by_error` adds
:math:`g` times the sum of magnitudes and :math:`8F`, with :math:`g = ku / (1 - 2ku)` and
:math:`k = n + 40`. The 40 further roundings include those of the magnitudes and of the addition. A
single operation is a sum of one term.

**Functions** (exp, log1p, tanh, erf, ...) in float64 are assumed to err by less than
:math:`2^{-44}` of their result, a hundred times the error that their authors state; those of the
form :math:`x\,h(x)` by :math:`2^{-44}` of :math:`|x|` too. IEEE arithmetic, rounded to nearest, is
assumed; subnormal numbers may be flushed to zero.
"""

import torch
from torch import Tensor

from creinn.interval import Interval, as_interval

UNIT = 2.0**-53
TINY = 2.0**-1022
FLOOR = 2.0**-510  # F
FUNCTION = 512  # roundings of a function: 2 ** -44

Bounds = tuple[Tensor, Tensor]


def growth(terms: int) -> float:
    """Relative error ``g`` of a sum with this number of terms."""
    share = (terms + 40) * UNIT
    return share / (1 - 2 * share)


def widen_by_error(lower: Tensor, upper: Tensor, magnitude: Tensor, terms: int = 1) -> Bounds:
    """Move computed bounds apart by the error of sums whose terms have this total magnitude.

    Example:
        >>> third = torch.ones(1).double() / 3
        >>> lower, upper = widen_by_error(third, third, third)
        >>> (lower < third).item(), (upper - lower).item() < 1e-14
        (True, True)
    """
    error = growth(terms) * magnitude + 8 * FLOOR
    return lower - error, upper + error


def outward(y: Interval, magnitude: Tensor | None = None, terms: int = 1) -> Interval:
    """Widen a computed interval; by default, its magnitude is that of its bounds."""
    magnitude = magnitude_of(y) if magnitude is None else magnitude
    lower, upper = widen_by_error(y.lower, y.upper, magnitude, terms)
    return Interval._of_parts(lower.clamp_min(0) if y.nonnegative else lower, upper, y.nonnegative)


def above(y: Tensor, magnitude: Tensor | None = None, terms: int = 1) -> Tensor:
    """Return an upper bound of the real number that was computed as ``y``."""
    return widen_by_error(y, y, y.abs() if magnitude is None else magnitude, terms)[1]


def magnitude_of(x: Interval) -> Tensor:
    """Return the largest absolute value in each interval."""
    return torch.maximum(x.lower.abs(), x.upper.abs())


def center_radius(x: Interval) -> Bounds:
    """Return a center and a radius that contain the interval."""
    center = (x.lower + x.upper) / 2
    return center, above(torch.maximum(x.upper - center, center - x.lower))


def total(x: Interval, dim: int) -> Interval:
    """Sum over a dimension."""
    return outward(x.sum(dim), magnitude_of(x).sum(dim), x.shape[dim])


def exact_double(x: Tensor) -> Tensor:
    """Convert to float64, also where the processor takes subnormal numbers of float32 for zero.

    Raises:
        ValueError: If the dtype is neither float32 nor float64, or the device is not a CPU.
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
    """Convert inputs to float64; a center that was rounded elsewhere is left out."""
    x = as_interval(x)
    lower = exact_double(x.lower)
    if x.is_point:
        return Interval._of_point(lower)
    return Interval._of_parts(lower, exact_double(x.upper), x.nonnegative)
