"""Folding of the layers of a trained network for inference.

The result is a copy of the graph of a network with the same bounds and fewer operations. An affine
interval layer, its batch norm and its ReLU are one :class:`FoldedLayer`. In eval mode a batch norm
is affine in the center and in the radius, so it is multiplied into the rows of the block weight.
The center and the radius are one tensor between these layers. A sum and its ReLU are one function.
A batch norm after an ordinary convolution is part of its weights.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.nn.utils.fusion import fuse_conv_bn_eval

from creinn import nn as inn
from creinn.classifier.network import LOCK
from creinn.graph.checks import GraphError
from creinn.graph.trace import Traced, trace
from creinn.interval import Interval
from creinn.nn import functional as functions
from creinn.nn._operations import Biases
from creinn.nn._product import block_bias, by_group, nonnegative_weight, on_blocks, widened
from creinn.nn.activation import relu_
from creinn.nn.affine import IntervalParameters, one_pixel
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.registry import arguments, build_layer, family_of, known_families
from creinn.nn.relative import RelativeParameters, valid_relative_radius
from creinn.numerics import valid_radius, widen

Maps = tuple[Tensor, Tensor]  # scale and shift (2, C) of a batch norm in eval mode
_IDLE_NAMES = ("Identity", "Dropout", "Dropout1d", "Dropout2d")
_IDLE = tuple(getattr(family, name) for family in (torch.nn, inn) for name in _IDLE_NAMES)
_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)


class FoldedNetwork(torch.nn.Module):
    """A folded network; its ``graph`` returns additional outputs and the logits."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.graph = graph

    def outputs_and_logits(self, x: Any) -> tuple[tuple[Any, ...], Any]:
        """Return the outputs of the selected modules, and the logits."""
        *inner, logits = self.graph(x)
        return tuple(inner), logits

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        return self.graph(x)[-1]


def fold(
    network: torch.nn.Module,
    at: Sequence[str | torch.nn.Module] = (),
    full: "type[FoldedFull] | None" = None,
) -> fx.GraphModule | FoldedNetwork:
    """Return a folded copy of a network in eval mode, with layers ``full`` for full radii.

    The result is a :class:`FoldedNetwork` if there are additional outputs ``at``; see
    :func:`find_node`.

    Raises:
        GraphError: If the network is not a graph of known layers, or if ``at`` is not found.
    """
    traced = trace(network, known_families())
    graph = traced.graph
    if at:
        output = graph.output_node()
        output.args = ((*(find_node(one, network, traced) for one in at), output.args[0]),)
    for node in list(graph.nodes):
        if type(traced.layer(node)) in _IDLE:
            _absorb(node.args[0], node)
    for node in graph.nodes:
        layer: Any = traced.layer(node)
        if isinstance(layer, IntervalParameters):
            _replace(node, traced, _fold_interval(node, layer, traced, full or FoldedFull))
        elif isinstance(layer, torch.nn.modules.conv._ConvNd) and family_of(layer) == "ordinary":
            _replace(node, traced, _fold_ordinary(node, layer, traced))
        elif node.target is functions.add:
            relu = _only_user(node, traced, inn.ReLU)
            node.target, node.kwargs = sum_moments, {**node.kwargs, "relu": relu is not None}
            _absorb(node, relu)
    called = {str(node.target) for node in graph.nodes if node.op == "call_module"}
    layers = {path: _copied(layer) for path, layer in traced.layers.items() if path in called}
    module = Traced(graph, layers).module("Folded").requires_grad_(False).eval()
    return FoldedNetwork(module).eval() if at else module


def find_node(at: str | torch.nn.Module, network: torch.nn.Module, traced: Traced) -> fx.Node:
    """Return the node for the output of the module at a path, or for the input of a layer.

    Raises:
        GraphError: If the module is not called in the graph.
    """
    module = network.get_submodule(at) if isinstance(at, str) else at
    paths = [path for path, part in network.named_modules() if part is module]
    node = traced.outputs.get(paths[0]) if paths else None
    if node is None:
        raise GraphError(f"{at}: the network does not call this module, or it returns no tensor.")
    return node if isinstance(at, str) else node.all_input_nodes[0]


def _fold_ordinary(node: fx.Node, layer: Any, traced: Traced) -> "Product":
    """Fold a convolution and the batch norm after it."""
    fused = copy.deepcopy(layer).eval()
    behind = _only_user(node, traced, _NORMS[layer.weight.ndim - 3])
    norm: Any = None if behind is None else traced.layer(behind)
    if norm is not None and norm.running_var is not None:
        fused = fuse_conv_bn_eval(fused, copy.deepcopy(norm).eval())
        _absorb(node, behind)
    return Product(fused)


