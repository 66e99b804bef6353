"""Matrix products and convolutions with their gradients.

An operation maps a batch ``(N, C, ...)`` with a weight
``(O, C / groups, ...)`` and an optional bias ``(O,)`` to a batch
``(N, O, ...)``.
"""

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Biases = tuple[Tensor | None, Tensor | None]  # centers and radii (O,)
Gradients = tuple[Tensor | None, Tensor | None]
Layer = TypeVar("Layer", bound=nn.Module)


def interval_version(mixin: type, layer: type[Layer], **attributes: Any) -> type[Layer]:
    """Return a subclass of a mixin and a torch layer, with its name."""
    attributes["__doc__"] = f"Interval version of ``torch.nn.{layer.__name__}``."
    attributes["__module__"] = mixin.__module__
    return type(layer.__name__, (mixin, layer), attributes)


@dataclass(frozen=True)
class Matrix:
    """``input @ weight.T + bias``."""

    groups: ClassVar[int] = 1

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(input, weight, bias)

    def gradients(
        self, gradient: Tensor, input: Tensor, weight: Tensor, wanted: tuple[bool, bool]
    ) -> Gradients:
        """Return the gradients of input and weight that are ``wanted``."""
        return gradient @ weight if wanted[0] else None, gradient.T @ input if wanted[1] else None


@dataclass(frozen=True)
class Convolution:
    """Convolution with symmetric zero padding."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @property
    def _arguments(self) -> tuple[Any, ...]:
        return self.stride, self.padding, self.dilation, False, (0,) * len(self.stride), self.groups

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        # autocast does not cast these
        weight, bias = weight.to(input.dtype), None if bias is None else bias.to(input.dtype)
        return torch.convolution(input, weight, bias, *self._arguments)

    def gradients(
        self, gradient: Tensor, input: Tensor, weight: Tensor, wanted: tuple[bool, bool]
    ) -> Gradients:
        """See :meth:`Matrix.gradients`."""
        is_small = gradient.shape[2:].numel() <= 4 < weight.shape[2:].numel()
        is_wide = min(weight.shape[:2]) >= 64 and self.groups == 1
        if is_small and is_wide and gradient.device.type == "cpu":
            return self._gradients_by_tap(gradient, input, weight, wanted)
        to_input, to_weight, _ = torch.ops.aten.convolution_backward(
            gradient, input, weight, None, *self._arguments, (*wanted, False)
        )
        return to_input, to_weight

    def _gradients_by_tap(
        self, gradient: Tensor, input: Tensor, weight: Tensor, wanted: tuple[bool, bool]
    ) -> Gradients:
        """Compute one matrix product for each element of the kernel.

        This is faster for few pixels, because oneDNN multiplies the
        padding too.
        """
        pixels, outputs = input.movedim(1, -1), gradient.movedim(1, -1)
        kernel = weight.shape[2:]
        to_input, to_weight = None, None
        to_taps = []
        tap: Any
        for tap in itertools.product(*map(range, kernel)):
            used, reached = self._reach(tap, input.shape[2:], gradient.shape[2:])
            rows = outputs[reached].flatten(0, -2)
            if wanted[0]:
                product = rows @ weight[(..., *tap)]
                to_input = product.new_zeros(pixels.shape) if to_input is None else to_input
                to_input[used].add_(product.view(pixels[used].shape))
            if wanted[1]:
                to_taps.append(rows.T @ pixels[used].flatten(0, -2))
        if wanted[1]:
            to_weight = torch.stack(to_taps, 1).unflatten(1, kernel).movedim(-1, 1)
        return None if to_input is None else to_input.movedim(-1, 1), to_weight

    def _reach(
        self, tap: tuple[int, ...], sizes: torch.Size, output_sizes: torch.Size
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        used, reached = [slice(None)], [slice(None)]
        for axis, stride in enumerate(self.stride):
            offset = tap[axis] * self.dilation[axis] - self.padding[axis]
            first = max(0, -(offset // stride))
            last = max(first, min(output_sizes[axis], (sizes[axis] - 1 - offset) // stride + 1))
            used.append(slice(first * stride + offset, last * stride + offset, stride))
            reached.append(slice(first, last))
        return tuple(used), tuple(reached)


Operation = Matrix | Convolution
