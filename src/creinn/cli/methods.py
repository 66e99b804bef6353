"""Methods by name: how one classifier is built, and how several become one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from creinn import nn as inn
from creinn import rivals
from creinn.classifier.base import Classifier
from creinn.classifier.creinn import Ensemble
from creinn.training.members import untrained_creinn

Architecture = Callable[..., torch.nn.Module]  # called with the family of layers
Form = Mapping[str, Any]  # options of a CreINN: distance, mode, loss


@dataclass(frozen=True)
class Method:
    """A way to learn and predict.

    Args:
        build: Makes an untrained classifier of an architecture; the form is for CreINN.
        ensemble: Makes one classifier of several.
        members: How many to train unless asked otherwise.
        is_credal: Whether it predicts credal sets, and has a form.
        distance: Distance of the form, unless asked otherwise.
        takes_intervals: Whether inputs may be intervals.
    """

    build: Callable[[Architecture, Form], Classifier]
    ensemble: Callable[..., Classifier] = rivals.DeepEnsemble
    members: int = 1
    is_credal: bool = False
    distance: bool = False
    takes_intervals: bool = False


def _creinn(layers: Any, architecture: Architecture, form: Form) -> Classifier:
    return untrained_creinn(architecture(layers=layers), **form)


def _rival(name: str, architecture: Architecture, form: Form) -> Classifier:
    return rivals.create(name, architecture)


METHODS: dict[str, Method] = {
    "creinn-d": Method(partial(_creinn, torch.nn), Ensemble, is_credal=True, distance=True),
    "creinn": Method(partial(_creinn, inn), Ensemble, is_credal=True, takes_intervals=True),
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
