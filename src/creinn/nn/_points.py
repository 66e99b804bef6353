"""The product of points and interval weights: two products, exact for any sign.

In: a batch ``(N, C, ...)``, interval weights as centre and radius. Out: centres and radii ``(N, 2, O, ...)``. What is
kept for the backward pass is the input alone, as an ordinary layer keeps it, and not its magnitude.
"""

from typing import Any

import torch
from torch import Tensor

from creinn.nn._operations import Operation


def point_product(
    operation: Operation,
    x: Tensor,
    center: Tensor,
    radius: Tensor,
    bias_center: Tensor | None = None,
    bias_radius: Tensor | None = None,
) -> Tensor:
    """Centres and radii of the product, ``W_c x`` and ``W_r |x|``.

    Args:
        operation: Of a layer.
        x: The batch.
        center: Weight centres ``(O, C / groups, ...)``.
        radius: Weight radii ``>= 0``.
        bias_center: Bias centres ``(O,)`` or ``None``.
        bias_radius: Bias radii ``>= 0``, or ``None``.

    Example:
        >>> from creinn.nn._operations import Matrix
        >>> point_product(Matrix(), torch.tensor([[-2.0]]), torch.tensor([[3.0]]), torch.tensor([[1.0]]))
        tensor([[[-6.], [ 2.]]])
    """
    mid = operation(x, center, bias_center)
    rad: Tensor = _OfMagnitude.apply(operation, x, radius)
    if bias_radius is not None:
        rad = rad + bias_radius.view(-1, *(1,) * (rad.ndim - 2)).to(rad.dtype)
    return torch.stack((mid, rad), 1)


class _OfMagnitude(torch.autograd.Function):
    """``operation(|x|, weight)``, which keeps ``x``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(operation: Operation, x: Tensor, weight: Tensor) -> Tensor:
        return operation(x.abs(), weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.operation, x, weight = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wide = x.abs().to(gradient.dtype), weight.to(gradient.dtype)
        to_magnitude, to_weight = ctx.operation.gradients(gradient, *wide, ctx.needs_input_grad[1:])
        return (
            None,
            None if to_magnitude is None else to_magnitude * x.sign(),
            None if to_weight is None else to_weight.to(weight.dtype),
        )
