r"""Rounding outwards: bounds that hold for real numbers, computed in floating point; mode ``"rigorous"``.

Inside of :func:`outwards` every interval that is computed contains what exact arithmetic gives, by these bounds. Let
:math:`u` be the unit roundoff of the dtype (2⁻²⁴ in float32), *tiny* its least normal number (2⁻¹²⁶), and *F* twice
the square root of that (2⁻⁶²): so small that it is not seen, so large that its square is no slow subnormal number.

**Sums of products.** Let :math:`\hat y` be :math:`\sum_i w_i x_i + b` computed in any order and blocking, fused or not,
with the :math:`w_i` known up to ten roundings. A term passes :math:`n + 10` roundings at most, if there are :math:`n`:

.. math:: |\hat y - y| \le \gamma_{n+10} \Bigl(\sum_i |w_i x_i| + |b|\Bigr) + \text{underflow}, \qquad
    \gamma_k = \frac{ku}{1 - ku}.

A radius :math:`\sum_i \rho_i |x_i| + d` that is computed beside it pays for both errors if its weights are

.. math:: v_i = \rho_i + g\,(|w_i| + |\rho_i|) + F, \qquad g = \frac{ku}{1 - 2ku}, \quad k = n + 40,

for :math:`|w_i| + |v_i| \le (1 + g)(|w_i| + |\rho_i|) + F` and :math:`g \ge (1 + g)\,\gamma_k`. So rigour is in the
weights (:func:`rows`), and costs nothing in the product, whoever computes it. The thirty roundings to spare are for
:math:`v_i` itself, and leave a slack of :math:`16 u (|\hat y| + r)` that :func:`relu_` lives on. Weights of what is
:math:`\le 0` take the opposite sign. More than 2²⁰ terms have no bound: :math:`g = \infty`.

**Both bounds** of inputs :math:`0 \le a_i \le b_i`: the product of a number :math:`t` with :math:`a_i` if
:math:`t \ge 0`, else with :math:`b_i`, does not decrease with :math:`t`. So a sum of such products with numbers
:math:`t_i \le w_i - \rho_i` is a lower bound, and what is computed of it is one too if :math:`t_i + \gamma_k |t_i|` are
no larger either: :math:`t_i = w_i - v_i` with the :math:`v_i` from above (:func:`row_bounds`), by the same two
inequalities. The upper bound has :math:`w_i + v_i`. A residual that is added afterwards is moved by eight roundings of
its own; the sum with it takes two of the thirty to spare. What overflows upwards does so in the upper sum too, as each
of its terms is no less: no bound becomes infinite on the wrong side alone.

**Underflow**, gradual or flushed to zero, of results or operands: each of the :math:`2n + 2` operations of a sum, and
each operand :math:`x_i`, errs by less than tiny, which *8 F* and *4 tiny* :math:`\sum |w_i| + |v_i|` in the radius pay
for; each :math:`w_i` by less than tiny, which *F* in :math:`v_i` pays for.

**Single operations** err by :math:`u` of their result, or tiny; :func:`spread` and :func:`apart` add forty times that.
**Functions** (exp, log1p, tanh, erf ...) are computed in float64 and taken to err by less than 2⁻⁴⁴ of their result, a
hundred times what their authors promise; of those of the form :math:`x\,h(x)`, by 2⁻⁴⁴ of :math:`|x|` too.
**Overflow** leaves infinity or NaN, which every step keeps: such rows get the vacuous set.

What is guaranteed: the probabilities, in real numbers, of every network with weights within centre ± radius, and of
every input within its bounds, lie within those of the credal set. With a distance, so do those of logits that are moved
by its radius in real numbers or less (:mod:`creinn.classifier.outward_distance`). Centres, radii, statistics,
temperature and inputs are as stored, and exact. What is taken for granted: IEEE arithmetic rounded to nearest, the
errors of functions above, and products that are sums of products. Winograd's and Fourier's convolutions are not;
:func:`summed` keeps away from them.
"""

import math
import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

SPARE = 40  # roundings beside those of a sum
LARGEST_SUM = 2**20  # terms
FUNCTIONS = 2.0**-44  # relative error of float64 functions

_IS_X86 = platform.machine().lower() in ("x86_64", "amd64")

Pair = tuple[Tensor, Tensor]


class _State(threading.local):
    on = False
    sums_in_single = False  # whether products of float32 are sums of products


_STATE = _State()


