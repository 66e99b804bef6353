"""A network's forward pass as a graph of known layers and known functions, or a refusal that says where and why.

In: any module. Out: :class:`Traced`, from which conversion, saving and folding start; it holds for every input and both
modes. A node holds a value (an interval or a tensor) or a size (a shape, or an integer from one). Operations in place
become ordinary ones; where that would change the result, the network is refused.
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
from typing import Any, Literal, NamedTuple

import torch
from torch import fx

from creinn import interval
from creinn import nn as inn
from creinn.nn import functional as functions
from creinn.nn.families import INTERVAL_FAMILIES, family_of
from creinn.nn.functional import (
    FUNCTIONS,
    INPLACE,
    METHODS,
    ON_SIZES,
    OPERANDS,
    REBOUND,
    TARGETS,
    TO_SIZES,
)

Kind = Literal["value", "size"]
Kinds = Mapping[fx.Node, Kind]

_ATTRIBUTES = {
    "shape": "size",
    "ndim": "ndim",
}  # of a tensor or an interval, which a forward pass may read
_VIEWS = (  # functions and layers whose result may share its memory with their argument
    *(
        "flatten",
        "reshape",
        "unsqueeze",
        "squeeze",
        "permute",
        "transpose",
        "contiguous",
        "getitem",
        "dropout",
    ),
    *("Flatten", "Identity", "Dropout", "Dropout1d", "Dropout2d"),
)
_PATH = re.compile(r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*")
_TORCH = str(Path(torch.__file__).parent)
_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, fx.GraphModule)
_REASONS = {
    "(log)?softmax": "CreINN applies Interval SoftMax itself; let the network return logits",
    "(layer|group|rms|instance|localresponse)norm": (
        "it normalises with statistics of the sample itself, for which no interval version is known here"
    ),
    "multiheadattention|scaleddotproductattention|transformer": (
        "it multiplies activations by a softmax of activations, for which no interval version is known here"
    ),
    "(rnn|lstm|gru)(cell)?$": "recurrent layers have no interval version",
    "(gt|ge|lt|le|eq|ne)$": "the forward pass may not depend on what it computes from its input",
}


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
        raise GraphError(
            f"{type(network).__name__} cannot be copied, which tracing needs: {error}"
        ) from error
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


def check_paths(paths: Iterable[Any]) -> None:
    """Raise a :class:`GraphError` if the module of a graph cannot hold layers of these paths."""
    for path in paths:
        if not (isinstance(path, str) and _PATH.fullmatch(path)):
            raise GraphError(
                f"{path!r}: a layer's path may have letters, digits, '_' and '-' only. Rename the layer."
            )
        if hasattr(fx.GraphModule, path.partition(".")[0]):
            raise GraphError(
                f"{path!r}: torch.fx needs the name {path.partition('.')[0]!r} itself. Rename the layer."
            )


def graph_module(traced: Traced, class_name: str = "GraphModule") -> fx.GraphModule:
    """The module that runs a graph; it holds its layers under their paths and in their order."""
    module = fx.GraphModule(traced.layers, traced.graph, class_name)
    for name, _ in list(module.named_children()):
        delattr(module, name)
    for path, layer in traced.layers.items():
        module.add_submodule(path, layer)
    return module


def check_module(path: str, module: torch.nn.Module, families: Collection[str]) -> None:
    """Raise a :class:`GraphError` if a module does not compute what its class says, or does not belong here."""
    kind, family, why = type(module), family_of(module), ""
    if module._forward_hooks or module._forward_pre_hooks:
        why = "it has forward hooks, which would be lost. Remove them first."
    elif family is None:
        if isinstance(module, torch.jit.ScriptModule):
            why = "it is compiled TorchScript, which cannot be traced. Use the Python module."
        elif hasattr(module, "parametrizations"):
            why = "it has parametrized weights. Remove the parametrizations first."
        elif kind.__module__.partition(".")[0] == "torch" and not isinstance(module, _CONTAINERS):
            why = f"{_reason(kind.__name__)}."
    elif family not in families:
        why = f"it is a layer of the family {family!r} already; only {', '.join(families)} layers belong here."
    elif "forward" in vars(module):
        why = "it has a forward of its own, set on the object. Write it as a subclass of torch.nn.Module."
    if why:
        raise GraphError(f"{_place(path, module)}: {why}")


def check_call(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], kinds: Kinds) -> Kind:
    """What the function ``name`` gives for these constants and nodes; a ``ValueError`` says why it does not take them.

    It takes values where :data:`creinn.nn.functional.OPERANDS` says so, and constants or sizes elsewhere.
    """
    if name not in FUNCTIONS:
        raise ValueError(f"unknown function {name!r}")
    function = FUNCTIONS[name]
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise ValueError(f"{name} cannot be called like this: {error}") from error
    nodes: list[fx.Node] = []
    fx.node.map_arg(list(bound.values()), nodes.append)
    if not nodes:
        raise ValueError(f"{name} is called on constants alone")
    if name in ON_SIZES and all(kinds[node] == "size" for node in nodes):
        return "size"
    for argument, given in bound.items():
        check = _check_operand if argument in OPERANDS[name] else _check_constant
        check(name, argument, given, kinds)
    if hasattr(function, "layer") and len(nodes) == 1:
        try:  # the interval layer refuses what it cannot do now, rather than at the first forward pass
            function.layer(
                **{argument: given for argument, given in bound.items() if argument != "input"}
            )
        except TypeError as error:
            raise ValueError(str(error)) from error
    return "size" if name in TO_SIZES else "value"


def _check_operand(name: str, argument: str, given: Any, kinds: Kinds) -> None:
    if argument == "tensors":
        good = isinstance(given, list | tuple) and all(
            kinds.get(entry) == "value" for entry in given
        )
        wanted = "a list of values that the network computes"
    elif "other" in OPERANDS[name]:
        good = isinstance(given, fx.Node | int | float) and not isinstance(given, bool)
        wanted = "a value that the network computes or a number"
    else:
        good = isinstance(given, fx.Node) and kinds[given] == "value"
        wanted = "a value that the network computes"
    if not good:
        raise ValueError(f"{name} needs {wanted} as {argument!r}, got {given!r}")


def _check_constant(name: str, argument: str, given: Any, kinds: Kinds) -> None:
    def check(leaf: Any) -> None:
        if isinstance(leaf, fx.Node):
            if kinds[leaf] != "size":
                raise ValueError(
                    f"{name} needs a constant as {argument!r}, but the network computes it from its input"
                )
        elif not (leaf is None or leaf is Ellipsis or isinstance(leaf, bool | int | float | str)):
            raise ValueError(f"{name} does not take {leaf!r} as {argument!r}")

    fx.node.map_aggregate(given, check)  # of lists, tuples and slices, each entry


def _reason(name: str) -> str:
    """Why the layer or function of this name is not known."""
    plain = name.replace("_", "").lower()
    known = (why for pattern, why in _REASONS.items() if re.match(pattern, plain))
    return next(known, "it is not among the known ones, whose range over intervals is known")


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    def operation(self: fx.Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return operation


class _Proxy(fx.Proxy):
    """A proxy that records operations in place as such."""

    __iadd__, __isub__ = _recorded(operator.iadd), _recorded(operator.isub)
    __imul__, __itruediv__ = _recorded(operator.imul), _recorded(operator.itruediv)


class _StrictTracer(GraphTracer):
    """Records layers of some families and known functions, and refuses everything else where it is called."""

    def __init__(self, families: Collection[str]) -> None:
        super().__init__()
        self.families = families
        self.kinds: dict[fx.Node, Kind] = {}

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
            raise GraphError(
                f"{_place(path, m)}: its forward pass cannot be traced: {error}"
            ) from error

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, *_: Any, **__: Any
    ) -> fx.Node:
        """A node that calls a layer by its path in the network, or a function of ours; ``meta`` says what it was."""
        meta = {"where": self._where(), "target": target, "inplace": kwargs.get("inplace", False)}
        try:
            *known, gives = self._known(kind, target, args, kwargs)
        except ValueError as error:
            raise GraphError(f"{meta['where']}: {error}.") from error
        node = super().create_node(*known)
        node.meta.update(meta)
        self.kinds[node] = gives
        return node

    def _known(
        self, op: str, target: Any, args: Any, kwargs: Any
    ) -> tuple[str, Any, Any, Any, Kind]:
        """The node to record, and what it gives."""
        if op == "placeholder":
            return op, "x", (), {}, "value"
        if op == "get_attr":
            raise ValueError(
                f"the tensor {_path(target)!r} is used directly, outside of a known layer"
            )
        if op == "call_module":
            path, operands = _path(target), (*args, *kwargs.values())
            if len(operands) != 1 or not self._is_value(operands[0]):
                raise ValueError(f"the layer {path} takes one input, got {len(operands)} arguments")
            return op, path, operands, {}, "value"
        if op == "output":
            if not self._is_value(args[0]):
                raise ValueError(
                    f"the network must return one tensor of logits, but returns {_shown(args[0])}"
                )
            return op, target, args, kwargs, "value"
        name = _name(op, target, args)
        args = args[:1] if target is getattr else args
        kwargs = {argument: value for argument, value in kwargs.items() if argument != "inplace"}
        return (
            "call_function",
            FUNCTIONS[name],
            args,
            kwargs,
            check_call(name, args, kwargs, self.kinds),
        )

    def _is_value(self, argument: Any) -> bool:
        return isinstance(argument, fx.Node) and self.kinds[argument] == "value"

    def _where(self) -> str:
        """The module whose forward pass is running, and the line."""
        path, kind = next(reversed(self.module_stack.values()), ("", None))
        name = "the network" if kind is None else getattr(kind, "__name__", str(kind))
        line = _line()
        return (f"{_path(path)} ({name})" if _path(path) else name) + (f", {line}" if line else "")


def _trace_in(network: torch.nn.Module, training: bool, families: Collection[str]) -> fx.Graph:
    for module in network.modules():
        module.training = training
    root = torch.nn.Sequential(
        network
    )  # calls it with one argument, so that further ones take their defaults
    return _StrictTracer(families).trace(root)


def _name(op: str, target: Any, args: tuple[Any, ...]) -> str:
    """Our name of the function, method or attribute that is called."""
    if target is getattr:
        if args[1] not in _ATTRIBUTES:
            raise ValueError(
                f"unknown attribute '.{args[1]}': only {', '.join(_ATTRIBUTES)} can be read off a value"
            )
        return _ATTRIBUTES[args[1]]
    if op == "call_method":
        if target not in METHODS:
            raise ValueError(f"unknown method '.{target}()': {_reason(target)}")
        return METHODS[target]
    if target not in TARGETS:
        name = getattr(target, "__name__", repr(target))
        raise ValueError(
            f"unknown function '{getattr(target, '__module__', '?')}.{name}': {_reason(name)}"
        )
    return TARGETS[target]


def _join_modes(
    training: fx.Graph, evaluation: fx.Graph, layers: Mapping[str, torch.nn.Module]
) -> dict[str, torch.nn.Module]:
    """Refuse graphs that differ in more than dropout; one that follows the mode becomes a layer. These are returned."""
    dropouts: dict[fx.Node, float] = {}
    for node, other in zip(
        training.nodes, evaluation.nodes, strict=False
    ):  # they differ before one of them ends
        here, there = _action(node), _action(other)
        follows_mode = here.pop("training", None) != there.pop("training", None)
        if here != there:
            raise GraphError(
                f"{node.meta['where']}: the forward pass depends on the mode: {_shown(node)} in training, "
                f"{_shown(other)} in eval mode. Only dropout may."
            )
        if follows_mode:
            dropouts[node] = here["p"]
    kind: type[torch.nn.Module] = inn.Dropout if _is_interval(layers) else torch.nn.Dropout
    free = (
        path for index in itertools.count() if (path := f"functional_dropout_{index}") not in layers
    )
    added = {}
    for (node, p), path in zip(dropouts.items(), free, strict=False):
        added[path] = kind(p).train(layers[""].training)
        with training.inserting_before(node):
            node.replace_all_uses_with(training.call_module(path, (node.all_input_nodes[0],)))
        training.erase_node(node)
    return added


def _action(node: fx.Node) -> dict[str, Any]:
    """What a node does, with the arguments of dropout by name."""
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
    """Refuse an operation in place on memory that is read again later: out of place it would give another result."""
    changing = INPLACE - REBOUND if _is_interval(layers) else INPLACE
    memory: dict[fx.Node, fx.Node] = {}  # the first node that holds a node's memory
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
                f"{node.meta['where']}: {_shown(node)} changes its input in place, and that is used again later. "
                "Use the ordinary operation, e.g. inplace=False."
            )


def _path(qualified: str) -> str:
    """The path in the network; the tracer holds it as the first part of a ``Sequential``."""
    return qualified.removeprefix("0").removeprefix(".")


def _place(path: str, module: torch.nn.Module) -> str:
    return f"{path}: {type(module).__name__}" if path else type(module).__name__


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
    if not isinstance(thing, fx.Node):
        return f"a {type(thing).__name__}"
    target = thing.meta["target"]
    return f"{thing.name} ({getattr(target, '__name__', target)})"
