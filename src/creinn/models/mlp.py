"""Multilayer perceptron: features ``(N, in_features)`` in, logits ``(N, num_classes)`` out."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from creinn.numerics import check_integers


class MLP(torch.nn.Module):
    """Hidden layers, then a linear head; see :func:`mlp`."""

    config: dict[str, Any] | None

    def __init__(self, body: torch.nn.Sequential, head: torch.nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def features(self, x: Any) -> Any:
        """What the head sees: ``(N, hidden[-1])``."""
        return self.body(x)

    def forward(self, x: Any) -> Any:
        """Logits."""
        return self.head(self.features(x))


def mlp(
    in_features: int,
    num_classes: int,
    hidden: Sequence[int] = (64, 64),
    layers: Any = "interval",
    batch_norm: bool = True,
    dropout: float = 0.0,
) -> MLP:
    """Build a multilayer perceptron: linear, batch norm, ReLU, dropout per hidden layer, then a linear head.

    Args:
        in_features: Number of inputs.
        num_classes: Number of logits; 1 makes a binary classifier.
        hidden: Widths of the hidden layers; none makes a linear model.
        layers: Family of layers: a namespace such as ``creinn.nn`` or ``torch.nn``, or its name.
        batch_norm: Whether to normalise before each ReLU; the linear layers then have no bias of their own.
        dropout: Share of hidden units dropped in training.

    Raises:
        ValueError: If a number is out of range or the family's name is unknown; a ``TypeError`` for other widths.

    Example:
        >>> mlp(4, 3, layers=torch.nn)(torch.zeros(2, 4)).shape
        torch.Size([2, 3])
    """
    widths = [in_features, *hidden]
    check_integers(in_features=in_features, num_classes=num_classes)
    check_integers(**{f"hidden[{index}]": width for index, width in enumerate(widths[1:])})
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {dropout}.")
    parts: list[torch.nn.Module] = []
    for before, after in itertools.pairwise(widths):
        parts.append(layers.Linear(before, after, bias=not batch_norm))
        parts += [layers.BatchNorm1d(after)] if batch_norm else []
        parts.append(layers.ReLU())
        parts += [layers.Dropout(dropout)] if dropout > 0 else []
    return MLP(torch.nn.Sequential(*parts), layers.Linear(widths[-1], num_classes))
