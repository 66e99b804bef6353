"""May a graph call this function with these arguments? If it is not known, why?

Asked when a network is traced, and again when a saved graph is built. A node of a graph holds a value (an interval or
a tensor) or a size (a shape, or an integer from one). A function of :data:`creinn.nn.functional.FUNCTIONS` takes values
where :data:`creinn.nn.functional.OPERANDS` says so, and constants or sizes elsewhere.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import fx

from creinn.nn.functional import FUNCTIONS, ON_SIZES, OPERANDS, TO_SIZES

Kind = Literal["value", "size"]

ATTRIBUTES: dict[str, str] = {"shape": "size", "ndim": "ndim"}
"""Attributes of a tensor or an interval that a forward pass may read."""

VIEWS: frozenset[str] = frozenset(
    {
        *("flatten", "reshape", "unsqueeze", "squeeze", "permute", "transpose", "contiguous", "getitem", "dropout"),
        *("Flatten", "Identity", "Dropout", "Dropout1d", "Dropout2d"),
    }
)
"""Functions and layers whose result may share its memory with their argument."""

_LOGITS = "CreINN applies Interval SoftMax itself; let the network return logits"
_SAMPLE_NORM = "it normalises with statistics of the sample itself, for which no interval version is known here"
_ATTENTION = "it multiplies activations by a softmax of activations, for which no interval version is known here"
_RECURRENT = "recurrent layers have no interval version"

_REASONS: dict[str, str] = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Softmax2d", "softmax", "log_softmax"), _LOGITS),
    **dict.fromkeys(
        ("LayerNorm", "GroupNorm", "RMSNorm", "LocalResponseNorm", "InstanceNorm1d", "InstanceNorm2d"), _SAMPLE_NORM
    ),
    **dict.fromkeys(("layer_norm", "group_norm", "rms_norm", "local_response_norm", "instance_norm"), _SAMPLE_NORM),
    **dict.fromkeys(("MultiheadAttention", "Transformer", "TransformerEncoder", "TransformerEncoderLayer"), _ATTENTION),
    **dict.fromkeys(("TransformerDecoder", "TransformerDecoderLayer", "scaled_dot_product_attention"), _ATTENTION),
    **dict.fromkeys(("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"), _RECURRENT),
}


def check_call(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], kinds: Mapping[fx.Node, Kind]) -> Kind:
    """Refuse a call that the function does not take; otherwise say what it gives.

    Args:
        name: A name in :data:`creinn.nn.functional.FUNCTIONS`.
        args: Positional arguments: constants and nodes, also nested.
        kwargs: Keyword arguments.
        kinds: What each node holds.

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
    nodes = _nodes(list(bound.values()))
    if not nodes:
        raise ValueError(f"{name} is called on constants alone")
    if name in ON_SIZES and all(kinds[node] == "size" for node in nodes):
        return "size"
    for argument, given in bound.items():
        if argument in OPERANDS[name]:
            _check_operand(name, argument, given, kinds)
        else:
            _check_constant(name, argument, given, kinds)
    if hasattr(function, "layer") and len(nodes) == 1:
        _check_layer(function.layer, bound)
    return "size" if name in TO_SIZES else "value"


def _check_operand(name: str, argument: str, given: Any, kinds: Mapping[fx.Node, Kind]) -> None:
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


def _check_constant(name: str, argument: str, given: Any, kinds: Mapping[fx.Node, Kind]) -> None:
    if isinstance(given, fx.Node):
        if kinds[given] != "size":
            raise ValueError(f"{name} needs a constant as {argument!r}, but the network computes it from its input")
    elif isinstance(given, list | tuple):
        for entry in given:
            _check_constant(name, argument, entry, kinds)
    elif isinstance(given, slice):
        _check_constant(name, argument, (given.start, given.stop, given.step), kinds)
    elif not (given is None or given is Ellipsis or isinstance(given, bool | int | float | str)):
        raise ValueError(f"{name} does not take {given!r} as {argument!r}")


def _check_layer(make: Callable[..., Any], bound: Mapping[str, Any]) -> None:
    """Let the interval layer behind a function refuse what it cannot do, now rather than at the first forward pass."""
    try:
        make(**{argument: given for argument, given in bound.items() if argument != "input"})
    except (TypeError, ValueError) as error:
        raise ValueError(str(error)) from error


def _nodes(arguments: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(arguments, found.append)
    return found


def reason(name: str) -> str:
    """Why the layer or function of this name is not known.

    Example:
        >>> reason("LSTM")
        'recurrent layers have no interval version'
    """
    return _REASONS.get(name, "it is not among the known ones, whose range over intervals is known")
