"""Interval layers with the names and arguments of ``torch.nn``: interval in, interval out; a tensor is a point.

Read ``affine`` (on ``_product``, ``_operations``), ``batchnorm``,
``activation``, ``pooling``; then ``functional``, torch's functions on intervals, ``relative``, layers with relative
radii, and ``registry``.
"""

# fmt: off
# ruff: noqa: I001
from torch.nn import Module, ModuleList, Sequential

from creinn.nn import functional
from creinn.nn.activation import (
    ELU, GELU, SELU, Hardswish, Hardtanh, LeakyReLU, Mish, ReLU, ReLU6, Sigmoid, SiLU, Softplus, Tanh,
)
from creinn.nn.affine import Conv1d, Conv2d, Conv3d, IntervalParameters, Linear, project_, scale_radii_
from creinn.nn.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from creinn.nn.pooling import (
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AvgPool1d, AvgPool2d,
    Dropout, Dropout1d, Dropout2d, Flatten, Identity, MaxPool1d, MaxPool2d,
    ReflectionPad2d, ReplicationPad2d, ZeroPad1d, ZeroPad2d, ZeroPad3d,
)
