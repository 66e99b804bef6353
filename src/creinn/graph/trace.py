"""A network's forward pass as a graph of known layers and known functions, or a refusal that says where and why.

In: any module. Out: :class:`Traced`: a ``torch.fx`` graph whose nodes call layers of a known family
(:data:`creinn.nn.families.LAYERS`) or functions of :data:`creinn.nn.functional.FUNCTIONS`, and the layers by path.
Conversion and saving both start here, so that what one of them knows, the other knows too.

A graph holds for every input and for both modes: the forward pass is traced in training and in eval mode, and the two
must agree but for dropout. Operations in place become ordinary ones; where that would change the result, the network
is refused.
"""

import copy
import inspect
import operator
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from creinn import interval
from creinn import nn as inn
from creinn.graph.calls import ATTRIBUTES, VIEWS, Kind, check_call, reason
from creinn.nn import functional as functions
from creinn.nn.families import INTERVAL_FAMILIES, family_of
from creinn.nn.functional import FUNCTIONS, INPLACE, METHODS, REBOUND, TARGETS

_PATH = re.compile(r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*")
_TORCH = str(Path(torch.__file__).parent)
_ROOT = "network"  # where the tracer holds the traced network
_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, fx.GraphModule)


class GraphError(ValueError):
    """A network that is not a graph of known layers and functions; the message names the place and the reason."""


@dataclass(frozen=True)
class Traced:
    """A network as a graph.

    Attributes:
        graph: Nodes that call layers by path, or functions of :data:`creinn.nn.functional.FUNCTIONS`; one input, one
            output.
        layers: The layers that the graph calls, by path, in the order in which the network holds them; a shared layer
            under each of its paths.
    """

    graph: fx.Graph
    layers: dict[str, torch.nn.Module]


class GraphTracer(fx.Tracer):
    """Tracer that keeps every function of :data:`creinn.nn.functional.FUNCTIONS` as one node."""

    def __init__(self) -> None:
        super().__init__(autowrap_functions=(*FUNCTIONS.values(), interval.cat, interval.stack))
        self._autowrap_search = [functions, interval]


def trace(network: torch.nn.Module, families: Collection[str]) -> Traced:
    """Trace a network whose layers are of the given families.

    The network itself is left as it is; a copy is traced.

    Raises:
        GraphError: If something in the forward pass is not a known layer or function.
    """
    try:
        duplicate = copy.deepcopy(network)
    except Exception as error:
        raise GraphError(f"{type(network).__name__} cannot be copied, which tracing needs: {error}") from error
    training, evaluation = (_trace_in(duplicate, mode, families) for mode in (True, False))
    layers = dict(network.named_modules(remove_duplicate=False))
    graph, added = _Translation(layers).run(training, evaluation)
    check_paths(node.target for node in graph.nodes if node.op == "call_module")
    called = {id(layers[node.target]) for node in graph.nodes if node.op == "call_module" and node.target in layers}
    return Traced(graph, {**{path: layer for path, layer in layers.items() if id(layer) in called}, **added})


def check_paths(paths: Iterable[Any]) -> None:
    """Refuse paths of layers that the module of a graph cannot hold.

    Raises:
        GraphError: If a path has unusual characters, or begins with a name that ``torch.fx.GraphModule`` uses itself.
    """
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
        GraphError: If it has hooks, a forward pass of its own, or parametrized weights; or is a layer of torch or of
            another family that is not known here.
    """
    kind, place = type(module), _place(path, module)
    family = family_of(module)
    if module._forward_hooks or module._forward_pre_hooks:
        raise GraphError(f"{place}: it has forward hooks, which would be lost. Remove them first.")
    if family is None:
        if isinstance(module, torch.jit.ScriptModule):
            raise GraphError(f"{place}: it is compiled TorchScript, which cannot be traced. Use the Python module.")
        if hasattr(module, "parametrizations"):
            raise GraphError(f"{place}: it has parametrized weights. Remove the parametrizations first.")
        if kind.__module__.partition(".")[0] == "torch" and not isinstance(module, _CONTAINERS):
            raise GraphError(f"{place}: {reason(kind.__name__)}.")
        return
    if family not in families:
        raise GraphError(
            f"{place}: it is a layer of the family {family!r} already; only {', '.join(families)} layers belong here."
        )
    if "forward" in vars(module):
        raise GraphError(
            f"{place}: it has a forward of its own, set on the object. Write it as a subclass of torch.nn.Module."
        )


class _OneInput(torch.nn.Module):
    """Calls the network with one argument, so that further ones take their defaults."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.add_module(_ROOT, network)

    def forward(self, x: Any) -> Any:
        return self.get_submodule(_ROOT)(x)


