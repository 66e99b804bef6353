r"""The interval product, written once for linear layers and convolutions.

In: an interval, interval weights as centre and radius, and an operation linear in its input and in its weight. Out: an
interval that contains ``operation(a, W) + b`` for every member ``a``, ``W``, ``b`` (forward_inn).

| input | bounds | products |
|---|---|---|
| point, any sign | exact | 2 |
| interval, lower bound known to be >= 0 (sim_full_o_lower_upper) | exact | 4, as one block product |
| interval, any sign | outer; exact where input or weight does not straddle zero | 8 as one block product, and 3 |

Errata of the paper: the upper bound of (full_o_lower_upper) must read ``max{W_lo,0} min{a_hi,0}``; that equation holds
element by element only, not for matrix products; and the form for non-negative inputs inverts bounds when given signed
ones. None of the three is used here.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from creinn.interval import Interval
from creinn.nn._nonnegative import by_group, nonnegative_product, on_blocks
from creinn.nn._operations import Operation
from creinn.nn._points import point_product
from creinn.numerics import valid_radius


def interval_affine(
    operation: Operation,
    x: Interval,
    center: Tensor,
    radius: Tensor,
    bias_center: Tensor | None = None,
    bias_radius: Tensor | None = None,
) -> Interval:
    r"""Enclose ``operation(a, W, b)`` for ``a`` in ``x``, ``W`` in ``center ± radius``, ``b`` in its bias interval.

    Args:
        operation: Matrix product or convolution.
        x: Input of shape ``(N, C, ...)``.
        center: Weight centres ``(O, C / groups, ...)``.
        radius: Weight radii; one below 0 counts as 0, with derivative 1.
        bias_center: Bias centres ``(O,)`` or ``None``.
        bias_radius: Bias radii, likewise, or ``None``.

    Example:
        >>> from creinn.nn._operations import Matrix
        >>> x = Interval(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 3.0]]))
        >>> y = interval_affine(Matrix(), x, torch.tensor([[1.0, -1.0]]), torch.tensor([[0.5, 0.5]]))
        >>> y.lower, y.upper   # 0.5 * 1 - 1.5 * 3, 1.5 * 2 - 0.5 * 0
        (tensor([[-4.]]), tensor([[3.]]))
    """
    bias_radius = None if bias_radius is None else valid_radius(bias_radius)
    if x.is_point:
        radius = valid_radius(radius)
        return Interval._of_moments(point_product(operation, x.lower, center, radius, bias_center, bias_radius))
    bias = None if bias_center is None or bias_radius is None else by_group(bias_center, bias_radius, operation.groups)
    if x.nonnegative:
        return Interval._of_moments(nonnegative_product(operation, x.moments, center, radius, bias))
    radius = valid_radius(radius)
    split = _sign_split(operation, x, center - radius, center + radius, bias)
    rump = _midpoint_radius(operation, x, center, radius, bias_center, bias_radius)
    return _intersection(split, rump)


def _sign_split(operation: Operation, x: Interval, low: Tensor, high: Tensor, bias: Tensor | None) -> Interval:
    r"""Bounds from the signs of inputs and weights, with :math:`a^+ = \max(a, 0)` and :math:`a^- = \min(a, 0)`.

    .. math::
        \underline o = \underline W^+ \underline a^+ + \underline W^- \overline a^+ + \overline W^+ \underline a^- +
        \overline W^- \overline a^-,\quad \overline o = \overline W^- \underline a^+ + \overline W^+ \overline a^+ +
        \underline W^- \underline a^- + \underline W^+ \overline a^-

    Exact unless a weight and its input both straddle zero; there two terms are added of which the product attains only
    one.
    """
    parts = torch.cat((x.bounds.clamp_min(0), x.bounds.clamp_max(0)), 1)
    lower_row = (low.clamp_min(0), low.clamp_max(0), high.clamp_min(0), high.clamp_max(0))
    upper_row = (high.clamp_max(0), high.clamp_min(0), low.clamp_max(0), low.clamp_min(0))
    weight = block_weight(lower_row, upper_row, operation.groups)
    return Interval._of_moments(on_blocks(lambda x: operation(x, weight, bias), parts, operation.groups))


def _midpoint_radius(
    operation: Operation,
    x: Interval,
    center: Tensor,
    radius: Tensor,
    bias_center: Tensor | None,
    bias_radius: Tensor | None,
) -> Interval:
    """Rump's product: ``c = W_c a_c``, ``r = |W_c| a_r + W_r (|a_c| + a_r)``; tight where both straddle zero."""
    mid = operation(x.center, center, bias_center)
    rad = operation(x.radius, center.abs() + radius, bias_radius) + operation(x.center.abs(), radius)
    return Interval._of_moments(torch.stack((mid, rad), 1))


def _intersection(x: Interval, y: Interval) -> Interval:
    """The common part of two enclosures of the same set; ordered even if rounding parted them."""
    lower = torch.maximum(x.lower, y.lower)
    upper = torch.minimum(x.upper, y.upper)
    return Interval._of_parts(lower, torch.where(upper < lower, lower, upper))


def block_weight(lower_row: Sequence[Tensor], upper_row: Sequence[Tensor], groups: int) -> Tensor:
    """One weight for both bounds, from ``P`` weights ``(O, C / groups, ...)`` for each of them.

    Its output rows are centre and radius, half the sum and half the difference of the two bounds: that costs nothing
    here and is what batch norm needs.
    """
    lower, upper = torch.cat(tuple(lower_row), 1), torch.cat(tuple(upper_row), 1)
    return by_group((lower + upper) / 2, (upper - lower) / 2, groups)
