r"""Weights :math:`W_{ij} (1 \pm \rho_j)`: the factor moved to the input, and the product of what comes out.

In: an interval, or its centres and radii ``(N, 2, C, ...)``; relative radii :math:`\rho`. Out: centres and radii.
"""

from typing import Any

import torch
from torch import Tensor

from creinn.interval import Interval
from creinn.nn._operations import Operation, autocast


def widened(x: Interval, relative: Tensor) -> tuple[Tensor, Tensor]:
    r"""Centre and radius of the exact product :math:`[1 - \rho, 1 + \rho] \cdot x`, for :math:`0 \le \rho \le 1`.

    With :math:`x = c \pm r` they are :math:`c + \rho \min(\max(c, -r), r)` and :math:`r + \rho \max(|c|, r)`; the
    radius is a sum of terms that are not negative, so that rounding errors of wide centres never turn into width.

    Example:
        >>> widened(Interval(torch.tensor([1.0, -1.0]), torch.tensor([3.0, 3.0])), torch.tensor(0.5))
        (tensor([2.5000, 1.5000]), tensor([2., 3.]))
    """
    center = x.center
    if x.is_point:
        return center, relative * center.abs()
    radius = x.radius
    if x.nonnegative:
        return _widened(center, radius, relative)
    inner, outer = center.clamp(-radius, radius), torch.maximum(center.abs(), radius)
    return center.addcmul(relative, inner), radius.addcmul(relative, outer)


def relative_product(
    operation: Operation,
    moments: Tensor,
    weight: Tensor,
    relative: Tensor,
    bias_center: Tensor | None = None,
    bias_radius: Tensor | None = None,
) -> Tensor:
    """Centres and radii of the product with a weight of relative radii, for intervals ``>= 0``.

    Keeps its input, as an ordinary layer does, and makes the wider input again in the backward pass.

    Args:
        operation: Of a layer.
        moments: Centres and radii ``(N, 2, C, ...)``; no lower bound below 0.
        weight: Weight centres ``(O, C / groups, ...)``.
        relative: Relative radii in ``[0, 1]``, of shape ``(C, 1, ...)``.
        bias_center: Bias centres ``(O,)`` or ``None``.
        bias_radius: Bias radii ``>= 0``, or ``None``.

    Example:
        >>> from creinn.nn._operations import Matrix
        >>> x = torch.tensor([[[2.0], [1.0]]])   # [1, 3] * [1, 3] = [1, 9]
        >>> relative_product(Matrix(), x, torch.tensor([[2.0]]), torch.tensor([0.5]))
        tensor([[[5.], [4.]]])
    """
    result: Tensor = _RelativeProduct.apply(operation, autocast(moments), weight, relative)
    if bias_center is None or bias_radius is None:
        return result
    bias = torch.stack((bias_center, bias_radius)).view(2, -1, *(1,) * (result.ndim - 3))
    return result + bias.to(result.dtype)


def _widened(center: Tensor, radius: Tensor, relative: Tensor) -> tuple[Tensor, Tensor]:
    return center.addcmul(relative, radius), radius.addcmul(relative, center)


class _RelativeProduct(torch.autograd.Function):
    """Keeps its input and the parameters."""

    generate_vmap_rule = True

    @staticmethod
    def forward(operation: Operation, moments: Tensor, weight: Tensor, relative: Tensor) -> Tensor:
        weight, relative = weight.to(moments.dtype), relative.to(moments.dtype)
        center, radius = moments.unbind(1)
        center, radius = _widened(center, radius, relative)
        return torch.stack((operation(center, weight), operation(radius, weight.abs())), 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.operation = inputs[0]
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        moments, weight, relative = ctx.saved_tensors
        narrow, factor = weight.to(moments.dtype), relative.to(moments.dtype)
        center, radius = moments.unbind(1)
        inputs, weights = _widened(center, radius, factor), (narrow, narrow.abs())
        (to_center, to_weight), (to_radius, to_size) = (
            ctx.operation.gradients(rows, input, matrix, (True, True))
            for rows, input, matrix in zip(gradient.unbind(1), inputs, weights, strict=True)
        )
        everything_else = [d for d in range(center.ndim) if d != 1]
        to_relative = torch.addcmul(to_center * radius, to_radius, center).sum(everything_else)
        return (
            None,
            torch.stack(_widened(to_center, to_radius, factor), 1),
            torch.addcmul(to_weight, narrow.sign(), to_size).to(weight.dtype),
            to_relative.view(relative.shape).to(relative.dtype),
        )
