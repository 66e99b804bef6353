"""What an affine layer does with its weight, and products that keep for the backward pass what an ordinary layer keeps.

In: a batch ``(N, C, ...)``, a weight ``(O, C / groups, ...)``, perhaps a bias ``(O,)``. Out: a batch ``(N, O, ...)``.
Interval products have wider inputs and weights than those of the layer (:class:`Factors`). They are made when they are
needed, in the forward pass and again in the backward pass (:func:`products`).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

Tensors = tuple[Tensor, ...]
Gradients = tuple[Tensor | None, Tensor | None]


@dataclass(frozen=True)
class Matrix:
    """``input @ weight.T + bias``.

    Example:
        >>> Matrix()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[11.]])
    """

    groups: ClassVar[int] = 1

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(input, weight, bias)

    def gradients(self, gradient: Tensor, input: Tensor, weight: Tensor, wanted: tuple[bool, bool]) -> Gradients:
        """Gradients of input and weight from that of the product; ``None`` for what is not wanted."""
        return gradient @ weight if wanted[0] else None, gradient.T @ input if wanted[1] else None


@dataclass(frozen=True)
class Convolution:
    """A convolution in one, two or three dimensions, with zeros on both sides of the input.

    Example:
        >>> Convolution((1,), (1,), (1,))(torch.ones(1, 1, 3), torch.ones(1, 1, 3))
        tensor([[[2., 3., 2.]]])
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @property
    def _arguments(self) -> tuple[Any, ...]:
        return self.stride, self.padding, self.dilation, False, (0,) * len(self.stride), self.groups

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return torch.convolution(input, weight, bias, *self._arguments)

    def gradients(self, gradient: Tensor, input: Tensor, weight: Tensor, wanted: tuple[bool, bool]) -> Gradients:
        """Gradients of input and weight from that of the product; ``None`` for what is not wanted."""
        backward = torch.ops.aten.convolution_backward
        to_input, to_weight, _ = backward(gradient, input, weight, None, *self._arguments, (*wanted, False))
        return to_input, to_weight


Operation = Matrix | Convolution


class Factors(Protocol):
    """Inputs and weights of one or two products, made of what is kept; and the way back for their gradients.

    Of the tensors that are kept the first ``sources`` make the inputs, the others the weights.
    """

    sources: ClassVar[int] = 1

    def inputs(self, *kept: Tensor) -> Tensors:
        """The inputs."""

    def weights(self, *kept: Tensor) -> Tensors:
        """The weights, one for each input."""

    def from_inputs(self, gradients: Tensors, *kept: Tensor) -> Tensors:
        """Gradients of what the inputs were made of."""

    def from_weights(self, gradients: Tensors, weights: Tensors, *kept: Tensor) -> Tensors:
        """Gradients of what the weights were made of."""


def products(operation: Operation, factors: Factors, kept: Tensors, biases: tuple[Tensor | None, ...]) -> Tensors:
    """One product for each input and weight of ``factors``; the first of ``kept`` is the layer's input.

    Under ``torch.autocast`` that is cast to the dtype in which an operation would compute.
    """
    first, *others = kept
    device = first.device.type
    if torch.is_autocast_enabled(device):
        first = first.to(torch.get_autocast_dtype(device))
    result: Tensors = _Products.apply(operation, factors, 1 + len(others), first, *others, *biases)
    return result


class _Products(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(operation: Operation, factors: Factors, count: int, *tensors: Any) -> Tensors:
        kept, biases = tensors[:count], tensors[count:]
        inputs, weights = factors.inputs(*kept[: factors.sources]), factors.weights(*kept[factors.sources :])
        return tuple(operation(x, w.to(x.dtype), b) for x, w, b in zip(inputs, weights, biases, strict=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        ctx.operation, ctx.factors, count, *tensors = inputs
        ctx.save_for_backward(*tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        factors, kept = ctx.factors, ctx.saved_tensors
        sources, parameters = kept[: factors.sources], kept[factors.sources :]
        needed = ctx.needs_input_grad[3:]
        wanted = any(needed[: len(sources)]), any(needed[len(sources) : len(kept)])
        inputs, weights = factors.inputs(*sources), factors.weights(*parameters)
        found = [
            ctx.operation.gradients(gradient, x, w.to(x.dtype), wanted)
            for gradient, x, w in zip(gradients, inputs, weights, strict=True)
        ]
        to_inputs, to_weights = zip(*found, strict=True)
        to_sources, to_parameters = (None,) * len(sources), (None,) * len(parameters)
        if wanted[0]:
            to_sources = factors.from_inputs(to_inputs, *sources)
        if wanted[1]:
            to_weights = tuple(t.to(w.dtype) for t, w in zip(to_weights, weights, strict=True))
            to_parameters = factors.from_weights(to_weights, weights, *parameters)
        to_biases = [
            gradient.sum([d for d in range(gradient.ndim) if d != 1]) if bias else None
            for gradient, bias in zip(gradients, needed[len(kept) :], strict=True)
        ]
        return None, None, None, *to_sources, *to_parameters, *to_biases
