"""BNN-L (Hobbhahn, Kristiadi and Hennig, UAI 2022): a trained network in, a Dirichlet distribution per row out.

The network is trained as an ordinary one. Then the posterior of its last layer is taken as Gaussian about the trained
weights (Laplace), the logits are Gaussian, and the Laplace bridge turns them into a Dirichlet. A norm behind the last
layer is folded into it: then the weights are those of the folded layer, which always has a bias.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.fusion import fuse_linear_bn_weights

from creinn.baselines.predictive import DirichletPredictive, Predictive
from creinn.baselines.snn import SNN, head_inputs, points
from creinn.classifier.base import Labelled, evaluating
from creinn.classifier.network import features_and_logits, find_head
from creinn.ranks import all_sum

GRID = torch.logspace(-4, 4, 81, dtype=torch.float64)  # prior precisions that are tried
GREATEST = (
    1e12  # sum of concentrations: a Dirichlet beyond it is a point, and its numbers would overflow
)


class LaplaceBNN(SNN):
    """Last-layer Laplace approximation with the Laplace bridge; an :class:`SNN` until :meth:`after_training` is called.

    Args:
        network: A module from inputs to ``K >= 3`` logits that ends in a ``torch.nn.Linear``.
        samples: Samples of the Dirichlet that a prediction carries, for ensembles; single predictions need none.
        normalise: Whether the bridge normalises the logits, see :func:`laplace_bridge`.
        prior_precision: A number, or ``"marginal-likelihood"`` to maximise that.
        logits, logit_norm: As for :class:`SNN`.

    Raises:
        ValueError: If the problem is binary, or an option unknown.
    """

    prediction_type = DirichletPredictive
    fitted: Tensor
    precision: Tensor
    log_likelihood: Tensor

    def __init__(
        self,
        network: torch.nn.Module,
        samples: int = 10,
        normalise: bool = True,
        prior_precision: float | Literal["marginal-likelihood"] = "marginal-likelihood",
        logits: int | None = None,
        logit_norm: bool = False,
    ) -> None:
        super().__init__(network, logits, logit_norm)
        if self.logits < 3:
            raise ValueError(
                f"BNN-L needs at least 3 logits, got {self.logits}: the Laplace bridge is for multi-class problems. "
                "Use another method for binary ones."
            )
        if isinstance(prior_precision, str) and prior_precision != "marginal-likelihood":
            raise ValueError(
                f"Unknown prior_precision {prior_precision!r}; give a number or 'marginal-likelihood'."
            )
        if not isinstance(prior_precision, str) and not prior_precision > 0:
            raise ValueError(f"prior_precision must be > 0, got {prior_precision}.")
        if samples < 1:
            raise ValueError(f"samples must be at least 1, got {samples}.")
        self.samples, self.normalise, self.prior_precision = samples, normalise, prior_precision
        head: Any = find_head(network)
        self._has_bias = logit_norm or head.bias is not None
        self.curvature = Kronecker(self.logits, head.in_features + self._has_bias)
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("precision", torch.ones(()))
        self.register_buffer("log_likelihood", torch.zeros(()))
        self.curvature.to(head.weight.device, head.weight.dtype)

    def forward(self, x: Tensor) -> Predictive:
        """Predict as an ordinary network in training and before the posterior is fitted, a Dirichlet per row after."""
        if self.training or not self.fitted:
            return super().forward(x)
        mean, covariance = self.logit_distribution(x)
        return DirichletPredictive(laplace_bridge(mean, covariance, self.normalise), self.samples)

    def after_training(self, data: Labelled, held_out: Labelled | None = None) -> None:
        """Fit the posterior of the last layer to the training data, and the prior precision if it is not given."""
        self.log_likelihood.zero_()
        self.curvature.fit(self._batches(data))
        self.log_likelihood.copy_(all_sum(self.log_likelihood))
        self.fitted.fill_(True)
        if isinstance(self.prior_precision, str):
            grid = GRID.to(self.precision)
            self.precision.copy_(
                grid[torch.stack([self.log_marginal_likelihood(value) for value in grid]).argmax()]
            )
        else:
            self.precision.fill_(self.prior_precision)

    def logit_distribution(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``(N, K)`` and covariance ``(N, K, K)`` of the logits; norms act on the mean in the mode they are in."""
        features, logits = features_and_logits(self.network, x)
        return self.norm(logits), self.curvature.covariance(
            head_inputs(features, self._has_bias), self.precision
        )

    def log_marginal_likelihood(self, prior_precision: Tensor) -> Tensor:
        r"""Laplace approximation of the evidence, in nats.

        .. math:: \log p(D \mid \theta) - \tfrac12 (\delta |\theta|^2 + \log\det(H + \delta I) - P \log \delta)
        """
        parameters = (p.detach() for p in self._folded() if p is not None)
        squares = torch.stack([p.square().sum() for p in parameters]).sum()
        determinant = (self.curvature.eigenvalues / prior_precision).log1p().sum()
        return self.log_likelihood - 0.5 * (prior_precision * squares + determinant)

    @torch.no_grad()
    def _batches(self, data: Labelled) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and probabilities of the training data; adds up their log-likelihood on the way."""
        like: Any = find_head(self.network).weight
        with evaluating(self):
            for x, target in data:
                features, logits = features_and_logits(self.network, points(x).to(like))
                logs = F.log_softmax(self.norm(logits), 1)
                self.log_likelihood -= F.nll_loss(logs, target.to(logs.device), reduction="sum")
                yield head_inputs(features, self._has_bias), logs.exp()

    def _folded(self) -> tuple[Tensor, Tensor | None]:
        """Weight ``(K, D)`` and bias ``(K,)`` of the last layer with the norm, if there is one, folded in."""
        head: Any = find_head(self.network)
        norm: Any = self.norm
        if not self.logit_norm:
            return head.weight, head.bias
        statistics = norm.running_mean, norm.running_var, norm.eps
        return fuse_linear_bn_weights(head.weight, head.bias, *statistics, norm.weight, norm.bias)


class Kronecker(torch.nn.Module):
    """Generalised Gauss-Newton matrix of the weights of a last layer of ``K`` logits and ``D`` features.

    It is the sum over rows of ``kron(diag(p) - p p^T, phi phi^T)``, taken as ``kron(B, A) / N``: ``B`` sums the
    Hessians in the logits, ``A`` the outer products of the features. Eigenvectors and eigenvalues of both are stored.
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
        """Sum the factors over batches of features ``(N, D)`` and probabilities ``(N, K)``."""
        outputs, inputs, count = (
            torch.zeros_like(self.output_vectors),
            torch.zeros_like(self.input_vectors),
            0,
        )
        for phi, p in batches:
            outputs += (torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)).sum(0)
            inputs += phi.T @ phi
            count += len(phi)
        total = all_sum(torch.tensor(count, device=inputs.device))
        for name, factor in (("output", all_sum(outputs)), ("input", all_sum(inputs) / total)):
            values, vectors = torch.linalg.eigh(factor)
            getattr(self, f"{name}_values").copy_(values.clamp_min(0))
            getattr(self, f"{name}_vectors").copy_(vectors)

    @property
    def eigenvalues(self) -> Tensor:
        """Products of the factors' eigenvalues, ``(K, D)``."""
        return torch.outer(self.output_values, self.input_values)

    def covariance(self, features: Tensor, prior_precision: Tensor) -> Tensor:
        """Covariance ``(N, K, K)`` of the logits of features ``(N, D)`` if ``prior_precision * I`` is added."""
        variances = (features @ self.input_vectors).square() @ (
            1 / (self.eigenvalues + prior_precision)
        ).T  # (N, K)
        return (self.output_vectors * variances.unsqueeze(1)) @ self.output_vectors.T


