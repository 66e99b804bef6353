r"""Product of intervals ``>= 0`` and interval weights with the C++ library.

.. math:: \underline o = \sum_k \underline W_k \cdot (\underline a_k \text{ if } \underline W_k
    \ge 0 \text{ else } \overline a_k),\quad \overline o = \sum_k \overline W_k \cdot (\overline a_k
    \text{ if } \overline W_k \ge 0 \text{ else } \underline a_k)

The result is exact (sim_full_o_lower_upper), with two multiplications for each weight. The product
is followed by a norm on the center and the radius, a residual and a ReLU. It uses float32 on a CPU
and has no gradients. The radius is a difference of sums, so narrow radii lose digits.
"""

import ctypes
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from creinn.native.library import LEVELS, LIBRARY, Layer, best_level, reason

Pair = tuple[int, int]

_STEP = 32  # inputs per step; the signs fill a word and the tile is in the L1 cache


@dataclass(frozen=True)
class Window:
    """The settings of a 2d convolution; a linear layer is a convolution of one pixel."""

    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def size(self, image: Pair) -> Pair:
        """Return the height and the width of the result.

        Example:
            >>> Window((3, 3), stride=(2, 2), padding=(1, 1)).size((7, 8))
            (4, 4)
        """
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        found = zip(image, spans, self.stride, self.padding, strict=True)
        height, width = ((n + 2 * pad - span) // stride + 1 for n, span, stride, pad in found)
        return height, width


def pack(
    lower: Float[Tensor, "outputs inputs *kernel"],
    upper: Float[Tensor, "outputs inputs *kernel"],
    groups: int = 1,
) -> Int[Tensor, " words"]:
    """Pack the bounds of the weights in the order in which they are used.

    The inputs are divided into steps. For each step and output there is one word of signs, and then
    the two bounds for each input. There are two signs for each input. They are set if the lower or
    the upper bound is multiplied with the upper bound of the input.

    Raises:
        ValueError: If the dtype of the bounds is not float32.

    Example:
        >>> packed = pack(torch.tensor([[1.0, -2.0]]), torch.tensor([[2.0, -1.0]]))
        >>> bin(packed[0]), packed[1:].view(torch.float32)  # signs of 1, 2, -2, -1
        ('0b110', tensor([ 1.,  2., -2., -1.]))
    """
    if (lower.dtype, upper.dtype) != (torch.float32, torch.float32):
        raise ValueError(f"The weights must be float32, got {lower.dtype} and {upper.dtype}.")
    rows = torch.stack((lower, upper), -1).reshape(groups, len(lower) // groups, -1, 2)
    steps = rows.split(_step(rows.shape[2]), 2)
    steps = [torch.cat((_signs(step), step.flatten(2).view(torch.int64)), 2) for step in steps]
    return torch.cat([step[group].flatten() for group in range(groups) for step in steps])


def _signs(step: Float[Tensor, "groups outputs inputs 2"]) -> Int[Tensor, "groups outputs 1"]:
    meet_upper = torch.signbit(step) ^ torch.tensor([False, True], device=step.device)
    places = torch.arange(2 * step.shape[2], device=step.device)
    return (meet_upper.flatten(2).long() << places).sum(2, keepdim=True)


def unpack(
    packed: Int[Tensor, " words"], shape: torch.Size, groups: int = 1
) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper bounds of packed weights with this shape.

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
) -> Float[Tensor, "images 2 outputs rows columns"]:
    """Compute the bounds of the product with the threads of torch.

    Args:
        bounds: The bounds of the inputs, which are ``>= 0``.
        weights: The bounds of the weights, as returned by :func:`pack`.
        norm: The scale and shift of the sum of the bounds, and then of the difference, for each
            output. They give center and radius. The identity is ``(0.5, 0, 0.5, 0)``.
        window: The kernel, stride, padding, dilation and groups.
        residual: The bounds to be added.
        magnitude: Whether to use the absolute value of a negative radius. Otherwise it is 0.
        relu: Whether to apply a ReLU.
        level: The index in ``LEVELS``. The default is the highest level of the processor.

    Raises:
        RuntimeError: If the library is not available, or if there is not enough memory.

    Example:
        >>> from creinn import native
        >>> x = torch.tensor([1.0, 0.0, 2.0, 3.0]).view(1, 2, 2, 1, 1)   # [1, 2] and [0, 3]
        >>> w = native.pack(torch.tensor([[0.5, -1.5]]), torch.tensor([[1.5, -0.5]]))
        >>> norm = torch.tensor([[0.5, 0.0, 0.5, 0.0]])
        >>> if native.available:  # 0.5 * 1 - 1.5 * 3 and 1.5 * 2 - 0.5 * 0
        ...     assert native.product(x, w, norm, native.Window()).flatten().tolist() == [-4, 3]
    """
    if LIBRARY is None:
        raise RuntimeError(reason)
    if (level := best_level if level is None else level) > best_level:
        raise RuntimeError(f"This processor has no {LEVELS[level]}, only {LEVELS[best_level]}.")
    images, _, channels, height, width = bounds.shape
    groups, outputs, size = window.groups, len(norm), window.size((height, width))
    results = bounds.new_empty(images, 2, outputs, *size)
    given = (bounds, norm, residual, weights)
    tensors = [tensor if tensor is None else tensor.contiguous() for tensor in given]
    layer = Layer(
        *(images, channels // groups, height, width, outputs // groups, groups, *size),
        *(*window.kernel, *window.stride, *window.padding, *window.dilation),
        *(_step(channels // groups * window.kernel[0] * window.kernel[1]), magnitude, relu),
        *(None if tensor is None else tensor.data_ptr() for tensor in (*tensors, results)),
    )
    if LIBRARY.creinn_product(ctypes.byref(layer), torch.get_num_threads(), level):
        raise RuntimeError("Not enough memory for the native product.")
    return results
