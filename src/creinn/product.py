r"""The interval product, written once for linear layers and convolutions.

In: an interval, interval weights as centre and radius, and an operation linear in its input and in its weight. Out: an
interval that contains ``op(a, W) + b`` for every member ``a``, ``W``, ``b`` (forward_inn).

| input | bounds | products |
|---|---|---|
| point, any sign | exact | 2 |
| interval, lower bound known to be >= 0 (sim_full_o_lower_upper) | exact | 4, as one block product |
| interval, any sign | outer; exact where input or weight does not straddle zero | 8 as one block product, and 3 |

Errata of the paper: the upper bound of (full_o_lower_upper) must read ``max{W_lo,0} min{a_hi,0}``; that equation holds
element by element only, not for matrix products; and the form for non-negative inputs inverts bounds when given signed
ones. None of the three is used here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from creinn.interval import Interval

LinearOperation = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def interval_affine(
    op: LinearOperation,
    x: Interval,
    center: Tensor,
    radius: Tensor,
    bias_center: Tensor | None = None,
    bias_radius: Tensor | None = None,
    groups: int = 1,
) -> Interval:
    r"""Enclose ``op(a, W, b)`` for ``a`` in ``x``, ``W`` in ``center ± radius``, ``b`` in its bias interval.

    Args:
        op: ``op(input, weight, bias)``, linear in input and weight; channels are dimension 1 of the input, outputs
            dimension 0 of the weight.
        x: Input of shape ``(N, C, ...)``.
        center: Weight centres ``(O, C / groups, ...)``.
        radius: Weight radii, ``>= 0``.
        bias_center: Bias centres ``(O,)`` or ``None``.
        bias_radius: Bias radii, ``>= 0``, or ``None``.
        groups: Blocks of channels that ``op`` treats apart.

    Example:
        >>> import torch.nn.functional as F
        >>> x = Interval(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 3.0]]))
        >>> y = interval_affine(F.linear, x, torch.tensor([[1.0, -1.0]]), torch.tensor([[0.5, 0.5]]))
        >>> y.lower, y.upper   # 0.5 * 1 - 1.5 * 3, 1.5 * 2 - 0.5 * 0
        (tensor([[-4.]]), tensor([[3.]]))
    """
    if x.is_point:
        moments = (op(x.lower, center, bias_center), op(x.lower.abs(), radius, bias_radius))
        return Interval._of_moments(torch.stack(moments, 1))
    low, high = center - radius, center + radius
    bias = None if bias_center is None or bias_radius is None else by_group(bias_center, bias_radius, groups)
    if x.nonnegative:
        return Interval._of_moments(
            block_product(op, x.moments, nonnegative_weight(center, radius, groups), bias, groups)
        )
    split = _sign_split(op, x, low, high, bias, groups)
    rump = _midpoint_radius(op, x, center, radius, bias_center, bias_radius)
    return _intersection(split, rump)


def _sign_split(
    op: LinearOperation, x: Interval, low: Tensor, high: Tensor, bias: Tensor | None, groups: int
) -> Interval:
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
    weight = block_weight(lower_row, upper_row, groups)
    return Interval._of_moments(block_product(op, parts, weight, bias, groups))


def _midpoint_radius(
    op: LinearOperation,
    x: Interval,
    center: Tensor,
    radius: Tensor,
    bias_center: Tensor | None,
    bias_radius: Tensor | None,
) -> Interval:
    """Rump's product: ``c = W_c a_c``, ``r = |W_c| a_r + W_r (|a_c| + a_r)``; tight where both straddle zero."""
    mid = op(x.center, center, bias_center)
    rad = op(x.radius, center.abs() + radius, bias_radius) + op(x.center.abs(), radius, None)
    return Interval._of_moments(torch.stack((mid, rad), 1))


def _intersection(x: Interval, y: Interval) -> Interval:
    """The common part of two enclosures of the same set; ordered even if rounding parted them."""
    lower = torch.maximum(x.lower, y.lower)
    upper = torch.minimum(x.upper, y.upper)
    return Interval._of_parts(lower, torch.where(upper < lower, lower, upper))


