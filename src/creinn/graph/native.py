"""Folded layers that use the C++ library of :mod:`creinn.native`.

The library computes a convolution in one or two dimensions with symmetric zero padding and full
radii that are not narrow, if the processor has AVX2 or AVX-512, the input is an interval ``>= 0``
in float32 on the CPU, and the output has more than one pixel. Otherwise torch computes the
layer, as in :class:`FoldedFull`. The choice depends on the layer, the shapes and processor only.

A sum after a layer of the library, and its ReLU, are computed by the layer. The intervals between
these layers are stored as bounds.
"""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from creinn import native
from creinn.graph.fold import FoldedFull, Maps, sum_moments
from creinn.interval import Interval
from creinn.nn.affine import IntervalParameters
from creinn.numerics import valid_radius, widen

NARROW = 1e-3  # relative radii below this number lose digits in the difference of the bounds


class NativeFull(FoldedFull):
    """A layer with full radii that uses the library for intervals ``>= 0``.

    The block weight of :class:`FoldedFull` is computed when another input first needs it.
    """

    pairs: Tensor | None
    norm: Tensor

    def _fold(self, layer: IntervalParameters, maps: Maps | None) -> None:
        self.register_buffer("pairs", None)
        self.window = window_of(layer)
        if self.window is None or not _is_supported(layer.weight) or is_narrow(layer):
            super()._fold(layer, maps)
            return
        self.groups = self.window.groups
        center, radius = widen(layer.weight), widen(valid_radius(layer.weight_radius))
        self.register_buffer("norm", _norm(layer, maps).float())
        self.pairs = native.pack((center - radius).float(), (center + radius).float(), self.groups)
        self.block = None  # type: ignore[assignment]
        self._layer = (copy.deepcopy(layer).to("meta"),)  # in a tuple: not a submodule

    def forward(self, x: Interval, residual: Any = None, relu: bool = False) -> Interval:
        """Apply the layer to a batch of intervals, and add a residual and a ReLU if given."""
        if self.pairs is None:
            y = super().forward(x)
        elif torch.compiler.is_compiling():
            raise RuntimeError("Layers of creinn.native have no graph. Compile with native=False.")
        elif self._fits(x):
            if self._can_be_added(residual, x):
                return self._by_library(x, residual, relu or self.relu)
            y = self._by_library(x, None, self.relu)
        else:
            y = self._by_torch(x)
        return y if residual is None else sum_moments(y, residual, relu)

    def _fits(self, x: Interval) -> bool:
        """Return whether the library supports the input."""
        if x.is_point or not x.nonnegative or x.ndim != self._ndim or x._any.numel() == 0:
            return False
        if not (_is_supported(x._any) and _is_supported(self.norm)):
            return False
        height, width = self._shape(x)[3:]
        return height * width > 1

    def _can_be_added(self, residual: Any, x: Interval) -> bool:
        """Return whether the library can add a residual; ``None`` is not added."""
        if not isinstance(residual, Interval) or residual.is_point or residual.ndim != x.ndim:
            return False
        shape = (len(residual), 2, *(1, 1, *residual.shape[1:])[-3:])
        return _is_supported(residual._any) and shape == self._shape(x)

    def _shape(self, x: Interval) -> tuple[int, ...]:
        """Return the shape of the output with two image dimensions."""
        assert self.window is not None
        height, width = (1, 1, *x.shape[2:])[-2:]
        return len(x), 2, len(self.norm), *self.window.size((height, width))

    def _by_library(self, x: Interval, residual: Interval | None, relu: bool) -> Interval:
        assert self.pairs is not None
        assert self.window is not None
        bounds, missing = x.bounds, (1,) * (4 - x.ndim)  # the image dimensions that are missing
        bounds = bounds.reshape(*bounds.shape[:3], *missing, *bounds.shape[3:])
        others = None if residual is None else residual.bounds.reshape(self._shape(x))
        y = native.product(bounds, self.pairs, self.norm, self.window, others, self.magnitude, relu)
        return Interval._of_bounds(y.reshape(*y.shape[:3], *y.shape[3 + len(missing) :]), relu)

    def _by_torch(self, x: Interval) -> Interval:
        if self.block is None and self._takes(x):
            self._make_block()
        if x.is_point and self.relu and self._takes(x):
            return self._bounds_of_points(x.lower)
        return super().forward(x)

    def _bounds_of_points(self, x: Tensor) -> Interval:
        """Return the output after the ReLU as bounds, for a layer of the library after it."""
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

    def _make_block(self) -> None:
        """Compute the block weight from the packed weights."""
        assert self.pairs is not None
        layer: Any = copy.deepcopy(self._layer[0])
        bounds = native.unpack(self.pairs, layer.weight.shape, self.groups)
        lower, upper = (t.to(self.norm) for t in bounds)
        layer.weight = torch.nn.Parameter((lower + upper) / 2)
        layer.weight_radius = torch.nn.Parameter((upper - lower) / 2)
        layer.bias, layer.bias_radius = None, None
        scale, bias, radius_scale, radius_bias = self.norm.unbind(1)
        maps = 2 * torch.stack((scale, radius_scale)), torch.stack((bias, radius_bias))
        with torch.no_grad():
            super()._fold(layer, maps)
        if layer.weight.ndim == 4:
            self.block.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _norm(layer: IntervalParameters, maps: Maps | None) -> Tensor:
    """Return half of the scale, and the bias, of the center and then of the radius ``(O, 4)``."""
    shape = 2, len(layer.weight)
    scale, shift = maps or (torch.ones(shape).double(), torch.zeros(shape).double())
    terms = zip(layer._biases(), scale, shift, strict=True)
    center, radius = (t if b is None else b * s + t for b, s, t in terms)
    return torch.stack((scale[0] / 2, center, scale[1] / 2, radius), 1)