def laplace_bridge(mean: Tensor, covariance: Tensor, normalise: bool = True) -> Tensor:
    r"""Concentrations ``(N, K)`` of the Dirichlet that matches Gaussian logits, covariances ``(N, K, K)``.

    Logits are first conditioned to sum to zero, which loses nothing, since the softmax does not change. Then

    .. math:: \alpha_k = \frac{1}{\Sigma_{kk}} \Bigl(1 - \frac2K + \frac{e^{\mu_k}}{K^2} \sum_l e^{-\mu_l}\Bigr).

    Rows whose sum would exceed :data:`GREATEST` are scaled down to it, which keeps their mean. To ``normalise`` is to
    rescale first so that the mean variance is ``sqrt(K / 2)``, the paper's correction against wrong concentrations at
    large variances. Logits of small variance become more extreme by it.

    Example:
        >>> laplace_bridge(torch.zeros(1, 3), torch.eye(3).unsqueeze(0), normalise=False)   # (1 - 2/3 + 3/9) / (2/3)
        tensor([[1., 1., 1.]])
    """
    classes = mean.shape[-1]
    rows = covariance.sum(-1)  # (N, K)
    total = rows.sum(-1, keepdim=True)
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    noise = torch.finfo(mean.dtype).eps * variance.mean(-1, keepdim=True)
    is_fixed = (
        total <= classes**2 * noise
    )  # the sum is known already, as it is where nothing varies
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
    return (
        (shares + log_total.clamp_max(math.log(GREATEST)))
        .exp()
        .clamp_min(torch.finfo(mean.dtype).tiny)
    )
