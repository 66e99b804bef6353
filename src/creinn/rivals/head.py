"""The last linear layer of a network: what enters it (features), what leaves it (logits), and a norm behind it."""

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


def scale_and_shift(norm: torch.nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """A norm with running statistics as the affine map ``scale * y + shift`` that it is in eval mode, per logit.

    Its mode does not matter and its statistics stay as they are. Differentiable in its weight and bias.

    Example:
        >>> norm = torch.nn.BatchNorm1d(1, eps=0.0)
        >>> _ = norm.running_mean.fill_(6), norm.running_var.fill_(4), norm.bias.data.fill_(1)
        >>> [value.item() for value in scale_and_shift(norm)]
        [0.5, -2.0]
    """
    assert norm.running_mean is not None  # our norms track statistics
    assert norm.running_var is not None
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    return scale, norm.bias - scale * norm.running_mean


def folded(head: torch.nn.Linear, norm: torch.nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight ``(K, D)`` and bias ``(K,)`` of ``head`` with a norm of its logits, in eval mode, folded in.

    Args:
        head: The last layer; it is left as it is.
        norm: A ``BatchNorm1d``, with which there always is a bias, or anything else, which is taken as no norm.
    """
    if not isinstance(norm, torch.nn.BatchNorm1d):
        return head.weight, head.bias
    scale, shift = scale_and_shift(norm)
    return scale.unsqueeze(1) * head.weight, shift if head.bias is None else scale * head.bias + shift


def with_ones(features: Tensor) -> Tensor:
    """Features with a column of ones, so that the bias is one more weight."""
    return torch.cat((features, features.new_ones(len(features), 1)), 1)
