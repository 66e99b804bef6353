"""Recording of the forward pass of a module without changes of shared classes.

``torch.fx.Tracer.trace`` replaces ``torch.nn.Module.__call__`` in the whole process, which is not
safe if modules are used in other threads. :class:`GraphTracer` sets the ``forward`` attribute of
the traced modules instead. The input is a copy of the network; see :mod:`creinn.graph.trace`.
"""

import operator
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import fx

from creinn import traceable
from creinn.graph.checks import GraphError, Kind, check_call, place, why_refused, why_unknown
from creinn.nn.families import family_of
from creinn.nn.functional import FUNCTIONS, METHODS, TARGETS

_ATTRIBUTES = {
    "shape": "size",
    "ndim": "ndim",
}  # attributes that a forward pass can use
_TORCH = str(Path(torch.__file__).parent)


class GraphTracer(fx.Tracer):
    """Tracer of modules with one input ``x``.

    This class is also used by torch.fx to load a pickled graph.
    """

    def trace(
        self,
        root: torch.nn.Module | Callable[..., Any],
        concrete_args: dict[str, Any] | None = None,
    ) -> fx.Graph:
        """Record the forward pass of ``root``."""
        assert isinstance(root, torch.nn.Module)
        self.root, self.graph = root, fx.Graph(tracer_cls=type(self))
        self.submodule_paths = {module: path for path, module in root.named_modules()}
        self.tensor_attrs: dict[Any, str] = {}
        with self._intercepted(root):
            output = root.forward(self.create_proxy("placeholder", "x", (), {}))
            self.create_node("output", "output", (self.create_arg(output),), {})
        return self.graph

    @contextmanager
    def _intercepted(self, root: torch.nn.Module) -> Iterator[None]:
        """Replace the calls of the submodules of ``root`` by :meth:`call_module`."""
        modules = [m for m in root.modules() if not isinstance(m, torch.jit.ScriptModule)][1:]
        own = [(module, vars(module).get("forward")) for module in modules]
        for module in modules:
            vars(module)["forward"] = self._interceptor(module, module.forward)
        try:
            yield
        finally:
            for module, forward in own:
                if forward is None:
                    del vars(module)["forward"]
                else:
                    vars(module)["forward"] = forward

    def _interceptor(
        self, module: torch.nn.Module, forward: Callable[..., Any]
    ) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.call_module(module, forward, args, kwargs)


