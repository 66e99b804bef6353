"""A network's forward pass as a graph of known layers and known functions, or a refusal that says where and why.

In: any module. Out: :class:`Traced`, from which conversion, saving and folding start. A graph holds for every input and
for both modes: the forward pass is traced in training and in eval mode, and the two must agree but for dropout.
Operations in place become ordinary ones; where that would change the result, the network is refused.
"""

import copy
import inspect
import itertools
import operator
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx

from creinn import interval
from creinn import nn as inn
from creinn.graph.calls import Kind, check_call, reason
from creinn.nn import functional as functions
from creinn.nn.families import INTERVAL_FAMILIES, family_of
from creinn.nn.functional import FUNCTIONS, INPLACE, METHODS, REBOUND, TARGETS

_ATTRIBUTES = {"shape": "size", "ndim": "ndim"}  # of a tensor or an interval, which a forward pass may read
_VIEWS = frozenset(  # functions and layers whose result may share its memory with their argument
    {
        *("flatten", "reshape", "unsqueeze", "squeeze", "permute", "transpose", "contiguous", "getitem", "dropout"),
        *("Flatten", "Identity", "Dropout", "Dropout1d", "Dropout2d"),
    }
)
_PATH = re.compile(r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*")
_TORCH = str(Path(torch.__file__).parent)
_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, fx.GraphModule)


class GraphError(ValueError):
    """A network that is not a graph of known layers and functions; the message names the place and the reason."""


class Traced(NamedTuple):
    """A network as a graph: nodes that call layers by path or known functions, from one input to one output.

    ``layers`` are those that it calls, in the order of the network; a shared one under each of its paths.
    """

    graph: fx.Graph
    layers: dict[str, torch.nn.Module]

    def layer(self, node: fx.Node) -> torch.nn.Module | None:
        """The layer that a node calls, if it calls one."""
        return self.layers[str(node.target)] if node.op == "call_module" else None


class GraphTracer(fx.Tracer):
    """Tracer that keeps every function of :data:`creinn.nn.functional.FUNCTIONS` as one node."""

    def __init__(self) -> None:
        super().__init__(autowrap_functions=(*FUNCTIONS.values(), interval.cat, interval.stack))
        self._autowrap_search = [functions, interval]


def trace(network: torch.nn.Module, families: Collection[str]) -> Traced:
    """Trace a copy of a network whose layers are of the given families.

    Raises:
        GraphError: If something in the forward pass is not a known layer or function.
    """
    try:
        duplicate = copy.deepcopy(network)
    except Exception as error:
        raise GraphError(f"{type(network).__name__} cannot be copied, which tracing needs: {error}") from error
    training, evaluation = (_trace_in(duplicate, mode, families) for mode in (True, False))
    layers = dict(network.named_modules(remove_duplicate=False))
    new = _Translation(layers)
    new.run(training, evaluation)
    paths = [node.target for node in new.graph.nodes if node.op == "call_module"]
    check_paths(paths)
    called = {layers[path] for path in paths if path in layers}
    return Traced(new.graph, {path: layer for path, layer in layers.items() if layer in called} | new.added)


def check_paths(paths: Iterable[Any]) -> None:
    """Raise a :class:`GraphError` if the module of a graph cannot hold layers of these paths."""
    for path in paths:
        if not (isinstance(path, str) and _PATH.fullmatch(path)):
            raise GraphError(f"{path!r}: a layer's path may have letters, digits, '_' and '-' only. Rename the layer.")
        if hasattr(fx.GraphModule, path.partition(".")[0]):
            raise GraphError(f"{path!r}: torch.fx needs the name {path.partition('.')[0]!r} itself. Rename the layer.")


def graph_module(traced: Traced, class_name: str = "GraphModule") -> fx.GraphModule:
    """The module that runs a graph; it holds its layers under their paths and in their order."""
    module = fx.GraphModule(traced.layers, traced.graph, class_name)
    for name, _ in list(module.named_children()):
        delattr(module, name)
    for path, layer in traced.layers.items():
        module.add_submodule(path, layer)
    return module


