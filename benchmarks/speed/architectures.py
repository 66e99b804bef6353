"""The networks whose speed is measured, each for all families of layers, and small ones of the same names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from creinn.models import BUILDERS


@dataclass(frozen=True)
class Architecture:
    """A network that can be built of every family of layers, and the shape of one of its inputs."""

    name: str
    builder: str
    arguments: Mapping[str, Any]
    shape: tuple[int, ...]

    def build(self, layers: Any) -> torch.nn.Module:
        """The network of these layers."""
        return BUILDERS[self.builder](**self.arguments, layers=layers)

    def inputs(self, rows: int, device: torch.device | str = "cpu") -> Tensor:
        """Random inputs of both signs, as images are after normalisation."""
        return torch.randn(rows, *self.shape).to(device)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.arguments["num_classes"])


def _networks(width: int, hidden: int, features: int) -> dict[str, Architecture]:
    found = [
        Architecture(f"{builder}-{stem}", builder, {"num_classes": 10, "stem": stem, "width": width}, (3, 32, 32))
        for builder in ("resnet50", "resnet18")
        for stem in ("imagenet", "cifar")
    ]
    perceptron = {"in_features": features, "num_classes": 10, "hidden": (hidden, hidden)}
    return {one.name: one for one in (*found, Architecture("mlp", "mlp", perceptron, (features,)))}


FULL = _networks(width=64, hidden=512, features=784)
"""Residual networks of the usual width with both stems on small images, and a perceptron."""

SMALL = _networks(width=4, hidden=16, features=20)
"""The same, narrow: for a first look, and for tests."""


def perceptron(depth: int = 2, width: int = 128, classes: int = 10) -> Architecture:
    """A perceptron with ``depth`` hidden layers."""
    arguments = {"in_features": width, "num_classes": classes, "hidden": (width,) * depth}
    return Architecture(f"mlp, depth {depth}, width {width}, {classes} classes", "mlp", arguments, (width,))


def small_residual(width: int) -> Architecture:
    """A ResNet-8 on 32×32 images."""
    return Architecture(f"resnet8, width {width}", "resnet8", {"num_classes": 10, "width": width}, (3, 32, 32))
