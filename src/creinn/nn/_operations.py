"""What an affine layer does with its weight, and a product that keeps for the backward pass what an ordinary one keeps.

In: a batch ``(N, C, ...)``, a weight ``(O, C / groups, ...)``, perhaps a bias ``(O,)``. Out: a batch ``(N, O, ...)``.
Interval products have wider inputs and weights than those of the layer (:class:`Factors`). They are made when they are
needed, in the forward pass and again in the backward pass (:func:`moments_of`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

Tensors = Sequence[Tensor]
Biases = tuple[Tensor | None, Tensor | None]  # centres and radii (O,), radii >= 0
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

    def gradients(
        self, gradient: Tensor, input: Tensor, weight: Tensor, wanted: tuple[bool, bool]
    ) -> Gradients:
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

    def gradients(
        self, gradient: Tensor, input: Tensor, weight: Tensor, wanted: tuple[bool, bool]
    ) -> Gradients:
        """Gradients of input and weight from that of the product; ``None`` for what is not wanted."""
        backward = torch.ops.aten.convolution_backward
        to_input, to_weight, _ = backward(
            gradient, input, weight, None, *self._arguments, (*wanted, False)
        )
        return to_input, to_weight


Operation = Matrix | Convolution


class Factors:
    """Inputs and weights of one or two products, made of what is kept; and the way back for their gradients.

    Of the tensors that are kept the first ``sources`` make the inputs, the others the weights. There are two products,
    centre and radius of the result, unless ``biases``, ``joined`` and ``parted`` say otherwise.
    """

    sources: ClassVar[int] = 1
    inputs: Callable[..., Tensors]  # of the sources
    weights: Callable[..., Tensors]  # of the others
    from_inputs: Callable[
        ..., Tensors
    ]  # from gradients of the inputs, and the sources, to gradients of the sources
    from_weights: Callable[
        ..., Tensors
    ]  # from gradients of the weights, these, and the others, to gradients of those

    def biases(self, biases: Biases) -> Sequence[Tensor | None]:
        """One for each product."""
        return biases

    def joined(self, products: Tensors) -> Tensor:
        """Centres and radii ``(N, 2, O, ...)``."""
        return torch.stack(products, 1)  # type: ignore[arg-type]

    def parted(self, gradient: Tensor) -> Tensors:
        """Gradients of the products from that of centres and radii."""
        return gradient.unbind(1)


def moments_of(
    operation: Operation, factors: Factors, biases: Biases, first: Tensor, *others: Tensor
) -> Tensor:
    """Centres and radii ``(N, 2, O, ...)`` by ``factors`` of ``first``, the layer's input, and ``others``."""
    device = first.device.type
    if torch.is_autocast_enabled(
        device
    ):  # cast it to the dtype in which an operation would compute
        first = first.to(torch.get_autocast_dtype(device))
    result: Tensor = _Moments.apply(operation, factors, *biases, first, *others)
    return result


class _Moments(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        operation: Operation,
        factors: Factors,
        bias: Tensor | None,
        bias_radius: Tensor | None,
        *kept: Tensor,
    ) -> Tensor:
        inputs, weights = (
            factors.inputs(*kept[: factors.sources]),
            factors.weights(*kept[factors.sources :]),
        )
        terms = zip(inputs, weights, factors.biases((bias, bias_radius)), strict=True)
        return factors.joined([operation(x, w.to(x.dtype), b) for x, w, b in terms])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.operation, ctx.factors = inputs[:2]
        ctx.save_for_backward(*inputs[4:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        operation, factors, needed = ctx.operation, ctx.factors, ctx.needs_input_grad
        count = factors.sources
        sources, parameters = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        wanted = any(needed[4 : 4 + count]), any(needed[4 + count :])
        weights = factors.weights(*parameters)
        terms = zip(factors.parted(gradient), factors.inputs(*sources), weights, strict=True)
        found = [operation.gradients(part, x, w.to(x.dtype), wanted) for part, x, w in terms]
        to_biases: Sequence[Tensor | None] = (None, None)
        to_sources, to_parameters = (None,) * count, (None,) * len(parameters)
        if any(needed[2:4]):
            to_biases = gradient.sum([0, *range(3, gradient.ndim)]).unbind()
        if wanted[0]:
            to_sources = factors.from_inputs([to_input for to_input, _ in found], *sources)
        if wanted[1]:
            to_weights = [to_weight.to(weights[0].dtype) for _, to_weight in found]
            to_parameters = factors.from_weights(to_weights, weights, *parameters)
        return None, None, *to_biases, *to_sources, *to_parameters
