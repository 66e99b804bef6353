"""Classifiers of an experiment, and their predictions: by running or batch statistics, and from arrays of members.

Batch norm by the statistics of the test batch is never the default. The authors' code normalises test data so, and then
an out-of-distribution batch normalises itself: a prediction depends on which images share its batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy.typing as npt
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from creinn import models
from creinn.classifier.base import Classifier, Inputs, Prediction, evaluating
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


def has_batch_norm(module: torch.nn.Module) -> bool:
    """Whether there is a batch norm, ordinary or interval, in ``module``."""
    return any(isinstance(part, _BatchNorm) for part in module.modules())


@contextmanager
def batch_statistics(module: torch.nn.Module) -> Iterator[None]:
    """Let each batch norm in ``module`` use the mean and variance of its batch; running statistics are left alone.

    Ordinary and interval batch norms alike. Call it after ``eval()``, which would undo it.

    Example:
        >>> norm = torch.nn.BatchNorm1d(1, affine=False).eval()
        >>> with batch_statistics(norm):
        ...     norm(torch.tensor([[1.0], [3.0]])).round(decimals=2)
        tensor([[-1.], [ 1.]])
        >>> norm.running_mean, norm.num_batches_tracked
        (tensor([0.]), tensor(0))
    """
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    before = [(norm.training, norm.track_running_stats) for norm in norms]
    try:
        for norm in norms:
            norm.training, norm.track_running_stats = True, False
        yield
    finally:
        for norm, (training, tracking) in zip(norms, before, strict=True):
            norm.training, norm.track_running_stats = training, tracking


def predict_by_batch(model: Classifier, x: Inputs, batch_size: int) -> Prediction:
    """Predict as ``model.predict`` does, but with the statistics of successive batches of ``batch_size`` rows.

    A last batch of a single row joins the one before it, for one row has no variance.

    Raises:
        ValueError: If there are fewer than two rows.
    """
    if len(x) < 2:
        raise ValueError(f"Batch statistics need at least two rows, got {len(x)}.")
    ends = [*range(batch_size, len(x) - 1, batch_size), len(x)]
    device = next(model.parameters()).device
    with evaluating(model), batch_statistics(model), torch.no_grad():
        parts = [model(x[start:end].to(device)) for start, end in zip([0, *ends], ends, strict=False)]
    return model.prediction_type.concatenate(parts)


def to_arrays(prediction: Prediction) -> Arrays:
    """A prediction as arrays: both bounds of a credal set, or samples."""
    if isinstance(prediction, CredalSet):
        return {"lower": prediction.lower.cpu().numpy(), "upper": prediction.upper.cpu().numpy()}
    assert isinstance(prediction, Predictive)
    return {"samples": prediction.samples.cpu().numpy()}


def combine(members: Sequence[Mapping[str, npt.NDArray[Any]]], envelope: bool = False) -> Prediction:
    """The prediction of an ensemble from the arrays of its members: bounds averaged or enveloped, samples pooled."""
    if "lower" in members[0]:
        sets = [CredalSet(torch.from_numpy(m["lower"]), torch.from_numpy(m["upper"])) for m in members]
        return CredalSet.envelope(sets) if envelope else CredalSet.average(sets)
    return Predictive.pool([Predictive(torch.from_numpy(m["samples"])) for m in members])
