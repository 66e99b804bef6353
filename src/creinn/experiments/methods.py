"""Classifiers of an experiment, and predictions as arrays, from which ensembles are made without inference."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy.typing as npt
import torch

from creinn import models
from creinn.classifier.base import Classifier
from creinn.classifier.methods import METHODS
from creinn.credal.credal_set import CredalSet
from creinn.experiments.definition import Network
from creinn.rivals import Predictive

Arrays = dict[str, npt.NDArray[Any]]


def build(
    method: str, network: Network, logits: int, channels: int, options: Mapping[str, Any] | None = None
) -> Classifier:
    """An untrained classifier; its initial weights come from torch's global generator.

    Args:
        method: A single method.
        network: Architecture.
        logits: Outputs of the network.
        channels: Channels of the images.
        options: Further arguments of the classifier, and ``layers``, the layer family of a CreINN's network.
    """
    arguments: dict[str, Any] = {"num_classes": logits, "in_channels": channels, "width": network.width}
    if network.stem is not None:
        arguments["stem"] = network.stem
    architecture = partial(models.BUILDERS[network.builder], **arguments)
    return METHODS[method].build(architecture, **(options or {}))


def count_parameters(model: torch.nn.Module) -> int:
    """Number of trained numbers."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def to_arrays(prediction: Any) -> Arrays:
    """A prediction as arrays: both bounds of a credal set, or samples."""
    if isinstance(prediction, CredalSet):
        return {"lower": prediction.lower.cpu().numpy(), "upper": prediction.upper.cpu().numpy()}
    return {"samples": prediction.samples.cpu().numpy()}


def combine(members: Sequence[Mapping[str, npt.NDArray[Any]]], envelope: bool = False) -> Any:
    """The prediction of an ensemble from the arrays of its members: bounds averaged or enveloped, samples pooled."""
    if "lower" in members[0]:
        sets = [CredalSet(torch.from_numpy(m["lower"]), torch.from_numpy(m["upper"])) for m in members]
        return CredalSet.envelope(sets) if envelope else CredalSet.average(sets)
    return Predictive.pool([Predictive(torch.from_numpy(m["samples"])) for m in members])
