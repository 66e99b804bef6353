"""May a graph call this function with these arguments? If it is not known, why?

Asked when a network is traced, and again when a saved graph is built. A node of a graph holds a value (an interval or
a tensor) or a size (a shape, or an integer from one). A function of :data:`creinn.nn.functional.FUNCTIONS` takes values
where :data:`creinn.nn.functional.OPERANDS` says so, and constants or sizes elsewhere.
"""

import inspect
import re
from collections.abc import Mapping
from typing import Any, Literal

from torch import fx

from creinn.nn.functional import FUNCTIONS, ON_SIZES, OPERANDS, TO_SIZES

Kind = Literal["value", "size"]
Kinds = Mapping[fx.Node, Kind]

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


def check_call(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], kinds: Kinds) -> Kind:
    """Refuse a call that the function ``name`` does not take; otherwise say what it gives.

    Arguments are constants and nodes, also nested; ``kinds`` says what each node holds.

    Raises:
        ValueError: If the call is refused; the message says why.
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
            function.layer(**{argument: given for argument, given in bound.items() if argument != "input"})
        except TypeError as error:
            raise ValueError(str(error)) from error
    return "size" if name in TO_SIZES else "value"


def _check_operand(name: str, argument: str, given: Any, kinds: Kinds) -> None:
    if argument == "tensors":
        good = isinstance(given, list | tuple) and all(kinds.get(entry) == "value" for entry in given)
        wanted = "a list of values that the network computes"
    else:
        arithmetic = "other" in OPERANDS[name]
        number = isinstance(given, int | float) and not isinstance(given, bool)
        good = (isinstance(given, fx.Node) and (arithmetic or kinds[given] == "value")) or (arithmetic and number)
        wanted = "a value that the network computes" + (" or a number" if arithmetic else "")
    if not good:
        raise ValueError(f"{name} needs {wanted} as {argument!r}, got {given!r}")


def _check_constant(name: str, argument: str, given: Any, kinds: Kinds) -> None:
    def check(leaf: Any) -> None:
        if isinstance(leaf, fx.Node):
            if kinds[leaf] != "size":
                raise ValueError(f"{name} needs a constant as {argument!r}, but the network computes it from its input")
        elif not (leaf is None or leaf is Ellipsis or isinstance(leaf, bool | int | float | str)):
            raise ValueError(f"{name} does not take {leaf!r} as {argument!r}")

    fx.node.map_aggregate(given, check)  # of lists, tuples and slices, each entry


def reason(name: str) -> str:
    """Why the layer or function of this name is not known.

    Example:
        >>> reason("LSTM")
        'recurrent layers have no interval version'
    """
    plain = name.replace("_", "").lower()
    known = (why for pattern, why in _REASONS.items() if re.match(pattern, plain))
    return next(known, "it is not among the known ones, whose range over intervals is known")
