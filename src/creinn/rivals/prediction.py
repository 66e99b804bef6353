"""Predictions that are samples of distributions: of an ordinary network (one), an ensemble, or a Bayesian network."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from creinn.credal.uncertainty import Uncertainty, samples_uncertainty


class Predictive:
    """``S`` predicted distributions per row, ``samples`` of shape ``(S, N, K)``; entropies in bits.

    The total uncertainty is the entropy of the mean, the aleatoric the mean of the entropies, the epistemic their
    difference (Eq:MC_bnn, AU_BNN).

    Args:
        samples: The distributions.
        log_samples: Their natural logarithms, if the model has them to full precision, which the training loss needs.

    Example:
        >>> p = Predictive(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))   # two members that contradict each other
        >>> p.total.item(), p.aleatoric.item(), p.epistemic.item()
        (1.0, 0.0, 1.0)
    """

    def __init__(self, samples: Tensor, log_samples: Tensor | None = None) -> None:
        if samples.ndim < 2 or samples.shape[0] == 0:
            raise ValueError(f"Expected samples of shape (S, ..., K) with S >= 1, got {tuple(samples.shape)}.")
        self.samples = samples
        self._log_samples = log_samples

    @property
    def log_samples(self) -> Tensor:
        """Natural logarithms: the model's own, or else of the samples, zeros taken as the least normal number."""
        if self._log_samples is not None:
            return self._log_samples
        return self.samples.clamp_min(torch.finfo(self.samples.dtype).tiny).log()

    @cached_property
    def probabilities(self) -> Tensor:
        """Mean distribution ``(N, K)``."""
        return self.samples.mean(0)

    @property
    def label(self) -> Tensor:
        """Most probable class of the mean distribution."""
        return self.probabilities.argmax(-1)

    @cached_property
    def _uncertainty(self) -> Uncertainty:
        return samples_uncertainty(self.samples)

    @property
    def total(self) -> Tensor:
        """Entropy of the mean."""
        return self._uncertainty.total

    @property
    def aleatoric(self) -> Tensor:
        """Mean of the entropies."""
        return self._uncertainty.aleatoric

    @property
    def epistemic(self) -> Tensor:
        """Total minus aleatoric: the mutual information of class and sample."""
        return self._uncertainty.epistemic

    def __len__(self) -> int:
        return self.samples.shape[1]

    def __getitem__(self, index: Any) -> "Predictive":
        logs = self._log_samples
        return Predictive(self.samples[:, index], None if logs is None else logs[:, index])

    def to(self, *args: Any, **kwargs: Any) -> "Predictive":
        """Move or cast, as ``Tensor.to``."""
        logs = self._log_samples
        return Predictive(self.samples.to(*args, **kwargs), None if logs is None else logs.to(*args, **kwargs))

    @classmethod
    def concatenate(cls, predictions: Sequence["Predictive"]) -> "Predictive":
        """Join predictions of successive batches."""
        return _join(predictions, 1)

    @classmethod
    def pool(cls, predictions: Sequence["Predictive"]) -> "Predictive":
        """Join the samples of several predictions of the same rows, as an ensemble does."""
        return _join(predictions, 0)

    @classmethod
    def mixture(cls, predictions: Sequence[Any]) -> Any:
        """The mean of several predictions, sample by sample."""
        return cls(torch.stack([p.samples for p in predictions]).mean(0))


def _join(predictions: Sequence[Predictive], dim: int) -> Predictive:
    logs = [p._log_samples for p in predictions if p._log_samples is not None]
    full = torch.cat(logs, dim) if len(logs) == len(predictions) else None
    return Predictive(torch.cat([p.samples for p in predictions], dim), full)
