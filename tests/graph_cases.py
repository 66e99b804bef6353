"""Random networks of all functions, methods, operators and layers that can be traced.

A network consists of steps. The input and the output of a step have the shape ``(N, 4, 4, 4)``.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

SHAPE = (3, 4, 4, 4)
CONSTANTS = (-2.5, -1, -0.3, 0.0, 0.4, 1, 3.0)


def each(*functions: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Return the steps of functions with one argument."""
    return [lambda x, y, c, f=f: f(x) for f in functions]


def line(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return the step of a function of an array with the shape ``(N, 4, 16)``."""
    return lambda x, y, c: f(x.flatten(2)).view(x.size(0), -1, x.shape[2], x.size(3))


def changed(change: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """Return the step of a function that is computed in place."""
    return lambda x, y, c: change(x * 1.0, y, c)


def by_sizes(x: Any, y: Any, c: Any) -> Any:
    """Compute with the sizes of an input. Some of the results are negative."""
    half = x.shape[2] // 2
    third = x.size()[1]
    third //= 2
    height = half * 2 + third - third
    return x[:, :, :height] + (third - 3) - y * (half - 1) / x.ndim


class Volume(nn.Sequential):
    """Network of 3d layers for one slice."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.unsqueeze(2))


FUNCTIONS: list[Callable[..., Any]] = [
    *each(
        torch.relu,
        F.relu,
        F.relu6,
        F.selu,
        torch.selu,
        torch.sigmoid,
        F.sigmoid,
        torch.tanh,
        F.tanh,
    ),
    *each(
        F.gelu,
        F.silu,
        F.mish,
        F.hardswish,
        torch.neg,
        operator.neg,
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    *each(
        lambda x: x.relu(),
        lambda x: x.sigmoid(),
        lambda x: x.tanh(),
        lambda x: x.neg(),
        lambda x: x.contiguous(),
    ),
    lambda x, y, c: F.leaky_relu(x, abs(c)),
    lambda x, y, c: F.elu(x, abs(c)),
    lambda x, y, c: F.softplus(x, abs(c) + 0.1, c),
    lambda x, y, c: F.hardtanh(x, c, c + 1),
    lambda x, y, c: F.dropout(x, 0.5, False),
    *(lambda x, y, c, f=f: f(x, c) for f in (operator.add, torch.add, operator.sub, torch.sub)),
    *(lambda x, y, c, f=f: f(x, c) for f in (operator.mul, torch.mul)),
    *(lambda x, y, c, f=f: f(x, c or 2) for f in (operator.truediv, torch.div, torch.true_divide)),
    *(lambda x, y, c, f=f: f(x, y) for f in (operator.add, torch.sub, operator.mul)),
    *(lambda x, y, c, f=f: f(c, x) for f in (operator.add, operator.sub, operator.mul)),
    lambda x, y, c: x.add(y).sub(c).mul(c).div(c or -3),
    *(changed(lambda x, y, c, f=f: f(x, y)) for f in (operator.iadd, operator.isub)),
    *(changed(lambda x, y, c, f=f: f(x, c or -2)) for f in (operator.imul, operator.itruediv)),
    *map(changed, (lambda x, y, c: torch.relu_(x), lambda x, y, c: F.relu(x, inplace=True))),
    changed(lambda x, y, c: x.add_(y).sub_(c).mul_(c or 1).div_(-2).relu_()),
    *(
        lambda x, y, c, f=f: f([x, y], 1)[:, 2:6]
        for f in (torch.cat, torch.concat, torch.concatenate)
    ),
    lambda x, y, c: torch.stack([x, y, -x], 1).mean(1),
    lambda x, y, c: (
        torch.stack([x, y])[0] + torch.sum(x, 2, keepdim=True) - y.sum((2, 3), keepdim=True)
    ),
    lambda x, y, c: x - torch.mean(y, (2, 3), keepdim=True),
    lambda x, y, c: torch.flatten(x, 1).reshape(y.shape),
    lambda x, y, c: torch.reshape(torch.unsqueeze(x, 1), (-1, 4, 4, 4)),
    lambda x, y, c: x.unsqueeze(2).squeeze(2) + torch.squeeze(y.unsqueeze(1), 1),
    lambda x, y, c: torch.permute(x, (0, 2, 3, 1)).permute(0, 2, 1, 3),
    lambda x, y, c: torch.transpose(x, 1, 3).transpose(2, 3)[..., ::1],
    lambda x, y, c: (
        F.pad(x, (1, 0, 0, 1), value=c)[:, :, 1:, :4] if isinstance(c, float) else F.pad(x, (0, 0))
    ),
    lambda x, y, c: F.pad(x, (1, 1, 1, 1), mode="reflect")[:, :, :4, -4:],
    *each(lambda x: F.max_pool2d(x, 3, 1, 1), lambda x: torch.max_pool2d(x, 3, 1, 1)),
    *each(lambda x: F.avg_pool2d(x, 3, 1, 1), lambda x: F.adaptive_avg_pool2d(x, (4, None))),
    *each(lambda x: F.adaptive_max_pool2d(x, (1, 4)) + x),
    *map(line, (lambda x: F.max_pool1d(x, 3, 1, 1), lambda x: torch.max_pool1d(x, 3, 1, 1))),
    *map(line, (lambda x: F.avg_pool1d(x, 3, 1, 1), lambda x: F.adaptive_avg_pool1d(x, 16))),
    line(lambda x: F.adaptive_max_pool1d(x, 16)),
    by_sizes,
    lambda x, y, c: x * (x.dim() - 6) + y.size(1),
]
"""Functions of two values and a constant."""

Rows = tuple[Callable[[], nn.Module], ...]
LAYERS: list[Rows] = [
    (lambda: nn.Conv2d(4, 4, 3, padding=1), lambda: nn.BatchNorm2d(4), nn.ReLU),
    (
        lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular", groups=2),
        lambda: nn.BatchNorm2d(4),
    ),
    (lambda: nn.Conv2d(4, 4, 1, bias=False), nn.ReLU),
    (lambda: nn.Conv2d(4, 4, 1), lambda: nn.BatchNorm2d(4, affine=False)),
    (
        lambda: nn.Linear(4, 4),
        lambda: nn.BatchNorm2d(4),
        nn.ReLU,
    ),  # the dimensions of the layer and of the norm are different
    (lambda: nn.BatchNorm2d(4),),
    (nn.Flatten, lambda: nn.Linear(64, 64), lambda: nn.BatchNorm1d(64), nn.ReLU),
    (lambda: nn.Flatten(2), lambda: nn.Conv1d(4, 4, 3, padding=1), lambda: nn.BatchNorm1d(4)),
    (lambda: nn.Flatten(2), lambda: nn.MaxPool1d(3, 1, 1), lambda: nn.AvgPool1d(3, 1, 1)),
    (
        lambda: nn.Flatten(2),
        lambda: nn.AdaptiveAvgPool1d(8),
        lambda: nn.AdaptiveMaxPool1d(16),
        nn.Dropout1d,
    ),
    (lambda: nn.Flatten(2), lambda: nn.ZeroPad1d(2), lambda: nn.Conv1d(4, 4, 5)),
    (lambda: Volume(nn.Conv3d(4, 4, (1, 3, 3), padding=(0, 1, 1)), nn.BatchNorm3d(4)),),
    (lambda: Volume(nn.ZeroPad3d((1, 1, 1, 1, 0, 0)), nn.Conv3d(4, 4, (1, 3, 3))),),
    (lambda: nn.MaxPool2d(3, 1, 1), lambda: nn.AvgPool2d(3, 1, 1)),
    (lambda: nn.AdaptiveMaxPool2d(2), lambda: nn.ZeroPad2d(1)),
    (lambda: nn.AdaptiveAvgPool2d(2), lambda: nn.ReplicationPad2d(1), nn.Dropout2d),
    (lambda: nn.ReflectionPad2d(1), lambda: nn.Conv2d(4, 4, 3)),
    (nn.Identity, nn.Dropout, nn.ELU, lambda: nn.LeakyReLU(0.3)),
    (nn.ReLU6, nn.Tanh, nn.Sigmoid),
    (nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
    (nn.Hardswish, lambda: nn.Softplus(2.0, 0.5), lambda: nn.Hardtanh(-1.5, 0.7)),
]
"""Sequences of layers with the same number of inputs and outputs."""


@dataclass(frozen=True)
class Step:
    """The index of a function or of layers, the indices of two earlier values and a constant."""

    kind: int
    first: int
    second: int
    constant: float

    @property
    def layers(self) -> Rows:
        return LAYERS[self.kind - len(FUNCTIONS)] if self.kind >= len(FUNCTIONS) else ()


class Network(torch.nn.Module):
    """Network of steps that use the results of earlier steps."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self.steps = list(steps)
        self.rows = nn.ModuleList(
            nn.Sequential(*(make() for make in step.layers)) for step in steps
        )

    def forward(self, x: Any) -> Any:
        values = [x]
        for step, row in zip(self.steps, self.rows, strict=True):
            first, second = (
                values[-1 - min(back, len(values) - 1)] for back in (step.first, step.second)
            )
            if step.layers:
                values.append(row(first).view(-1, *SHAPE[1:]))
            else:
                values.append(FUNCTIONS[step.kind](first, second, step.constant))
        return values[-1]


COUNT = len(FUNCTIONS) + len(LAYERS)
