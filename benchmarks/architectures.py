"""Networks for all families of layers, and small forms for tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from creinn.models import BUILDERS


@dataclass(frozen=True)
class Architecture:
    """A network and the shape of its input."""

    name: str
    builder: str
    arguments: Mapping[str, Any]
    shape: tuple[int, ...]

    def build(self, layers: Any) -> torch.nn.Module:
        """Build the network from layers."""
        return BUILDERS[self.builder](**self.arguments, layers=layers)

    def inputs(self, rows: int, device: torch.device | str = "cpu") -> Tensor:
        """Return inputs of both signs."""
        return torch.randn(rows, *self.shape).to(device)

    def targets(self, rows: int, device: torch.device | str = "cpu") -> Tensor:
        """Return class numbers."""
        return torch.arange(rows, device=device) % self.arguments["num_classes"]


def _residual(builder: str, width: int, **options: Any) -> Architecture:
    name = "-".join([builder, *options.values()])
    return Architecture(name, builder, {"num_classes": 10, "width": width, **options}, (3, 32, 32))


def _networks(width: int, hidden: int, features: int) -> dict[str, Architecture]:
    stems = ("imagenet", "cifar")
    found = [
        _residual(builder, width, stem=stem)
        for builder in ("resnet50", "resnet18")
        for stem in stems
    ]
    perceptron = {"in_features": features, "num_classes": 10, "hidden": (hidden, hidden)}
    return {one.name: one for one in (*found, Architecture("mlp", "mlp", perceptron, (features,)))}


FULL = _networks(width=64, hidden=512, features=784)
SMALL = _networks(width=4, hidden=16, features=20)  # for a first look, and for tests
