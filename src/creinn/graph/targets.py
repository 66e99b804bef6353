"""Which function of torch is which of ours, and why others are not: the tables that tracing reads.

Names on the right are those of :data:`creinn.nn.functional.FUNCTIONS`.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from creinn import interval
from creinn.nn.functional import FUNCTIONS

_ALIASES: dict[str, tuple[Callable[..., Any], ...]] = {
    "relu": (torch.relu, F.relu, torch.relu_),
    "relu6": (F.relu6,),
    "leaky_relu": (F.leaky_relu,),
    "elu": (F.elu,),
    "selu": (F.selu, torch.selu),
    "softplus": (F.softplus,),
    "sigmoid": (torch.sigmoid, F.sigmoid),
    "tanh": (torch.tanh, F.tanh),
    "hardtanh": (F.hardtanh,),
    "gelu": (F.gelu,),
    "silu": (F.silu,),
    "mish": (F.mish,),
    "hardswish": (F.hardswish,),
    "dropout": (F.dropout,),
    "max_pool1d": (F.max_pool1d, torch.max_pool1d),
    "max_pool2d": (F.max_pool2d, torch.max_pool2d),
    "avg_pool1d": (F.avg_pool1d,),
    "avg_pool2d": (F.avg_pool2d,),
    "adaptive_avg_pool1d": (F.adaptive_avg_pool1d,),
    "adaptive_avg_pool2d": (F.adaptive_avg_pool2d,),
    "adaptive_max_pool1d": (F.adaptive_max_pool1d,),
    "adaptive_max_pool2d": (F.adaptive_max_pool2d,),
    "flatten": (torch.flatten,),
    "reshape": (torch.reshape,),
    "unsqueeze": (torch.unsqueeze,),
    "squeeze": (torch.squeeze,),
    "permute": (torch.permute,),
    "transpose": (torch.transpose,),
    "pad": (F.pad,),
    "cat": (torch.cat, torch.concat, torch.concatenate, interval.cat),
    "stack": (torch.stack, interval.stack),
    "getitem": (operator.getitem,),
    "add": (operator.add, operator.iadd, torch.add),
    "sub": (operator.sub, operator.isub, torch.sub),
    "mul": (operator.mul, operator.imul, torch.mul),
    "truediv": (operator.truediv, operator.itruediv, torch.div, torch.true_divide),
    "floordiv": (operator.floordiv, operator.ifloordiv),
    "neg": (operator.neg, torch.neg),
    "mean": (torch.mean,),
    "sum": (torch.sum,),
}

TARGETS: dict[Callable[..., Any], str] = {
    **{function: name for name, function in FUNCTIONS.items()},
    **{target: name for name, targets in _ALIASES.items() for target in targets},
}
"""Functions that a forward pass may call."""

METHODS: dict[str, str] = {
    **{name: name for name in ("relu", "sigmoid", "tanh", "flatten", "reshape", "unsqueeze", "squeeze", "permute")},
    **{name: name for name in ("transpose", "contiguous", "size", "add", "sub", "mul", "neg", "mean", "sum")},
    **{"view": "reshape", "dim": "ndim", "div": "truediv"},
    **{"relu_": "relu", "add_": "add", "sub_": "sub", "mul_": "mul", "div_": "truediv"},
}
"""Methods of a tensor or an interval that a forward pass may call."""

ATTRIBUTES: dict[str, str] = {"shape": "size", "ndim": "ndim"}
"""Attributes of a tensor or an interval that a forward pass may read."""

INPLACE: frozenset[Any] = frozenset(
    {
        *("relu_", "add_", "sub_", "mul_", "div_"),
        *(torch.relu_, operator.iadd, operator.isub, operator.imul, operator.itruediv),
    }
)
"""Functions and methods that change their first argument, beside those with ``inplace=True``."""

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


def reason(name: str) -> str:
    """Why the layer or function of this name is not known.

    Example:
        >>> reason("LSTM")
        'recurrent layers have no interval version'
    """
    return _REASONS.get(name, "it is not among the known ones, whose range over intervals is known")