def is_narrow(layer: IntervalParameters) -> bool:
    """Return whether the radii are too small to be computed from the bounds."""
    return bool(valid_radius(layer.weight_radius).sum() < NARROW * layer.weight.abs().sum())


def window_of(layer: Any) -> native.Window | None:
    """Return the window of a 1d or 2d convolution with symmetric zero padding, or ``None``."""
    if isinstance(layer, torch.nn.Linear):
        return None
    sides = layer._reversed_padding_repeated_twice
    if len(layer.kernel_size) > 2 or layer.padding_mode != "zeros" or sides[::2] != sides[1::2]:
        return None
    options = (layer.kernel_size, layer.stride, layer.dilation)
    kernel, stride, dilation = ((1, *values)[-2:] for values in options)
    padding = (0, *sides[::2][::-1])[-2:]
    return native.Window(kernel, stride, padding, dilation, layer.groups)


def join_sums(folded: fx.GraphModule) -> None:
    """Move a sum and its ReLU into a layer of the library if it is the only user."""
    for node in folded.graph.nodes:
        if node.target is not sum_moments:
            continue
        for layer, other in (node.args, node.args[::-1]):
            if isinstance(layer, fx.Node) and layer is not other and _can_join(layer, folded):
                node.op, node.target, node.args = "call_module", layer.target, layer.args
                node.kwargs = {"residual": other, "relu": node.kwargs["relu"]}
                folded.graph.erase_node(layer)
                break
    folded.recompile()


def _can_join(node: fx.Node, folded: fx.GraphModule) -> bool:
    """Return whether the layer of a node can compute a sum and a ReLU after it."""
    if node.op != "call_module" or len(node.users) != 1 or node.kwargs:
        return False
    layer = folded.get_submodule(str(node.target))
    return isinstance(layer, NativeFull) and layer.pairs is not None and not layer.relu


def _is_supported(tensor: Tensor) -> bool:
    """Return whether the library supports the tensor, which must not be traced."""
    if not (native.available and native.is_vectorized) or torch.compiler.is_compiling():
        return False
    is_plain = type(tensor) in (Tensor, torch.nn.Parameter)
    return is_plain and tensor.dtype == torch.float32 and tensor.device.type == "cpu"