def _fold_interval(
    node: fx.Node, layer: IntervalParameters, traced: Traced, full: "type[FoldedFull]"
) -> "FoldedLayer":
    """Fold the layer of ``node`` and the layers after it."""
    behind = _only_user(node, traced, IntervalBatchNorm)
    norm: Any = None if behind is None else traced.layer(behind)
    fits = norm is not None and norm.running_var is not None
    if not (fits and norm.num_features == len(layer.weight) and layer.weight.ndim in norm._dims):
        norm = behind = None
    _absorb(node, behind)
    relu = _only_user(node, traced, inn.ReLU)
    _absorb(node, relu)
    kind = FoldedRelative if isinstance(layer, RelativeParameters) else full
    source = node.all_input_nodes[0]
    before = traced.layer(source)
    is_after_relu = before.relu if isinstance(before, FoldedLayer) else source.kwargs.get("relu")
    has_batch = norm is not None and len(norm._dims) == 1
    if has_batch and (kind is FoldedRelative or is_after_relu):
        return kind(layer, norm, relu is not None, None)  # which supports all inputs
    parts = (layer, norm, None if relu is None else inn.ReLU())
    general = torch.nn.Sequential(*(_copied(part) for part in parts if part is not None))
    return kind(layer, norm, relu is not None, general)


def _replace(node: fx.Node, traced: Traced, layer: torch.nn.Module) -> None:
    path = f"folded_{len(traced.layers)}"
    traced.layers[path], node.target = layer, path


def _absorb(node: fx.Node, behind: fx.Node | None) -> None:
    """Remove ``behind`` from the graph, because it is a part of ``node``."""
    if behind is not None:
        behind.replace_all_uses_with(node)
        node.graph.erase_node(behind)


def _only_user(node: fx.Node, traced: Traced, kind: type[torch.nn.Module]) -> fx.Node | None:
    """Return the only user of ``node`` if it is a call of a layer of this kind."""
    if len(node.users) != 1:
        return None
    user = next(iter(node.users))
    is_relu = kind is inn.ReLU and user.target is functions.relu
    return user if is_relu or isinstance(traced.layer(user), kind) else None


def _copied(layer: torch.nn.Module) -> torch.nn.Module:
    return layer if isinstance(layer, FoldedLayer | Product) else copy.deepcopy(layer).eval()


# Folded layers.


class FoldedLayer(torch.nn.Module):
    """An affine interval layer with an optional batch norm and ReLU after it.

    ``general`` contains the original layers, for inputs that the folded form does not support.
    """

    _fold: Callable[[IntervalParameters, Maps | None], None]
    _product: Callable[[Interval], Tensor]  # (N, 2, O, ...) after the norm, in new memory

    def __init__(self, layer: IntervalParameters, norm: Any, relu: bool, general: Any) -> None:
        super().__init__()
        self.relu, self.general = relu, general
        self.magnitude = norm is not None and norm.mode == "paper"
        self._ndim = layer.weight.ndim
        with torch.no_grad():
            self._fold(layer, None if norm is None else norm.eval_maps())

    def forward(self, x: Interval) -> Interval:
        """Apply the layer to a batch of intervals."""
        if self.general is not None and not self._takes(x):
            return self.general(x)
        return finish(self._product(x), self.magnitude, self.relu)

    def _takes(self, x: Interval) -> bool:
        return x.ndim == self._ndim