class StrictTracer(GraphTracer):
    """Tracer that only supports known functions and the layers of some families.

    In-place operations are recorded as ordinary operations with a mark in ``node.meta``.

    Raises:
        GraphError: If the forward pass in :meth:`trace` calls something else.
    """

    def __init__(self, families: Collection[str]) -> None:
        super().__init__()
        self.families = families
        self.kinds: dict[fx.Node, Kind] = {}

    def trace(
        self,
        root: torch.nn.Module | Callable[..., Any],
        concrete_args: dict[str, Any] | None = None,
    ) -> fx.Graph:
        """Record the forward pass of a network with one argument and the defaults."""
        assert isinstance(root, torch.nn.Module)
        self.refused = {module: why_refused(module, self.families) for module in root.modules()}
        return super().trace(torch.nn.Sequential(root))

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Return the proxy of a node."""
        return _Proxy(node, self)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        """Return whether a call of the module is recorded as a node."""
        return family_of(m) is not None

    def call_module(self, m: torch.nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """Record the call of a layer, or run any other module."""
        where = place(_path(self.path_of_module(m)), m)
        if self.refused[m]:
            raise GraphError(f"{where}: {self.refused[m]}")
        try:
            return super().call_module(m, forward, args, kwargs)
        except GraphError:
            raise
        except Exception as error:
            raise GraphError(f"{where}: its forward pass cannot be traced: {error}") from error

    def create_arg(self, a: Any) -> Any:
        """Convert an argument of a call to nodes and constants."""
        if isinstance(a, torch.ScriptObject):  # the owner of a compiled forward pass
            raise GraphError(
                f"{self._where()}: TorchScript cannot be traced. Use the Python module."
            )
        return super().create_arg(a)

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, *_: Any, **__: Any
    ) -> fx.Node:
        """Create a node that calls a layer by path, or a known function."""
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
        """Return the node to be recorded and its kind."""
        if op == "placeholder":
            return op, "x", (), {}, "value"
        if op == "get_attr":
            raise ValueError(_used_directly(_path(target)))
        if op == "call_module":
            path, operands = _path(target), (*args, *kwargs.values())
            if len(operands) != 1 or not self._is_value(operands[0]):
                raise ValueError(f"the layer {path} takes one input, got {len(operands)} arguments")
            return op, path, operands, {}, "value"
        if op == "output":
            if not self._is_value(args[0]):
                raise ValueError(
                    f"the network must return one tensor of logits, but returns {node_label(args[0])}"
                )
            return op, target, args, kwargs, "value"
        name = _name(op, target, args)
        args = args[:1] if target is getattr else args
        kwargs = {argument: value for argument, value in kwargs.items() if argument != "inplace"}
        kind = check_call(name, args, kwargs, self.kinds)
        return "call_function", FUNCTIONS[name], args, kwargs, kind

    def _is_value(self, argument: Any) -> bool:
        return isinstance(argument, fx.Node) and self.kinds[argument] == "value"

    def _where(self) -> str:
        """Return the module and the line of the current forward pass."""
        path, kind = next(reversed(self.module_stack.values()), ("", None))
        name = "the network" if kind is None else getattr(kind, "__name__", str(kind))
        line = _line()
        return (f"{_path(path)} ({name})" if _path(path) else name) + (f", {line}" if line else "")


class _Parameter(torch.nn.Parameter):
    """Parameter that raises an error if it is used, instead of being a constant."""

    path: str

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        used = (value for value in (*args, *(kwargs or {}).values()) if isinstance(value, cls))
        raise ValueError(_used_directly(next(used).path))


def guard_parameters(network: torch.nn.Module) -> None:
    """Raise a ``ValueError`` if the forward pass uses a parameter of the network."""
    for path, parameter in network.named_parameters():
        if type(parameter) is torch.nn.Parameter:
            parameter.__class__ = _Parameter
            parameter.path = path  # type: ignore[attr-defined]


def _used_directly(path: str) -> str:
    return f"the tensor {path!r} is used directly, outside of a known layer"


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    def operation(self: fx.Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return operation


class _Proxy(fx.Proxy):
    """Proxy that marks in-place operations."""

    __iadd__, __isub__ = _recorded(operator.iadd), _recorded(operator.isub)
    __imul__, __itruediv__ = _recorded(operator.imul), _recorded(operator.itruediv)


def _name(op: str, target: Any, args: tuple[Any, ...]) -> str:
    """Return the name in this library of the function, method or attribute."""
    if target is getattr:
        if args[1] not in _ATTRIBUTES:
            raise ValueError(
                f"unknown attribute '.{args[1]}': "
                f"only {', '.join(_ATTRIBUTES)} can be read from a value"
            )
        return _ATTRIBUTES[args[1]]
    if op == "call_method":
        if target not in METHODS:
            raise ValueError(f"unknown method '.{target}()': {why_unknown(target)}")
        return METHODS[target]
    if target not in TARGETS:
        name = getattr(target, "__name__", repr(target))
        where = getattr(target, "__module__", "?")
        raise ValueError(f"unknown function '{where}.{name}': {why_unknown(name)}")
    return TARGETS[target]


def _path(qualified: str) -> str:
    """Return the path in the network, which is the first module of a ``Sequential``."""
    return qualified.removeprefix("0").removeprefix(".")


def _line() -> str | None:
    """Return the current line of the forward pass outside of torch and creinn."""
    for frame, number in traceback.walk_stack(sys._getframe()):
        file = frame.f_code.co_filename
        if file == __file__ and frame.f_code is GraphTracer.trace.__code__:
            return None  # the call of the network itself
        if file not in (__file__, traceable.__file__, "<string>") and not file.startswith(_TORCH):
            return f"line {number} of {Path(file).name}"
    return None


def node_label(thing: Any) -> str:
    """Return the name of the function of a node, or the type of any other object."""
    if not isinstance(thing, fx.Node):
        return f"a {type(thing).__name__}"
    target = thing.meta["target"]
    return f"{thing.name} ({getattr(target, '__name__', target)})"
