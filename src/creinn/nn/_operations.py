"""Operations of affine layers, and memory-efficient interval products.

An operation maps a batch ``(N, C, ...)`` with a weight ``(O, C / groups, ...)`` and an optional
bias ``(O,)`` to a batch ``(N, O, ...)``. The inputs and weights of an interval product are larger
than those of the layer; see :class:`ProductRule`. They are computed in the forward pass and again
in the backward pass (:func:`interval_product`), so only ordinary tensors are saved.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.interval import stack_parts

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
        """Return the gradients of the input and the weight, or None if not ``wanted``."""
        return gradient @ weight if wanted[0] else None, gradient.T @ input if wanted[1] else None


@dataclass(frozen=True)
class Convolution:
    """Convolution in one, two or three dimensions with symmetric zero padding.

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
        """Return the gradients of the input and the weight, or None if not ``wanted``."""
        if self._has_few_pixels(gradient, weight):
            return self._gradients_by_tap(gradient, input, weight, wanted)
        backward = torch.ops.aten.convolution_backward
        to_input, to_weight, _ = backward(
            gradient, input, weight, None, *self._arguments, (*wanted, False)
        )
        return to_input, to_weight

    def _has_few_pixels(self, gradient: Tensor, weight: Tensor) -> bool:
        """Return whether matrix products are faster than oneDNN.

        oneDNN also multiplies the padding.
        """
        return (
            self.groups == 1
            and gradient.device.type == "cpu"
            and gradient.shape[2:].numel() <= 16
            and min(weight.shape[:2]) >= 64
        )

    def _gradients_by_tap(
        self, gradient: Tensor, input: Tensor, weight: Tensor, wanted: tuple[bool, bool]
    ) -> Gradients:
        """Compute the gradients by matrix products for each element of the kernel."""
        pixels, outputs = input.movedim(1, -1), gradient.movedim(1, -1)
        kernel = weight.shape[2:]
        to_weights: list[Tensor] = []
        to_input = None
        taps = itertools.product(*map(range, kernel))
        for weight_of_tap, tap in zip(weight.flatten(2).unbind(2), taps, strict=True):
            used, reached = self._reach(tap, input.shape[2:], gradient.shape[2:])
            rows = outputs[reached].flatten(0, -2)
            if wanted[0]:
                product = rows @ weight_of_tap
                to_input = product.new_zeros(pixels.shape) if to_input is None else to_input
                to_input[used].add_(product.view(pixels[used].shape))
            if wanted[1]:
                to_weights.append(rows.T @ pixels[used].flatten(0, -2))
        return (
            None if to_input is None else to_input.movedim(-1, 1),
            torch.stack(to_weights, 1).unflatten(1, kernel).movedim(-1, 1) if wanted[1] else None,
        )

    def _reach(
        self, tap: tuple[int, ...], sizes: torch.Size, output_sizes: torch.Size
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the pixels ``(N, ..., C)`` that a tap multiplies, and their outputs."""
        used: list[slice] = [slice(None)]
        reached: list[slice] = [slice(None)]
        for axis, (size, outputs) in enumerate(zip(sizes, output_sizes, strict=True)):
            stride = self.stride[axis]
            offset = tap[axis] * self.dilation[axis] - self.padding[axis]
            first = max(0, -(offset // stride))
            count = max(0, min(outputs, (size - 1 - offset) // stride + 1) - first)
            start = first * stride + offset
            used.append(slice(start, start + count * stride, stride))
            reached.append(slice(first, first + count))
        return tuple(used), tuple(reached)


Operation = Matrix | Convolution


class ProductRule:
    """Inputs and weights of one or two products as functions of the saved tensors.

    The first ``sources`` saved tensors determine the inputs, and the others determine the weights.
    By default there is one product for the center and one for the radius. A subclass with one
    product overrides ``biases``, ``join`` and ``split``.

    Attributes:
        sources: The number of saved tensors for the inputs.
        inputs: A function from these tensors to the inputs of the products.
        weights: A function from the other tensors to the weights.
        from_inputs: A function from the gradients of the inputs, and the tensors, to gradients.
        from_weights: A function from the gradients of the weights, the weights and the other
            tensors to gradients.
    """

    sources: ClassVar[int] = 1
    inputs: Callable[..., Tensors]
    weights: Callable[..., Tensors]
    from_inputs: Callable[..., Tensors]
    from_weights: Callable[..., Tensors]

    def biases(self, biases: Biases) -> Sequence[Tensor | None]:
        """Return the bias of each product."""
        return biases

    def join(self, products: Tensors) -> Tensor:
        """Return the centers and radii ``(N, 2, O, ...)``."""
        return stack_parts(*products)

    def split(self, gradient: Tensor) -> Tensors:
        """Return the gradients of the products."""
        return gradient.unbind(1)


def interval_product(
    operation: Operation, rule: ProductRule, biases: Biases, first: Tensor, *others: Tensor
) -> Tensor:
    """Return the centers and radii ``(N, 2, O, ...)`` of an interval product.

    ``first`` is the input of the layer.
    """
    device = first.device.type
    if torch.is_autocast_enabled(device):
        first = first.to(torch.get_autocast_dtype(device))
    result: Tensor = _IntervalProduct.apply(operation, rule, *biases, first, *others)
    return result


class _IntervalProduct(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        operation: Operation,
        rule: ProductRule,
        bias: Tensor | None,
        bias_radius: Tensor | None,
        *kept: Tensor,
    ) -> Tensor:
        inputs, weights = (
            rule.inputs(*kept[: rule.sources]),
            rule.weights(*kept[rule.sources :]),
        )
        terms = zip(inputs, weights, rule.biases((bias, bias_radius)), strict=True)
        return rule.join([operation(x, w.to(x.dtype), b) for x, w, b in terms])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.operation, ctx.rule = inputs[:2]
        ctx.save_for_backward(*inputs[4:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        operation, rule, needed = ctx.operation, ctx.rule, ctx.needs_input_grad
        count = rule.sources
        sources, parameters = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        wanted = any(needed[4 : 4 + count]), any(needed[4 + count :])
        weights = rule.weights(*parameters)
        terms = zip(rule.split(gradient), rule.inputs(*sources), weights, strict=True)
        found = [operation.gradients(part, x, w.to(x.dtype), wanted) for part, x, w in terms]
        to_biases: Sequence[Tensor | None] = (None, None)
        to_sources, to_parameters = (None,) * count, (None,) * len(parameters)
        if any(needed[2:4]):
            to_biases = gradient.sum([0, *range(3, gradient.ndim)]).unbind()
        if wanted[0]:
            to_sources = rule.from_inputs([to_input for to_input, _ in found], *sources)
        if wanted[1]:
            to_weights = [to_weight.to(weights[0].dtype) for _, to_weight in found]
            to_parameters = rule.from_weights(to_weights, weights, *parameters)
        return None, None, *to_biases, *to_sources, *to_parameters
