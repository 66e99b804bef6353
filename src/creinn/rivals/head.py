"""The last linear layer of a network: what enters it (features) and what leaves it (logits)."""

from typing import Any

import torch
from torch import Tensor


def last_linear(network: torch.nn.Module) -> torch.nn.Linear:
    """The network's last ``Linear``, in the order of ``network.modules()``.

    Raises:
        ValueError: If there is none.
    """
    layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
    if not layers:
        raise ValueError("The network has no torch.nn.Linear layer, but its last layer should be one.")
    return layers[-1]


def features_and_logits(network: torch.nn.Module, head: torch.nn.Linear, x: Tensor) -> tuple[Tensor, Tensor]:
    """One forward pass: the input ``(N, D)`` of ``head`` and the output ``(N, K)`` of the network.

    Raises:
        ValueError: If the network's output is not that of ``head``.
    """
    seen: list[tuple[Tensor, Tensor]] = []

    def record(_: torch.nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        seen.append((inputs[0], output))

    handle = head.register_forward_hook(record)
    try:
        logits = network(x)
    finally:
        handle.remove()
    if len(seen) != 1 or seen[0][1] is not logits:
        raise ValueError(
            f"The network's last Linear layer, {head}, should be the last thing that it does and be called once, "
            "but its output is not the network's. End the network in a Linear layer."
        )
    return seen[0][0], logits


def with_ones(features: Tensor) -> Tensor:
    """Features with a column of ones, so that the bias is one more weight."""
    return torch.cat((features, features.new_ones(len(features), 1)), 1)
