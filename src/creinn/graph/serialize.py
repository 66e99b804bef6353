"""Conversion of the architecture of a network to JSON and back.

A description contains ``builder`` and ``arguments`` for an unchanged
network of :mod:`creinn.models`, ``layer`` for a single layer, or ``graph``
and ``layers``. The names are looked up in tables, and no code of the
description is run.
"""

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.nn import Module

from creinn.graph.checks import Kind, check_call, check_paths
from creinn.graph.trace import GraphTracer, Traced, trace
from creinn.models import BUILDERS
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.functional import FUNCTIONS
from creinn.nn.registry import arguments, build_layer, family_of

Description = dict[str, Any]


def serialize(network: Module) -> Description:
    """Describe the architecture of a network for :func:`build`.

    Raises:
        ValueError: If the network is not a graph of known layers and
            functions, or has other state.

    Example:
        >>> from creinn import nn as inn
        >>> serialize(inn.ReLU())
        {'layer': {'family': 'interval', 'class': 'ReLU', 'arguments': {'inplace': False}}}
    """
    if (recorded := _recorded(network)) is not None:
        return recorded
    try:
        is_layer = family_of(network) is not None
        description = {"layer": _layer_entry(network)} if is_layer else _graph_entries(network)
        _check_state(network, description)
    except ValueError as error:
        raise ValueError(
            f"Cannot describe the architecture of {type(network).__name__}: {error} Save the "
            "weights, and load them with creinn.load(path, network=...)."
        ) from error
    return description


def build(description: Mapping[str, Any]) -> Module:
    """Build the network of a description, with new weights.

    Raises:
        ValueError: If the description is invalid or contains an unknown
            name.

    Example:
        >>> build(serialize(torch.nn.Linear(2, 3)))
        Linear(in_features=2, out_features=3, bias=True)
    """
    try:
        if "builder" in description:
            return _build_recorded(description)
        if "layer" in description:
            return _build_layer(description["layer"])
        layers = _build_layers(description["layers"])
        return Traced(_build_graph(description["graph"], layers), layers, {}).module()
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"Invalid description of an architecture: {error!r}.") from error


def _recorded(network: Module) -> Description | None:
    match getattr(network, "config", None):
        case {"builder": name, "arguments": options}:
            description = {"builder": name, "arguments": options}
        case _:
            return None
    modes = {part.mode for part in network.modules() if isinstance(part, IntervalBatchNorm)}
    if modes == {"sound"}:
        description["norm_mode"] = "sound"
    try:
        rebuilt = _build_on_meta(description)
    except ValueError:
        return None
    same = _parts(rebuilt) == _parts(network) and _shapes(rebuilt) == _shapes(network)
    return description if same else None


def _build_recorded(description: Mapping[str, Any]) -> Module:
    name = description["builder"]
    if name not in BUILDERS:
        raise ValueError(f"Unknown builder {name!r}. Use one of {', '.join(BUILDERS)}.")
    network = BUILDERS[name](**description["arguments"])
    for part in network.modules():
        if isinstance(part, IntervalBatchNorm):
            part.set_mode(description.get("norm_mode", part.mode))
    return network


def _parts(network: Module) -> dict[str, Any]:
    return {
        path: type(part) if family_of(part) is None else _layer_entry(part)
        for path, part in network.named_modules(remove_duplicate=False)
    }


def _check_state(network: Module, description: Description) -> None:
    try:
        written = json.dumps(description, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"an argument cannot be written as JSON: {error}.") from error
    if changed := _shapes(network) ^ _shapes(_build_on_meta(json.loads(written))):
        raise ValueError(f"the state {min(changed)[0]!r} is unknown or has another shape.")


def _build_on_meta(description: Mapping[str, Any]) -> Module:
    with torch.device("meta"):
        return build(description)


def _shapes(network: Module) -> set[tuple[str, torch.Size]]:
    return {(name, tensor.shape) for name, tensor in network.state_dict().items()}


