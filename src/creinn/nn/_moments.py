r"""Steps of a training pass on packed centres and radii ``(N, 2, ...)``, which keep as little as they can for backward.

Autograd of the same formulas on bounds would keep the bounds beside the centres and radii that the next convolution
keeps anyway.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def positive_radius(moments: Tensor, before: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    r"""The same centres, radii in absolute value; the derivative of a radius at 0 is 1, as in :func:`magnitude`.

    The radii are those of a batch norm, :math:`\gamma (r - \mu) / \sigma + \beta`, of which their signs are computed
    again in the backward pass: the norm keeps its input anyway.

    Args:
        moments: Centres and normalised radii ``(N, 2, C, ...)``.
        before: Centres and radii before the norm.
        scale: Of the radii, :math:`\gamma / \sigma` for each channel.
        shift: Of the radii, :math:`\beta - \mu \gamma / \sigma`.

    Example:
        >>> before = torch.tensor([[[1.0, 2.0], [-3.0, 4.0]]])   # a norm that changes nothing
        >>> positive_radius(before, before, torch.ones(2), torch.zeros(2))
        tensor([[[1., 2.], [3., 4.]]])
    """
    spread = (-1, *(1,) * (moments.ndim - 3))
    result: Tensor = _PositiveRadius.apply(moments, before, scale.view(spread), shift.view(spread))
    return result


def relu_moments(moments: Tensor) -> Tensor:
    r"""Centre and radius of the ReLU of intervals, without their bounds.

    A radius below 0 is a rounding error, and counts as 0. What is infinite becomes NaN, or stays (0 times minus
    infinity, in a leaky ReLU of slope 0, is NaN): it has overflowed, and is not known to be below 0.
    With :math:`h = \max(c + r, 0)` the new radius is :math:`\min(r, h / 2)` and the new centre :math:`h` minus that,
    so that the lower bound is never below 0 and no digit of a narrow radius is lost.

    Example:
        >>> moments = torch.tensor([[[1.0, 1.0, -3.0], [0.5, 3.0, 1.0]]])   # [0.5, 1.5], [-2, 4], [-4, -2]
        >>> relu_moments(moments) + 0   # no -0
        tensor([[[1.0000, 2.0000, 0.0000], [0.5000, 2.0000, 0.0000]]])
    """
    result: Tensor = _ReLU.apply(moments)
    return result


class _PositiveRadius(torch.autograd.Function):
    """Keeps what the norm keeps. The sign of a number is many times faster here than a choice by truth values."""

    generate_vmap_rule = True

    @staticmethod
    def forward(moments: Tensor, before: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        center, radius = moments.unbind(1)
        return torch.stack((center, radius.abs()), 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        before, scale, shift = ctx.saved_tensors
        of_center, of_radius = gradient.unbind(1)
        normalised = torch.addcmul(shift, before.select(1, 1), scale)
        sign = torch.copysign(torch.ones_like(of_radius), normalised)
        return torch.stack((of_center, of_radius * sign), 1), None, None, None


class _ReLU(torch.autograd.Function):
    """Keeps its result alone, which the next layer keeps too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(moments: Tensor) -> Tensor:
        center, radius = moments.unbind(1)
        high = F.leaky_relu_(center + radius, 0.0)
        new = torch.minimum(radius, high / 2).clamp_min_(0)
        return torch.stack((high.sub_(new), new), 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Both bounds pass, or the upper one alone: half of it is the centre, half the radius; or none."""
        center, radius = ctx.saved_tensors[0].unbind(1)
        of_center, of_radius = gradient.unbind(1)
        half = (of_center + of_radius) * center.sign() / 2  # 1 where the upper bound passes, else 0
        both = (center - radius).sign()  # 1 where the lower bound passes, else 0
        return torch.stack((torch.lerp(half, of_center, both), torch.lerp(half, of_radius, both)), 1)
