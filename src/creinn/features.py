"""Penultimate features of a network: what enters its last linear layer, from the same forward pass as the logits.

In: a network, interval or ordinary, and its input. Out: features ``(N, D)`` and logits ``(N, K)``.

A network that defines a method ``features`` and a layer ``head`` with ``forward(x) = head(features(x))``, as those of
:mod:`creinn.models` do, is called by these names. Of any other network the last ``Linear`` in the order of
``network.modules()`` is taken as the head, and its input is noted by a hook that lives as long as the forward pass.
Such networks cannot be exported with ``strict=True``, nor called from several threads at once.
:func:`check_features` tells whether these rules fit a network.
"""

from typing import Any

import torch
from torch import Tensor

from creinn.interval import Interval, as_interval

_ADVICE = "Give the network a method features(x) and a layer head, so that forward(x) is head(features(x))."


def find_head(network: torch.nn.Module) -> torch.nn.Module:
    """The layer from features to logits; it has ``in_features`` and ``out_features``, as a ``Linear`` does.

    Raises:
        ValueError: If there is none.

    Example:
        >>> find_head(torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)))
        Linear(in_features=8, out_features=3, bias=True)
    """
    if _names_features(network):
        layers = [network.head]
    else:
        layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
    if not layers or not (hasattr(layers[-1], "in_features") and hasattr(layers[-1], "out_features")):
        raise ValueError(
            f"{type(network).__name__} has no linear layer, so there are no features before it to measure a distance "
            f"with. {_ADVICE}"
        )
    return layers[-1]  # type: ignore[return-value]


def features_and_logits(network: torch.nn.Module, x: Interval | Tensor) -> tuple[Any, Any]:
    """One forward pass: the input of the head and the output of the network, tensors or intervals."""
    if _names_features(network):
        features = network.features(x)  # type: ignore[operator]
        return features, network.head(features)  # type: ignore[operator]
    seen: list[Any] = []
    handle = find_head(network).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits = network(x)
    finally:
        handle.remove()
    return seen[-1], logits


@torch.no_grad()
def check_features(network: torch.nn.Module, x: Interval | Tensor) -> None:
    """Refuse a network whose head is not found by the rules of this module, by running it on ``x``.

    Raises:
        ValueError: If the layer taken for the head runs not at all, more than once, or not as the last linear one;
            if ``head(features(x))`` is not the network's output; or if features are not ``(N, D)``.
    """
    names = {layer: path for path, layer in network.named_modules()}
    head, ran = find_head(network), []
    handles = [
        layer.register_forward_pre_hook(lambda layer, _: ran.append(layer))
        for layer in names
        if isinstance(layer, torch.nn.Linear)
    ]
    try:
        output = as_interval(network(x))
    finally:
        for handle in handles:
            handle.remove()
    if _names_features(network):
        logits = as_interval(features_and_logits(network, x)[1])
        same = all(torch.allclose(getattr(logits, b), getattr(output, b), 1e-4, 1e-5) for b in ("lower", "upper"))
        if logits.shape != output.shape or not same:
            raise ValueError(
                f"The output of {type(network).__name__} is not head(features(x)), though it has both names. "
                "Rename the method features, or make forward(x) equal to head(features(x))."
            )
    elif not ran or ran[-1] is not head or ran.count(head) != 1:
        order = ", ".join(names[layer] or type(layer).__name__ for layer in ran) or "none"
        raise ValueError(
            f"The last linear layer of {type(network).__name__} in the order of its modules, {names[head]!r}, should "
            f"run once and after all others, but the linear layers ran in the order: {order}. {_ADVICE}"
        )
    features = as_interval(features_and_logits(network, x)[0])
    if features.ndim != 2 or features.shape[1] != head.in_features:
        raise ValueError(
            f"The features of {type(network).__name__} should have shape (N, {head.in_features}), one row per input, "
            f"got {tuple(features.shape)}. Pool or flatten before the last linear layer."
        )


def _names_features(network: torch.nn.Module) -> bool:
    """Whether the network has a method ``features``; in some architectures the name stands for a layer."""
    features = getattr(network, "features", None)
    return (
        callable(features)
        and not isinstance(features, torch.nn.Module)
        and isinstance(getattr(network, "head", None), torch.nn.Module)
    )
