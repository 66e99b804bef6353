"""Small networks in which the rounding errors are large."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import flint
import numpy as np
import torch

import creinn
from creinn import CreINN, Interval, relative
from creinn import nn as inn
from creinn.graph.compile import RigorousModel
from creinn.graph.rigorous import exact_box
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm
from reference_exact import BITS, MEMBERS, Residual, draw_inputs, draw_member, misses, run, softmax

ACTIVATIONS: dict[str, Callable[[], torch.nn.Module]] = {
    **{
        name: getattr(inn, name)
        for name in ("ReLU6", "LeakyReLU", "ELU", "SELU", "Sigmoid", "Tanh", "SiLU", "Mish")
    },
    "Hardswish": inn.Hardswish,
    "Hardtanh": lambda: inn.Hardtanh(-0.1, 0.7),
    "GELU": inn.GELU,
    "GELU tanh": lambda: inn.GELU("tanh"),
    "Softplus": lambda: inn.Softplus(1.3, 0.4),
}


def perceptron(logits: int = 4, layers: Any = inn) -> torch.nn.Module:
    parts = layers.Linear(6, 8), inn.BatchNorm1d(8), inn.ReLU(), layers.Linear(8, 8), inn.ReLU()
    return torch.nn.Sequential(*parts, layers.Linear(8, logits))


def convolutions(layers: Any = inn) -> torch.nn.Module:
    return torch.nn.Sequential(
        layers.Conv2d(2, 4, 3, stride=2, padding=1), inn.BatchNorm2d(4), inn.ReLU(),
        layers.Conv2d(4, 4, 3, padding=1, groups=2, padding_mode="reflect"), inn.ReLU(), inn.MaxPool2d(2),
        layers.Conv2d(4, 4, 3, padding=1, groups=4, dilation=1, bias=False), inn.ReLU(),
        inn.Flatten(), layers.Linear(4, 4),
    )  # fmt: skip


def residual() -> torch.nn.Module:
    block = (
        inn.Conv2d(3, 3, 3, padding=1),
        inn.BatchNorm2d(3),
        inn.ReLU(),
        inn.Conv2d(3, 3, 1),
        inn.BatchNorm2d(3),
    )
    return torch.nn.Sequential(
        inn.Conv2d(2, 3, 2, stride=2), inn.ReLU(), Residual(*block), inn.ReLU(), Residual(inn.Conv2d(3, 3, 1)),
        inn.AdaptiveAvgPool2d(1), inn.Flatten(), inn.Linear(3, 4),
    )  # fmt: skip


def averages() -> torch.nn.Module:
    parts = inn.AvgPool2d(2), inn.Conv2d(2, 3, 2), inn.Tanh(), inn.MaxPool2d(1), inn.Flatten()
    return torch.nn.Sequential(*parts, inn.Linear(3, 4))


def activated(name: str) -> torch.nn.Module:
    make = ACTIVATIONS[name]
    return torch.nn.Sequential(inn.Linear(6, 6), make(), inn.Linear(6, 6), make(), inn.Linear(6, 4))


NETWORKS: dict[str, Callable[[], torch.nn.Module]] = {
    "perceptron": perceptron,
    "one logit": lambda: perceptron(1),
    "two classes": lambda: perceptron(2),
    "convolutions": convolutions,
    "residual": residual,
    "averages": averages,
    "relative perceptron": lambda: perceptron(4, relative),
    "relative convolutions": lambda: convolutions(relative),
    **{name: (lambda name=name: activated(name)) for name in ACTIVATIONS},
}

KINDS = ("usual", "points", "cancelling", "tiny", "denormal", "huge", "mixed")


@torch.no_grad()
def model_of(name: str, kind: str, seed: int, dtype: torch.dtype = torch.float32) -> CreINN:
    """Return a sound model with weights of one of the :data:`KINDS`."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = CreINN(NETWORKS[name](), mode="sound").to(dtype).eval()
    for layer in model.modules():
        if isinstance(layer, IntervalParameters):
            layer.weight.copy_(_scaled(layer.weight, kind, rng))
            if layer.bias is not None:
                layer.bias.copy_(_scaled(torch.randn_like(layer.bias), kind, rng))
            for radius_name, radius in layer.radii().items():
                share = torch.rand_like(radius) * 10.0 ** rng.uniform(-9, -2) * (kind != "points")
                of = 1.0 if radius_name == "relative_radius" else layer.center_of(radius_name).abs()
                radius.copy_(share * of)
        elif isinstance(layer, IntervalBatchNorm):
            layer.running_mean.copy_(_scaled(torch.randn_like(layer.running_mean), kind, rng))
            layer.running_var.uniform_(0.3, 2.0).mul_(1e-20 if kind == "tiny" else 1.0)
            layer.weight.normal_()
            layer.bias.normal_()
    return model


