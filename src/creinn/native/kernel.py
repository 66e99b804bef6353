r"""Products of intervals ``>= 0``, radii and credal sets with the C++ library.

The product of intervals and interval weights is

.. math::
    \underline o = \sum_k \underline W_k \cdot (\underline a_k \text{ if }
    \underline W_k \ge 0 \text{ else } \overline a_k),\quad
    \overline o = \sum_k \overline W_k \cdot (\overline a_k \text{ if }
    \overline W_k \ge 0 \text{ else } \underline a_k)

The result is exact up to rounding (sim_full_o_lower_upper), in float32 on
a CPU without gradients. It is followed by a norm of the center and the
radius, a residual and a ReLU. The radius is a difference of sums, so
narrow radii lose digits.
"""

import ctypes
import math
import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch  # before the library, which uses its OpenMP threads
from jaxtyping import Float, Int
from torch import Tensor

_SIZES = """images channels height width outputs groups out_height out_width kernel_y kernel_x
stride_y stride_x padding_y padding_x dilation_y dilation_x step magnitude relu"""
_ADDRESSES = "inputs norm residual weights results"
_ARGUMENTS = {
    "creinn_product": [ctypes.c_void_p, ctypes.c_int, ctypes.c_int],
    "creinn_radius": [ctypes.c_long, *[ctypes.c_void_p] * 4, ctypes.c_int],
    "creinn_credal_set": [
        *[ctypes.c_void_p] * 3, *[ctypes.c_long] * 2, ctypes.c_int, ctypes.c_double,
        *[ctypes.c_void_p] * 2,
    ],
}  # fmt: skip
_ADVICE = "Install a C++ compiler, then creinn with pip install --verbose."
NAME = f"_product{sysconfig.get_config_var('EXT_SUFFIX')}"
LEVELS = ("portable", "AVX2", "AVX-512")


class Layer(ctypes.Structure):
    """Arguments of the product; see ``product.cpp``."""

    _fields_ = [
        *((name, ctypes.c_long) for name in _SIZES.split()),
        *((name, ctypes.c_void_p) for name in _ADDRESSES.split()),
    ]


def load(folder: Path) -> tuple[ctypes.CDLL | None, str]:
    """Return the library, or ``None`` and the reason."""
    if os.environ.get("CREINN_NATIVE") == "0":
        return None, "creinn.native is disabled by CREINN_NATIVE=0."
    path = folder / NAME
    if not path.exists():
        return None, f"creinn.native is not built: {path} does not exist. {_ADVICE}"
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW)
        for name, types in _ARGUMENTS.items():
            getattr(library, name).argtypes = types
        if library.creinn_size_of_layer() != ctypes.sizeof(Layer):
            return None, f"creinn.native was built from other sources: {path}. {_ADVICE}"
    except (OSError, AttributeError) as error:
        return None, f"creinn.native was built but cannot be loaded: {error}"
    return library, ""


LIBRARY, reason = load(Path(__file__).parent)
available = LIBRARY is not None
best_level = LIBRARY.creinn_best_level() if LIBRARY is not None else 0
is_vectorized = best_level > 0

Pair = tuple[int, int]

_STEP = 32  # number of signs in a word of 32 bits