def _layer_entry(layer: Module) -> Description:
    family, kind = family_of(layer), type(layer).__name__
    return {"family": family, "class": kind, "arguments": arguments(layer)}


def _build_layer(entry: Mapping[str, Any]) -> Module:
    return build_layer(entry["family"], entry["class"], entry["arguments"])


def _build_layers(entries: list[Mapping[str, Any]]) -> dict[str, Module]:
    check_paths(entry["path"] for entry in entries)
    layers: dict[str, Module] = {}
    for entry in entries:
        is_shared = "same_as" in entry
        layers[entry["path"]] = layers[entry["same_as"]] if is_shared else _build_layer(entry)
    return layers


def _graph_entries(network: Module) -> Description:
    traced = trace(network)
    named = network.named_modules(remove_duplicate=False)
    layers = {path: part for path, part in named if family_of(part) is not None}
    check_paths(layers)
    first: dict[Module, str] = {}
    entries = []
    for path, layer in (layers | traced.layers).items():
        source = first.setdefault(layer, path)
        entry = _layer_entry(layer) if source == path else {"same_as": source}
        entries.append({"path": path, **entry})
    return {"graph": [_node_entry(node) for node in traced.graph.nodes], "layers": entries}


def _node_entry(node: fx.Node) -> Description:
    if node.op == "placeholder":
        return {"name": node.name, "op": "input"}
    args = _encode([*node.args])
    if node.op == "output":
        return {"op": "output", "args": args}
    op = "layer" if node.op == "call_module" else "function"
    target = getattr(node.target, "__name__", node.target)
    entry = {"name": node.name, "op": op, "target": target, "args": args}
    if node.kwargs:
        entry["kwargs"] = {name: _encode(value) for name, value in node.kwargs.items()}
    return entry


def _build_graph(entries: list[Mapping[str, Any]], layers: Mapping[str, Module]) -> fx.Graph:
    graph = fx.Graph(tracer_cls=GraphTracer)
    nodes: dict[str, fx.Node] = {}
    kinds: dict[fx.Node, Kind] = {}
    ops = [entry["op"] for entry in entries]
    if ops.count("input") != 1 or ops.count("output") != 1 or ops[-1] != "output":
        raise ValueError("A saved graph needs one input, and one output at the end.")
    for entry in entries:
        op, target = entry["op"], str(entry.get("target"))
        args = tuple(_decode(value, nodes) for value in entry.get("args", ()))
        kwargs = {name: _decode(value, nodes) for name, value in entry.get("kwargs", {}).items()}
        kind: Kind = "value"
        if op in ("layer", "output") and (len(args) != 1 or kinds.get(args[0]) != "value"):
            raise ValueError(f"A node {op!r} of a saved graph needs one value.")
        if op == "output":
            graph.output(args[0])
            break
        if op == "input":
            node = graph.placeholder("x")
        elif op == "layer" and target in layers:
            node = graph.call_module(target, args)
        elif op == "function":
            kind = check_call(target, args, kwargs, kinds)
            node = graph.call_function(FUNCTIONS[target], args, kwargs)
        else:
            raise ValueError(f"Unknown {op} {target!r} in the saved graph.")
        nodes[entry["name"]], kinds[node] = node, kind
    return graph


def _encode(value: Any) -> Any:
    match value:
        case fx.Node():
            return {"node": value.name}
        case list():
            return [_encode(entry) for entry in value]
        case tuple():
            return {"tuple": _encode([*value])}
        case slice():
            return {"slice": _encode([value.start, value.stop, value.step])}
    return {"ellipsis": True} if value is Ellipsis else value


def _decode(value: Any, nodes: Mapping[str, fx.Node]) -> Any:
    match value:
        case {"node": name}:
            return nodes[name]
        case list():
            return [_decode(entry, nodes) for entry in value]
        case {"tuple": entries}:
            return tuple(_decode(entries, nodes))
        case {"slice": entries}:
            return slice(*_decode(entries, nodes))
        case {"ellipsis": True}:
            return Ellipsis
        case dict():
            raise ValueError(f"Unknown constant {value} in the saved graph.")
    return value
