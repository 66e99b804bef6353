"""Predictions of the baselines: samples of distributions."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Dirichlet

from creinn.credal.entropy import Uncertain, Uncertainty, samples_uncertainty
from creinn.numerics import entropy


class Predictive(Uncertain):
    """Prediction with ``S`` distributions for each row.

    The total uncertainty is the entropy of the mean distribution in bits,
    the aleatoric uncertainty is the mean entropy, and the epistemic
    uncertainty is the difference (Eq:MC_bnn, AU_BNN).

    Args:
        samples: Distributions ``(S, N, K)``.
        log_samples: Their logarithms, if they are known more accurately.

    Example:
        >>> p = Predictive(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
        >>> p.total.item(), p.aleatoric.item(), p.epistemic.item()
        (1.0, 0.0, 1.0)
    """

    def __init__(self, samples: Tensor, log_samples: Tensor | None = None) -> None:
        if samples.ndim < 2 or samples.shape[0] == 0:
            raise ValueError(f"samples must have shape (S, N, K), got {tuple(samples.shape)}.")
        self.samples, self._log_samples = samples, log_samples

    @property
    def log_samples(self) -> Tensor:
        """Natural logarithms of the samples, which are finite."""
        if self._log_samples is not None:
            return self._log_samples
        return self.samples.clamp_min(torch.finfo(self.samples.dtype).tiny).log()

    @cached_property
    def probabilities(self) -> Tensor:
        """Mean distributions ``(N, K)``."""
        return self.samples.mean(0)

    @property
    def label(self) -> Tensor:
        """Most probable classes."""
        return self.probabilities.argmax(-1)

    @cached_property
    def _uncertainty(self) -> Uncertainty:
        return samples_uncertainty(self.samples)

    def __len__(self) -> int:
        return self.samples.shape[1]

    def _map(self, function: Callable[[Tensor], Tensor]) -> Any:
        return Predictive(function(self.samples))

    def __getitem__(self, index: Any) -> Any:
        return self._map(lambda t: t[..., index, :])

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Change the device or the dtype."""
        return self._map(lambda t: t.to(*args, **kwargs))

    @classmethod
    def concatenate(cls, predictions: Sequence[Any]) -> "Predictive":
        """Concatenate the predictions of several batches."""
        return Predictive(torch.cat([p.samples for p in predictions], 1))

    @staticmethod
    def pool(predictions: Sequence["Predictive"]) -> "Predictive":
        """Join the samples of several predictions of the same rows."""
        return Predictive(torch.cat([p.samples for p in predictions]))

    @classmethod
    def mixture(cls, predictions: Sequence[Any]) -> "Predictive":
        """Average several predictions for each sample."""
        return Predictive(_mean([p.samples for p in predictions]))


class DirichletPredictive(Predictive):
    """Prediction with a Dirichlet distribution for each row.

    Args:
        concentration: Parameters of the Dirichlet distributions
            ``(N, K)``.
        samples: Number of samples, or samples, which ensembles use.

    Example:
        >>> p = DirichletPredictive(torch.ones(1, 2))  # uniform on the simplex
        >>> p.total.item(), round(p.aleatoric.item(), 4)  # 1 and 1 / (2 ln 2) bits
        (1.0, 0.7213)
    """

    def __init__(self, concentration: Tensor, samples: int | Tensor = 10) -> None:
        if isinstance(samples, int):
            samples = Dirichlet(concentration, validate_args=False).sample((samples,))
        super().__init__(samples)
        self.concentration = concentration

    @cached_property
    def probabilities(self) -> Tensor:
        """Mean distributions."""
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @cached_property
    def _uncertainty(self) -> Uncertainty:
        p, alpha = self.probabilities, self.concentration
        total = entropy(p)
        nats = torch.digamma(alpha.sum(-1) + 1) - (p * torch.digamma(alpha + 1)).sum(-1)
        aleatoric = torch.minimum(nats.clamp_min(0) / math.log(2), total)
        return Uncertainty(total, aleatoric, total - aleatoric)

    def _map(self, function: Callable[[Tensor], Tensor]) -> Any:
        return DirichletPredictive(function(self.concentration), function(self.samples))

    @classmethod
    def concatenate(cls, predictions: Sequence[Any]) -> Predictive:
        """Concatenate predictions, of which some may have no concentration."""
        joined = Predictive.concatenate(predictions)
        if not all(isinstance(p, DirichletPredictive) for p in predictions):
            return joined  # the model is not fitted yet
        concentration = torch.cat([p.concentration for p in predictions])
        return DirichletPredictive(concentration, joined.samples)

    @classmethod
    def mixture(cls, predictions: Sequence[Any]) -> "DirichletPredictive":
        """Return a prediction with the mean distribution and strength."""
        strength = _mean([p.concentration.sum(-1, keepdim=True) for p in predictions])
        concentration = strength * _mean([p.probabilities for p in predictions])
        return DirichletPredictive(concentration, _mean([p.samples for p in predictions]))


def _mean(tensors: list[Tensor]) -> Tensor:
    return torch.stack(tensors).mean(0)