class FoldedFull(FoldedLayer):
    """A layer with full radii: one product for intervals ``>= 0``, two for points."""

    def _fold(self, layer: IntervalParameters, maps: Maps | None) -> None:
        self.groups: int = getattr(layer, "groups", 1)
        block = nonnegative_weight(widen(layer.weight), widen(valid_radius(layer.weight_radius)), 1)
        (center, radius), biases = normed(block.chunk(2), layer._biases(), maps)
        weight = by_group(center, radius, self.groups)
        self.block = _ordinary(layer, weight, block_bias(biases, self.groups), times=2)

    def _takes(self, x: Interval) -> bool:
        return super()._takes(x) and (x.is_point or x.nonnegative)

    def _product(self, x: Interval) -> Tensor:
        if not x.is_point:
            return on_blocks(self.block, x.center_radius, self.groups)
        return torch.cat(self._of_points(x.lower), 1).unflatten(1, (2, -1))

    def _of_points(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the center and the radius."""
        layer = self.block.layer
        weight = layer.weight[:, : layer.weight.shape[1] // 2]  # the columns of the center
        center, radius = self._halves(weight)
        bias, bias_radius = (None, None) if layer.bias is None else self._halves(layer.bias)
        operation = F.linear if isinstance(layer, torch.nn.Linear) else layer._conv_forward
        return operation(x, center, bias), operation(x.abs(), radius, bias_radius)

    def _halves(self, block: Tensor) -> list[Tensor]:
        """Return the rows of the center and the rows of the radius."""
        return [t.flatten(0, 1) for t in block.unflatten(0, (self.groups, 2, -1)).unbind(1)]


class FoldedRelative(FoldedLayer):
    """A layer with relative radii; it uses two products for all inputs."""

    relative_radius: Tensor

    def _fold(self, layer: IntervalParameters, maps: Maps | None) -> None:
        assert isinstance(layer, RelativeParameters)
        weight = widen(layer.weight)
        weights, biases = normed((weight, weight.abs()), layer._biases(), maps)
        self.center, self.radius = (
            _ordinary(layer, w, b) for w, b in zip(weights, biases, strict=True)
        )
        relative = valid_relative_radius(layer.relative_radius).clone()
        self.register_buffer("relative_radius", relative.view(-1, *(1,) * (self._ndim - 2)))

    def _product(self, x: Interval) -> Tensor:
        center, radius = widened(x, self.relative_radius)
        return torch.cat((self.center(center), self.radius(radius)), 1).unflatten(1, (2, -1))


class Product(torch.nn.Module):
    """An ordinary layer; a matrix product for one output pixel, for the first image size."""

    cropped: Tensor

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.sizes: tuple[int, ...] | None = None  # of the first images
        self.register_buffer("cropped", None)
        self._is_conv = isinstance(layer, torch.nn.modules.conv._ConvNd)
        self._is_pointwise = self._is_conv and set(layer.kernel_size) == {1}

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer."""
        layer, sizes = self.layer, tuple(x.shape[2:])
        if not self._is_conv:
            return F.linear(x, layer.weight, layer.bias)
        if self.sizes is None and not torch.compiler.is_compiling():
            with LOCK:
                self._prepare(sizes)
        fits = self._is_pointwise or sizes == self.sizes
        window = one_pixel(layer, sizes) if fits else None
        if window is None:
            return layer._conv_forward(x, layer.weight, layer.bias)
        weight = layer.weight.flatten(1) if self._is_pointwise else self.cropped
        y = F.linear(x[(..., *window[1])].flatten(1), weight, layer.bias)
        return y.view(*y.shape, *(1,) * len(sizes))

    def _prepare(self, sizes: tuple[int, ...]) -> None:
        window = None if self._is_pointwise else one_pixel(self.layer, sizes)
        if self.sizes is None and window is not None:
            self.cropped = self.layer.weight[(..., *window[0])].flatten(1).clone()
        self.sizes = self.sizes or sizes  # after the weights, for other threads


def finish(moments: Tensor, magnitude: bool, relu: bool, nonnegative: bool = False) -> Interval:
    """Return intervals from the center and the radius ``(N, 2, C, ...)``, which are changed.

    With ``magnitude``, the radius is its absolute value.
    """
    if magnitude:
        moments.select(1, 1).abs_()
    return Interval._of_center_radius(relu_(moments) if relu else moments, nonnegative or relu)


def sum_moments(input: Any, other: Any, relu: bool = False) -> Any:
    """Return the sum of intervals or sizes, with an optional ReLU."""
    terms = (input, other)
    if all(isinstance(term, Interval) and not term.is_point for term in terms):
        if input.shape == other.shape and not (input.has_center_radius or other.has_center_radius):
            bounds = input.bounds + other.bounds
            nonnegative = relu or (input.nonnegative and other.nonnegative)
            return Interval._of_bounds(F.leaky_relu_(bounds, 0.0) if relu else bounds, nonnegative)
        a, b = input.center_radius, other.center_radius
        if a.shape == b.shape and a.ndim > 2:
            return finish(a + b, False, relu, input.nonnegative and other.nonnegative)
    total = functions.add(input, other)
    return functions.relu(total) if relu else total


def normed(
    weights: Sequence[Tensor], biases: Biases, maps: Maps | None
) -> tuple[Sequence[Tensor], Biases]:
    """Multiply the norm into the rows and biases of the center and the radius."""
    if maps is None:
        return weights, biases
    weights = [w * s.view(-1, *(1,) * (w.ndim - 1)) for w, s in zip(weights, maps[0], strict=True)]
    center, radius = (t if b is None else b * s + t for b, s, t in zip(biases, *maps, strict=True))
    return weights, (center, radius)


def _ordinary(
    layer: IntervalParameters, weight: Tensor, bias: Tensor | None, times: int = 1
) -> Product:
    """Return an ordinary layer with this weight and ``times`` as many channels."""
    options = {**arguments(layer), "bias": bias is not None}
    for name in {"in_features", "out_features", "in_channels", "out_channels"} & options.keys():
        options[name] *= times
    with torch.device("meta"):
        ordinary: Any = build_layer("ordinary", type(layer).__name__, options)
    dtype = layer.weight.dtype
    ordinary.weight = torch.nn.Parameter(weight.to(dtype), requires_grad=False)
    if bias is not None:
        ordinary.bias = torch.nn.Parameter(bias.to(dtype), requires_grad=False)
    return Product(ordinary)
