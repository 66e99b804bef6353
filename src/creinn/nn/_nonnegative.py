r"""The product of non-negative intervals and interval weights: one block product, forward and backward.

In: centres and radii ``(N, 2, C, ...)`` of intervals ``>= 0``, interval weights as centre and radius. Out: centres and
radii ``(N, 2, O, ...)``; exact (sim_full_o_lower_upper).

The block weight is four times as large as a weight. It is made when it is needed, in the forward pass and again in the
backward pass; what is kept between them is the input, as an ordinary layer keeps it, and the parameters.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from creinn.nn._operations import Operation, autocast


def nonnegative_product(
    operation: Operation, moments: Tensor, center: Tensor, radius: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Centres and radii of the product.

    Args:
        operation: Of a layer.
        moments: Centres and radii ``(N, 2, C, ...)``; no lower bound below 0.
        center: Weight centres ``(O, C / groups, ...)``.
        radius: Weight radii; one below 0 counts as 0, with derivative 1.
        bias: Of centre and radius, arranged by :func:`by_group`.

    Example:
        >>> from creinn.nn._operations import Matrix
        >>> x = torch.tensor([[[2.0], [1.0]]])   # [1, 3] * [-1, 3] = [-3, 9]
        >>> nonnegative_product(Matrix(), x, torch.tensor([[1.0]]), torch.tensor([[2.0]]))
        tensor([[[3.], [6.]]])
    """
    result: Tensor = _BlockProduct.apply(operation, autocast(moments), center, radius, bias)
    return result


def nonnegative_weight(center: Tensor, radius: Tensor, groups: int) -> Tensor:
    r"""One weight from centre and radius of an input ``>= 0`` to centre and radius of the output.

    With :math:`a = c \pm r \ge 0` the bounds of (sim_full_o_lower_upper) are :math:`\underline W c - |\underline W| r`
    and :math:`\overline W c + |\overline W| r`. Half their sum and half their difference are

    .. math:: W_c\, c + \min(\max(W_c, -W_r), W_r)\, r,\qquad W_r\, c + \max(|W_c|, W_r)\, r.

    The radius of the output is a sum of terms that are not negative: it does not cancel, so that a radius of zero stays
    exactly zero and rounding errors of wide centres never turn into width.
    """
    inputs = center.shape[1]
    block = center.new_empty((groups, 2, len(center) // groups, 2 * inputs, *center.shape[2:]))
    center, radius = (t.unflatten(0, (groups, -1)) for t in (center, radius.clamp_min(0)))
    block[:, 0, :, :inputs] = center
    block[:, 0, :, inputs:] = torch.clamp(center, -radius, radius)
    block[:, 1, :, :inputs] = radius
    block[:, 1, :, inputs:] = torch.maximum(center.abs(), radius)
    return block.flatten(0, 2)


def nonnegative_rows(center: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of :func:`nonnegative_weight` that give the output's centre, and those that give its radius."""
    of_center, of_radius = nonnegative_weight(center, radius, 1).chunk(2)
    return of_center, of_radius


def on_blocks(function: Callable[[Tensor], Tensor], parts: Tensor, groups: int) -> Tensor:
    """One call of ``function``, a layer with a block weight, on all parts ``(N, P, C, ...)``; two parts come out."""
    return _apart(function(_together(parts, groups)), groups)


def by_group(center: Tensor, radius: Tensor, groups: int) -> Tensor:
    """Stack what belongs to the outputs of centre and radius, group by group."""
    return torch.stack((center.unflatten(0, (groups, -1)), radius.unflatten(0, (groups, -1))), 1).flatten(0, 2)


def _together(parts: Tensor, groups: int) -> Tensor:
    """Parts ``(N, P, C, ...)`` as channels ``(N, P C, ...)``, group by group."""
    if groups == 1:
        return parts.flatten(1, 2)
    return parts.unflatten(2, (groups, -1)).transpose(1, 2).flatten(1, 3)


def _apart(channels: Tensor, groups: int) -> Tensor:
    """The inverse of :func:`_together` for two parts."""
    if groups == 1:
        return channels.unflatten(1, (2, -1))
    return channels.unflatten(1, (groups, 2, -1)).transpose(1, 2).flatten(2, 3)


class _BlockProduct(torch.autograd.Function):
    """Keeps its input and the parameters."""

    generate_vmap_rule = True

    @staticmethod
    def forward(operation: Operation, moments: Tensor, center: Tensor, radius: Tensor, bias: Tensor | None) -> Tensor:
        weight = nonnegative_weight(center, radius, operation.groups).to(moments.dtype)
        return on_blocks(lambda x: operation(x, weight, bias), moments, operation.groups)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.operation, moments, center, radius, _ = inputs
        ctx.save_for_backward(moments, center, radius)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        moments, center, radius = ctx.saved_tensors
        _, of_input, of_center, of_radius, of_bias = ctx.needs_input_grad
        operation: Operation = ctx.operation
        groups = operation.groups
        weight = nonnegative_weight(center, radius, groups)
        rows = _together(gradient, groups)
        to_input, to_weight = operation.gradients(
            rows, _together(moments, groups), weight.to(rows.dtype), (of_input, of_center or of_radius)
        )
        return (
            None,
            None if to_input is None else _apart(to_input, groups),
            *_to_parameters(None if to_weight is None else to_weight.to(center.dtype), weight, center, groups),
            rows.sum([d for d in range(rows.ndim) if d != 1]) if of_bias else None,
        )


def _to_parameters(
    gradient: Tensor | None, weight: Tensor, center: Tensor, groups: int
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of weight centres and radii from that of the block weight.

    The larger of ``|W_c|`` and ``W_r`` stands in one place of the block, the smaller, with the sign of ``W_c``, in the
    other. Both gradients change places where the centre is the larger one.
    """
    if gradient is None:
        return None, None
    (to_center, to_clipped), (to_radius, to_largest) = _quarters(gradient, groups)
    clipped = _quarters(weight, groups)[0][1]
    outside = (center - clipped).sign()  # the sign of the centre where that is the larger one, else 0
    inside = 1 - outside.abs()
    return (
        torch.addcmul(to_center, inside, to_clipped).addcmul(outside, to_largest),
        torch.addcmul(to_radius, inside, to_largest).addcmul(outside, to_clipped),
    )


def _quarters(block: Tensor, groups: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The four parts of a block weight: rows of centre and radius, in columns of centre and radius."""
    first, second = (rows.flatten(0, 1).chunk(2, 1) for rows in block.unflatten(0, (groups, 2, -1)).unbind(1))
    return (first[0], first[1]), (second[0], second[1])
