"""Batch norm by the statistics of the test batch, an evaluation option that is never the default.

The authors' code normalises test data so, and then an out-of-distribution batch normalises itself. A prediction then
depends on which images share its batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from creinn.classifier.base import Classifier, Inputs, evaluating


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


def predict_by_batch(model: Classifier, x: Inputs, batch_size: int) -> Any:
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
