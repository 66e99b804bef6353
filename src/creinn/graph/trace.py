"""Tracing of a network as a graph of known layers and functions.

The result is a :class:`Traced`, which is used for the conversion, saving and folding of networks.
The graph is valid for all inputs and in both modes. In-place operations are replaced by ordinary
operations. A :class:`GraphError` is raised if this would change the result.
"""

import copy
import inspect
import itertools
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import fx

from creinn import nn as inn
from creinn.graph.checks import GraphError, check_paths
from creinn.graph.tracer import GraphTracer, StrictTracer, guard_parameters, node_label
from creinn.nn import functional as functions
from creinn.nn.families import INTERVAL_FAMILIES, family_of
from creinn.nn.functional import INPLACE, REBOUND

_VIEWS = {  # functions and layers with a result that can share memory with the argument
    *("flatten", "reshape", "unsqueeze", "squeeze", "permute", "transpose", "contiguous"),
    *("getitem", "dropout", "Flatten", "Identity", "Dropout", "Dropout1d", "Dropout2d"),
}


class Traced(NamedTuple):
    """A network as a graph with nodes that call layers by path or known functions.

    The graph has one input and one output. ``layers`` contains the layers that are called, in the
    order of the network. A shared layer is contained under each of its paths.
    """

    graph: fx.Graph
    layers: dict[str, torch.nn.Module]

    def layer(self, node: fx.Node) -> torch.nn.Module | None:
        """Return the layer that is called by a node, or ``None``."""
        return self.layers[str(node.target)] if node.op == "call_module" else None


def trace(network: torch.nn.Module, families: Collection[str]) -> Traced:
    """Trace a copy of a network with layers of the given families.

    The network and other modules can be used in other threads at the same time.

    Raises:
        GraphError: If the forward pass calls something that is not a known layer or function.
    """
    try:
        duplicate = copy.deepcopy(network)
    except Exception as error:
        raise GraphError(
            f"{type(network).__name__} cannot be copied, which tracing needs: {error}"
        ) from error
    guard_parameters(duplicate)
    training, evaluation = (_trace_in(duplicate, mode, families) for mode in (True, False))
    layers = dict(network.named_modules(remove_duplicate=False))
    _check_inplace(list(training.nodes), layers)
    added = _join_modes(training, evaluation, layers)
    graph = fx.Graph(tracer_cls=GraphTracer)
    graph.output(graph.graph_copy(training, {}))
    for node in graph.nodes:
        node.meta.clear()
    graph.lint()
    paths = [node.target for node in graph.nodes if node.op == "call_module"]
    check_paths(paths)
    called = {layers[path] for path in paths if path in layers}
    return Traced(graph, {path: layer for path, layer in layers.items() if layer in called} | added)


def graph_module(traced: Traced, class_name: str = "GraphModule") -> fx.GraphModule:
    """Return a module of the graph with the layers by path, in the same order."""
    module = fx.GraphModule(traced.layers, traced.graph, class_name)
    for name, _ in list(module.named_children()):
        delattr(module, name)
    for path, layer in traced.layers.items():
        module.add_submodule(path, layer)
    return module


def _trace_in(network: torch.nn.Module, training: bool, families: Collection[str]) -> fx.Graph:
    for module in network.modules():
        module.training = training
    return StrictTracer(families).trace(network)


def _join_modes(
    training: fx.Graph, evaluation: fx.Graph, layers: Mapping[str, torch.nn.Module]
) -> dict[str, torch.nn.Module]:
    """Replace functional dropout that depends on the mode by layers.

    Raises:
        GraphError: If there is any other difference between the graphs of the two modes.
    """
    dropouts: dict[fx.Node, float] = {}
    for node, other in zip(training.nodes, evaluation.nodes, strict=False):
        here, there = _action(node), _action(other)
        follows_mode = here.pop("training", None) != there.pop("training", None)
        if here != there:
            raise GraphError(
                f"{node.meta['where']}: the forward pass depends on the mode: {node_label(node)} "
                f"in training, {node_label(other)} in eval mode. Only dropout may."
            )
        if follows_mode:
            dropouts[node] = here["p"]
    kind: type[torch.nn.Module] = inn.Dropout if _is_interval(layers) else torch.nn.Dropout
    names = (f"functional_dropout_{index}" for index in itertools.count())
    free = (name for name in names if name not in layers)
    added = {}
    for (node, p), path in zip(dropouts.items(), free, strict=False):
        added[path] = kind(p).train(layers[""].training)
        with training.inserting_before(node):
            node.replace_all_uses_with(training.call_module(path, (node.all_input_nodes[0],)))
        training.erase_node(node)
    return added


def _action(node: fx.Node) -> dict[str, Any]:
    """Return the target and the arguments of a node; those of dropout by name."""
    if node.target is not functions.dropout:
        return {
            "op": node.op,
            "target": node.meta["target"],
            "args": str(node.args),
            "kwargs": str(node.kwargs),
        }
    bound = inspect.signature(functions.dropout).bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    return {**bound.arguments, "input": str(bound.arguments["input"])}


def _is_interval(layers: Mapping[str, torch.nn.Module]) -> bool:
    return any(family_of(layer) in INTERVAL_FAMILIES for layer in layers.values())


def _check_inplace(nodes: list[fx.Node], layers: Mapping[str, torch.nn.Module]) -> None:
    """Raise a :class:`GraphError` if a value is used after an in-place operation.

    In this case the result of an ordinary operation would be different.
    """
    changing = INPLACE - REBOUND if _is_interval(layers) else INPLACE
    memory: dict[fx.Node, fx.Node] = {}  # the first node with the memory of a node
    for index, node in enumerate(nodes):
        layer = layers[str(node.target)] if node.op == "call_module" else None
        name = getattr(node.target, "__name__", "") if layer is None else type(layer).__name__
        inplace = (
            node.meta["inplace"]
            or node.meta["target"] in changing
            or getattr(layer, "inplace", False)
        )
        shares = node.all_input_nodes and (inplace or name in _VIEWS)
        memory[node] = memory[node.all_input_nodes[0]] if shares else node
        if not inplace:
            continue
        read_later = {argument for user in nodes[index + 1 :] for argument in user.all_input_nodes}
        if any(
            memory[earlier] is memory[node] and earlier in read_later for earlier in nodes[:index]
        ):
            raise GraphError(
                f"{node.meta['where']}: {node_label(node)} changes its input in place, and that is "
                "used again later. Use the ordinary operation, e.g. inplace=False."
            )
