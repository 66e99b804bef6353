"""Convolutions that give one pixel per image, as linear layers.

In: an ordinary affine layer. Out: a module that computes the same. Deep networks on small images come down to one
pixel; a convolution is then a matrix product over the pixels under its kernel, and weights that meet padding alone
need not be read. Libraries of convolutions are several times slower on such shapes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Window = tuple[tuple[slice, ...], tuple[slice, ...]]


class Product(torch.nn.Module):
    """An affine layer for inference.

    Args:
        layer: An ordinary linear layer or convolution.
    """

    cropped: Tensor

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.sizes: tuple[int, ...] | None = None
        self.register_buffer("cropped", None)
        self._may_crop = may_crop(layer)
        self._pointwise = self._may_crop and all(size == 1 for size in layer.kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        """What the layer gives."""
        layer, sizes = self.layer, tuple(x.shape[2:])
        window = one_pixel(layer, sizes) if self._may_crop and (self._pointwise or sizes == self.sizes) else None
        if window is None:
            return layer(x)
        weight = layer.weight.flatten(1) if self._pointwise else self.cropped
        y = F.linear(x[(slice(None), slice(None), *window[1])].flatten(1), weight, layer.bias)
        return y.view(*y.shape, *(1,) * len(sizes))

    def prepare(self, sizes: tuple[int, ...]) -> None:
        """Keep the weights that images of these sizes need, if one pixel comes out and padding meets the others."""
        window = one_pixel(self.layer, sizes) if self._may_crop and not self._pointwise else None
        if window is not None:
            self.cropped, self.sizes = self.layer.weight[(..., *window[0])].flatten(1).clone(), sizes


def may_crop(layer: Any) -> bool:
    """Whether :func:`one_pixel` can be asked about a layer."""
    return isinstance(layer, torch.nn.modules.conv._ConvNd) and layer.groups == 1 and layer.padding_mode == "zeros"


def one_pixel(layer: Any, sizes: tuple[int, ...]) -> Window | None:
    """Where kernel and image meet, if the result of a convolution is one pixel; ``None`` if it is not.

    Args:
        layer: A convolution with zeros as padding.
        sizes: Of the image.

    Returns:
        Slices of the kernel and of the image, one for each spatial dimension.

    Example:
        >>> one_pixel(torch.nn.Conv2d(1, 1, 3, stride=2, padding=1), (2, 1))
        ((slice(1, 3, None), slice(1, 2, None)), (slice(0, 2, 1), slice(0, 1, 1)))
    """
    if len(sizes) != len(layer.kernel_size):
        return None  # no batch
    kernel, image = [], []
    padding = layer._reversed_padding_repeated_twice
    for axis, size in enumerate(sizes):
        before, after = padding[2 * (len(sizes) - 1 - axis) :][:2]
        length, step = layer.kernel_size[axis], layer.dilation[axis]
        if not 0 <= size + before + after - step * (length - 1) - 1 < layer.stride[axis]:
            return None
        taps = [tap for tap in range(length) if 0 <= tap * step - before < size]
        if not taps:
            return None
        first, last = taps[0], taps[-1]
        kernel.append(slice(first, last + 1))
        image.append(slice(first * step - before, last * step - before + 1, step))
    return tuple(kernel), tuple(image)
