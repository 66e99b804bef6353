"""Interval layers with the names and the arguments of ``torch.nn``.

The input is an interval, or a tensor, which is a point. The output is an
interval.
"""

# fmt: off
# ruff: noqa: I001
import sys

from torch.nn import Module, ModuleList, Sequential

from creinn.nn import functional, relative
from creinn.nn.activation import (
    ELU, GELU, SELU, Hardswish, Hardtanh, LeakyReLU, Mish, ReLU, ReLU6, Sigmoid, SiLU, Softplus,
    Tanh,
)
from creinn.nn.affine import (
    Conv1d, Conv2d, Conv3d, IntervalParameters, Linear, project_, scale_radii_,
)
from creinn.nn.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from creinn.nn.pooling import (
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AvgPool1d,
    AvgPool2d, Dropout, Dropout1d, Dropout2d, Flatten, Identity, MaxPool1d, MaxPool2d,
    ReflectionPad2d, ReplicationPad2d, ZeroPad1d, ZeroPad2d, ZeroPad3d,
)
from creinn.nn.registry import register_family

register_family("interval", sys.modules[__name__])
register_family("relative", relative)
