"""A trained network as a graph of folded layers: the same bounds from fewer and larger operations.

In: a network of :mod:`creinn.nn` or :mod:`creinn.relative` layers, or an ordinary one. Out: a copy of its graph for
inference. An affine interval layer, the batch norm and the ReLU behind it are one layer of :mod:`creinn.folded`; a sum
and its ReLU are one function; ordinary convolutions have their batch norm in their weights. What does nothing in eval
mode is left out, everything else stays as it is.
"""

import copy
from typing import Any

import torch
from torch import fx
from torch.nn.utils.fusion import fuse_conv_bn_eval

from creinn import functions
from creinn import nn as inn
from creinn.folded import FoldedFull, FoldedLayer, FoldedRelative, NormMaps, norm_maps, sum_moments
from creinn.layers import family_of, known_families
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.parameters import IntervalParameters
from creinn.onepixel import Product
from creinn.relative import RelativeParameters
from creinn.tracing import GraphError, Traced, graph_module, trace

Layers = dict[str, torch.nn.Module]

_IDLE = {"Identity", "Dropout", "Dropout1d", "Dropout2d"}
_NONNEGATIVE = {"ReLU", "ReLU6", "Sigmoid", "Softplus", "relu", "relu6", "sigmoid", "softplus"}
_SIGN_KEEPING = {
    *("MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d"),
    *("AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "Flatten", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d"),
    *("max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
    *("adaptive_max_pool1d", "adaptive_max_pool2d", "flatten", "cat", "stack", "add", "mean", "sum"),
}


class FoldedNetwork(torch.nn.Module):
    """A folded network whose features, the input of its ``head``, are wanted too."""

    def __init__(self, body: torch.nn.Module, head: torch.nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def features(self, x: Any) -> Any:
        """What the head sees."""
        return self.body(x)

    def forward(self, x: Any) -> Any:
        """Logits."""
        return self.head(self.features(x))


def fold(network: torch.nn.Module, head: torch.nn.Module | None = None) -> fx.GraphModule | FoldedNetwork:
    """A folded copy of ``network``, in eval mode; the network itself is left as it is.

    Args:
        network: A graph of known layers and functions.
        head: A layer of it whose input is wanted too: the result is then a :class:`FoldedNetwork`.

    Raises:
        GraphError: If the network is not such a graph, or does more than pass on the input of ``head``.
    """
    traced = trace(network, known_families())
    graph, layers = traced.graph, dict(traced.layers)
    start = next((n for n in graph.nodes if n.op == "call_module" and layers[str(n.target)] is head), None)
    _drop_idle(graph, layers)
    _fold_ordinary(graph, layers)
    _fold_intervals(graph, layers)
    if head is None:
        return _module(graph, layers)
    if start is None:
        raise GraphError(f"The head, {type(head).__name__}, is not a layer of the network.")
    return FoldedNetwork(*(_module(part, layers) for part in _split(graph, start))).eval()


def _drop_idle(graph: fx.Graph, layers: Layers) -> None:
    for node in list(graph.nodes):
        if node.op == "call_module" and type(layers[str(node.target)]).__name__ in _IDLE:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _fold_ordinary(graph: fx.Graph, layers: Layers) -> None:
    """Batch norm into the convolution before it."""
    for node in graph.nodes:
        layer = layers[str(node.target)] if node.op == "call_module" else None
        if not isinstance(layer, torch.nn.modules.conv._ConvNd) or family_of(layer) != "ordinary":
            continue
        fused = copy.deepcopy(layer).eval()
        behind = _only_user(node, layers, torch.nn.modules.batchnorm._BatchNorm)
        norm: Any = None if behind is None else layers[str(behind.target)]
        if norm is not None and norm.running_var is not None:
            fused = fuse_conv_bn_eval(fused, copy.deepcopy(norm).eval())
            _absorb(node, behind)
        _put(node, layers, Product(fused))


def _fold_intervals(graph: fx.Graph, layers: Layers) -> None:
    """Norms and ReLUs into the affine layers and the sums before them."""
    nonnegative: dict[fx.Node, bool] = {}  # whatever the network's input
    for node in graph.nodes:
        layer = layers[str(node.target)] if node.op == "call_module" else None
        inputs = [nonnegative[argument] for argument in node.all_input_nodes]
        name = type(layer).__name__ if layer is not None else getattr(node.target, "__name__", "")
        nonnegative[node] = name in _NONNEGATIVE or (name in _SIGN_KEEPING and bool(inputs) and all(inputs))
        if isinstance(layer, IntervalParameters):
            folded = _fold_layer(node, layer, layers, inputs[0])
            _put(node, layers, folded)
            nonnegative[node] = folded.relu
        elif node.target is functions.add:
            relu = _only_user(node, layers, inn.ReLU)
            node.target, node.kwargs = sum_moments, {**node.kwargs, "relu": relu is not None}
            _absorb(node, relu)
            nonnegative[node] = nonnegative[node] or relu is not None


def _fold_layer(node: fx.Node, layer: IntervalParameters, layers: Layers, nonnegative: bool) -> FoldedLayer:
    """The layer that ``node`` calls, and what follows it alone; that is taken out of the graph."""
    parts: list[torch.nn.Module] = [layer]
    maps: NormMaps | None = None
    behind = _only_user(node, layers, IntervalBatchNorm)
    if behind is not None:
        norm: Any = layers[str(behind.target)]
        maps = norm_maps(norm) if norm.num_features == len(layer.weight) else None
        if maps is not None:
            parts.append(norm)
            _absorb(node, behind)
    relu = _only_user(node, layers, inn.ReLU)
    if relu is not None:
        parts.append(inn.ReLU())
        _absorb(node, relu)
    kind = FoldedRelative if isinstance(layer, RelativeParameters) else FoldedFull
    batches_alone = maps is not None and len(parts[1]._dims) == 1  # type: ignore[arg-type]
    suits_all = batches_alone and (nonnegative or kind is FoldedRelative)
    general = None if suits_all else torch.nn.Sequential(*map(_copied, parts))
    return kind(layer, maps, relu is not None, general)


def _split(graph: fx.Graph, start: fx.Node) -> tuple[fx.Graph, fx.Graph]:
    """The graph up to the input of ``start``, and the rest of it."""
    nodes = list(graph.nodes)
    index, features = nodes.index(start), start.all_input_nodes[0]
    body, head = fx.Graph(tracer_cls=graph._tracer_cls), fx.Graph(tracer_cls=graph._tracer_cls)
    before: dict[fx.Node, fx.Node] = {}
    for node in nodes[:index]:
        before[node] = body.node_copy(node, before.__getitem__)
    body.output(before[features])
    after = {features: head.placeholder("features")}
    for node in nodes[index:]:
        if not all(argument in after for argument in node.all_input_nodes):
            raise GraphError(f"{node.name} uses more than the features, the input of the last linear layer.")
        after[node] = head.node_copy(node, after.__getitem__)
    return body, head


def _put(node: fx.Node, layers: Layers, layer: torch.nn.Module) -> None:
    """Let ``node`` call another layer."""
    path = f"folded_{len(layers)}"
    layers[path], node.target = layer, path


def _absorb(node: fx.Node, behind: fx.Node | None) -> None:
    """Take the only user of ``node`` out of the graph."""
    if behind is not None:
        behind.replace_all_uses_with(node)
        node.graph.erase_node(behind)


def _only_user(node: fx.Node, layers: Layers, kind: type[torch.nn.Module]) -> fx.Node | None:
    """The node that calls a layer of this kind on the result of ``node``, if nothing else uses that."""
    if len(node.users) != 1:
        return None
    user = next(iter(node.users))
    is_layer = user.op == "call_module" and isinstance(layers[str(user.target)], kind)
    is_relu = kind is inn.ReLU and user.target is functions.relu
    return user if is_layer or is_relu else None


def _module(graph: fx.Graph, layers: Layers) -> fx.GraphModule:
    called = {str(node.target) for node in graph.nodes if node.op == "call_module"}
    kept = {path: _copied(layer) for path, layer in layers.items() if path in called}
    return graph_module(Traced(graph, kept), "Folded").requires_grad_(False).eval()


def _copied(layer: torch.nn.Module) -> torch.nn.Module:
    return layer if isinstance(layer, FoldedLayer | Product) else copy.deepcopy(layer).eval()
