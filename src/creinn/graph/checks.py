"""Checks of the layers and function calls that a graph may contain."""

import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import fx

from creinn.classifier.network import has_hooks
from creinn.nn.functional import FUNCTIONS, ON_SIZES, OPERANDS, TO_SIZES
from creinn.nn.registry import family_of

Kind = Literal["value", "size"]
"""The kind of a node: a value (interval or tensor) or a size (a shape or an integer from it)."""
Kinds = Mapping[fx.Node, Kind]

_PATH = re.compile(r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*")
_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, fx.GraphModule)
_REASONS = {
    "(log)?softmax": "CreINN applies Interval SoftMax itself; let the network return logits",
    "(layer|group|rms|instance|localresponse)norm": (
        "it normalises with statistics of the sample itself, which has no interval version"
    ),
    "multiheadattention|scaleddotproductattention|transformer": (
        "it multiplies activations by a softmax of activations, which has no interval version"
    ),
    "(rnn|lstm|gru)(cell)?$": "recurrent layers have no interval version",
    "(gt|ge|lt|le|eq|ne)$": (
        "the forward pass may not depend on values that it computes from its input"
    ),
}


class GraphError(ValueError):
    """Error for a network that is not a graph of known layers and functions.

    The message contains the place and the reason.
    """


def check_paths(paths: Iterable[Any]) -> None:
    """Raise a :class:`GraphError` if the paths are not valid in a graph module."""
    for path in paths:
        if not (isinstance(path, str) and _PATH.fullmatch(path)):
            raise GraphError(
                f"{path!r}: the path of a layer may contain letters, digits, '_' and '-' only. "
                "Rename the layer."
            )
        first = path.partition(".")[0]
        if hasattr(fx.GraphModule, first):
            raise GraphError(f"{path!r}: torch.fx reserves the name {first!r}. Rename the layer.")


def why_refused(module: torch.nn.Module, families: Collection[str]) -> str:
    """Return the reason why a graph cannot call the module, or an empty string."""
    kind, family = type(module), family_of(module)
    if has_hooks(module):
        return "it has forward hooks, which would be lost. Remove them first."
    if family is None:
        if hasattr(module, "parametrizations"):
            return "it has parametrized weights. Remove the parametrizations first."
        if kind.__module__.partition(".")[0] == "torch" and not isinstance(module, _CONTAINERS):
            return f"{why_unknown(kind.__name__)}."
    elif family not in families:
        return f"it is a layer of the family {family!r}, expected {', '.join(families)} layers."
    elif "forward" in vars(module):
        return "its forward was replaced on the object. Write a subclass of torch.nn.Module."
    return ""


def check_call(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], kinds: Kinds) -> Kind:
    """Return whether the result of the function ``name`` is a value or a size.

    The arguments in :data:`creinn.nn.functional.OPERANDS` can be values. The other arguments must
    be constants or sizes.

    Raises:
        ValueError: If the function is unknown or does not support the arguments.
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
        options = {argument: given for argument, given in bound.items() if argument != "input"}
        try:  # the interval layer raises for options that it does not support
            function.layer(**options)
        except TypeError as error:
            raise ValueError(str(error)) from error
    return "size" if name in TO_SIZES else "value"


def _check_operand(name: str, argument: str, given: Any, kinds: Kinds) -> None:
    expected = "a value that the network computes"
    if argument == "tensors":
        good = isinstance(given, list | tuple) and all(kinds.get(x) == "value" for x in given)
        expected = f"a list, each entry {expected},"
    elif isinstance(given, fx.Node):
        good = kinds[given] == "value" or "other" in OPERANDS[name]
    else:
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        good = is_number and "other" in OPERANDS[name]
    if not good:
        raise ValueError(f"{name} needs {expected} as {argument!r}, got {given!r}")


def _check_constant(name: str, argument: str, given: Any, kinds: Kinds) -> None:
    def check(leaf: Any) -> None:
        if isinstance(leaf, fx.Node):
            if kinds[leaf] != "size":
                raise ValueError(
                    f"{name} needs a constant as {argument!r}, "
                    "but the network computes it from its input"
                )
        elif not (leaf is None or leaf is Ellipsis or isinstance(leaf, bool | int | float | str)):
            raise ValueError(f"{name} does not take {leaf!r} as {argument!r}")

    fx.node.map_aggregate(given, check)  # check each element of lists, tuples and slices


def why_unknown(name: str) -> str:
    """Return the reason why the layer or function has no interval version."""
    plain = name.replace("_", "").lower()
    known = (why for pattern, why in _REASONS.items() if re.match(pattern, plain))
    return next(known, "it is not a known layer or function")


def place(path: str, module: torch.nn.Module) -> str:
    """Return the path and the class name of a module, for messages."""
    return f"{path}: {type(module).__name__}" if path else type(module).__name__
