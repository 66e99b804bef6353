"""Functions of a forward pass on intervals and on tensors, with the names and arguments they have in ``torch``.

In: an :class:`Interval` or a tensor. Out: the same kind. On intervals each gives the exact range that the layer of
:mod:`creinn.nn` or the method of :class:`Interval` gives; on tensors it is torch's function. Converted and saved
networks are graphs of layers and of these functions, and of nothing else: :data:`FUNCTIONS` is the white list. None
of them works in place.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from creinn import nn as inn
from creinn.interval import Interval
from creinn.interval import cat as interval_cat
from creinn.interval import stack as interval_stack

Value = Any  # Interval | Tensor; arithmetic also takes numbers, and functions of sizes take integers


def _layered(make: Callable[..., torch.nn.Module]) -> Callable[..., Value]:
    """From ``arguments -> interval layer`` to ``input, arguments -> output``.

    The maker stays at hand as ``.layer``, to check arguments with.
    """

    @functools.wraps(make)
    def function(input: Value, *args: Any, **kwargs: Any) -> Value:
        output = make(*args, **kwargs)(input)
        return output if isinstance(input, Interval) else output.lower  # the point that a tensor is

    signature = inspect.signature(make)
    first = inspect.Parameter("input", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[first, *signature.parameters.values()], return_annotation=inspect.Signature.empty
    )
    function.layer = make  # type: ignore[attr-defined]
    return function


# Activations. The arguments ``inplace`` are there because torch has them, and change nothing.


@_layered
def relu(inplace: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.relu``.

    Example:
        >>> relu(Interval([-1.0], [2.0]))
        Interval(lower=tensor([0.]), upper=tensor([2.]))
    """
    return inn.ReLU()


