"""Affine interval layers with the batch norm and the ReLU after them.

In eval mode a batch norm is affine in the center and in the radius, so its
scale is a factor of the weights.

:mod:`creinn.native` computes 1d and 2d convolutions with symmetric zero
padding and full radii that are not narrow, and a sum and a ReLU after
them. This requires AVX2 or AVX-512, an input ``>= 0`` in float32 on the
CPU, and an output of several pixels. The values of the input do not affect
the choice.
"""

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from creinn import native
from creinn.classifier.compile_cache import LOCK
from creinn.interval import Interval
from creinn.nn import functional as functions
from creinn.nn._product import by_group, nonnegative_weight, on_blocks, widened
from creinn.nn.affine import one_pixel
from creinn.nn.relative import valid_relative_radius
from creinn.numerics import relu_, valid_radius, widen

NARROW = 1e-3  # smaller relative radii lose digits


class FoldedLayer(Module):
    """An affine interval layer with an optional batch norm and ReLU.

    The original layers are in ``general``, for all other inputs.
    """

    def __init__(self, layer: Any, norm: Any, relu: bool, general: Any) -> None:
        super().__init__()
        self.relu, self.general = relu, general
        self.magnitude = norm is not None and norm.mode == "paper"
        self._ndim, self.groups = layer.weight.ndim, getattr(layer, "groups", 1)
        with torch.no_grad():
            ones = widen(layer.weight.new_ones(2, len(layer.weight)))
            scale, shift = (ones, 0 * ones) if norm is None else norm.eval_maps()
            terms = zip(layer._biases(), scale, shift, strict=True)
            bias = torch.stack([t if b is None else b * s + t for b, s, t in terms])
            self._fold(layer, scale, bias)

    def _fold(self, layer: Any, scale: Tensor, bias: Tensor) -> None:
        """Store the weights; ``scale`` and ``bias`` are ``(2, O)``."""
        raise NotImplementedError

    def _product(self, x: Interval) -> Tensor:
        """Return center and radius ``(N, 2, O, ...)``."""
        raise NotImplementedError

    def forward(self, x: Interval) -> Interval:
        """Apply the layer to a batch of intervals."""
        if self.general is not None and not self._takes(x):
            return self.general(x)
        return finish(self._product(x), self.magnitude, self.relu)

    def _takes(self, x: Interval) -> bool:
        return x.ndim == self._ndim


class FoldedRelative(FoldedLayer):
    """A layer with relative radii, with two products."""

    relative_radius: Tensor

    def _fold(self, layer: Any, scale: Tensor, bias: Tensor) -> None:
        center = widen(layer.weight)
        weights = torch.stack((center, center.abs()))
        weights = weights * scale.view(*scale.shape, *(1,) * (self._ndim - 1))
        self.center = Product(layer, weights[0], bias[0]).to(layer.weight)
        self.radius = Product(layer, weights[1], bias[1]).to(layer.weight)
        relative = valid_relative_radius(layer.relative_radius).clone()
        self.register_buffer("relative_radius", relative.view(-1, *(1,) * (self._ndim - 2)))

    def _product(self, x: Interval) -> Tensor:
        center, radius = widened(x, self.relative_radius)
        return torch.cat((self.center(center), self.radius(radius)), 1).unflatten(1, (2, -1))


