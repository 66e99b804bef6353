"""Predictions of the baselines: samples of distributions."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from creinn.credal.entropy import Uncertain, Uncertainty, samples_uncertainty
from creinn.numerics import entropy


class Predictive(Uncertain):
    """Prediction with ``S`` distributions for each row.

    The total uncertainty is the entropy of the mean distribution, and the aleatoric uncertainty is
    the mean of the entropies. The epistemic uncertainty is the difference (Eq:MC_bnn, AU_BNN). All
    of them are in bits.

    Args:
        samples: The distributions, of shape ``(S, N, K)``.
        log_samples: The natural logarithms of ``samples``. The training loss uses them, because the
            logarithms of rounded probabilities are less accurate.

    Example:
        >>> p = Predictive(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
        >>> p.total.item(), p.aleatoric.item(), p.epistemic.item()
        (1.0, 0.0, 1.0)
    """

    def __init__(self, samples: Tensor, log_samples: Tensor | None = None) -> None:
        if samples.ndim < 2 or samples.shape[0] == 0:
            raise ValueError(
                f"samples must have shape (S, ..., K) with S >= 1, got {tuple(samples.shape)}."
            )
        self.samples = samples
        self._log_samples = log_samples

    @property
    def log_samples(self) -> Tensor:
        """Natural logarithms of the samples; zeros are replaced by the smallest number."""
        if self._log_samples is not None:
            return self._log_samples
        return self.samples.clamp_min(torch.finfo(self.samples.dtype).tiny).log()

    @cached_property
    def probabilities(self) -> Tensor:
        """Mean distribution of each row, of shape ``(N, K)``."""
        return self.samples.mean(0)

    @property
    def label(self) -> Tensor:
        """The class with the largest mean probability."""
        return self.probabilities.argmax(-1)

    @cached_property
    def _uncertainty(self) -> Uncertainty:
        return samples_uncertainty(self.samples)

    def __len__(self) -> int:
        return self.samples.shape[1]

    def __getitem__(self, index: Any) -> "Predictive":
        return self._combined(
            [self], lambda found, rows: found[0][:, index] if rows == 1 else found[0][index]
        )

    def to(self, *args: Any, **kwargs: Any) -> "Predictive":
        """Change the device or the dtype; see ``torch.Tensor.to``."""
        return self._combined([self], lambda found, _: found[0].to(*args, **kwargs))

    @classmethod
    def concatenate(cls, predictions: Sequence[Any]) -> "Predictive":
        """Concatenate the predictions of several batches."""
        return cls._combined(predictions, torch.cat)

    @staticmethod
    def pool(predictions: Sequence["Predictive"]) -> "Predictive":
        """Combine the samples of several predictions of the same rows."""
        return Predictive._combined(predictions, lambda found, _: torch.cat(found))

    @classmethod
    def mixture(cls, predictions: Sequence[Any]) -> "Predictive":
        """Return the mean of several predictions for each sample."""
        return cls(torch.stack([p.samples for p in predictions]).mean(0))

    @classmethod
    def _combined(
        cls, predictions: Sequence[Any], combine: Callable[[list[Tensor], int], Tensor]
    ) -> "Predictive":
        """Combine the tensors of several predictions.

        The arguments of ``combine`` are the tensors and the dimension of the rows.
        """
        logs = [p._log_samples for p in predictions if p._log_samples is not None]
        full = combine(logs, 1) if len(logs) == len(predictions) else None
        return Predictive(combine([p.samples for p in predictions], 1), full)


class DirichletPredictive(Predictive):
    """Prediction with a Dirichlet distribution for each row.

    The uncertainties are computed in closed form. The samples are for ensembles.

    Args:
        concentration: The parameters of the Dirichlet distributions, of shape ``(N, K)``.
        samples: The number of samples, or the samples.

    Example:
        >>> p = DirichletPredictive(torch.ones(1, 2), samples=10)  # uniform on the simplex
        >>> p.total.item(), round(p.aleatoric.item(), 4)  # 1 and 1 / (2 ln 2) bits
        (1.0, 0.7213)
    """

    def __init__(self, concentration: Tensor, samples: int | Tensor = 10) -> None:
        if isinstance(samples, int):
            samples = torch.distributions.Dirichlet(concentration, validate_args=False).sample(
                (samples,)
            )
        super().__init__(samples)
        self.concentration = concentration

    @cached_property
    def probabilities(self) -> Tensor:
        """Mean distribution of each row, of shape ``(N, K)``."""
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @cached_property
    def _uncertainty(self) -> Uncertainty:
        total = entropy(self.probabilities)
        strength = self.concentration.sum(-1)
        expected = torch.digamma(strength + 1) - (
            self.probabilities * torch.digamma(self.concentration + 1)
        ).sum(-1)
        aleatoric = torch.minimum(expected.clamp_min(0) / math.log(2), total)
        return Uncertainty(total, aleatoric, total - aleatoric)

    @classmethod
    def mixture(cls, predictions: Sequence[Any]) -> "DirichletPredictive":
        """Return a Dirichlet prediction with the mean distribution of the predictions.

        The sum of its concentrations is the mean of the sums of the predictions.
        """
        mean = torch.stack([p.probabilities for p in predictions]).mean(0)
        strength = torch.stack([p.concentration.sum(-1, keepdim=True) for p in predictions]).mean(0)
        return cls(mean * strength, torch.stack([p.samples for p in predictions]).mean(0))

    @classmethod
    def _combined(
        cls, predictions: Sequence[Any], combine: Callable[[list[Tensor], int], Tensor]
    ) -> Predictive:
        if not all(isinstance(p, cls) for p in predictions):  # a network is not fitted yet
            return Predictive._combined(predictions, combine)
        return cls(
            combine([p.concentration for p in predictions], 0),
            combine([p.samples for p in predictions], 1),
        )
