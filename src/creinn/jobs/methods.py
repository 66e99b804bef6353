"""Methods by name: how one classifier is built, and how several are averaged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from creinn import nn as inn
from creinn import rivals
from creinn.classifier import Classifier
from creinn.creinn import Ensemble, Mode
from creinn.members import untrained_creinn

Architecture = Callable[..., torch.nn.Module]  # called with the family of layers


@dataclass(frozen=True)
class Method:
    """A way to learn and predict.

    Args:
        build: Makes an untrained classifier of an architecture; the mode is for CreINN.
        ensemble: Averages several of them.
        members: How many to train unless asked otherwise.
        takes_intervals: Whether inputs may be intervals.
    """

    build: Callable[[Architecture, Mode], Classifier]
    ensemble: Callable[[Sequence[Any]], Classifier] = rivals.DeepEnsemble
    members: int = 1
    takes_intervals: bool = False


def _creinn(architecture: Architecture, mode: Mode) -> Classifier:
    return untrained_creinn(architecture(layers=inn), mode)


def _rival(name: str, architecture: Architecture, mode: Mode) -> Classifier:
    return rivals.create(name, architecture)


METHODS: dict[str, Method] = {
    "creinn": Method(_creinn, Ensemble, takes_intervals=True),
    **{name: Method(partial(_rival, name)) for name in rivals.METHODS},
    "deep-ensemble": Method(partial(_rival, "snn"), members=5),
}
"""What ``creinn train --method`` takes; a further method is one more line."""


def find_method(name: str) -> Method:
    """The method of that name.

    Raises:
        ValueError: If there is none.
    """
    if name not in METHODS:
        raise ValueError(f"There is no method {name!r}; there are {', '.join(METHODS)}.")
    return METHODS[name]
