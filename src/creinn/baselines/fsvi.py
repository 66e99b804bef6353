"""Function-space variational inference (FSVI; Rudner et al., NeurIPS 2022).

The weights of the last layer are Gaussian and independent, so the logits
are Gaussian. The loss contains the KL divergence of the logits at context
points. Unlike in the paper, only the last layer is random, batch norm is
in eval mode at the context points, and the training batch is not added to
them.
"""

import inspect
import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creinn.baselines.bayesian_layers import initial_rho
from creinn.baselines.bnn import BNN
from creinn.baselines.snn import check_tensor, last_layer
from creinn.classifier.base import Labelled, evaluating
from creinn.classifier.network import find_logits_layer
from creinn.distance.class_statistics import Sample
from creinn.numerics import check_integers, safe_sqrt

JITTER = 1e-4
"""Fraction of the prior variance added to both covariances."""


class FSVI(BNN):
    """Network with a Gaussian last layer and a Gaussian prior over functions.

    Args:
        network: A module that returns logits and ends in a ``Linear``
            layer, whose parameters are the means.
        samples: Number of functions in a prediction.
        context: The context points: ``"train"`` for the training inputs, a
            tensor, or None if the model is not trained.
        context_points: The number of context points at each step.
        prior_std: Standard deviation of the logits under the prior.
        **options: Other arguments of :class:`creinn.baselines.BNN`.
    """

    def __init__(
        self,
        network: nn.Module,
        samples: int = 10,
        context: Literal["train"] | Tensor | None = "train",
        context_points: int = 32,
        prior_std: float = 10.0,
        **options: Any,
    ) -> None:
        super().__init__(network, samples, prior_std, **options)
        if isinstance(context, str) and context != "train":
            raise ValueError(f"Unknown context {context!r}. Use 'train' or a tensor.")
        check_integers(context_points=context_points)
        self.context, self.context_points = context, context_points
        self._pool = context if isinstance(context, Tensor) else None

    def _start_posterior(self) -> None:
        self.rho = nn.ParameterList(
            torch.full_like(p, initial_rho(p[0].numel() if p.ndim > 1 else len(p)))
            for p in find_logits_layer(self.network).parameters()
        )

    def options(self) -> dict[str, Any]:
        """Return the arguments, with None for a tensor ``context``."""
        _, *names = inspect.signature(BNN).parameters
        return {
            **{name: getattr(self, name) for name in names},
            "temperature": self.temperature.is_on,
            "context": None if isinstance(self.context, Tensor) else self.context,
            "context_points": self.context_points,
        }

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Count the examples and steps, and sample the training inputs."""
        sample = Sample()

        def sampled() -> Iterator[tuple[Tensor, Tensor]]:
            for x, target in data:
                if isinstance(self.context, str):
                    sample.add(check_tensor(x).cpu())
                yield x, target

        super().before_training(sampled(), epochs)
        if isinstance(self.context, str):
            self._pool = sample.rows()

    def normed_logits(self, x: Tensor) -> Tensor:
        """Return samples of the logits ``(S, N, K)``."""
        features, logits = last_layer(self.network, x, len(self.rho) == 2)
        std = safe_sqrt(features.square() @ self._variances().T)
        noise = std.new_empty((1 if self.training else self.samples, *std.shape)).normal_()
        return torch.stack([self.norm(drawn) for drawn in logits + std * noise])

    def kl(self) -> Tensor:
        """Return the KL divergence at random context points."""
        return self.function_kl(self.draw_context())

    def draw_context(self) -> Tensor:
        """Return ``context_points`` random inputs."""
        if self._pool is None:
            advice = "Pass context= or use model.before_training(batches, epochs)."
            raise RuntimeError(f"There are no context points. {advice}")
        chosen = torch.randint(len(self._pool), (self.context_points,), device=self._pool.device)
        return self._pool[chosen].to(self.rho[0])

    def function_kl(self, x: Tensor) -> Tensor:
        """Return the KL divergence of the logits at ``x`` in nats."""
        with torch.autocast(x.device.type, enabled=False):  # for the Cholesky factors
            mean, covariance = self.function_distribution(x)
            jitter = JITTER * self.prior_std**2
            variance = self.prior_std**2 + jitter  # of the prior, N(0, variance * I)
            covariance = covariance + jitter * torch.eye(len(x)).to(mean)
            squares = covariance.diagonal(dim1=1, dim2=2) + mean.square()
            log_roots = torch.linalg.cholesky(covariance).diagonal(dim1=1, dim2=2).log()
            terms = 0.5 * (squares / variance + math.log(variance) - 1) - log_roots
            return terms.sum()

    def function_distribution(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean ``(K, M)`` and covariance of the logits at ``x``."""
        with evaluating(self):
            features, logits = last_layer(self.network, x, len(self.rho) == 2)
            mean = self.norm(logits).T
        covariance = torch.einsum("md,kd,nd->kmn", features, self._variances(), features)
        if isinstance(self.norm, nn.BatchNorm1d):
            assert self.norm.running_var is not None
            scale = self.norm.weight * (self.norm.running_var + self.norm.eps).rsqrt()
            covariance = scale.square().view(-1, 1, 1) * covariance
        return mean, covariance

    def _variances(self) -> Tensor:
        return torch.cat([F.softplus(rho).square().view(len(rho), -1) for rho in self.rho], 1)