def nonnegative_weight(center: Tensor, radius: Tensor, groups: int) -> Tensor:
    r"""One weight from centre and radius of an input ``>= 0`` to centre and radius of the output.

    With :math:`a = c \pm r \ge 0` the bounds of (sim_full_o_lower_upper) are :math:`\underline W c - |\underline W| r`
    and :math:`\overline W c + |\overline W| r`. Half their sum and half their difference are

    .. math:: W_c\, c + \min(\max(W_c, -W_r), W_r)\, r,\qquad W_r\, c + \max(|W_c|, W_r)\, r.

    The radius of the output is a sum of terms that are not negative: it does not cancel, so that a radius of zero stays
    exactly zero and rounding errors of wide centres never turn into width.
    """
    result: Tensor = _NonnegativeWeight.apply(center, radius, groups)
    return result


def nonnegative_rows(center: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of :func:`nonnegative_weight` that give the output's centre, and those that give its radius."""
    of_center, of_radius = nonnegative_weight(center, radius, 1).chunk(2)
    return of_center, of_radius


class _NonnegativeWeight(torch.autograd.Function):
    """Keeps centre and radius alone for the backward pass: they are there anyway, the block is four times as large."""

    generate_vmap_rule = True

    @staticmethod
    def forward(center: Tensor, radius: Tensor, groups: int) -> Tensor:
        inputs = center.shape[1]
        block = center.new_empty((groups, 2, len(center) // groups, 2 * inputs, *center.shape[2:]))
        center, radius = center.unflatten(0, (groups, -1)), radius.unflatten(0, (groups, -1))
        block[:, 0, :, :inputs] = center
        block[:, 0, :, inputs:] = torch.clamp(center, -radius, radius)
        block[:, 1, :, :inputs] = radius
        block[:, 1, :, inputs:] = torch.maximum(center.abs(), radius)
        return block.flatten(0, 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        center, radius, ctx.groups = inputs
        ctx.save_for_backward(center, radius)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        center, radius = ctx.saved_tensors
        of_rows = (rows.flatten(0, 1) for rows in gradient.unflatten(0, (ctx.groups, 2, -1)).unbind(1))
        (of_center, of_clipped), (of_radius, of_largest) = (rows.chunk(2, 1) for rows in of_rows)
        sign, straddles = center.sign(), (center.abs() <= radius).to(center.dtype)  # lerp by 0 or 1 selects, exactly
        to_center = of_center + torch.lerp(sign * of_largest, of_clipped, straddles)
        return to_center, of_radius + torch.lerp(sign * of_clipped, of_largest, straddles), None


def block_weight(lower_row: Sequence[Tensor], upper_row: Sequence[Tensor], groups: int) -> Tensor:
    """One weight for both bounds, from ``P`` weights ``(O, C / groups, ...)`` for each of them.

    Its output rows are centre and radius, half the sum and half the difference of the two bounds: that costs nothing
    here and is what batch norm needs.
    """
    lower, upper = torch.cat(tuple(lower_row), 1), torch.cat(tuple(upper_row), 1)
    return by_group((lower + upper) / 2, (upper - lower) / 2, groups)


def block_product(op: LinearOperation, parts: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
    """One call of ``op``: inputs ``(N, P, C, ...)`` to centre and radius ``(N, 2, O, ...)``."""
    return on_blocks(lambda inputs: op(inputs, weight, bias), parts, groups)


def on_blocks(function: Callable[[Tensor], Tensor], parts: Tensor, groups: int) -> Tensor:
    """One call of ``function``, a layer with a block weight, on all parts ``(N, P, C, ...)``."""
    if groups == 1:
        return function(parts.flatten(1, 2)).unflatten(1, (2, -1))
    inputs = parts.unflatten(2, (groups, -1)).transpose(1, 2).flatten(1, 3)
    return function(inputs).unflatten(1, (groups, 2, -1)).transpose(1, 2).flatten(2, 3)


def by_group(center: Tensor, radius: Tensor, groups: int) -> Tensor:
    """Stack what belongs to the outputs of centre and radius, group by group."""
    return torch.stack((center.unflatten(0, (groups, -1)), radius.unflatten(0, (groups, -1))), 1).flatten(0, 2)
