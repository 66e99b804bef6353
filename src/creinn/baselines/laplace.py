"""Last-layer Laplace approximation with the Laplace bridge (BNN-L).

The posterior of the last layer is approximated by a Gaussian at the
trained weights, so the logits are Gaussian. The Laplace bridge maps their
distribution to a Dirichlet distribution (Hobbhahn, Kristiadi and Hennig,
UAI 2022). Batch norm after the last layer is folded into it.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_linear_bn_weights

from creinn.baselines.predictive import DirichletPredictive, Predictive
from creinn.baselines.snn import SNN, check_tensor, last_layer
from creinn.classifier.base import Labelled, evaluating
from creinn.classifier.network import find_logits_layer
from creinn.distributed import all_sum
from creinn.numerics import check_integers

PRIOR_PRECISIONS = torch.logspace(-4, 4, 81, dtype=torch.float64)
"""Grid of prior precisions."""
MARGINAL: Literal["marginal-likelihood"] = "marginal-likelihood"
MAX_CONCENTRATION = 1e12
"""Largest sum of concentrations, to avoid overflow."""


class LaplaceBNN(SNN):
    """Last-layer Laplace approximation with the Laplace bridge.

    Before :meth:`after_training`, the predictions are those of an
    :class:`SNN`.

    Args:
        network: A module that returns ``K >= 3`` logits and ends in a
            ``Linear`` layer.
        samples: Number of samples of the Dirichlet distributions.
        normalise: Whether to normalize the logits; see
            :func:`laplace_bridge`.
        prior_precision: A number, or ``"marginal-likelihood"`` to maximize
            it.
        num_logits, logit_norm: See :class:`SNN`.
    """

    prediction_type = DirichletPredictive
    fitted: Tensor
    precision: Tensor
    log_likelihood: Tensor

    def __init__(
        self,
        network: nn.Module,
        samples: int = 10,
        normalise: bool = True,
        prior_precision: float | Literal["marginal-likelihood"] = MARGINAL,
        num_logits: int | None = None,
        logit_norm: bool = False,
    ) -> None:
        super().__init__(network, num_logits, logit_norm)
        if self.num_logits < 3:
            raise ValueError(f"BNN-L needs at least 3 logits, got {self.num_logits}.")
        is_number = not isinstance(prior_precision, str)
        if prior_precision != MARGINAL and not (is_number and prior_precision > 0):
            expected = f"{MARGINAL!r} or a number > 0"
            raise ValueError(f"prior_precision must be {expected}, got {prior_precision!r}.")
        check_integers(samples=samples)
        self.samples, self.normalise, self.prior_precision = samples, normalise, prior_precision
        head: Any = find_logits_layer(network)
        self._has_bias = logit_norm or head.bias is not None
        self.curvature = Kronecker(self.num_logits, head.in_features + self._has_bias)
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("precision", torch.ones(()))
        self.register_buffer("log_likelihood", torch.zeros(()))
        self.curvature.to(head.weight.device, head.weight.dtype)

    def forward(self, x: Tensor) -> Predictive:
        """Return a Dirichlet prediction, or that of an SNN before the fit."""
        if self.training or not self.fitted:
            return super().forward(x)
        mean, covariance = self.logit_distribution(x)
        return DirichletPredictive(laplace_bridge(mean, covariance, self.normalise), self.samples)

    @torch.no_grad()
    def after_training(self, data: Labelled, held_out: Labelled | None = None) -> None:
        """Fit the posterior of the last layer to the training data."""
        like: Any = find_logits_layer(self.network).weight
        likelihood = torch.zeros_like(self.log_likelihood)

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            for x, target in data:
                features, logits = self._last_layer(check_tensor(x).to(like))
                logs = F.log_softmax(logits, 1)
                likelihood.sub_(F.nll_loss(logs, target.to(logs.device), reduction="sum"))
                yield features, logs.exp()

        with evaluating(self):
            self.curvature.fit(batches())
        self.log_likelihood.copy_(all_sum(likelihood))
        self.fitted.fill_(True)
        if isinstance(self.prior_precision, str):
            grid = PRIOR_PRECISIONS.to(self.precision)
            self.precision.copy_(max(grid, key=self.log_marginal_likelihood))
        else:
            self.precision.fill_(self.prior_precision)

    def logit_distribution(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean ``(N, K)`` and the covariance of the logits."""
        features, logits = self._last_layer(x)
        return logits, self.curvature.covariance(features, self.precision)

    def log_marginal_likelihood(self, prior_precision: Tensor) -> Tensor:
        r"""Return the Laplace approximation of the log marginal likelihood.

        .. math::
            \log p(D \mid \theta)
            - \tfrac12 (\delta |\theta|^2 + \log\det(H + \delta I) - P \log \delta)
        """
        head: Any = find_logits_layer(self.network)
        norm: Any = self.norm
        folded = head.weight, head.bias
        if self.logit_norm:
            statistics = norm.running_mean, norm.running_var, norm.eps
            folded = fuse_linear_bn_weights(*folded, *statistics, norm.weight, norm.bias)
        squares = torch.stack([p.detach().square().sum() for p in folded if p is not None]).sum()
        determinant = (self.curvature.eigenvalues / prior_precision).log1p().sum()
        return self.log_likelihood - 0.5 * (prior_precision * squares + determinant)

    def _last_layer(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features, logits = last_layer(self.network, x, self._has_bias)
        return features, self.norm(logits)


class Kronecker(nn.Module):
    """Gauss-Newton matrix of the last layer, as a Kronecker product.

    The sum of ``kron(diag(p) - p p^T, phi phi^T)`` over the rows is
    approximated by ``kron(B, A) / N``, with the sums ``B`` and ``A`` of
    the factors.
    """

    output_values: Tensor
    output_vectors: Tensor
    input_values: Tensor
    input_vectors: Tensor

    def __init__(self, classes: int, features: int) -> None:
        super().__init__()
        for name, size in (("output", classes), ("input", features)):
            self.register_buffer(f"{name}_values", torch.zeros(size))
            self.register_buffer(f"{name}_vectors", torch.zeros(size, size))

    def fit(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Compute the factors from features and probabilities."""
        outputs, inputs = map(torch.zeros_like, (self.output_vectors, self.input_vectors))
        count = inputs.new_zeros((), dtype=torch.long)
        for phi, p in batches:
            outputs += (torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)).sum(0)
            inputs += phi.T @ phi
            count += len(phi)
        self.output_values, vectors = torch.linalg.eigh(all_sum(outputs))
        self.output_vectors = vectors.contiguous()  # as after loading
        self.input_values, vectors = torch.linalg.eigh(all_sum(inputs) / all_sum(count))
        self.input_vectors = vectors.contiguous()

    @property
    def eigenvalues(self) -> Tensor:
        """Eigenvalues of the Kronecker product ``(K, D)``."""
        return torch.outer(self.output_values.clamp_min(0), self.input_values.clamp_min(0))

    def covariance(self, features: Tensor, prior_precision: Tensor) -> Tensor:
        """Return the covariance ``(N, K, K)`` of the logits."""
        weights = 1 / (self.eigenvalues + prior_precision)
        variances = (features @ self.input_vectors).square() @ weights.T  # (N, K)
        return (self.output_vectors * variances.unsqueeze(1)) @ self.output_vectors.T


def laplace_bridge(mean: Tensor, covariance: Tensor, normalise: bool = True) -> Tensor:
    r"""Return the parameters of the Dirichlet distribution of Gaussian logits.

    The logits are conditioned on the sum zero, which does not change the
    softmax. Then

    .. math::
        \alpha_k = \frac{1}{\Sigma_{kk}}
                   \Bigl(1 - \frac2K + \frac{e^{\mu_k}}{K^2} \sum_l e^{-\mu_l}\Bigr).

    The sum of a row is at most :data:`MAX_CONCENTRATION`.

    Args:
        mean: Means of the logits ``(N, K)``.
        covariance: Covariances of the logits ``(N, K, K)``.
        normalise: Whether to rescale the logits so that the mean variance
            is ``sqrt(K / 2)``, the correction of the paper for large
            variances. For smaller variances, the predictions become
            sharper.

    Example:
        >>> laplace_bridge(torch.zeros(1, 3), torch.eye(3).unsqueeze(0), normalise=False)
        tensor([[1., 1., 1.]])
    """
    classes = mean.shape[-1]
    rows = covariance.sum(-1)  # (N, K)
    total = rows.sum(-1, keepdim=True)
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    noise = torch.finfo(mean.dtype).eps * variance.mean(-1, keepdim=True)
    is_fixed = total <= classes**2 * noise  # the sum is constant
    share = torch.where(is_fixed, 1 / classes, rows / torch.where(is_fixed, 1.0, total))
    mean = mean - share * mean.sum(-1, keepdim=True)
    tiny = torch.finfo(mean.dtype).tiny
    variance = torch.maximum(variance - share * rows, noise.clamp_min(tiny))
    if normalise:
        scale = variance.mean(-1, keepdim=True) / math.sqrt(classes / 2)
        mean, variance = mean / scale.sqrt(), variance / scale
    constant = mean.new_tensor(1 - 2 / classes).log()
    exponential = mean + torch.logsumexp(-mean, -1, keepdim=True) - 2 * math.log(classes)
    log_alpha = torch.logaddexp(constant, exponential) - variance.log()
    log_total = torch.logsumexp(log_alpha, -1, keepdim=True)
    shares = log_alpha - log_total  # before clamp_max, which would lose digits
    alpha = (shares + log_total.clamp_max(math.log(MAX_CONCENTRATION))).exp()
    return alpha.clamp_min(tiny)