def _scaled(weight: torch.Tensor, kind: str, rng: np.random.Generator) -> torch.Tensor:
    if kind == "cancelling" and weight.ndim > 1 and weight.shape[1] > 1:
        weight[:, 0] += 2.0 ** int(rng.integers(1, 16))
        weight[:, 1] = -weight[:, 0] * (1 + 2.0**-22)
    if kind == "mixed":
        return weight * torch.as_tensor(2.0 ** rng.integers(-60, 30, tuple(weight.shape))).to(
            weight.dtype
        )
    lowest = 130 if weight.dtype == torch.float32 else 1030
    return weight * 2.0 ** {"tiny": -50, "denormal": -lowest, "huge": 35}.get(kind, 0)


def inputs_of(
    name: str,
    kind: str,
    rows: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
    width: float = 0.0,
) -> Any:
    """Return points, or intervals if the relative width is not zero."""
    torch.manual_seed(seed)
    shape = (
        (2, 4, 4)
        if name in ("convolutions", "residual", "averages", "relative convolutions")
        else (6,)
    )
    x = torch.randn(rows, *shape)
    if kind == "cancelling":
        x = 1 + 2.0**-12 * x
    x = (x * {"huge": 2.0**20, "denormal": 2.0**-20}.get(kind, 1.0)).to(dtype)
    return Interval(x - width * x.abs(), x + width * x.abs()) if width else x


def every_kind(
    name: str, make: Callable[..., CreINN], rows: int, wide: int
) -> Iterator[tuple[Any, int, CreINN, Any]]:
    """Yield a case, a seed, a model and inputs for each of the :data:`KINDS`.

    One of ``wide`` kinds is in float64.
    """
    for seed, kind in enumerate(KINDS):
        dtype = torch.float64 if (seed + len(name)) % wide == 0 else torch.float32
        model = make(name, kind, seed, dtype)
        for width in (0.0, 1e-4):
            x = inputs_of(name, kind, rows, seed, dtype, width)
            yield (kind, dtype, width), seed, model, x


def rigorous(model: Any) -> RigorousModel:
    """Compile with outward rounding."""
    found = creinn.compile(model, rigorous=True)
    assert isinstance(found, RigorousModel)
    return found


class Count(NamedTuple):
    """The number of logits and probabilities of members, and of those outside the bounds."""

    logits: int
    probabilities: int
    logits_missed: int
    missed: list[int]
    vacuous: list[int]  # the number of rows with the bounds 0 and 1
    widths: list[torch.Tensor]  # the maximum width of each row


def count_misses(
    model: CreINN, x: Any, seed: int, forms: Sequence[Any], members: Sequence[str] = MEMBERS
) -> Count:
    """Compare the logits and sets of a model with those of members."""
    rng, network = np.random.default_rng(seed), torch.nn.Sequential(model.network, model.norm)
    with torch.no_grad():
        logits = rigorous(model)._members[0].logits(exact_box(x))[1]
        sets = [form(x) for form in forms]
    finite = (logits.upper - logits.lower < float("inf")).all(1)
    kept = finite.numpy()
    logits_missed, missed, count = 0, [0] * len(forms), [0, 0]
    for kind in members:
        with flint.ctx.workprec(BITS):
            balls = run(network, draw_inputs(x, kind, rng), draw_member(network, kind, rng))
            shares = softmax(balls)
            count = [count[0] + balls[kept].size, count[1] + shares.size]
            logits_missed += misses(
                balls[kept], logits.lower[finite], logits.upper[finite], -math.inf, math.inf
            )
            missed = [
                old + misses(shares, s.lower, s.upper, 0.0, 1.0)
                for old, s in zip(missed, sets, strict=True)
            ]
    widths = [s.width.amax(1) for s in sets]
    return Count(*count, logits_missed, missed, [int((w == 1).sum()) for w in widths], widths)
