"""BNN-L (Hobbhahn, Kristiadi and Hennig, UAI 2022): a trained network in, a Dirichlet distribution per row out.

The network is trained as an ordinary one. Then the posterior of its last layer is taken as Gaussian about the trained
weights (Laplace), the logits are Gaussian, and the Laplace bridge turns them into a Dirichlet. A norm behind the last
layer is folded into it: then the weights are those of the folded layer, which always has a bias.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.classifier.base import Inputs, evaluating
from creinn.classifier.places import features_and_logits, find_head
from creinn.rivals.dirichlet import DirichletPredictive, laplace_bridge
from creinn.rivals.prediction import Predictive
from creinn.rivals.snn import SNN, points, scale_and_shift, with_ones

GRID = torch.logspace(-4, 4, 81, dtype=torch.float64)
"""Prior precisions that are tried."""


class LaplaceBNN(SNN):
    """Last-layer Laplace approximation with the Laplace bridge; multi-class only.

    Trained as an :class:`SNN`, it predicts as one until :meth:`after_training` (called by ``fit``) has fitted the
    posterior.

    Args:
        network: A module from inputs to ``K >= 3`` logits that ends in a ``torch.nn.Linear``.
        samples: Samples of the Dirichlet that a prediction carries, for ensembles; single predictions use its closed
            forms.
        normalise: Whether the bridge normalises the logits, see :func:`creinn.rivals.dirichlet.laplace_bridge`.
        prior_precision: A number, or ``"marginal-likelihood"`` to maximise that.
        logits: Number of logits ``K``; by default that of the network's last parameter.
        logit_norm: Whether to put batch norm on the logits; prior and posterior are then those of the last layer with
            the trained norm folded in.

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
            raise ValueError(f"Unknown prior_precision {prior_precision!r}; give a number or 'marginal-likelihood'.")
        if not isinstance(prior_precision, str) and not prior_precision > 0:
            raise ValueError(f"prior_precision must be > 0, got {prior_precision}.")
        if samples < 1:
            raise ValueError(f"samples must be at least 1, got {samples}.")
        self.samples = samples
        self.normalise = normalise
        self.prior_precision = prior_precision
        head = self._head
        self.curvature = Kronecker(self.logits, head.in_features + self._has_bias)
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("precision", torch.ones(()))
        self.register_buffer("log_likelihood", torch.zeros(()))
        self.curvature.to(head.weight.device, head.weight.dtype)

    def options(self) -> dict[str, Any]:
        """Constructor arguments apart from the network, as plain values."""
        return {
            **super().options(),
            "samples": self.samples,
            "normalise": self.normalise,
            "prior_precision": self.prior_precision,
        }

    def forward(self, x: Tensor) -> Predictive:
        """Predict as an ordinary network in training and before the posterior is fitted, a Dirichlet per row after."""
        if self.training or not self.fitted:
            return super().forward(x)
        mean, covariance = self.logit_distribution(x)
        return DirichletPredictive(laplace_bridge(mean, covariance, self.normalise), self.samples)

    def after_training(self, x: Inputs, target: Tensor, held_out: Any = None) -> None:
        """Fit the posterior of the last layer to the training data, and the prior precision if it is not given."""
        self.log_likelihood.zero_()
        self.curvature.fit(self._batches(points(x), target))
        self.fitted.fill_(True)
        if not isinstance(self.prior_precision, str):
            self.precision.fill_(self.prior_precision)
            return
        grid = GRID.to(self.precision.device, self.precision.dtype)
        self.precision.copy_(grid[torch.stack([self.log_marginal_likelihood(value) for value in grid]).argmax()])

    def logit_distribution(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``(N, K)`` and covariance ``(N, K, K)`` of the logits under the posterior.

        Norms act in the mode that they are in; the covariance is that of the weights folded by running statistics.
        """
        features, logits = features_and_logits(self.network, x)
        return self.norm(logits), self.curvature.covariance(self._inputs(features), self.precision)

    def log_marginal_likelihood(self, prior_precision: Tensor) -> Tensor:
        r"""Laplace approximation of the evidence, in nats.

        .. math:: \log p(D \mid \theta) - \tfrac12 (\delta |\theta|^2 + \log\det(H + \delta I) - P \log \delta)
        """
        parameters = (p.detach() for p in self._folded() if p is not None)
        squares = torch.stack([p.square().sum() for p in parameters]).sum()
        eigenvalues = self.curvature.eigenvalues
        determinant = (eigenvalues / prior_precision).log1p().sum()
        return self.log_likelihood - 0.5 * (prior_precision * squares + determinant)

    @torch.no_grad()
    def _batches(self, x: Tensor, target: Tensor, batch_size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and probabilities of the training data; adds up their log-likelihood on the way."""
        like = self._head.weight
        with evaluating(self):
            for start in range(0, len(x), batch_size):
                rows = slice(start, start + batch_size)
                features, logits = features_and_logits(self.network, x[rows].to(like))
                logs = F.log_softmax(self.norm(logits), 1)
                self.log_likelihood -= F.nll_loss(logs, target[rows].to(logs.device), reduction="sum")
                yield self._inputs(features), logs.exp()

    @property
    def _head(self) -> Any:
        return find_head(self.network)

    @property
    def _has_bias(self) -> bool:
        return self.logit_norm or self._head.bias is not None

    def _folded(self) -> tuple[Tensor, Tensor | None]:
        """Weight ``(K, D)`` and bias ``(K,)`` of the last layer with the norm, if there is one, folded in."""
        head = self._head
        if not isinstance(self.norm, torch.nn.BatchNorm1d):
            return head.weight, head.bias
        scale, shift = scale_and_shift(self.norm)
        return scale.unsqueeze(1) * head.weight, shift if head.bias is None else scale * head.bias + shift

    def _inputs(self, features: Tensor) -> Tensor:
        return with_ones(features) if self._has_bias else features


class Kronecker(torch.nn.Module):
    """Generalised Gauss-Newton matrix of the weights of a last layer of ``K`` logits and ``D`` features.

    It is the sum over rows of ``kron(diag(p) - p p^T, phi phi^T)``, taken as ``kron(B, A) / N``: ``B`` sums the
    Hessians in the logits, ``A`` the outer products of the features. Both are stored by eigenvectors and eigenvalues,
    so that the prior precision can change afterwards at no cost.
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
        outputs, inputs, count = torch.zeros_like(self.output_vectors), torch.zeros_like(self.input_vectors), 0
        for phi, p in batches:
            outputs += (torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)).sum(0)
            inputs += phi.T @ phi
            count += len(phi)
        for name, factor in (("output", outputs), ("input", inputs / count)):
            values, vectors = torch.linalg.eigh(factor)
            getattr(self, f"{name}_values").copy_(values.clamp_min(0))
            getattr(self, f"{name}_vectors").copy_(vectors)

    @property
    def eigenvalues(self) -> Tensor:
        """Products of the factors' eigenvalues, ``(K, D)``."""
        return torch.outer(self.output_values, self.input_values)

    def covariance(self, features: Tensor, prior_precision: Tensor) -> Tensor:
        """Covariance ``(N, K, K)`` of the logits of features ``(N, D)`` if ``prior_precision * I`` is added."""
        variances = (features @ self.input_vectors).square() @ (1 / (self.eigenvalues + prior_precision)).T  # (N, K)
        return (self.output_vectors * variances.unsqueeze(1)) @ self.output_vectors.T
