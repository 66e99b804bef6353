"""Checks of the layers and function calls of a graph."""

import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import fx
from torch.nn import Module

from creinn.classifier.compile_cache import has_hooks
from creinn.nn.functional import FUNCTIONS, ON_SIZES, OPERANDS, TO_SIZES
from creinn.nn.registry import family_of

Kind = Literal["value", "size"]
"""A value is an interval or a tensor, and a size is a shape or a part of it."""
Kinds = Mapping[fx.Node, Kind]

_PATH = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)
_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, fx.GraphModule)
_REASONS = {
    "(log)?softmax": "CreINN applies Interval SoftMax; let the network return logits",
    "(layer|group|rms|instance|localresponse)norm": "it needs statistics of the sample",
    "multiheadattention|scaleddotproductattention|transformer": "it multiplies activations",
    "(rnn|lstm|gru)(cell)?$": "recurrent layers have no interval version",
    "(gt|ge|lt|le|eq|ne)$": "the forward pass cannot depend on computed values",
}


class GraphError(ValueError):
    """Error for a network that is not a graph of known layers and functions."""


def check_paths(paths: Iterable[Any]) -> None:
    """Raise a :class:`GraphError` if the paths are not valid."""
    for path in paths:
        if not (isinstance(path, str) and _PATH.fullmatch(path)):
            allowed = "letters, digits, '_' and '-'"
            raise GraphError(f"{path!r}: a path may contain {allowed}. Rename the layer.")
        if hasattr(fx.GraphModule, path.partition(".")[0]):
            raise GraphError(f"{path!r}: torch.fx reserves this name. Rename the layer.")


def why_refused(module: Module, families: Collection[str]) -> str:
    """Return why a graph cannot call a module, or an empty string."""
    kind, family = type(module), family_of(module)
    if has_hooks(module):
        return "it has forward hooks, which would be lost. Remove them."
    if family is None:
        if hasattr(module, "parametrizations"):
            return "it has parametrized weights. Remove the parametrizations."
        if kind.__module__.startswith("torch.") and not isinstance(module, _CONTAINERS):
            return f"{why_unknown(kind.__name__)}."
    elif family not in families:
        return f"its family is {family!r}, expected {', '.join(families)}."
    elif "forward" in vars(module):
        return "its forward is set on the object. Use a subclass of torch.nn.Module."
    return ""


def check_call(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], kinds: Kinds) -> Kind:
    """Return the kind of the result of a call, if the call is valid."""
    if name not in FUNCTIONS:
        raise ValueError(f"unknown function {name!r}")
    function: Any = FUNCTIONS[name]
    nodes: list[fx.Node] = []
    fx.node.map_arg([args, dict(kwargs)], nodes.append)
    if not nodes:
        raise ValueError(f"{name} is called on constants only")
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
        if name in ON_SIZES and all(kinds[node] == "size" for node in nodes):
            return "size"
        for argument, given in bound.items():
            check = _check_operand if argument in OPERANDS[name] else _check_constant
            check(name, argument, given, kinds)
        if hasattr(function, "layer") and len(nodes) == 1:
            del bound["input"]
            function.layer(**bound)  # checks the options
    except TypeError as error:
        raise ValueError(f"{name} cannot be called like this: {error}") from error
    return "size" if name in TO_SIZES else "value"


def _check_operand(name: str, argument: str, given: Any, kinds: Kinds) -> None:
    entries: Any = given if argument == "tensors" else [given]
    if not isinstance(entries, list | tuple):
        entries = [None]
    allowed = ("value", "size") if "other" in OPERANDS[name] else ("value",)
    for entry in entries:
        is_number = isinstance(entry, int | float) and not isinstance(entry, bool)
        kind = "size" if is_number else kinds.get(entry)
        if kind not in allowed:
            raise ValueError(f"{name} needs computed values as {argument!r}, got {given!r}")


def _check_constant(name: str, argument: str, given: Any, kinds: Kinds) -> None:
    def check(leaf: Any) -> None:
        is_constant = leaf is Ellipsis or isinstance(leaf, int | float | str | None)
        if not (is_constant or kinds.get(leaf) == "size"):
            raise ValueError(f"{name} needs a constant as {argument!r}, got {leaf!r}")

    fx.node.map_aggregate(given, check)


def why_unknown(name: str) -> str:
    """Return why a layer or function has no interval version."""
    plain = name.replace("_", "").lower()
    reasons = (why for pattern, why in _REASONS.items() if re.match(pattern, plain))
    return next(reasons, "it is not a known layer or function")
