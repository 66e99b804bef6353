"""Rivals by name, each built from the same definition of a network."""

from collections.abc import Callable
from typing import Any

import torch

from creinn.rivals import flipout, local
from creinn.rivals.bnn import BNN
from creinn.rivals.fsvi import FSVI
from creinn.rivals.laplace import LaplaceBNN
from creinn.rivals.snn import SNN

_KINDS: dict[str, tuple[Any, Callable[..., SNN]]] = {
    "snn": (torch.nn, SNN),
    "bnn-r": (local, BNN),
    "bnn-f": (flipout, BNN),
    "fsvi": (torch.nn, FSVI),
    "bnn-l": (torch.nn, LaplaceBNN),
}

METHODS = tuple(_KINDS)
"""Names that :func:`create` knows."""


def create(method: str, network: Callable[..., torch.nn.Module], **options: Any) -> SNN:
    """Build a rival.

    Args:
        method: One of :data:`METHODS`.
        network: Builds the network when called with ``layers``, the layer family that the method needs, such as
            ``functools.partial(creinn.models.resnet18, num_classes=10)``.
        **options: Of the classifier: :class:`SNN`, :class:`BNN`, :class:`FSVI` or :class:`LaplaceBNN`.

    Raises:
        ValueError: If the method is unknown.

    Example:
        >>> def network(layers):
        ...     return torch.nn.Sequential(layers.Linear(2, 8), layers.ReLU(), layers.Linear(8, 3))
        >>> create("bnn-f", network).eval()(torch.zeros(5, 2)).samples.shape
        torch.Size([10, 5, 3])
    """
    if method not in _KINDS:
        raise ValueError(f"Unknown method {method!r}; choose one of {', '.join(METHODS)}.")
    layers, classifier = _KINDS[method]
    return classifier(network(layers=layers), **options)
