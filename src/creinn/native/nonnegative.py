r"""The product of intervals ``>= 0`` with interval weights by the library in C++: float32, on a CPU, no gradients.

.. math:: \underline o = \sum_k \underline W_k \cdot (\underline a_k \text{ if } \underline W_k \ge 0
    \text{ else } \overline a_k),\quad \overline o = \sum_k \overline W_k \cdot (\overline a_k \text{ if }
    \overline W_k \ge 0 \text{ else } \underline a_k)

(sim_full_o_lower_upper): exact, two multiplications for each weight. Behind it stand a norm in inference form, on
centre and radius, a residual, and a ReLU. The radius is a difference of sums here: narrow ones lose digits.
"""

import ctypes
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from creinn.native.library import LEVELS, LIBRARY, Layer, best_level, reason

Pair = tuple[int, int]

_STEP = 32  # most inputs that are multiplied at once: their signs fill a word, and their tile fits the first cache


@dataclass(frozen=True)
class Window:
    """What a convolution in two dimensions is besides its weights; a linear layer is one on images of one pixel."""

    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def size(self, image: Pair) -> Pair:
        """Height and width of the result.

        Example:
            >>> Window((3, 3), stride=(2, 2), padding=(1, 1)).size((7, 8))
            (4, 4)
        """
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        found = zip(image, spans, self.stride, self.padding, strict=True)
        height, width = [
            (size + 2 * padding - span) // stride + 1 for size, span, stride, padding in found
        ]
        return height, width


def pack(
    lower: Float[Tensor, "outputs inputs *kernel"],
    upper: Float[Tensor, "outputs inputs *kernel"],
    groups: int = 1,
) -> Int[Tensor, " words"]:
    """Both bounds of weights, in the order in which they are read.

    Inputs are taken in steps. For each step and output there is a word of signs, two for each input, whether the lower
    and the upper bound meet the input's upper one; then, input by input, both bounds.

    Raises:
        ValueError: If bounds are not float32.

    Example:
        >>> packed = pack(torch.tensor([[1.0, -2.0]]), torch.tensor([[2.0, -1.0]]))
        >>> bin(packed[0]), packed[1:].view(torch.float32)  # from the right: 1 meets lower, 2 upper, -2 upper, -1 lower
        ('0b110', tensor([ 1.,  2., -2., -1.]))
    """
    if (lower.dtype, upper.dtype) != (torch.float32, torch.float32):
        raise ValueError(
            f"The native product takes weights in float32, got {lower.dtype} and {upper.dtype}."
        )
    rows = torch.stack((lower, upper), -1).reshape(groups, len(lower) // groups, -1, 2)
    steps = rows.split(_step(rows.shape[2]), 2)
    steps = [torch.cat((_signs(step), step.flatten(2).view(torch.int64)), 2) for step in steps]
    return torch.cat([step[group].flatten() for group in range(groups) for step in steps])


def _signs(step: Float[Tensor, "groups outputs inputs 2"]) -> Int[Tensor, "groups outputs 1"]:
    meet_upper = torch.signbit(step) ^ torch.tensor([False, True], device=step.device)
    return (
        meet_upper.flatten(2).long() << torch.arange(2 * step.shape[2], device=step.device)
    ).sum(2, keepdim=True)


def unpack(
    packed: Int[Tensor, " words"], shape: torch.Size, groups: int = 1
) -> tuple[Tensor, Tensor]:
    """What was packed: lower and upper bounds of this shape.

    Example:
        >>> lower = torch.tensor([[1.0, 2.0]])
        >>> unpack(pack(lower, lower + 1), lower.shape)
        (tensor([[1., 2.]]), tensor([[2., 3.]]))
    """
    outputs, depth = shape[0] // groups, shape[1:].numel()
    sizes = [outputs * (1 + len(step)) for step in torch.arange(depth).split(_step(depth))]
    parts = [group.split(sizes) for group in packed.view(groups, -1)]
    rows = [torch.cat([step.view(outputs, -1)[:, 1:] for step in steps], 1) for steps in parts]
    pairs = torch.cat(rows).view(torch.float32)
    lower, upper = pairs.view(*shape, 2).unbind(-1)
    return lower, upper


def _step(depth: int) -> int:
    return -(-depth // max(1, -(-depth // _STEP)))


def product(
    bounds: Float[Tensor, "images 2 channels height width"],
    weights: Int[Tensor, " words"],
    norm: Float[Tensor, "outputs 4"],
    window: Window,
    residual: Float[Tensor, "images 2 outputs rows columns"] | None = None,
    magnitude: bool = False,
    relu: bool = False,
    level: int | None = None,
    threads: int | None = None,
) -> Float[Tensor, "images 2 outputs rows columns"]:
    """Both bounds of the results.

    Args:
        bounds: Both bounds of the inputs, ``>= 0``.
        weights: Both bounds of the weights, from :func:`pack`.
        norm: For each output scale and shift of the sum of both bounds, then of their difference; they give centre and
            radius. ``(0.5, 0, 0.5, 0)`` changes nothing.
        window: Kernel, stride, padding, dilation, groups.
        residual: Bounds that are added.
        magnitude: Whether a radius below 0 is taken by its absolute value; else it is 0.
        relu: Whether what is below 0 becomes 0.
        level: Instructions, an index of ``LEVELS``; by default the highest that the processor has.
        threads: How many work; by default as many as torch's.

    Raises:
        RuntimeError: If there is no library, or not enough memory.

    Example:
        >>> from creinn import native
        >>> x = torch.tensor([1.0, 0.0, 2.0, 3.0]).view(1, 2, 2, 1, 1)   # [1, 2] and [0, 3]
        >>> w = native.pack(torch.tensor([[0.5, -1.5]]), torch.tensor([[1.5, -0.5]]))
        >>> norm, expected = torch.tensor([[0.5, 0.0, 0.5, 0.0]]), [-4.0, 3.0]   # 0.5 * 1 - 1.5 * 3, 1.5 * 2 - 0.5 * 0
        >>> not native.available or native.product(x, w, norm, native.Window()).flatten().tolist() == expected
        True
    """
    if LIBRARY is None:
        raise RuntimeError(reason)
    images, _, channels, *image = bounds.shape
    height, width = image
    groups, outputs, size = window.groups, len(norm), window.size((height, width))
    results = bounds.new_empty(images, 2, outputs, *size)
    tensors = [
        tensor if tensor is None else tensor.contiguous()
        for tensor in (bounds, norm, residual, weights)
    ]
    layer = Layer(
        *(images, channels // groups, height, width, outputs // groups, groups, *size),
        *(*window.kernel, *window.stride, *window.padding, *window.dilation),
        *(
            _step(channels // groups * window.kernel[0] * window.kernel[1]),
            magnitude,
            relu,
        ),
        *(None if tensor is None else tensor.data_ptr() for tensor in (*tensors, results)),
    )
    level, threads = best_level if level is None else level, threads or torch.get_num_threads()
    if level > best_level:
        raise RuntimeError(
            f"This processor has no {LEVELS[level]}; its best level is {LEVELS[best_level]}."
        )
    if LIBRARY.creinn_product(ctypes.byref(layer), threads, level):
        raise RuntimeError("Not enough memory for the native product.")
    return results
