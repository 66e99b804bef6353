"""Tracing of a network as a graph of known layers and functions.

The graph is valid for all inputs and in both modes. It has no in-place
operations.

``torch.fx.Tracer.trace`` replaces ``torch.nn.Module.__call__``, which is
not thread-safe. :class:`GraphTracer` sets ``forward`` on the modules of a
copy.
"""

import copy
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.nn import Module
from torch.overrides import TorchFunctionMode

from creinn import nn as inn
from creinn.graph import checks
from creinn.graph.checks import GraphError, Kind, check_call
from creinn.nn import functional as functions
from creinn.nn.functional import FUNCTIONS, INPLACE, REBOUND, TARGETS, TENSOR_METHODS
from creinn.nn.registry import INTERVAL_FAMILIES, family_of, known_families

_ATTRIBUTES = {"shape": "size", "ndim": "ndim"}
_VIEWS = {  # the result can share memory with the input
    *("flatten", "reshape", "unsqueeze", "squeeze", "permute", "transpose", "contiguous"),
    *("getitem", "dropout", "Flatten", "Identity", "Dropout", "Dropout1d", "Dropout2d"),
}


class Traced(NamedTuple):
    """A graph of known layers and functions."""

    graph: fx.Graph
    layers: dict[str, Module]  # the layers that are called, by all paths
    outputs: dict[str, fx.Node]  # the last outputs of modules by path

    def layer(self, node: fx.Node) -> Module | None:
        """Return the layer that a node calls, or ``None``."""
        return self.layers[str(node.target)] if node.op == "call_module" else None

    def module(self, class_name: str = "GraphModule") -> fx.GraphModule:
        """Return a module with the layers in the same order."""
        module = fx.GraphModule(self.layers, self.graph, class_name)
        module._modules.clear()
        for path, layer in self.layers.items():
            module.add_submodule(path, layer)
        return module


def trace(network: Module, families: Collection[str] = ()) -> Traced:
    """Trace a network with layers of the given families, or of all families.

    Raises:
        GraphError: If the forward pass calls an unknown layer or function.
    """
    families = families or known_families()
    try:
        duplicate = copy.deepcopy(network)
    except Exception as error:
        raise GraphError(f"{type(network).__name__} cannot be copied: {error}") from error
    graph, evaluation = (_record(duplicate, families, mode) for mode in (True, False))
    layers = dict(network.named_modules(remove_duplicate=False))
    _check_inplace(list(graph.nodes), layers)
    added = _join_modes(graph, evaluation, layers)
    outputs = {path: node for node in graph.nodes for path in node.meta.get("outputs", ())}
    for node in graph.nodes:
        node.meta.clear()
    graph.lint()
    paths = [node.target for node in graph.nodes if node.op == "call_module"]
    checks.check_paths(paths)
    called = {layers[path] for path in paths if path in layers}
    used = {path: layer for path, layer in layers.items() if layer in called}
    return Traced(graph, used | added, outputs)


def _record(network: Module, families: Collection[str], mode: bool) -> fx.Graph:
    for module in network.modules():
        module.training = mode
    with _ParameterGuard(network):
        return _StrictTracer(network, families).trace(network)