@contextmanager
def outwards(on: bool = True) -> Iterator[None]:
    """Inside of it, and in this thread, intervals are rounded outwards, or not.

    Example:
        >>> from creinn import Interval
        >>> with outwards():
        ...     third = Interval.point(torch.tensor([1.0])) / 3
        >>> bool(third.lower.double() < 1 / 3) and bool(third.upper.double() > 1 / 3)
        True
    """
    before = vars(_STATE).copy()
    _STATE.on, _STATE.sums_in_single = on, on and _sums_in_single()
    try:
        yield
    finally:
        vars(_STATE).clear()
        vars(_STATE).update(before)


def is_outwards() -> bool:
    """Whether intervals are rounded outwards."""
    return _STATE.on


def check_arithmetic(like: Tensor) -> None:
    """Refuse dtypes and devices whose arithmetic is not known, and autocast."""
    found = ""
    if like.dtype not in (torch.float32, torch.float64):
        found = f"{like.dtype}; cast the model with .float() or .double()"
    elif like.device.type != "cpu":
        found = f"the device {like.device}, whose sums are not known to be IEEE's; move the model with .cpu()"
    elif torch.is_autocast_enabled("cpu"):
        found = "autocast to half precision; leave it first"
    if found:
        raise ValueError(
            f"Bounds that hold in floating point need float32 or float64 on a CPU, but found {found}."
        )


def growth(count: int, dtype: torch.dtype) -> float:
    """The factor ``g`` of sums of ``count`` terms.

    Example:
        >>> growth(24, torch.float32) / 2**-24
        64.0004...
    """
    share = (count + SPARE) * torch.finfo(dtype).eps / 2
    return share / (1 - 2 * share) if count <= LARGEST_SUM and share <= 1 / 16 else float("inf")


def _tiny(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).tiny


def _floor(dtype: torch.dtype) -> float:
    return 2 * math.sqrt(_tiny(dtype))


# Sums of products.


