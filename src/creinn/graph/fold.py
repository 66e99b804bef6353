"""Folding of a trained network for inference.

An affine interval layer, its batch norm and its ReLU become one layer of
:mod:`creinn.graph.folded`, which can include a sum and its ReLU. A batch
norm after an ordinary layer is multiplied into its weights.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import Module
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from creinn import nn as inn
from creinn.graph.checks import GraphError
from creinn.graph.folded import (
    FoldedFull,
    FoldedLayer,
    FoldedRelative,
    NativeFull,
    Product,
    sum_moments,
)
from creinn.graph.trace import Traced, trace
from creinn.nn import functional as functions
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.registry import family_of
from creinn.nn.relative import RelativeParameters

_FAMILIES = (torch.nn, inn)
_IDLE_NAMES = ("Identity", "Dropout", "Dropout1d", "Dropout2d")
_IDLE = tuple(getattr(family, name) for family in _FAMILIES for name in _IDLE_NAMES)
_AFFINE = (torch.nn.Linear, torch.nn.modules.conv._ConvNd)
_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)


class FoldedNetwork(Module):
    """A folded network whose ``graph`` returns additional outputs."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.graph = graph

    def outputs_and_logits(self, x: Any) -> tuple[tuple[Any, ...], Any]:
        """Return the additional outputs and the logits."""
        *inner, logits = self.graph(x)
        return tuple(inner), logits

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        return self.graph(x)[-1]


def fold(
    network: Module, at: Sequence[str | Module] = (), native: bool = False
) -> fx.GraphModule | FoldedNetwork:
    """Return a folded copy of a network in eval mode.

    It uses the C++ library if ``native``. With additional outputs ``at``,
    as in :func:`find_node`, it is a :class:`FoldedNetwork`.

    Raises:
        GraphError: If the network is not a graph of known layers, or a
            module is not called.
    """
    traced = trace(network)
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
            _replace(node, traced, _fold_interval(node, layer, traced, native))
        elif isinstance(layer, _AFFINE) and family_of(layer) == "ordinary":
            _replace(node, traced, _fold_ordinary(node, layer, traced))
        elif type(layer) in (torch.nn.Flatten, inn.Flatten):
            node.op, node.target = "call_method", "flatten"
            node.args = (*node.args, layer.start_dim, layer.end_dim)
        elif node.target is functions.add:
            relu, _ = _only_user(node, traced, inn.ReLU)
            node.target, node.kwargs = sum_moments, {**node.kwargs, "relu": relu is not None}
            _absorb(node, relu)
    for node in graph.nodes:
        if node.target is sum_moments:
            _join_sum(node, traced)
    called = {str(node.target) for node in graph.nodes if node.op == "call_module"}
    layers = {path: _copied(layer) for path, layer in traced.layers.items() if path in called}
    module = traced._replace(layers=layers).module("Folded").requires_grad_(False).eval()
    return FoldedNetwork(module).eval() if at else module


def find_node(at: str | Module, network: Module, traced: Traced) -> fx.Node:
    """Return the output of the module at a path, or the input of a layer."""
    module = network.get_submodule(at) if isinstance(at, str) else at
    paths = [path for path, part in network.named_modules() if part is module]
    node = traced.outputs.get(paths[0]) if paths else None
    if node is None:
        raise GraphError(f"{at}: the network does not call this module.")
    return node if isinstance(at, str) else node.all_input_nodes[0]


def _fold_ordinary(node: fx.Node, layer: Any, traced: Traced) -> Product:
    fused, general, is_linear = copy.deepcopy(layer).eval(), None, layer.weight.ndim == 2
    user, norm = _only_user(node, traced, _NORMS[max(0, layer.weight.ndim - 3)])
    if norm is not None and norm.running_var is not None and norm.num_features == len(layer.weight):
        norm = copy.deepcopy(norm).eval()
        general = torch.nn.Sequential(fused, norm) if is_linear else None
        fused = (fuse_linear_bn_eval if is_linear else fuse_conv_bn_eval)(fused, norm)
        _absorb(node, user)
    relu, found = _only_user(node, traced, torch.nn.ReLU)
    relu = None if isinstance(found, inn.ReLU) else relu
    _absorb(node, relu)
    return Product(fused, fused.weight, fused.bias, relu is not None, general)


def _fold_interval(
    node: fx.Node, layer: IntervalParameters, traced: Traced, native: bool
) -> FoldedLayer:
    user, norm = _only_user(node, traced, IntervalBatchNorm)
    fits = norm is not None and norm.running_var is not None
    if not (fits and norm.num_features == len(layer.weight) and layer.weight.ndim in norm._dims):
        norm = user = None
    _absorb(node, user)
    user, _ = _only_user(node, traced, inn.ReLU)
    _absorb(node, user)
    relu = user is not None
    kind: type[FoldedLayer] = NativeFull if native and NativeFull.supports(layer) else FoldedFull
    if isinstance(layer, RelativeParameters):
        kind = FoldedRelative
    source = node.all_input_nodes[0]
    before = traced.layer(source)
    is_after_relu = before.relu if isinstance(before, FoldedLayer) else source.kwargs.get("relu")
    has_batch = norm is not None and len(norm._dims) == 1
    if has_batch and (kind is FoldedRelative or is_after_relu):
        return kind(layer, norm, relu, None)  # it supports all inputs
    parts = (layer, norm, inn.ReLU() if relu else None)
    general = torch.nn.Sequential(*(_copied(part) for part in parts if part is not None))
    return kind(layer, norm, relu, general)


def _join_sum(node: fx.Node, traced: Traced) -> None:
    for argument, other in (node.args, node.args[::-1]):
        if not isinstance(argument, fx.Node) or len(argument.users) > 1 or argument.kwargs:
            continue
        layer = traced.layer(argument)
        if isinstance(layer, NativeFull) and not layer.relu and argument is not other:
            node.op, node.target, node.args = "call_module", argument.target, argument.args
            node.kwargs = {"residual": other, "relu": node.kwargs["relu"]}
            node.graph.erase_node(argument)
            return


def _replace(node: fx.Node, traced: Traced, layer: Module) -> None:
    path = f"folded_{len(traced.layers)}"
    traced.layers[path], node.target = layer, path


def _absorb(node: fx.Node, user: fx.Node | None) -> None:
    if user is not None:
        user.replace_all_uses_with(node)
        node.graph.erase_node(user)


def _only_user(node: fx.Node, traced: Traced, kind: type[Module]) -> tuple[fx.Node | None, Any]:
    """Return the only user of ``node`` and its layer, if it is of this kind."""
    if len(node.users) == 1:
        user = next(iter(node.users))
        layer = traced.layer(user)
        is_relu = issubclass(kind, torch.nn.ReLU) and user.target is functions.relu
        if is_relu or isinstance(layer, kind):
            return user, layer
    return None, None


def _copied(layer: Module) -> Module:
    return layer if isinstance(layer, FoldedLayer | Product) else copy.deepcopy(layer).eval()
