"""A trained network as a graph of folded layers: the same bounds from fewer and larger operations, for inference.

In: a network of :mod:`creinn.nn` or :mod:`creinn.nn.relative` layers, or an ordinary one. Out: a copy of its graph. An
affine interval layer, the batch norm and the ReLU behind it are one layer of :mod:`creinn.graph.folded`; a sum and its
ReLU are one function; ordinary convolutions have their batch norm in their weights. What does nothing is left out.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.nn.utils.fusion import fuse_conv_bn_eval

from creinn import nn as inn
from creinn.graph.folded import FoldedFull, FoldedLayer, FoldedRelative, Product, sum_moments
from creinn.graph.trace import GraphError, Traced, graph_module, trace
from creinn.nn import functional as functions
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.families import family_of, known_families
from creinn.nn.parameters import IntervalParameters
from creinn.nn.relative import RelativeParameters

_IDLE = tuple(
    getattr(family, name) for family in (torch.nn, inn) for name in ("Identity", "Dropout", "Dropout1d", "Dropout2d")
)
_NORMS = {3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}  # by dimensions of the batch


class FoldedNetwork(torch.nn.Module):
    """A folded network some of whose inner results are wanted too; ``graph`` returns these, and the logits last."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.graph = graph

    def outputs_and_logits(self, x: Any) -> tuple[tuple[Any, ...], Any]:
        """The inner results, and the logits; see :func:`creinn.classifier.network.observe`."""
        *inner, logits = self.graph(x)
        return tuple(inner), logits

    def forward(self, x: Any) -> Any:
        """Logits."""
        return self.graph(x)[-1]


def fold(
    network: torch.nn.Module, head: torch.nn.Module | None = None, at: Sequence[str] = ()
) -> fx.GraphModule | FoldedNetwork:
    """A folded copy of ``network``, in eval mode; the network itself is left as it is.

    It is a :class:`FoldedNetwork` if the input of the layer ``head`` or outputs of the modules ``at`` are wanted too.

    Raises:
        GraphError: If the network is no graph of known layers and functions, ``head`` is no layer of it, or a module
            of ``at`` does not end in a layer.
    """
    traced = trace(network, known_families())
    graph = traced.graph
    wanted = [] if head is None else [_input_of(head, traced)]
    wanted += [_output_of(path, network, graph) for path in at]
    if wanted:
        output = next(node for node in graph.nodes if node.op == "output")
        output.args = ((*wanted, output.args[0]),)
    for node in list(graph.nodes):
        if type(traced.layer(node)) in _IDLE:
            _absorb(node.args[0], node)
    for node in graph.nodes:
        layer: Any = traced.layer(node)
        if isinstance(layer, IntervalParameters):
            _put(node, traced, _fold_interval(node, layer, traced))
        elif isinstance(layer, torch.nn.modules.conv._ConvNd) and family_of(layer) == "ordinary":
            _put(node, traced, _fold_ordinary(node, layer, traced))
        elif node.target is functions.add:
            relu = _only_user(node, traced, inn.ReLU)
            node.target, node.kwargs = sum_moments, {**node.kwargs, "relu": relu is not None}
            _absorb(node, relu)
    called = {str(node.target) for node in graph.nodes if node.op == "call_module"}
    kept = {path: _copied(layer) for path, layer in traced.layers.items() if path in called}
    module = graph_module(Traced(graph, kept), "Folded").requires_grad_(False).eval()
    return FoldedNetwork(module).eval() if wanted else module


def _input_of(head: torch.nn.Module, traced: Traced) -> fx.Node:
    for node in traced.graph.nodes:
        if traced.layer(node) is head:
            return node.all_input_nodes[0]
    raise GraphError(f"The head, {type(head).__name__}, is not a layer of the network.")


def _output_of(path: str, network: torch.nn.Module, graph: fx.Graph) -> fx.Node:
    """The node that gives the output of a module: in the module's own graph the last one, which calls a layer."""
    module, index, count = network.get_submodule(path), 0, 1
    if family_of(module) is None:
        inner = list(trace(module, known_families()).graph.nodes)
        last = inner[-1].args[0]
        if not (isinstance(last, fx.Node) and last.op == "call_module"):
            raise GraphError(f"{path}: {type(module).__name__} does not end in a layer, so its output is not found.")
        calls, path = [node for node in inner if node.target == last.target], f"{path}.{last.target}"
        index, count = calls.index(last), len(calls)
    found = [node for node in graph.nodes if node.op == "call_module" and node.target == path]
    if len(found) != count:
        raise GraphError(f"{path} is called {len(found)} times in the network, not {count} times.")
    return found[index]


def _fold_ordinary(node: fx.Node, layer: Any, traced: Traced) -> Product:
    """A convolution, and the batch norm behind it in its weights."""
    fused = copy.deepcopy(layer).eval()
    behind = _only_user(node, traced, _NORMS[layer.weight.ndim])
    norm: Any = None if behind is None else traced.layer(behind)
    if norm is not None and norm.running_var is not None:
        fused = fuse_conv_bn_eval(fused, copy.deepcopy(norm).eval())
        _absorb(node, behind)
    return Product(fused)


def _fold_interval(node: fx.Node, layer: IntervalParameters, traced: Traced) -> FoldedLayer:
    """The layer that ``node`` calls, and what follows it alone; that is taken out of the graph.

    The general form is left out only where the folded one is made for every input there can be.
    """
    behind = _only_user(node, traced, IntervalBatchNorm)
    norm: Any = None if behind is None else traced.layer(behind)
    fits = norm is not None and norm.num_features == len(layer.weight) and layer.weight.ndim in norm._dims
    if not fits or norm.running_var is None:
        norm = behind = None
    _absorb(node, behind)
    relu = _only_user(node, traced, inn.ReLU)
    _absorb(node, relu)
    kind = FoldedRelative if isinstance(layer, RelativeParameters) else FoldedFull
    batches_alone = norm is not None and len(norm._dims) == 1
    suits_all = batches_alone and (kind is FoldedRelative or _ends_in_relu(node.all_input_nodes[0], traced))
    parts = [layer, *([] if norm is None else [norm]), *([] if relu is None else [inn.ReLU()])]
    general = None if suits_all else torch.nn.Sequential(*map(_copied, parts))
    return kind(layer, norm, relu is not None, general)


def _ends_in_relu(node: fx.Node, traced: Traced) -> bool:
    """Whether ``node`` calls a folded layer or sum that has taken a ReLU in."""
    layer = traced.layer(node)
    return layer.relu if isinstance(layer, FoldedLayer) else bool(node.kwargs.get("relu"))


def _put(node: fx.Node, traced: Traced, layer: torch.nn.Module) -> None:
    path = f"folded_{len(traced.layers)}"
    traced.layers[path], node.target = layer, path


def _absorb(node: fx.Node, behind: fx.Node | None) -> None:
    """Take ``behind``, which does its work in ``node`` now, out of the graph."""
    if behind is not None:
        behind.replace_all_uses_with(node)
        node.graph.erase_node(behind)


def _only_user(node: fx.Node, traced: Traced, kind: type[torch.nn.Module]) -> fx.Node | None:
    """The node that calls a layer of this kind on the result of ``node``, if nothing else uses that."""
    if len(node.users) != 1:
        return None
    user = next(iter(node.users))
    is_relu = kind is inn.ReLU and user.target is functions.relu
    return user if is_relu or isinstance(traced.layer(user), kind) else None


def _copied(layer: torch.nn.Module) -> torch.nn.Module:
    return layer if isinstance(layer, FoldedLayer | Product) else copy.deepcopy(layer).eval()
