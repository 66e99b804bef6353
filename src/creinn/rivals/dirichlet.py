"""The Laplace bridge (Hobbhahn, Kristiadi and Hennig, UAI 2022): Gaussian logits in, a Dirichlet distribution out."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from creinn.credal.uncertainty import Uncertainty
from creinn.numerics import entropy
from creinn.rivals.prediction import Predictive

GREATEST = 1e12
"""Greatest sum of the concentrations: a Dirichlet beyond it is a point, and its numbers would overflow."""


def laplace_bridge(mean: Tensor, covariance: Tensor, normalise: bool = True) -> Tensor:
    r"""Concentrations ``(N, K)`` of the Dirichlet that matches Gaussian logits.

    Logits are first conditioned to sum to zero, which loses nothing, since the softmax does not change. Then

    .. math:: \alpha_k = \frac{1}{\Sigma_{kk}} \Bigl(1 - \frac2K + \frac{e^{\mu_k}}{K^2} \sum_l e^{-\mu_l}\Bigr).

    Args:
        mean: Means of the logits, ``(N, K)``.
        covariance: Their covariances, ``(N, K, K)``.
        normalise: Whether to rescale means and variances first so that the mean variance is ``sqrt(K / 2)``, the
            correction of the paper against wrong concentrations at large variances. Logits of small variance become
            more extreme by it.

    Returns:
        Concentrations; rows whose sum would exceed :data:`GREATEST` are scaled down to it, which keeps their mean. So
        logits that do not vary give the limit of a small variance, the same for each.

    Example:
        >>> laplace_bridge(torch.zeros(1, 3), torch.eye(3).unsqueeze(0), normalise=False)   # (1 - 2/3 + 3/9) / (2/3)
        tensor([[1., 1., 1.]])
    """
    classes = mean.shape[-1]
    rows = covariance.sum(-1)  # (N, K)
    total = rows.sum(-1, keepdim=True)
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    noise = torch.finfo(mean.dtype).eps * variance.mean(-1, keepdim=True)
    is_fixed = total <= classes**2 * noise  # the sum is known already, as it is where nothing varies
    share = torch.where(is_fixed, 1 / classes, rows / torch.where(is_fixed, 1.0, total))
    mean = mean - share * mean.sum(-1, keepdim=True)
    variance = torch.maximum(variance - share * rows, noise.clamp_min(torch.finfo(mean.dtype).tiny))
    if normalise:
        scale = variance.mean(-1, keepdim=True) / math.sqrt(classes / 2)
        mean, variance = mean / scale.sqrt(), variance / scale
    constant = math.log(1 - 2 / classes) if classes > 2 else -math.inf
    exponential = mean + torch.logsumexp(-mean, -1, keepdim=True) - 2 * math.log(classes)
    log_alpha = torch.logaddexp(torch.full_like(mean, constant), exponential) - variance.log()
    log_total = torch.logsumexp(log_alpha, -1, keepdim=True)
    shares = log_alpha - log_total  # first: beside a large total the limit would be lost
    return (shares + log_total.clamp_max(math.log(GREATEST))).exp().clamp_min(torch.finfo(mean.dtype).tiny)


class DirichletPredictive(Predictive):
    """A Dirichlet distribution per row, ``concentration`` of shape ``(N, K)``, and ``S`` samples of it.

    The mean and the uncertainties are those of the Dirichlet in closed form, not of the samples; the samples are for
    ensembles.

    Example:
        >>> p = DirichletPredictive(torch.ones(1, 2), samples=10)        # uniform on the simplex
        >>> p.total.item(), round(p.aleatoric.item(), 4)                 # 1 bit, 1 / (2 ln 2) bits
        (1.0, 0.7213)
    """

    def __init__(self, concentration: Tensor, samples: int | Tensor = 10) -> None:
        if isinstance(samples, int):
            samples = torch.distributions.Dirichlet(concentration, validate_args=False).sample((samples,))
        super().__init__(samples)
        self.concentration = concentration

    @cached_property
    def probabilities(self) -> Tensor:
        """Mean distribution ``(N, K)``."""
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @cached_property
    def _uncertainty(self) -> Uncertainty:
        total = entropy(self.probabilities)
        strength = self.concentration.sum(-1)
        expected = torch.digamma(strength + 1) - (self.probabilities * torch.digamma(self.concentration + 1)).sum(-1)
        aleatoric = torch.minimum(expected.clamp_min(0) / math.log(2), total)
        return Uncertainty(total, aleatoric, total - aleatoric)

    def __getitem__(self, index: Any) -> "DirichletPredictive":
        return DirichletPredictive(self.concentration[index], self.samples[:, index])

    def to(self, *args: Any, **kwargs: Any) -> "DirichletPredictive":
        """Move or cast, as ``Tensor.to``."""
        return DirichletPredictive(self.concentration.to(*args, **kwargs), self.samples.to(*args, **kwargs))

    @classmethod
    def concatenate(cls, predictions: Sequence[Predictive]) -> Predictive:
        """Join predictions of successive batches; a network that is not fitted yet gives plain predictions."""
        if not all(isinstance(p, DirichletPredictive) for p in predictions):
            return Predictive.concatenate(predictions)
        concentrations = [p.concentration for p in predictions if isinstance(p, DirichletPredictive)]
        return cls(torch.cat(concentrations), torch.cat([p.samples for p in predictions], 1))

    @classmethod
    def mixture(cls, predictions: Sequence[Any]) -> "DirichletPredictive":
        """The Dirichlet of the mean distribution and the mean sum of concentrations."""
        mean = torch.stack([p.probabilities for p in predictions]).mean(0)
        strength = torch.stack([p.concentration.sum(-1, keepdim=True) for p in predictions]).mean(0)
        return cls(mean * strength, torch.stack([p.samples for p in predictions]).mean(0))