def rows(
    center: Tensor, radius: Tensor, biases: tuple[Any, Any], dtype: torch.dtype, sign: Any = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights ``(O, ...)`` of centre and radius made rigorous: in ``dtype``, with their biases ``(O,)``.

    The radius's are to be multiplied by magnitudes, or by what has everywhere the ``sign``, 1 or -1, of the column.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> weight, widened, _, _ = rows(one, 0 * one, (None, None), torch.float32)
        >>> weight, widened / 2**-24
        (tensor([[1.]]), tensor([[41.0002]]))
    """
    v, b, d = _paid(center, radius, biases, dtype, sign)
    return center.to(dtype), v.to(dtype), b.to(dtype), d.to(dtype)


def row_bounds(
    center: Tensor, radius: Tensor, biases: tuple[Any, Any], dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As :func:`rows`, for both bounds of inputs ``>= 0``: lower and upper weights, and what is added to either sum.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> lower, upper, _, _ = row_bounds(one, 0 * one, (None, None), torch.float32)
        >>> (1 - lower) / 2**-24, (upper - 1) / 2**-24   # as rows, and rounded
        (tensor([[41.]]), tensor([[42.]]))
    """
    v, b, d = _paid(center, radius, biases, dtype)
    lower, upper, below, above = (t.to(dtype) for t in (center - v, center + v, b - d, b + d))
    return lower, upper, below, above


def _paid(
    center: Tensor, radius: Tensor, biases: tuple[Any, Any], dtype: torch.dtype, sign: Any = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Radii that pay for rounding, the biases' centres, and their radii, which do so too; in the precision given."""
    g, zeros = growth(center[0].numel(), dtype), center.new_zeros(len(center))
    b, d = (zeros if t is None else t.to(center.dtype) for t in biases)
    v = radius + sign * (g * (center.abs() + radius.abs()) + _floor(dtype))
    weights = (center.abs() + v.abs()).flatten(1).sum(1)
    return v, b, d + g * (b.abs() + d) + 8 * _floor(dtype) + 4 * _tiny(dtype) * weights


def summed(
    product: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """``product(x, weight, bias)``, by sums of products: in float64 where float32 may be computed in other ways.

    On x86-64 torch asks oneDNN for direct convolutions, or multiplies matrices. With oneDNN switched off it may take
    NNPACK, which transforms (Winograd, Fourier), and on other processors transforms of its own; of float64 it
    multiplies matrices everywhere.
    """
    if not _STATE.on or _STATE.sums_in_single or x.dtype == torch.float64:
        return product(x, weight, bias)
    return product(x.double(), weight.double(), None if bias is None else bias.double()).to(x.dtype)


def _sums_in_single() -> bool:
    if not _IS_X86:
        return False
    mkldnn: Any = torch.backends.mkldnn
    parts = (mkldnn, *(getattr(mkldnn, name, None) for name in ("conv", "matmul")))
    return (
        mkldnn.is_available()
        and mkldnn.enabled
        and torch.get_float32_matmul_precision() == "highest"
        and all(getattr(part, "fp32_precision", "none") in ("none", "ieee") for part in parts)
        and {os.environ.get(f"{name}_DEFAULT_FPMATH_MODE", "STRICT") for name in ("ONEDNN", "DNNL")}
        == {"STRICT"}
    )


# Centre and radius, or both bounds.


def spread(center: Tensor, radius: Tensor, count: int = 0, out: Tensor | None = None) -> Tensor:
    """The radius, larger by what single operations may err, or a sum of ``count`` terms that follows."""
    g, floor = (
        growth(count, center.dtype),
        torch.full((), 8 * _floor(center.dtype), dtype=center.dtype),
    )
    return torch.add(floor, radius, alpha=1 + g, out=out).add_(center.abs(), alpha=g)


def rounded(
    lower: Tensor, upper: Tensor, nonnegative: bool, sizes: Pair | None = None, count: int = 0
) -> Pair:
    """Bounds that arithmetic gave; outwards, if so asked, by :func:`apart`."""
    return apart(lower, upper, nonnegative, sizes, count) if is_outwards() else (lower, upper)


def apart(
    lower: Tensor, upper: Tensor, nonnegative: bool, sizes: Pair | None = None, count: int = 0
) -> Pair:
    """Bounds that were computed, moved away from each other by what their errors may be.

    These are relative to ``sizes``, sums of magnitudes, by default those of the bounds. What is known to be
    ``nonnegative`` stays so.
    """
    below, above = (lower.abs(), upper.abs()) if sizes is None else sizes
    g, floor = growth(count, lower.dtype), 8 * _floor(lower.dtype)
    lower, upper = lower - (below * g + floor), upper + (above * g + floor)
    return (lower.clamp_min(0) if nonnegative else lower), upper


def to_bounds(center: Tensor, radius: Tensor, nonnegative: bool) -> Pair:
    """Lower and upper bounds."""
    if not is_outwards():
        return center - radius, center + radius
    radius = spread(center, radius)
    lower = center - radius
    return (lower.clamp_min(0) if nonnegative else lower), center + radius


def to_moments(lower: Tensor, upper: Tensor, nonnegative: bool) -> Pair:
    """Centre and radius; what is ``nonnegative`` has no radius above its centre."""
    center, radius = (lower + upper) / 2, (upper - lower) / 2
    if not is_outwards() or lower is upper:
        return center, radius
    radius = spread(center, radius)
    return (torch.maximum(center, radius) if nonnegative else center), radius


def relu_(moments: Tensor) -> Tensor:
    r"""Centre and radius ``(N, 2, ...)`` of the ReLU, in place, of intervals with the slack of :func:`rows`.

    With :math:`h = \max(c + r, 0)` and :math:`m = h / 2 + F` the new radius is :math:`\min(r, m)` and the new centre
    :math:`2m` minus that, and no less than :math:`m`. Both ends err by less than :math:`8 u (|c| + r) + 3F`.
    """
    center, radius = moments.select(1, 0), moments.select(1, 1)
    high = torch.nn.functional.leaky_relu_(center.add_(radius), 0.0)  # what is infinite becomes NaN
    floor = torch.full((), _floor(high.dtype), dtype=high.dtype)
    half = torch.add(floor, high, alpha=0.5)
    radius.clamp_max_(half)
    torch.lerp(radius, half, 2.0, out=center)
    return moments


# Functions.


def image(function: Callable[[Tensor], Tensor], x: Tensor, of_product: bool = False) -> Pair:
    """Bounds of an elementwise function of torch at ``x``; ``of_product``: of the form ``x h(x)``; NaN at infinity."""
    wide = x.double()
    y = torch.add(function(wide), wide, alpha=0)
    slack = FUNCTIONS * (y.abs() + wide.abs() if of_product else y.abs())
    return apart((y - slack).to(x.dtype), (y + slack).to(x.dtype), False)


def sigmoid(lower: Tensor, upper: Tensor, dtype: torch.dtype) -> Pair:
    """Bounds, in ``dtype``, of the sigmoid between two numbers in float64."""
    share, floor = (
        FUNCTIONS + 2 * torch.finfo(dtype).eps,
        _floor(dtype),
    )  # the conversion errs by a fourth of it
    low, high = (
        lower.sigmoid().mul_(1 - share).sub_(floor),
        upper.sigmoid().mul_(1 + share).add_(floor),
    )
    return low.clamp_min_(0).to(dtype), high.clamp_max_(1).to(dtype)
