"""Functions of torch for intervals.

The output has the type of the input, and is the range for intervals.
``torch.relu(x)`` and ``x.relu()`` call these functions; see
:data:`TARGETS` and :data:`TENSOR_METHODS`.
"""

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creinn import interval
from creinn.interval import Interval, as_interval, cat, stack
from creinn.nn import activation as act
from creinn.nn import pooling
from creinn.numerics import traceable

Value = Any  # an interval or a tensor, or a number or a size
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv")
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _named(name: str, function: Any, parameters: Iterable[inspect.Parameter]) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"As torch's ``{name}``."
    input = inspect.Parameter("input", _POSITIONAL)
    function.__signature__ = inspect.Signature([input, *parameters])
    return traceable(function)


_NAMES = {name.replace("_", ""): name for name in dir(F) if not name.endswith("_")}


def _layered(layer: Any, make: Callable[..., nn.Module] | None = None) -> Callable[..., Any]:
    make = make or layer

    def function(input: Value, *args: Any, **kwargs: Any) -> Value:
        output = make(*args, **kwargs)(input)
        if not isinstance(input, Interval):
            return output.lower
        return input._assign(output) if kwargs.get("inplace") else output

    function.layer = make  # type: ignore[attr-defined]
    found = inspect.signature(getattr(torch.nn, make.__name__, make)).parameters.values()
    parameters = [p for p in found if p.kind is _POSITIONAL]
    return _named(_NAMES[layer.__name__.lower()], function, parameters)


def _method(name: str, method: str | None = None) -> Callable[..., Any]:
    method = method or name

    def function(input: Value, *args: Any, **kwargs: Any) -> Any:
        return getattr(input, method)(*args, **kwargs)

    found = inspect.signature(getattr(Interval, method)).parameters.values()
    return _named(name, function, list(found)[1:])


def _arithmetic(name: str) -> Callable[..., Any]:
    apply = getattr(operator, name)

    def function(input: Value, other: Value) -> Value:
        if isinstance(input, Tensor) and isinstance(other, Interval):
            input = as_interval(input)
        return apply(input, other)

    return _named(name, function, [inspect.Parameter("other", _POSITIONAL)])


def _dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:
    return pooling.Dropout(p).train(training)