class GraphTracer(fx.Tracer):
    """Tracer of modules with one input, which torch.fx uses to load a graph."""

    calls_root = False  # whether ``call_module`` is called for the root

    def trace(self, root: Any, concrete_args: Any = None) -> fx.Graph:
        """Record the forward pass of a module."""
        self.root, self.graph = root, fx.Graph(tracer_cls=GraphTracer)
        self.submodule_paths = {module: path for path, module in root.named_modules()}
        self.tensor_attrs: dict[Any, str] = {}
        modules = list(root.modules())[0 if self.calls_root else 1 :]
        modules = [m for m in modules if not isinstance(m, torch.jit.ScriptModule)]
        own = {module: vars(module).get("forward") for module in modules}
        for module in modules:
            call = functools.partial(self._call, module, module.forward)
            vars(module)["forward"] = call
        try:
            output = root.forward(self.create_proxy("placeholder", "x", (), {}))
            self.create_node("output", "output", (self.create_arg(output),), {})
        finally:
            for module, forward in own.items():
                del vars(module)["forward"]
                if forward is not None:
                    vars(module)["forward"] = forward
        return self.graph

    def _call(self, module: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
        return self.call_module(module, forward, args, kwargs)


class _StrictTracer(GraphTracer):
    calls_root = True

    def __init__(self, network: Module, families: Collection[str]) -> None:
        super().__init__()
        self.refused = {m: checks.why_refused(m, families) for m in network.modules()}
        self.kinds: dict[fx.Node, Kind] = {}

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return family_of(m) is not None

    def call_module(self, m: Module, forward: Any, args: Any, kwargs: Any) -> Any:
        path = self.path_of_module(m)
        where = f"{path}: {type(m).__name__}".removeprefix(": ")
        if self.refused[m]:
            raise GraphError(f"{where}: {self.refused[m]}")
        try:
            output = super().call_module(m, forward, args, kwargs)
        except GraphError:
            raise
        except Exception as error:
            raise GraphError(f"{where}: it cannot be traced: {error}") from error
        if isinstance(output, fx.Proxy):
            output.node.meta.setdefault("outputs", []).append(path)
        return output

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, *_: Any, **__: Any
    ) -> fx.Node:
        meta = {"where": self._where(), "target": target, "inplace": kwargs.get("inplace", False)}
        try:
            *known, result = self._known(kind, target, args, kwargs)
        except ValueError as error:
            raise GraphError(f"{meta['where']}: {error}.") from error
        node = super().create_node(*known)
        node.meta.update(meta)
        self.kinds[node] = result
        return node

    def _known(self, op: str, target: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """Return the recorded call and the kind of its result."""
        if op == "placeholder":
            return op, "x", (), {}, "value"
        if op == "get_attr":
            raise ValueError(_used_directly(target))
        if op == "call_module":
            inputs = (*args, *kwargs.values())
            if len(inputs) != 1 or not self._is_value(inputs[0]):
                raise ValueError(f"the layer {target} takes one input, got {len(inputs)}")
            return op, target, inputs, {}, "value"
        if op == "output":
            if not self._is_value(args[0]):
                raise ValueError(f"the network must return logits, not {_label(args[0])}")
            return op, target, args, kwargs, "value"
        name = _name(op, target, args)
        args = args[:1] if target is getattr else args
        kwargs = {argument: value for argument, value in kwargs.items() if argument != "inplace"}
        kind = check_call(name, args, kwargs, self.kinds)
        if name == "dropout":  # to compare the modes
            bound = inspect.signature(functions.dropout).bind(*args, **kwargs)
            bound.apply_defaults()
            kwargs = bound.arguments
            args = (kwargs.pop("input"),)
        return "call_function", FUNCTIONS[name], args, kwargs, kind

    def _is_value(self, argument: Any) -> bool:
        return isinstance(argument, fx.Node) and self.kinds[argument] == "value"

    def _where(self) -> str:
        path, kind = next(reversed(self.module_stack.values()), ("", None))
        name = getattr(kind, "__name__", "the network")
        return f"{path} ({name})" if path else name


class _ParameterGuard(TorchFunctionMode):
    """Mode in which the direct use of a parameter raises an error."""

    def __init__(self, network: Module) -> None:
        super().__init__()
        self.paths = {parameter: path for path, parameter in network.named_parameters()}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.nn.Parameter) and value in self.paths:
                raise ValueError(_used_directly(self.paths[value]))
        return func(*args, **kwargs)


def _used_directly(path: str) -> str:
    return f"the tensor {path!r} is used outside of a known layer"