def check_module(path: str, module: torch.nn.Module, families: Collection[str]) -> None:
    """Refuse a module whose computation is not what its class or its forward pass says, or that is not known.

    Raises:
        GraphError: If it does something else, or is a layer of torch or of a family that does not belong here.
    """
    kind, family, why = type(module), family_of(module), ""
    if module._forward_hooks or module._forward_pre_hooks:
        why = "it has forward hooks, which would be lost. Remove them first."
    elif family is None:
        if isinstance(module, torch.jit.ScriptModule):
            why = "it is compiled TorchScript, which cannot be traced. Use the Python module."
        elif hasattr(module, "parametrizations"):
            why = "it has parametrized weights. Remove the parametrizations first."
        elif kind.__module__.partition(".")[0] == "torch" and not isinstance(module, _CONTAINERS):
            why = f"{reason(kind.__name__)}."
    elif family not in families:
        why = f"it is a layer of the family {family!r} already; only {', '.join(families)} layers belong here."
    elif "forward" in vars(module):
        why = "it has a forward of its own, set on the object. Write it as a subclass of torch.nn.Module."
    if why:
        raise GraphError(f"{_place(path, module)}: {why}")


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    def operation(self: fx.Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return operation


class _Proxy(fx.Proxy):
    """A proxy that records operations in place as such."""

    __iadd__, __isub__ = _recorded(operator.iadd), _recorded(operator.isub)
    __imul__, __itruediv__ = _recorded(operator.imul), _recorded(operator.itruediv)


class _StrictTracer(GraphTracer):
    """Tracer that knows the layers of some families and refuses everything else that hides its computation."""

    def __init__(self, families: Collection[str]) -> None:
        super().__init__()
        self.families = families

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        node.meta["line"] = _line()
        return node

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return family_of(m) is not None

    def call_module(self, m: torch.nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        path = _path(self.path_of_module(m))
        check_module(path, m, self.families)
        try:
            return super().call_module(m, forward, args, kwargs)
        except GraphError:
            raise
        except Exception as error:
            raise GraphError(f"{_place(path, m)}: its forward pass cannot be traced: {error}") from error


def _trace_in(network: torch.nn.Module, training: bool, families: Collection[str]) -> list[fx.Node]:
    for module in network.modules():
        module.training = training
    root = torch.nn.Sequential(network)  # calls it with one argument, so that further ones take their defaults
    return list(_StrictTracer(families).trace(root).nodes)


class _Translation:
    """From the nodes that torch recorded to layers and known functions."""

    def __init__(self, layers: Mapping[str, torch.nn.Module]) -> None:
        self.layers = layers
        self.interval = any(family_of(layer) in INTERVAL_FAMILIES for layer in layers.values())
        self.graph = fx.Graph(tracer_cls=GraphTracer)
        self.added: dict[str, torch.nn.Module] = {}
        self.new: dict[fx.Node, fx.Node] = {}
        self.kinds: dict[fx.Node, Kind] = {}

    def run(self, training: list[fx.Node], evaluation: list[fx.Node]) -> None:
        """Translate node by node; the nodes of eval mode serve to find what depends on the mode."""
        _check_inplace(training, self.layers, INPLACE - REBOUND if self.interval else INPLACE)
        for node, other in zip(training, evaluation, strict=False):  # they differ before one of them ends
            try:
                self._translate(node, other)
            except GraphError:
                raise
            except ValueError as error:
                raise GraphError(f"{_where(node)}: {error}.") from error
        self.graph.lint()

    def _translate(self, node: fx.Node, other: fx.Node) -> None:
        kind: Kind = "value"
        if _signature(node) != _signature(other):
            raise ValueError(
                f"the forward pass depends on the mode: {_shown(node)} in training, {_shown(other)} in eval mode. "
                "Only dropout may"
            )
        if node.op == "placeholder":
            new = self.graph.placeholder("x")
        elif node.op == "get_attr":
            raise ValueError(f"the tensor {_path(str(node.target))!r} is used directly, outside of a known layer")
        elif node.op == "call_module":
            path, operands = _path(str(node.target)), [*node.args, *node.kwargs.values()]
            if len(operands) != 1 or not self._is_value(operands[0]):
                raise ValueError(f"the layer {path} takes one input, got {len(operands)} arguments")
            new = self.graph.call_module(path, (self.new[operands[0]],))  # type: ignore[index]
        elif node.op == "output":
            if not self._is_value(node.args[0]):
                raise ValueError(f"the network must return one tensor of logits, but returns {_shown(node.args[0])}")
            new = self.graph.output(self.new[node.args[0]])  # type: ignore[index]
        else:
            new, kind = self._function(node, other)
        self.new[node], self.kinds[new] = new, kind

    def _is_value(self, argument: Any) -> bool:
        return isinstance(argument, fx.Node) and self.kinds[self.new[argument]] == "value"

    def _function(self, node: fx.Node, other: fx.Node) -> tuple[fx.Node, Kind]:
        name, args = _named(node)
        given = {argument: value for argument, value in node.kwargs.items() if argument != "inplace"}
        args, kwargs = fx.node.map_arg((args, given), lambda argument: self.new[argument])
        kind = check_call(name, args, kwargs, self.kinds)
        if name == "dropout" and (options := _dropout(node))["training"] != _dropout(other)["training"]:
            path = self._add_dropout(options["p"])
            return self.graph.call_module(path, (self.new[options["input"]],)), kind
        return self.graph.call_function(FUNCTIONS[name], args, kwargs), kind

    def _add_dropout(self, p: float) -> str:
        """A layer for a functional dropout that follows the mode of the network."""
        taken = {path.partition(".")[0] for path in (*self.layers, *self.added)}
        names = (f"functional_dropout_{index}" for index in itertools.count())
        path = next(name for name in names if name not in taken)
        self.added[path] = inn.Dropout(p) if self.interval else torch.nn.Dropout(p)
        self.added[path].train(self.layers[""].training)
        return path


def _dropout(node: fx.Node) -> dict[str, Any]:
    bound = inspect.signature(FUNCTIONS["dropout"]).bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    return bound.arguments


def _known_name(node: fx.Node) -> str:
    """Our name of the function, method or attribute that a node calls, if it is known."""
    if node.target is getattr:
        return _ATTRIBUTES.get(str(node.args[1]), "")
    target: Any = node.target
    return (METHODS if node.op == "call_method" else TARGETS).get(target, "")


def _named(node: fx.Node) -> tuple[str, tuple[Any, ...]]:
    """Our name of what a node calls, and its positional arguments."""
    is_attribute = node.target is getattr
    if name := _known_name(node):
        return name, node.args[:1] if is_attribute else node.args
    if is_attribute:
        raise ValueError(f"unknown attribute '.{node.args[1]}': only {', '.join(_ATTRIBUTES)} can be read off a value")
    if node.op == "call_method":
        raise ValueError(f"unknown method '.{node.target}()': {reason(str(node.target))}")
    name = getattr(node.target, "__name__", repr(node.target))
    raise ValueError(f"unknown function '{getattr(node.target, '__module__', '?')}.{name}': {reason(name)}")


def _signature(node: fx.Node) -> tuple[Any, ...]:
    """What a node does, but for dropout's flag."""
    args, kwargs = node.args, dict(node.kwargs)
    if _known_name(node) == "dropout":
        args, kwargs = args[:2], {name: value for name, value in kwargs.items() if name != "training"}
    return node.op, node.target, str(args), str(kwargs)


def _check_inplace(nodes: list[fx.Node], layers: Mapping[str, torch.nn.Module], changing: Collection[Any]) -> None:
    """Refuse an operation in place on memory that is read again later: out of place it would give another result."""
    memory: dict[fx.Node, fx.Node] = {}  # the first node that holds a node's memory
    for index, node in enumerate(nodes):
        layer = layers.get(_path(str(node.target))) if node.op == "call_module" else None
        name = _known_name(node) if layer is None else type(layer).__name__
        inplace = node.target in changing or bool(node.kwargs.get("inplace") or getattr(layer, "inplace", False))
        shares = node.all_input_nodes and (inplace or name in _VIEWS)
        memory[node] = memory[node.all_input_nodes[0]] if shares else node
        if not inplace:
            continue
        read_later = {argument for user in nodes[index + 1 :] for argument in user.all_input_nodes}
        if any(memory[earlier] is memory[node] and earlier in read_later for earlier in nodes[:index]):
            raise GraphError(
                f"{_where(node)}: {_shown(node)} changes its input in place, and that is used again later. "
                "Use the ordinary operation, e.g. inplace=False."
            )


def _path(qualified: str) -> str:
    """The path in the network; the tracer holds it as the first part of a ``Sequential``."""
    return qualified.removeprefix("0").removeprefix(".")


def _place(path: str, module: torch.nn.Module) -> str:
    return f"{path}: {type(module).__name__}" if path else type(module).__name__


def _where(node: fx.Node) -> str:
    """The module in whose forward pass a node was recorded, and the line."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path, kind = stack[-1] if stack else ("", None)
    name = "the network" if kind is None else getattr(kind, "__name__", str(kind))
    module = f"{_path(path)} ({name})" if _path(path) else name
    return f"{module}, {node.meta['line']}" if node.meta.get("line") else module


def _line() -> str | None:
    """The line of a forward pass that is running now: the nearest one that is neither torch's nor ours."""
    for frame, number in traceback.walk_stack(sys._getframe()):
        file = frame.f_code.co_filename
        if file == __file__ and frame.f_code.co_name == _trace_in.__name__:
            return None  # the network itself was called; there is no line of its own
        if file not in (__file__, "<string>") and not file.startswith(_TORCH):
            return f"line {number} of {Path(file).name}"
    return None


def _shown(thing: Any) -> str:
    if isinstance(thing, fx.Node):
        return f"{thing.name} ({getattr(thing.target, '__name__', thing.target)})"
    return f"a {type(thing).__name__}"