class FoldedFull(FoldedLayer):
    """A layer with full radii, for intervals ``>= 0`` and points."""

    block: Any

    def _fold(self, layer: Any, scale: Tensor, bias: Tensor) -> None:
        weights = layer.weight, valid_radius(layer.weight_radius)
        self.block = self._block(layer, *weights, scale, bias).to(layer.weight)

    def _block(
        self, layer: Any, center: Tensor, radius: Tensor, scale: Tensor, bias: Tensor
    ) -> "Product":
        weight = nonnegative_weight(widen(center), widen(radius), self.groups)
        scale, bias = (by_group(t[0], t[1], self.groups) for t in (scale, bias))
        return Product(layer, weight * scale.view(-1, *(1,) * (self._ndim - 1)), bias)

    def _takes(self, x: Interval) -> bool:
        return super()._takes(x) and (x.is_point or x.nonnegative)

    def _product(self, x: Interval) -> Tensor:
        if x.is_point:
            return torch.cat(self._of_points(x.lower), 1).unflatten(1, (2, -1))
        if self.groups > 1:
            return on_blocks(self.block, x.center_radius, self.groups)
        return self.block(x.center_radius.flatten(1, 2)).unflatten(1, (2, -1))

    def _of_points(self, x: Tensor) -> tuple[Tensor, Tensor]:
        block = self.block
        weight = block.weight[:, : block.weight.shape[1] // 2]  # of the center
        (center, radius), biases = map(self._halves, (weight, block.bias))
        return block.product(x, center, biases[0]), block.product(x.abs(), radius, biases[1])

    def _halves(self, block: Tensor) -> list[Tensor]:
        return [t.flatten(0, 1) for t in block.unflatten(0, (self.groups, 2, -1)).unbind(1)]


class NativeFull(FoldedFull):
    """A layer that uses the library for intervals ``>= 0``."""

    pairs: Tensor
    norm: Tensor

    @staticmethod
    def supports(layer: Any) -> bool:
        """Return whether the library can compute a layer."""
        if window_of(layer) is None or not native.is_supported(layer.weight):
            return False
        return bool(valid_radius(layer.weight_radius).sum() >= NARROW * layer.weight.abs().sum())

    def _fold(self, layer: Any, scale: Tensor, bias: Tensor) -> None:
        self.window: Any = window_of(layer)
        center, radius = widen(layer.weight), widen(valid_radius(layer.weight_radius))
        pairs = native.pack((center - radius).float(), (center + radius).float(), self.groups)
        self.register_buffer("pairs", pairs)
        norm = torch.stack((scale[0] / 2, bias[0], scale[1] / 2, bias[1]), 1)
        self.register_buffer("norm", norm.float())
        self.block, self._layer = None, _options_of(layer)

    def forward(self, x: Interval, residual: Any = None, relu: bool = False) -> Interval:
        """Apply the layer, with an optional residual and ReLU."""
        if torch.compiler.is_compiling():
            raise RuntimeError("creinn.native has no graph. Compile with native=False.")
        if not self._fits(x):
            y = self._by_torch(x)
        elif residual is None or self._can_add(residual, x):
            return self._by_library(x, residual, relu or self.relu)
        else:
            y = self._by_library(x, None, self.relu)
        return y if residual is None else sum_moments(y, residual, relu)

    def _fits(self, x: Interval) -> bool:
        if x.is_point or not x.nonnegative or x.ndim != self._ndim or x._any.numel() == 0:
            return False
        pixels = math.prod(self._shape(x)[2:])
        return pixels > 1 and native.is_supported(x._any, self.norm)

    def _can_add(self, residual: Any, x: Interval) -> bool:
        if not isinstance(residual, Interval) or residual.is_point:
            return False
        return native.is_supported(residual._any) and residual.shape == self._shape(x)

    def _shape(self, x: Interval) -> tuple[int, ...]:
        height, width = (1, *x.shape[2:])[-2:]
        return len(x), len(self.norm), *self.window.size((height, width))[4 - x.ndim :]

    def _by_library(self, x: Interval, residual: Interval | None, relu: bool) -> Interval:
        bounds, added = x.bounds, None if residual is None else residual.bounds
        if x.ndim == 3:  # the library needs two image dimensions
            bounds, added = bounds.unsqueeze(3), None if added is None else added.unsqueeze(3)
        y = native.product(bounds, self.pairs, self.norm, self.window, added, self.magnitude, relu)
        return Interval._of_bounds(y.squeeze(3) if x.ndim == 3 else y, relu)

    def _by_torch(self, x: Interval) -> Interval:
        if not self._takes(x):
            return self.general(x)
        if self.block is None:
            self._unpack()
        if x.is_point and self.relu:
            return self._bounds_of_points(x.lower)
        return super().forward(x)

    def _bounds_of_points(self, x: Tensor) -> Interval:
        """Return the output after the ReLU as bounds."""
        center, radius = self._of_points(x)
        if self.magnitude:
            radius.abs_()
        bounds = center.new_empty(len(center), 2, *center.shape[1:])
        if center.ndim == 4 and center.is_contiguous(memory_format=torch.channels_last):
            bounds = bounds.view(len(center), 2, *center.shape[2:], center.shape[1])
            bounds = bounds.permute(0, 1, 4, 2, 3)  # faster for pooling
        torch.sub(center, radius, out=bounds[:, 0])
        torch.add(center, radius, out=bounds[:, 1])
        return Interval._of_bounds(F.leaky_relu_(bounds, 0.0), True)

    @torch.no_grad()
    def _unpack(self) -> None:
        (layer,), norm = self._layer, widen(self.norm)
        lower, upper = map(widen, native.unpack(self.pairs, layer.weight.shape, self.groups))
        weights = (lower + upper) / 2, (upper - lower) / 2
        block: Any = self._block(layer, *weights, 2 * norm.T[::2], norm.T[1::2])
        block = block.to(self.norm).eval()
        is_image = self._ndim == 4
        self.block = block.to(memory_format=torch.channels_last) if is_image else block


class Product(Module):
    """A linear layer or convolution with an optional ReLU.

    If the first images give one pixel, images of this size need only a
    matrix product. A linear layer can include a batch norm of matrices;
    ``general`` is for other inputs.
    """

    cropped: Tensor

    def __init__(
        self, layer: Any, weight: Tensor, bias: Any, relu: bool = False, general: Any = None
    ) -> None:
        super().__init__()
        self.relu, self.general = relu, general
        self._layer = _options_of(layer)
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)
        self.sizes: tuple[int, ...] | None = None  # of the first images
        self.register_buffer("cropped", None)
        self._is_conv = isinstance(layer, torch.nn.modules.conv._ConvNd)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute the product with another weight."""
        return (self._layer[0]._conv_forward if self._is_conv else F.linear)(x, weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        y = self._output(x) if self.general is None or x.ndim == 2 else self.general(x)
        return F.relu_(y) if self.relu else y

    def _output(self, x: Tensor) -> Tensor:
        if not self._is_conv:
            return F.linear(x, self.weight, self.bias)
        sizes = tuple(x.shape[2:])
        if self.sizes is None and not torch.compiler.is_compiling():
            with LOCK:
                self._prepare(sizes)
        window = one_pixel(self._layer[0], sizes) if sizes == self.sizes else None
        if window is None:
            return self.product(x, self.weight, self.bias)
        y = F.linear(x[(..., *window[1])].flatten(1), self.cropped, self.bias)
        return y.view(*y.shape, *(1,) * len(sizes))

    def _prepare(self, sizes: tuple[int, ...]) -> None:
        window = one_pixel(self._layer[0], sizes)
        if self.sizes is None and window is not None:
            self.cropped = self.weight[(..., *window[0])].flatten(1).contiguous()
        self.sizes = self.sizes or sizes  # after the weights, for other threads


def _options_of(layer: Any) -> tuple[Any]:
    return (copy.deepcopy(layer).to("meta"),)  # a tuple is not a submodule


def finish(moments: Tensor, magnitude: bool, relu: bool, nonnegative: bool = False) -> Interval:
    """Return intervals from center and radius ``(N, 2, C, ...)``, in place."""
    if magnitude:
        moments.select(1, 1).abs_()
    return Interval._of_center_radius(relu_(moments) if relu else moments, nonnegative or relu)


def sum_moments(input: Any, other: Any, relu: bool = False) -> Any:
    """Return the sum of intervals or sizes, with an optional ReLU."""
    is_wide = all(isinstance(x, Interval) and not x.is_point for x in (input, other))
    if not is_wide or input.shape != other.shape or input.ndim < 2:
        total = functions.add(input, other)
        return functions.relu(total) if relu else total
    nonnegative = input.nonnegative and other.nonnegative
    if input.has_center_radius or other.has_center_radius:
        return finish(input.center_radius + other.center_radius, False, relu, nonnegative)
    bounds = input.bounds + other.bounds
    return Interval._of_bounds(F.leaky_relu_(bounds, 0.0) if relu else bounds, relu or nonnegative)


def window_of(layer: Any) -> native.Window | None:
    """Return the window of a convolution that the library supports."""
    if isinstance(layer, torch.nn.Linear):
        return None
    sides = layer._reversed_padding_repeated_twice
    if len(layer.kernel_size) > 2 or layer.padding_mode != "zeros" or sides[::2] != sides[1::2]:
        return None
    options = (layer.kernel_size, layer.stride, layer.dilation)
    kernel, stride, dilation = ((1, *values)[-2:] for values in options)
    padding = (0, *sides[::2][::-1])[-2:]
    return native.Window(kernel, stride, padding, dilation, layer.groups)