def _max_pool(layer: type[nn.Module]) -> Callable[..., Any]:
    def make(
        kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> nn.Module:  # fmt: skip
        return layer(kernel_size, stride, padding, dilation, return_indices, ceil_mode)

    return _layered(layer, make)


relu, relu6, leaky_relu = map(_layered, (act.ReLU, act.ReLU6, act.LeakyReLU))
elu, selu, softplus = map(_layered, (act.ELU, act.SELU, act.Softplus))
sigmoid, tanh, hardtanh = map(_layered, (act.Sigmoid, act.Tanh, act.Hardtanh))
gelu, silu, mish, hardswish = map(_layered, (act.GELU, act.SiLU, act.Mish, act.Hardswish))
dropout = _layered(pooling.Dropout, _dropout)
max_pool1d, max_pool2d = map(_max_pool, (pooling.MaxPool1d, pooling.MaxPool2d))
avg_pool1d, avg_pool2d = map(_layered, (pooling.AvgPool1d, pooling.AvgPool2d))
adaptive_avg_pool1d = _layered(pooling.AdaptiveAvgPool1d)
adaptive_avg_pool2d = _layered(pooling.AdaptiveAvgPool2d)
adaptive_max_pool1d = _layered(pooling.AdaptiveMaxPool1d)
adaptive_max_pool2d = _layered(pooling.AdaptiveMaxPool2d)

flatten, reshape, unsqueeze, squeeze = map(_method, ("flatten", "reshape", "unsqueeze", "squeeze"))
permute, transpose, contiguous, size = map(_method, ("permute", "transpose", "contiguous", "size"))
mean, sum, ndim, neg = map(_method, ("mean", "sum", "ndim", "neg"), (None, None, "dim", "__neg__"))
getitem = _method("getitem", "__getitem__")  # also for shapes
add, sub, mul, truediv, floordiv = map(_arithmetic, _ARITHMETIC)


@traceable
def pad(
    input: Value, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Value:
    """As ``torch.nn.functional.pad``."""
    padded = functools.partial(F.pad, pad=list(pad), mode=mode, value=value)
    if isinstance(input, Interval):
        return input.map_monotone(padded, input.nonnegative and (value is None or value >= 0))
    return padded(input)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: value
    for name, value in list(globals().items())
    if inspect.isfunction(value) and value.__module__ == __name__ and not name.startswith("_")
}
FUNCTIONS.update(cat=cat, stack=stack)
"""All functions by name."""

OPERANDS: dict[str, frozenset[str]] = {
    **{name: frozenset({"input"}) for name in FUNCTIONS},
    **{name: frozenset({"input", "other"}) for name in ("add", "sub", "mul")},
    **{name: frozenset({"tensors"}) for name in ("cat", "stack")},
    "floordiv": frozenset(),  # only for sizes
}
"""The arguments of each function that are values."""

ON_SIZES = frozenset({"add", "sub", "mul", "floordiv", "getitem"})
"""Functions that also accept sizes."""

TO_SIZES = frozenset({"size", "ndim"})
"""Functions that return sizes."""

_OTHERS = (torch.dropout, torch.adaptive_max_pool1d)  # with other arguments
_ALIASES: dict[Any, str] = {
    torch.concat: "cat", torch.concatenate: "cat", torch.div: "truediv",
    torch.true_divide: "truediv", torch.relu_: "relu",
}  # fmt: skip
_AUGMENTED: dict[Any, str] = {getattr(operator, f"i{name}"): name for name in _ARITHMETIC}

TARGETS: dict[Callable[..., Any], str] = {
    **{function: name for name, function in FUNCTIONS.items()},
    **{
        getattr(home, name): name
        for name in FUNCTIONS
        for home in (torch, F, operator)
        if hasattr(home, name) and getattr(home, name) not in _OTHERS
    },
    **_ALIASES,
    **_AUGMENTED,
}
"""Names of the interval versions of functions."""

_SAME = """relu sigmoid tanh flatten reshape unsqueeze squeeze permute transpose contiguous size
add sub mul neg mean sum"""
TENSOR_METHODS: dict[str, str] = {
    **{name: name for name in _SAME.split()},
    **{"view": "reshape", "dim": "ndim", "div": "truediv"},
    **{"relu_": "relu", "add_": "add", "sub_": "sub", "mul_": "mul", "div_": "truediv"},
}
"""Names of the interval versions of methods."""

REBOUND: frozenset[Any] = frozenset(_AUGMENTED)
"""Operators such as ``+=``, which do not change an interval."""

INPLACE: frozenset[Any] = REBOUND | {
    torch.relu_,
    *(name for name in TENSOR_METHODS if name[-1] == "_"),
}
"""Functions and methods that change their first argument."""


def _on_intervals(target: Any, name: str) -> Callable[..., Any]:

    @functools.wraps(FUNCTIONS[name])
    def function(*args: Any, **kwargs: Any) -> Any:
        output = FUNCTIONS[name](*args, **kwargs)  # torch.compile needs the lookup
        if target not in INPLACE:
            return output
        if not isinstance(args[0], Interval):
            raise TypeError("A tensor cannot become an interval in place. Use x = x + y.")
        return args[0]._assign(output)

    return function


for _target, _name in TARGETS.items():
    if OPERANDS[_name]:
        interval.ON_INTERVALS[_target] = _on_intervals(_target, _name)
for _method_name, _name in TENSOR_METHODS.items():
    _function = _on_intervals(_method_name, _name)
    interval.ON_INTERVALS[getattr(Tensor, _method_name)] = _function
    if not hasattr(Interval, _method_name):
        setattr(Interval, _method_name, _function)