@_layered
def relu6(inplace: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.relu6``."""
    return inn.ReLU6()


@_layered
def leaky_relu(negative_slope: float = 0.01, inplace: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.leaky_relu``."""
    return inn.LeakyReLU(negative_slope)


@_layered
def elu(alpha: float = 1.0, inplace: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.elu``."""
    return inn.ELU(alpha)


@_layered
def selu(inplace: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.selu``."""
    return inn.SELU()


@_layered
def softplus(beta: float = 1.0, threshold: float = 20.0) -> torch.nn.Module:
    """As ``torch.nn.functional.softplus``."""
    return inn.Softplus(beta, threshold)


@_layered
def sigmoid() -> torch.nn.Module:
    """As ``torch.sigmoid``."""
    return inn.Sigmoid()


@_layered
def tanh() -> torch.nn.Module:
    """As ``torch.tanh``."""
    return inn.Tanh()


@_layered
def hardtanh(min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.hardtanh``."""
    return inn.Hardtanh(min_val, max_val)


@_layered
def gelu(approximate: str = "none") -> torch.nn.Module:
    """As ``torch.nn.functional.gelu``."""
    return inn.GELU(approximate)


@_layered
def silu(inplace: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.silu``."""
    return inn.SiLU()


@_layered
def mish(inplace: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.mish``."""
    return inn.Mish()


@_layered
def hardswish(inplace: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.hardswish``."""
    return inn.Hardswish()


@_layered
def dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.dropout``; one mask for both bounds."""
    return inn.Dropout(p).train(training)


# Pooling.


@_layered
def max_pool1d(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> torch.nn.Module:
    """As ``torch.nn.functional.max_pool1d``."""
    return inn.MaxPool1d(kernel_size, stride, padding, dilation, return_indices, ceil_mode)


@_layered
def max_pool2d(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> torch.nn.Module:
    """As ``torch.nn.functional.max_pool2d``."""
    return inn.MaxPool2d(kernel_size, stride, padding, dilation, return_indices, ceil_mode)


@_layered
def avg_pool1d(
    kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True
) -> torch.nn.Module:
    """As ``torch.nn.functional.avg_pool1d``."""
    return inn.AvgPool1d(kernel_size, stride, padding, ceil_mode, count_include_pad)


@_layered
def avg_pool2d(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.nn.Module:
    """As ``torch.nn.functional.avg_pool2d``."""
    return inn.AvgPool2d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@_layered
def adaptive_avg_pool1d(output_size: Any) -> torch.nn.Module:
    """As ``torch.nn.functional.adaptive_avg_pool1d``."""
    return inn.AdaptiveAvgPool1d(output_size)


@_layered
def adaptive_avg_pool2d(output_size: Any) -> torch.nn.Module:
    """As ``torch.nn.functional.adaptive_avg_pool2d``."""
    return inn.AdaptiveAvgPool2d(output_size)


@_layered
def adaptive_max_pool1d(output_size: Any, return_indices: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.adaptive_max_pool1d``."""
    return inn.AdaptiveMaxPool1d(output_size, return_indices)


@_layered
def adaptive_max_pool2d(output_size: Any, return_indices: bool = False) -> torch.nn.Module:
    """As ``torch.nn.functional.adaptive_max_pool2d``."""
    return inn.AdaptiveMaxPool2d(output_size, return_indices)


# Shapes.


def flatten(input: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """As ``torch.flatten``."""
    return input.flatten(start_dim, end_dim)


def reshape(input: Value, *shape: Any) -> Value:
    """As ``Tensor.reshape``; the shape as one tuple or as several integers."""
    return input.reshape(*shape)


def unsqueeze(input: Value, dim: int) -> Value:
    """As ``torch.unsqueeze``."""
    return input.unsqueeze(dim)


def squeeze(input: Value, *dim: int) -> Value:
    """As ``torch.squeeze``."""
    return input.squeeze(*dim)


def permute(input: Value, *dims: Any) -> Value:
    """As ``Tensor.permute``; the dimensions as one tuple or as several integers."""
    return input.permute(*dims)


def transpose(input: Value, dim0: int, dim1: int) -> Value:
    """As ``torch.transpose``."""
    return input.transpose(dim0, dim1)


def contiguous(input: Value) -> Value:
    """As ``Tensor.contiguous``."""
    return input.each(Tensor.contiguous) if isinstance(input, Interval) else input.contiguous()


def pad(input: Value, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Value:
    """As ``torch.nn.functional.pad``."""

    def padded(bound: Tensor) -> Tensor:
        return F.pad(bound, list(pad), mode, value)

    if isinstance(input, Interval):
        return input.each(padded, input.nonnegative and (value is None or value >= 0))
    return padded(input)


def cat(tensors: Sequence[Value], dim: int = 0) -> Value:
    """As ``torch.cat``; tensors among intervals are points."""
    return interval_cat(tensors, dim) if _has_interval(tensors) else torch.cat(list(tensors), dim)


def stack(tensors: Sequence[Value], dim: int = 0) -> Value:
    """As ``torch.stack``; tensors among intervals are points."""
    return interval_stack(tensors, dim) if _has_interval(tensors) else torch.stack(list(tensors), dim)


def getitem(input: Value, index: Any) -> Value:
    """As ``operator.getitem``; also an entry of a shape."""
    return input[index]


def size(input: Value, dim: int | None = None) -> Any:
    """As ``Tensor.size``."""
    return input.size() if dim is None else input.size(dim)


def ndim(input: Value) -> int:
    """As ``Tensor.dim``."""
    return input.dim()


# Arithmetic; also on entries of a shape.


def add(input: Value, other: Value) -> Value:
    """Sum."""
    return input + other


def sub(input: Value, other: Value) -> Value:
    """Difference."""
    return input - other


def mul(input: Value, other: Value) -> Value:
    """Product; of two intervals, its range over independent factors."""
    return input * other


def truediv(input: Value, other: float) -> Value:
    """Quotient by a number."""
    return input / other


def floordiv(input: int, other: int) -> int:
    """Whole quotient of entries of a shape."""
    return input // other


def neg(input: Value) -> Value:
    """Negative."""
    return -input


def mean(input: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """As ``torch.mean``."""
    return input.mean(dim, keepdim=keepdim)


def sum(input: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """As ``torch.sum``."""
    return input.sum(dim, keepdim=keepdim)


def _has_interval(values: Sequence[Value]) -> bool:
    return any(isinstance(value, Interval) for value in values)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(relu, relu6, leaky_relu, elu, selu, softplus, sigmoid, tanh, hardtanh, gelu, silu, mish, hardswish, dropout),
        *(max_pool1d, max_pool2d, avg_pool1d, avg_pool2d),
        *(adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_max_pool1d, adaptive_max_pool2d),
        *(flatten, reshape, unsqueeze, squeeze, permute, transpose, contiguous, pad, cat, stack, getitem, size, ndim),
        *(add, sub, mul, truediv, floordiv, neg, mean, sum),
    )
}
"""Every function by name: what a saved graph may call."""

OPERANDS: dict[str, frozenset[str]] = {
    **{name: frozenset({"input"}) for name in FUNCTIONS},
    **{name: frozenset({"input", "other"}) for name in ("add", "sub", "mul")},
    **{name: frozenset({"tensors"}) for name in ("cat", "stack")},
    "floordiv": frozenset(),  # of sizes alone
}
"""Which arguments of a function are computed by the network; all others are constants or sizes."""

ON_SIZES = frozenset({"add", "sub", "mul", "floordiv", "getitem"})
"""Functions that also act on shapes and their entries."""

TO_SIZES = frozenset({"size", "ndim"})
"""Functions from a value to its shape."""

for _name in FUNCTIONS:
    fx.wrap(_name)  # one node of a graph each, also where a forward pass calls them as ``functions.relu``
