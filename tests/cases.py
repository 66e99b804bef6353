"""Cases for the tests of layers. A new layer is tested by adding a line here."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from creinn.interval import Interval
from creinn.nn.registry import family


@dataclass(frozen=True)
class LayerCase:
    """A layer with the arguments of its constructor and the shape of its input."""

    layer: str
    args: tuple[Any, ...]
    shape: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    interval_options: dict[str, Any] = field(default_factory=dict)
    family: str = "interval"

    @property
    def name(self) -> str:
        options = ",".join(f"{k}={v}" for k, v in {**self.options, **self.interval_options}.items())
        prefix = "" if self.family == "interval" else f"{self.family}."
        return f"{prefix}{self.layer}{self.args}{options}-{'x'.join(map(str, self.shape))}"

    def interval(self) -> torch.nn.Module:
        return getattr(family(self.family), self.layer)(
            *self.args, **self.options, **self.interval_options
        ).double()

    def ordinary(self) -> torch.nn.Module:
        return getattr(torch.nn, self.layer)(*self.args, **self.options).double()

    def point(self, seed: int) -> torch.Tensor:
        return torch.randn(
            self.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )

    def input(self, seed: int, sign: str = "any") -> Interval:
        """Return random intervals of any sign, non-negative intervals, or intervals without zero."""
        generator = torch.Generator().manual_seed(seed)
        a, b = (torch.randn(self.shape, generator=generator, dtype=torch.float64) for _ in range(2))
        if sign == "nonnegative":
            a, b = a.abs(), b.abs()
        if sign == "one-signed":
            flip = a.sign()
            a, b = a.abs() * flip, b.abs() * flip
        return Interval(torch.minimum(a, b), torch.maximum(a, b))


AFFINE = [
    LayerCase("Linear", (5, 4), (3, 5)),
    LayerCase("Linear", (5, 4), (3, 5), {"bias": False}),
    LayerCase("Linear", (5, 4), (5,)),
    LayerCase("Linear", (5, 4), (2, 3, 5)),
    LayerCase("Conv1d", (3, 4, 3), (2, 3, 9), {"padding": 1, "stride": 2}),
    LayerCase("Conv1d", (4, 6, 2), (2, 4, 9), {"groups": 2, "padding": "same", "dilation": 3}),
    LayerCase("Conv2d", (3, 4, 3), (2, 3, 6, 5), {"padding": 1}),
    LayerCase("Conv2d", (3, 4, 3), (3, 6, 5), {"padding": 1, "bias": False}),
    LayerCase(
        "Conv2d",
        (4, 6, (2, 3)),
        (2, 4, 7, 8),
        {"stride": (2, 1), "padding": (1, 2), "groups": 2, "bias": False},
    ),
    LayerCase("Conv2d", (4, 4, 3), (1, 4, 6, 6), {"groups": 4, "dilation": 2, "padding": "same"}),
    LayerCase("Conv2d", (2, 3, 4), (2, 2, 6, 6), {"padding": "same"}),
    LayerCase("Conv2d", (2, 3, 3), (2, 2, 6, 6), {"padding": 2, "padding_mode": "circular"}),
    LayerCase("Conv2d", (2, 3, 3), (2, 2, 6, 6), {"padding": 2, "padding_mode": "reflect"}),
    LayerCase("Conv2d", (2, 3, 3), (2, 2, 6, 6), {"padding": 2, "padding_mode": "replicate"}),
    LayerCase("Conv2d", (2, 3, 3), (2, 2, 6, 6), {"padding": "valid", "stride": 3}),
    LayerCase("Conv3d", (2, 4, 2), (2, 2, 4, 4, 3), {"padding": 1, "groups": 2}),
]

RELATIVE = [replace(case, family="relative") for case in AFFINE]

NORMS = [
    LayerCase("BatchNorm1d", (4,), (6, 4), interval_options={"mode": "sound"}),
    LayerCase("BatchNorm1d", (4,), (6, 4, 3), {"eps": 1e-3}, {"mode": "sound"}),
    LayerCase("BatchNorm2d", (3,), (5, 3, 4, 2), {"affine": False}, {"mode": "sound"}),
    LayerCase("BatchNorm3d", (2,), (5, 2, 3, 2, 2), {"momentum": None}, {"mode": "sound"}),
]

ACTIVATIONS = [
    LayerCase(name, args, (40, 9))
    for name, args in [
        ("ReLU", ()), ("ReLU6", ()), ("SELU", ()), ("Sigmoid", ()), ("Tanh", ()), ("SiLU", ()), ("Mish", ()),
        ("LeakyReLU", ()), ("LeakyReLU", (0.2,)), ("LeakyReLU", (0.0,)), ("LeakyReLU", (1.5,)),
        ("ELU", ()), ("ELU", (0.7,)), ("ELU", (0.0,)), ("ELU", (3.0,)),
        ("Softplus", ()), ("Softplus", (2.0,)), ("Softplus", (5.0, 2.0)),
        ("Softplus", (0.5, 0.0)), ("Softplus", (3.0, -2.0)),
        ("Hardtanh", ()), ("Hardtanh", (-0.5, 0.8)), ("Hardtanh", (0.2, 0.8)), ("Hardtanh", (-2.0, -0.3)),
        ("GELU", ()), ("GELU", ("tanh",)), ("Hardswish", ()),
    ]
]  # fmt: skip

POOLING = [
    LayerCase("MaxPool1d", (3,), (2, 3, 10), {"stride": 2, "padding": 1}),
    LayerCase("MaxPool2d", (2,), (2, 3, 7, 6), {"ceil_mode": True}),
    LayerCase("MaxPool2d", (3,), (3, 7, 6), {"dilation": 2}),
    LayerCase("AvgPool1d", (3,), (2, 3, 10), {"padding": 1}),
    LayerCase("AvgPool2d", ((2, 3),), (2, 3, 7, 6), {"padding": 1, "count_include_pad": False}),
    LayerCase("AvgPool2d", (2,), (3, 6, 6), {"divisor_override": 3}),
    LayerCase("AdaptiveAvgPool1d", (4,), (2, 3, 10)),
    LayerCase("AdaptiveAvgPool2d", (1,), (2, 3, 5, 6)),
    LayerCase("AdaptiveMaxPool1d", (4,), (2, 3, 10)),
    LayerCase("AdaptiveMaxPool2d", ((2, None),), (2, 3, 5, 6)),
]

RESHAPING = [
    LayerCase("Flatten", (), (2, 3, 4, 5)),
    LayerCase("Flatten", (2,), (2, 3, 4, 5)),
    LayerCase("Flatten", (0,), (2, 3)),
    LayerCase("Identity", (), (2, 3)),
    LayerCase("ZeroPad1d", ((1, 2),), (2, 3, 4)),
    LayerCase("ZeroPad2d", (1,), (2, 3, 4, 5)),
    LayerCase("ZeroPad3d", (1,), (2, 3, 2, 2, 2)),
    LayerCase("ReflectionPad2d", (1,), (2, 3, 4, 5)),
    LayerCase("ReplicationPad2d", (2,), (2, 3, 4, 5)),
    LayerCase("Dropout", (0.5,), (2, 3)),
    LayerCase("Dropout1d", (0.5,), (2, 3, 4)),
    LayerCase("Dropout2d", (0.5,), (2, 3, 4, 4)),
]

LAYERS = [*AFFINE, *RELATIVE, *NORMS, *ACTIVATIONS, *POOLING, *RESHAPING]
