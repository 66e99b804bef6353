"""Multilayer perceptron."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from creinn.numerics import check_integers


class MLP(torch.nn.Module):
    """Multilayer perceptron with hidden layers and a linear head; see :func:`mlp`."""

    config: dict[str, Any] | None

    def __init__(self, body: torch.nn.Sequential, head: torch.nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def features(self, x: Any) -> Any:
        """Return the inputs of the head, of shape ``(N, hidden[-1])``."""
        return self.body(x)

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        return self.head(self.features(x))


def mlp(
    in_features: int,
    num_classes: int,
    hidden: Sequence[int] = (64, 64),
    layers: Any = "interval",
    batch_norm: bool = True,
    dropout: float = 0.0,
) -> MLP:
    """Return a multilayer perceptron.

    A hidden layer consists of a linear layer, batch norm, ReLU and dropout.

    Args:
        in_features: The number of inputs.
        num_classes: The number of logits. Use 1 for a binary classifier.
        hidden: The widths of the hidden layers. The model is linear if this is empty.
        layers: The family of layers: a namespace such as ``creinn.nn`` or ``torch.nn``, or its
            name.
        batch_norm: If True, batch norm is applied before each ReLU, and the hidden layers have no
            bias.
        dropout: The probability of dropout.

    Raises:
        TypeError: If a number of units is not an integer.
        ValueError: If a number is out of range, or if the name of the family is unknown.

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
