"""Members of interval networks in ball arithmetic, computed by python-flint.

The weights of a member are exact numbers in the intervals of the layers. The inputs are exact. The
outputs are balls that contain the real numbers. The computation does not use the functions of the
library.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from flint import arb, arb_mat

from creinn.interval import Interval
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.relative import MAX_RELATIVE_RADIUS, RelativeParameters

BITS = 400
MEMBERS = ("centre", "lower", "upper", "corner", "inside")
BEYOND = 2000  # exponents that are as good as infinite
_NOTHING = arb(0, arb(-BEYOND).exp().upper())  # around 0, with whatever comes of such ones

Balls = np.ndarray  # of arb
Member = dict[torch.nn.Module, tuple[Balls, Balls | None]]


class Residual(torch.nn.Module):
    """``x + body(x)``."""

    def __init__(self, *body: torch.nn.Module) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(*body)

    def forward(self, x: Any) -> Any:
        return x + self.body(x)


def exact(values: Any) -> Balls:
    """Convert floating-point numbers to balls with the radius 0."""
    array = np.asarray(
        values.detach() if isinstance(values, torch.Tensor) else values, dtype=np.float64
    )
    return np.array([arb(v) for v in array.ravel().tolist()], dtype=object).reshape(array.shape)


def between(center: torch.Tensor, radius: Balls, kind: str, rng: np.random.Generator) -> Balls:
    """Return exact numbers in ``center ± radius``."""
    shape = tuple(center.shape)
    share = {
        "centre": lambda: np.zeros(shape),
        "lower": lambda: -np.ones(shape),
        "upper": lambda: np.ones(shape),
        "corner": lambda: rng.choice([-1.0, 1.0], shape),
        "inside": lambda: rng.integers(-1024, 1025, shape) / 1024,
    }[kind]()
    return exact(center) + exact(share) * radius


def draw_member(network: torch.nn.Module, kind: str, rng: np.random.Generator) -> Member:
    """Draw the weights of a member."""
    member: Member = {}
    for layer in network.modules():
        if not isinstance(layer, IntervalParameters):
            continue
        if isinstance(layer, RelativeParameters):
            share = exact(layer.relative_radius.clamp(0, MAX_RELATIVE_RADIUS)).reshape(
                getattr(layer, "groups", 1), 1, -1
            )
            rows = np.broadcast_to(
                share, (len(share), len(layer.weight) // len(share), share.shape[2])
            )
            rows = rows.reshape(*layer.weight.shape[:2], *(1,) * (layer.weight.ndim - 2))
            radius = np.vectorize(abs, otypes=[object])(exact(layer.weight)) * rows
        else:
            radius = exact(layer.weight_radius.clamp_min(0))
        weight = between(layer.weight, radius, kind, rng)
        bias = (
            None
            if layer.bias is None
            else between(layer.bias, exact(layer.bias_radius.clamp_min(0)), kind, rng)
        )
        member[layer] = weight, bias
    return member


def draw_inputs(x: torch.Tensor | Interval, kind: str, rng: np.random.Generator) -> Balls:
    """Draw the inputs of a member."""
    if not isinstance(x, Interval):
        return exact(x)
    low, high = exact(x.lower), exact(x.upper)
    share = (
        rng.choice([0.0, 1.0], low.shape)
        if kind != "inside"
        else rng.integers(0, 1025, low.shape) / 1024
    )
    return low + exact(share) * (high - low)


def run(module: torch.nn.Module, x: Balls, member: Member) -> Balls:
    """Return the outputs of a member for a batch of inputs."""
    if isinstance(module, torch.nn.Sequential):
        for part in module:
            x = run(part, x, member)
        return x
    if isinstance(module, Residual):
        return x + run(module.body, x, member)
    if isinstance(module, IntervalParameters):
        return _affine(module, x, *member[module])
    if isinstance(module, IntervalBatchNorm):
        return _batch_norm(module, x)
    name = type(module).__name__
    if name in ("Identity", "Dropout"):
        return x
    if name == "Flatten":
        return x.reshape(len(x), -1)
    if name in _POOLS:
        return _POOLS[name](module, x)
    return np.vectorize(lambda a: _ACTIVATIONS[name](module, a), otypes=[object])(x)


def softmax(logits: Balls) -> Balls:
    """Return the probabilities ``(N, K)``. One logit has two classes."""
    if logits.shape[1] == 1:
        logits = np.concatenate((logits * 0, logits), 1)
    return np.array([[_share(row, k) for k in range(len(row))] for row in logits], dtype=object)


def misses(
    balls: Balls, lower: torch.Tensor, upper: torch.Tensor, least: float, most: float
) -> int:
    """Return the number of values that may be outside the bounds."""
    bounds = zip(
        balls.ravel().tolist(),
        lower.double().ravel().tolist(),
        upper.double().ravel().tolist(),
        strict=True,
    )
    return sum(  # comparisons with balls are true if they are certain
        not ((low <= least or low <= ball) and (high >= most or ball <= high))
        for ball, low, high in bounds
    )


def _share(row: Balls, k: int) -> arb:
    total = arb(1)
    for j, logit in enumerate(row):
        if j != k and not (difference := logit - row[k]) < -BEYOND:
            if difference > BEYOND:
                return _NOTHING
            total += difference.exp()
    return 1 / total + len(row) * _NOTHING


def _matmul(a: Balls, b: Balls) -> Balls:
    product = arb_mat(a.tolist()) * arb_mat(b.tolist())
    return np.array(product.entries(), dtype=object).reshape(a.shape[0], b.shape[1])


def _affine(layer: Any, x: Balls, weight: Balls, bias: Balls | None) -> Balls:
    if weight.ndim == 2:
        y = _matmul(x, weight.T.copy())
        return y if bias is None else y + bias
    places, sizes = _windows(layer, x)
    padded = np.concatenate(
        (x.reshape(len(x), x.shape[1], -1), exact(np.zeros((*x.shape[:2], 1)))), 2
    )
    groups, rows = layer.groups, len(weight) // layer.groups
    found = []
    for g, channels in enumerate(np.split(padded, groups, 1)):
        columns = channels[:, :, places].transpose(1, 2, 0, 3)  # (C, taps, N, positions)
        taps = columns.reshape(columns.shape[0] * columns.shape[1], -1)
        product = _matmul(weight[g * rows : (g + 1) * rows].reshape(rows, -1), taps)
        found.append(product.reshape(rows, len(x), -1).transpose(1, 0, 2))
    y = np.concatenate(found, 1)
    y = y if bias is None else y + bias[:, None]
    return y.reshape(*y.shape[:2], *sizes)


def _windows(layer: Any, x: Balls) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the pixel of each tap and position, and the sizes of the output."""
    count = math.prod(x.shape[2:])
    index = torch.arange(count, dtype=torch.float64).view(1, 1, *x.shape[2:])
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    value = {"value": float(count)} if mode == "constant" else {}
    index = F.pad(index, layer._reversed_padding_repeated_twice, mode, **value)
    assert index.ndim == 4
    taps = F.unfold(index, layer.kernel_size, layer.dilation, 0, layer.stride)[0]
    spans = [d * (k - 1) + 1 for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    sizes = tuple(
        (n - s) // t + 1 for n, s, t in zip(index.shape[2:], spans, layer.stride, strict=True)
    )
    return taps.long().numpy(), sizes


def _batch_norm(layer: Any, x: Balls) -> Balls:
    count = layer.num_features
    mean, variance = (exact(t[:count]) for t in (layer.running_mean, layer.running_var))
    scale = np.array([1 / (v + arb(layer.eps)).sqrt() for v in variance], dtype=object)
    scale = scale * exact(layer.weight[:count]) if layer.affine else scale
    shift = exact(layer.bias[:count]) if layer.affine else 0 * scale
    shape = (-1, *(1,) * (x.ndim - 2))
    return (x - mean.reshape(shape)) * scale.reshape(shape) + shift.reshape(shape)


def _pooled(layer: Any, x: Balls, reduce: Callable[[list[arb]], arb]) -> Balls:
    size = layer.kernel_size
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // size, size, w // size, size).transpose(0, 1, 2, 4, 3, 5)
    flat = blocks.reshape(*blocks.shape[:4], -1)
    return np.array(
        [reduce(list(cell)) for cell in flat.reshape(-1, size * size)], dtype=object
    ).reshape(flat.shape[:4])


def _largest(values: list[arb]) -> arb:
    best = values[0]
    for value in values[1:]:
        best = best.max(value)
    return best


def _global_average(layer: Any, x: Balls) -> Balls:
    return x.reshape(*x.shape[:2], -1).sum(2).reshape(*x.shape[:2], 1, 1) / math.prod(x.shape[2:])


_POOLS: dict[str, Callable[[Any, Balls], Balls]] = {
    "AvgPool2d": lambda layer, x: _pooled(layer, x, lambda cell: sum(cell, arb(0)) / len(cell)),
    "MaxPool2d": lambda layer, x: _pooled(layer, x, _largest),
    "AdaptiveAvgPool2d": _global_average,
}


def _clamped(a: arb, low: Any, high: Any) -> arb:
    return a.max(arb(low)).min(arb(high))


def _sigmoid(a: arb) -> arb:
    if abs(a) > BEYOND:
        return _NOTHING + int(a > 0)
    return 1 / (1 + (-a).exp())


def _tanh(a: arb) -> arb:
    if abs(a) > BEYOND:
        return _NOTHING + (1 if a > 0 else -1)
    return a.tanh()


def _exp(a: arb) -> arb:
    return _NOTHING if a < -BEYOND else a.exp()


def _log_one_plus_exp(a: arb) -> arb:
    return a + _NOTHING if a > BEYOND else (1 + _exp(a)).log()


def _gelu(layer: Any, a: arb) -> arb:
    if layer.approximate == "none":
        return (
            a * (1 + (a / arb(2).sqrt()).erf()) / 2 if abs(a) < BEYOND else a.max(arb(0)) + _NOTHING
        )
    return a * (1 + _tanh((2 / arb.pi()).sqrt() * (a + arb(0.044715) * a**3))) / 2


def _softplus(layer: Any, a: arb) -> arb:
    scaled = arb(layer.beta) * a
    return a if scaled > layer.threshold else _log_one_plus_exp(scaled) / arb(layer.beta)


_ACTIVATIONS: dict[str, Callable[[Any, arb], arb]] = {
    "ReLU": lambda layer, a: a.max(arb(0)),
    "ReLU6": lambda layer, a: _clamped(a, 0, 6),
    "Hardtanh": lambda layer, a: _clamped(a, layer.min_val, layer.max_val),
    "LeakyReLU": lambda layer, a: a.max(a * arb(layer.negative_slope)),
    "ELU": lambda layer, a: a if a > 0 else arb(layer.alpha) * (_exp(a) - 1),
    "SELU": lambda layer, a: (
        arb("1.0507009873554804934193349852946")
        * (a if a > 0 else arb("1.6732632423543772848170429916717") * (_exp(a) - 1))
    ),
    "Sigmoid": lambda layer, a: _sigmoid(a),
    "Tanh": lambda layer, a: _tanh(a),
    "GELU": _gelu,
    "SiLU": lambda layer, a: a * _sigmoid(a),
    "Mish": lambda layer, a: a * _tanh(_log_one_plus_exp(a)),
    "Hardswish": lambda layer, a: a * _clamped(a + 3, 0, 6) / 6,
    "Softplus": _softplus,
}