@dataclass(frozen=True)
class Window:
    """Settings of a 2d convolution."""

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
    """Pack the bounds of float32 weights.

    For each step of inputs and each output there is a word of signs,
    followed by the two bounds for each input. A sign is set if the bound
    is multiplied with the upper bound of the input.

    Example:
        >>> packed = pack(torch.tensor([[1.0, -2.0]]), torch.tensor([[2.0, -1.0]]))
        >>> bin(packed[0]), packed[1:].view(torch.float32)  # signs of 1, 2, -2, -1
        ('0b110', tensor([ 1.,  2., -2., -1.]))
    """
    if not lower.dtype == upper.dtype == torch.float32:
        raise ValueError(f"The weights must be float32, got {lower.dtype} and {upper.dtype}.")
    rows = torch.stack((lower, upper), -1).reshape(groups, len(lower) // groups, -1, 2)
    steps = rows.split(_step(rows.shape[2]), 2)
    words = [torch.cat((_signs(step), step.flatten(2).view(torch.int64)), 2) for step in steps]
    return torch.cat([word.flatten(1) for word in words], 1).flatten()


def _signs(step: Float[Tensor, "groups outputs inputs 2"]) -> Int[Tensor, "groups outputs 1"]:
    meet_upper = torch.signbit(step) ^ torch.tensor([False, True], device=step.device)
    places = torch.arange(2 * step.shape[2], device=step.device)
    return (meet_upper.flatten(2).long() << places).sum(2, keepdim=True)


def unpack(
    packed: Int[Tensor, " words"], shape: torch.Size, groups: int = 1
) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper bounds of packed weights."""
    outputs, depth = shape[0] // groups, shape[1:].numel()
    sizes = [outputs * (1 + len(step)) for step in torch.arange(depth).split(_step(depth))]
    parts = packed.view(groups, -1).split(sizes, 1)
    pairs = torch.cat([part.view(groups, outputs, -1)[:, :, 1:] for part in parts], 2)
    lower, upper = pairs.view(torch.float32).view(*shape, 2).unbind(-1)
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
        weights: The weights, as returned by :func:`pack`.
        norm: The scale and shift of the sum, and of the difference of the
            bounds, for each output. The identity is ``(0.5, 0, 0.5, 0)``.
        window: The settings of the convolution.
        residual: The bounds to be added.
        magnitude: Whether to replace negative radii by their absolute
            values instead of 0.
        relu: Whether to apply a ReLU.
        level: The index in ``LEVELS``, by default the highest of the
            processor.

    Raises:
        RuntimeError: If the library or the level is not available, or if
            there is not enough memory.
    """
    level = best_level if level is None else level
    if level > best_level:
        raise RuntimeError(f"The processor has {LEVELS[best_level]}, not {LEVELS[level]}.")
    images, _, channels, height, width = bounds.shape
    groups, outputs, size = window.groups, len(norm), window.size((height, width))
    depth = channels // groups * math.prod(window.kernel)
    results = bounds.new_empty(images, 2, outputs, *size)
    tensors = [t if t is None else t.contiguous() for t in (bounds, norm, residual, weights)]
    layer = Layer(
        *(images, channels // groups, height, width, outputs // groups, groups, *size),
        *(*window.kernel, *window.stride, *window.padding, *window.dilation),
        *(_step(depth), magnitude, relu),
        *(None if tensor is None else tensor.data_ptr() for tensor in (*tensors, results)),
    )
    _call("creinn_product", ctypes.byref(layer), torch.get_num_threads(), level)
    return results


def radius(
    sizes: Int[Tensor, " sizes"], values: Float[Tensor, " values"], features: list[Tensor]
) -> Float[Tensor, " rows"]:
    """Compute the radii of the rows of features; see ``prediction.cpp``."""
    radii = features[0].new_empty(features[0].shape[0])
    rows = (ctypes.c_void_p * len(features))(*(x.data_ptr() for x in features))
    tensors = (sizes.data_ptr(), values.data_ptr(), rows, radii.data_ptr())
    _call("creinn_radius", radii.shape[0], *tensors, best_level)
    return radii


def credal_set(
    lower: Float[Tensor, "rows classes"],
    upper: Float[Tensor, "rows classes"],
    radii: Float[Tensor, " rows"] | None,
    mode: str,
    most: float,
) -> tuple[Tensor, Tensor]:
    """Compute the reachable probability intervals of interval logits.

    The radii are added to the logits; they are limited to the range of the
    logits plus ``most``.
    """
    lowest, highest = torch.empty_like(lower), torch.empty_like(lower)
    inputs = (t if t is None else t.data_ptr() for t in (lower, upper, radii))
    options = (*lower.shape, mode == "sound", most)
    _call("creinn_credal_set", *inputs, *options, lowest.data_ptr(), highest.data_ptr())
    return lowest, highest


def _call(name: str, *arguments: Any) -> None:
    if LIBRARY is None:
        raise RuntimeError(reason)
    if getattr(LIBRARY, name)(*arguments):
        raise RuntimeError("creinn.native has not enough memory.")