class _Proxy(fx.Proxy):
    """A proxy that records operations in place as such."""

    def _inplace(self, function: Callable[..., Any], other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    def __iadd__(self, other: Any) -> Any:
        return self._inplace(operator.iadd, other)

    def __isub__(self, other: Any) -> Any:
        return self._inplace(operator.isub, other)

    def __imul__(self, other: Any) -> Any:
        return self._inplace(operator.imul, other)

    def __itruediv__(self, other: Any) -> Any:
        return self._inplace(operator.itruediv, other)


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
    return list(_StrictTracer(families).trace(_OneInput(network)).nodes)


class _Translation:
    """From the nodes that torch recorded to layers and known functions."""

    def __init__(self, layers: Mapping[str, torch.nn.Module]) -> None:
        self.layers = layers
        self.interval = any(family_of(layer) in INTERVAL_FAMILIES for layer in layers.values())
        self.graph = fx.Graph(tracer_cls=GraphTracer)
        self.added: dict[str, torch.nn.Module] = {}
        self.new: dict[fx.Node, fx.Node] = {}
        self.kinds: dict[fx.Node, Kind] = {}

    def run(self, training: list[fx.Node], evaluation: list[fx.Node]) -> tuple[fx.Graph, dict[str, torch.nn.Module]]:
        """Translate node by node; the nodes of eval mode serve to find what depends on the mode."""
        _check_inplace(training, self.layers, INPLACE - REBOUND if self.interval else INPLACE)
        for node, other in _paired(training, evaluation):
            try:
                self._translate(node, other)
            except GraphError:
                raise
            except ValueError as error:
                raise GraphError(f"{_where(node)}: {error}.") from error
        self.graph.lint()
        return self.graph, self.added

    def _translate(self, node: fx.Node, other: fx.Node) -> None:
        if node.op == "placeholder":
            self._put(node, self.graph.placeholder("x"), "value")
        elif node.op == "get_attr":
            raise ValueError(f"the tensor {_path(str(node.target))!r} is used directly, outside of a known layer")
        elif node.op == "call_module":
            self._layer(node)
        elif node.op == "output":
            result = node.args[0]
            if not isinstance(result, fx.Node) or self.kinds[self.new[result]] != "value":
                raise ValueError(f"the network must return one tensor of logits, but returns {_shown(result)}")
            self.graph.output(self.new[result])
        else:
            self._function(node, other)

    def _layer(self, node: fx.Node) -> None:
        path = _path(str(node.target))
        operands = [*node.args, *node.kwargs.values()]
        if len(operands) != 1 or not isinstance(operands[0], fx.Node) or self.kinds[self.new[operands[0]]] != "value":
            raise ValueError(f"the layer {path} takes one input, got {len(operands)} arguments")
        self._put(node, self.graph.call_module(path, (self.new[operands[0]],)), "value")

    def _function(self, node: fx.Node, other: fx.Node) -> None:
        name, args = _named(node)
        given = {argument: value for argument, value in node.kwargs.items() if argument != "inplace"}
        args, kwargs = fx.node.map_arg((args, given), lambda argument: self.new[argument])
        kind = check_call(name, args, kwargs, self.kinds)
        if name == "dropout" and _training(node) != _training(other):
            p = inspect.signature(FUNCTIONS[name]).bind(*args, **kwargs).arguments.get("p", 0.5)
            self._put(node, self.graph.call_module(self._add_dropout(p), (args[0] if args else kwargs["input"],)), kind)
            return
        self._put(node, self.graph.call_function(FUNCTIONS[name], args, kwargs), kind)

    def _add_dropout(self, p: float) -> str:
        """A layer for a functional dropout that follows the mode of the network."""
        taken = {path.partition(".")[0] for path in (*self.layers, *self.added)}
        path = next(name for name in _numbered("functional_dropout") if name not in taken)
        self.added[path] = inn.Dropout(p) if self.interval else torch.nn.Dropout(p)
        self.added[path].train(self.layers[""].training)
        return path

    def _put(self, old: fx.Node, new: fx.Node, kind: Kind) -> None:
        self.new[old], self.kinds[new] = new, kind


def _named(node: fx.Node) -> tuple[str, tuple[Any, ...]]:
    """Our name of the function, method or attribute that a node calls, and its positional arguments."""
    if node.op == "call_method":
        method = str(node.target)
        if method not in METHODS:
            raise ValueError(f"unknown method '.{method}()': {reason(method)}")
        return METHODS[method], node.args
    if node.target is getattr:
        attribute = str(node.args[1])
        if attribute not in ATTRIBUTES:
            raise ValueError(f"unknown attribute '.{attribute}': only {', '.join(ATTRIBUTES)} can be read off a value")
        return ATTRIBUTES[attribute], node.args[:1]
    target: Any = node.target
    if target not in TARGETS:
        name = getattr(target, "__name__", repr(target))
        raise ValueError(f"unknown function '{getattr(target, '__module__', '?')}.{name}': {reason(name)}")
    return TARGETS[target], node.args


def _known_name(node: fx.Node) -> str:
    target: Any = node.target
    return (METHODS if node.op == "call_method" else TARGETS).get(target, "")


def _paired(training: list[fx.Node], evaluation: list[fx.Node]) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Nodes of both modes side by side, as long as they do the same but for dropout's flag."""
    for node, other in zip(training, evaluation, strict=False):
        if _signature(node) != _signature(other):
            raise GraphError(
                f"{_where(node)}: the forward pass depends on the mode: {_shown(node)} in training, {_shown(other)} in "
                "eval mode. Only dropout may."
            )
        yield node, other
    if len(training) != len(evaluation):
        raise GraphError(
            f"The forward pass depends on the mode: {len(training)} operations in training, {len(evaluation)} in eval "
            "mode. Only dropout may."
        )


def _signature(node: fx.Node) -> tuple[Any, ...]:
    args, kwargs = node.args, dict(node.kwargs)
    if _known_name(node) == "dropout":
        args, kwargs = args[:2], {name: value for name, value in kwargs.items() if name != "training"}
    return node.op, node.target, str(args), str(kwargs)


def _training(node: fx.Node) -> Any:
    return inspect.signature(FUNCTIONS["dropout"]).bind(*node.args, **node.kwargs).arguments.get("training", True)


def _check_inplace(nodes: list[fx.Node], layers: Mapping[str, torch.nn.Module], changing: Collection[Any]) -> None:
    """Refuse an operation in place on memory that is read again later: out of place it would give another result."""
    order = {node: index for index, node in enumerate(nodes)}
    memory: dict[fx.Node, fx.Node] = {}  # the first node that holds a node's memory
    for node in nodes:
        argument = next(iter(node.all_input_nodes), None)
        layer = layers.get(_path(str(node.target))) if node.op == "call_module" else None
        name = type(layer).__name__ if layer is not None else _known_name(node)
        flag = node.kwargs.get("inplace", False) or getattr(layer, "inplace", False)
        inplace = bool(flag) or node.target in changing
        shares = argument is not None and (inplace or name in VIEWS)
        memory[node] = memory[argument] if shares and argument is not None else node
        if not inplace:
            continue
        for earlier in nodes[: order[node]]:
            if memory[earlier] is memory[node] and any(order[user] > order[node] for user in earlier.users):
                raise GraphError(
                    f"{_where(node)}: {_shown(node)} changes its input in place, and that is used again later. "
                    "Use the ordinary operation, e.g. inplace=False."
                )


def _path(qualified: str) -> str:
    return qualified.removeprefix(_ROOT).removeprefix(".")


def _place(path: str, module: torch.nn.Module) -> str:
    return f"{path}: {type(module).__name__}" if path else type(module).__name__


def _where(node: fx.Node) -> str:
    """The module in whose forward pass a node was recorded, and the line."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path, kind = stack[-1] if stack else ("", None)
    name = getattr(kind, "__name__", str(kind))
    module = f"{_path(path)} ({name})" if _path(path) else f"{name}" if kind is not None else "the network"
    return f"{module}, {node.meta['line']}" if node.meta.get("line") else module


def _line() -> str | None:
    """The line of a forward pass that is running now: the nearest one that is neither torch's nor ours."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == __file__ and frame.f_code.co_name == "forward":
            return None  # the network itself was called; there is no line of its own
        if frame.f_code.co_filename not in (__file__, "<string>") and not frame.f_code.co_filename.startswith(_TORCH):
            return f"line {frame.f_lineno} of {Path(frame.f_code.co_filename).name}"
    return None


def _shown(thing: Any) -> str:
    if isinstance(thing, fx.Node):
        return f"{thing.name} ({getattr(thing.target, '__name__', thing.target)})"
    return f"a {type(thing).__name__}"


def _numbered(name: str) -> Iterator[str]:
    index = 0
    while True:
        yield f"{name}_{index}"
        index += 1