def _recorded(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: self.tracer.create_proxy("call_function", op, (self, other), {})


class _Proxy(fx.Proxy):
    __iadd__, __isub__ = _recorded(operator.iadd), _recorded(operator.isub)
    __imul__, __itruediv__ = _recorded(operator.imul), _recorded(operator.itruediv)


def _name(op: str, target: Any, args: tuple[Any, ...]) -> str:
    if target is getattr:
        if args[1] not in _ATTRIBUTES:
            known = ", ".join(_ATTRIBUTES)
            raise ValueError(f"unknown attribute '.{args[1]}': expected {known}")
        return _ATTRIBUTES[args[1]]
    if op == "call_method":
        if target not in TENSOR_METHODS:
            raise ValueError(f"unknown method '.{target}()': {checks.why_unknown(target)}")
        return TENSOR_METHODS[target]
    if target not in TARGETS:
        name = getattr(target, "__name__", repr(target))
        full_name = f"{getattr(target, '__module__', '?')}.{name}"
        raise ValueError(f"unknown function '{full_name}': {checks.why_unknown(name)}")
    return TARGETS[target]


def _label(thing: Any) -> str:
    if not isinstance(thing, fx.Node):
        return f"a {type(thing).__name__}"
    target = thing.meta["target"]
    return f"{thing.name} ({getattr(target, '__name__', target)})"


def _join_modes(
    training: fx.Graph, evaluation: fx.Graph, layers: Mapping[str, Module]
) -> dict[str, Module]:
    """Replace functional dropout by layers, and return these."""
    dropouts = []
    for node, other in zip(training.nodes, evaluation.nodes, strict=False):
        if _action(node) != _action(other):
            raise GraphError(
                f"{node.meta['where']}: the forward pass depends on the mode: {_label(node)} or "
                f"{_label(other)}. Only dropout may depend on it."
            )
        if node.kwargs.get("training") != other.kwargs.get("training"):
            dropouts.append(node)
    kind: Any = inn.Dropout if _is_interval(layers) else torch.nn.Dropout
    names = (f"functional_dropout_{index}" for index in itertools.count())
    free = (name for name in names if name not in layers)
    added = {}
    for node, path in zip(dropouts, free, strict=False):
        added[path] = kind(node.kwargs["p"]).train(layers[""].training)
        with training.inserting_before(node):
            dropout = training.call_module(path, (node.args[0],))
            node.replace_all_uses_with(dropout, propagate_meta=True)
        training.erase_node(node)
    return added


def _action(node: fx.Node) -> tuple[Any, ...]:
    kwargs = {name: value for name, value in node.kwargs.items() if name != "training"}
    return node.op, node.meta["target"], str(node.args), str(kwargs)


def _is_interval(layers: Mapping[str, Module]) -> bool:
    return any(family_of(layer) in INTERVAL_FAMILIES for layer in layers.values())


def _check_inplace(nodes: list[fx.Node], layers: Mapping[str, Module]) -> None:
    """Raise an error if a value is used after it was changed in place."""
    changing = INPLACE - REBOUND if _is_interval(layers) else INPLACE
    memory: dict[fx.Node, fx.Node] = {}  # first node with the same memory
    for index, node in enumerate(nodes):
        layer = layers[str(node.target)] if node.op == "call_module" else None
        name = getattr(node.target, "__name__", "") if layer is None else type(layer).__name__
        inplace = node.meta["inplace"] or node.meta["target"] in changing
        inplace = inplace or getattr(layer, "inplace", False)
        shares = node.all_input_nodes and (inplace or name in _VIEWS)
        memory[node] = memory[node.all_input_nodes[0]] if shares else node
        later = (one for user in nodes[index + 1 :] for one in user.all_input_nodes)
        if inplace and any(one is not node and memory.get(one) is memory[node] for one in later):
            raise GraphError(
                f"{node.meta['where']}: {_label(node)} changes in place an input that is used "
                "later. Use inplace=False."
            )
