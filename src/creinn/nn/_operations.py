"""What an affine layer does with its weight: a matrix product or a convolution, and its derivatives.

In: a batch ``(N, C, ...)``, a weight ``(O, C / groups, ...)``, perhaps a bias ``(O,)``. Out: a batch ``(N, O, ...)``,
linear in input and weight. The derivatives are here for products that make their input or weight again in the backward
pass instead of keeping it (:mod:`creinn.nn._nonnegative`, :mod:`creinn.nn._points`, :mod:`creinn.nn._widening`).
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

Gradients = tuple[Tensor | None, Tensor | None]


class Operation(Protocol):
    """A matrix product or a convolution."""

    @property
    def groups(self) -> int:
        """Blocks of channels that are treated apart."""

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The product."""

    def gradients(self, gradient: Tensor, input: Tensor, weight: Tensor, wanted: tuple[bool, bool]) -> Gradients:
        """Gradients of input and weight from that of the product; ``None`` for what is not wanted."""


def autocast(x: Tensor) -> Tensor:
    """``x`` in the dtype that an operation would compute in: another one only under ``torch.autocast``."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


@dataclass(frozen=True)
class Matrix:
    """``input @ weight.T + bias``.

    Example:
        >>> Matrix()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[11.]])
    """

    groups: ClassVar[int] = 1

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The product."""
        return F.linear(input, weight, bias)

    def gradients(self, gradient: Tensor, input: Tensor, weight: Tensor, wanted: tuple[bool, bool]) -> Gradients:
        """Gradients of input and weight."""
        return gradient @ weight if wanted[0] else None, gradient.T @ input if wanted[1] else None


@dataclass(frozen=True)
class Convolution:
    """A convolution in one, two or three dimensions, with zeros around the input.

    Args:
        stride: Step in each dimension.
        padding: Zeros on either side of each dimension.
        dilation: Step of the kernel in each dimension.
        groups: Blocks of channels that are treated apart.

    Example:
        >>> Convolution((1,), (1,), (1,))(torch.ones(1, 1, 3), torch.ones(1, 1, 3))
        tensor([[[2., 3., 2.]]])
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The convolution."""
        none = (0,) * len(self.stride)
        return torch.convolution(
            input, weight, bias, self.stride, self.padding, self.dilation, False, none, self.groups
        )

    def gradients(self, gradient: Tensor, input: Tensor, weight: Tensor, wanted: tuple[bool, bool]) -> Gradients:
        """Gradients of input and weight."""
        arguments = (self.stride, self.padding, self.dilation, False, (0,) * len(self.stride), self.groups)
        mask = (*wanted, False)
        result = torch.ops.aten.convolution_backward(gradient, input, weight, None, *arguments, mask)
        return result[0], result[1]
