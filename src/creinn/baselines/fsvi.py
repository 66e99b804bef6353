"""Function-space variational inference (FSVI; Rudner et al., NeurIPS 2022): a network in, sampled distributions out.

The weights of the last layer are Gaussian and independent, so logits are Gaussian without approximation. The KL
divergence in the loss is that of the logits at context points. Deviations from the paper, on purpose: only the last
layer is random, context points see batch norm in eval mode, and they are not joined with the training batch.
"""

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.baselines.bnn import BNN, INITIAL_STD, inverse_softplus
from creinn.baselines.snn import head_inputs, points
from creinn.classifier.base import Labelled, evaluating
from creinn.classifier.network import features_and_logits, find_head
from creinn.classifier.sample import Sample
from creinn.numerics import safe_sqrt

JITTER = 1e-4  # share of the prior's variance that is added at every point to prior and posterior: keeps both regular


class FSVI(BNN):
    """A network whose last layer has Gaussian weights and whose prior is a Gaussian over functions.

    Args:
        network: An ordinary module from inputs to logits that ends in a ``Linear``; its parameters are the means.
        samples: Sampled functions per prediction.
        context: Context points are drawn from the training inputs (``"train"``) or from this tensor of inputs;
            ``None`` is for a model that is not trained any more.
        context_points: Number ``M`` of context points drawn at each step.
        prior_std: Standard deviation of the prior, under which logits are independent and of mean zero.
        kl_weight, warmup, logits, temperature: As for :class:`creinn.baselines.BNN`.
        logit_norm: Whether to put batch norm on the logits, behind the noise of the weights; its parameters are points.

    Raises:
        ValueError: If the context is unknown, a number out of range, or there is no ``Linear``.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        samples: int = 10,
        context: Literal["train"] | Tensor | None = "train",
        context_points: int = 32,
        prior_std: float = 10.0,
        kl_weight: float = 1.0,
        warmup: float = 0.25,
        logits: int | None = None,
        logit_norm: bool = False,
        temperature: bool = False,
    ) -> None:
        super().__init__(
            network, samples, prior_std, kl_weight, warmup, logits, logit_norm, temperature
        )
        if isinstance(context, str) and context != "train":
            raise ValueError(f"Unknown context {context!r}; give 'train' or a tensor of inputs.")
        if context_points < 1:
            raise ValueError(f"context_points must be at least 1, got {context_points}.")
        self.context, self.context_points = context, context_points
        self._pool = context if isinstance(context, Tensor) else None

    def _start_posterior(self) -> None:
        """Standard deviations of the last layer, as in new Gaussian layers; a bias counts outputs as its fan-in."""
        head = find_head(self.network)
        starts = [(p, p[0].numel() if p.ndim > 1 else len(p)) for p in head.parameters()]
        rho = [
            torch.full_like(p, inverse_softplus(INITIAL_STD / math.sqrt(fan_in)))
            for p, fan_in in starts
        ]
        self.rho = torch.nn.ParameterList(map(torch.nn.Parameter, rho))

    def options(self) -> dict[str, Any]:
        """The constructor's arguments after the network; a tensor of context points is left out."""
        options = super().options()
        return {**options, "context": None} if isinstance(self.context, Tensor) else options

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Count examples and steps, and take the context points: all training inputs, or a sample of very many."""
        sample = Sample()

        def met() -> Iterator[tuple[Tensor, Tensor]]:
            for x, target in data:
                if isinstance(self.context, str):
                    sample.add(points(x).cpu())
                yield x, target

        super().before_training(met(), epochs)
        if isinstance(self.context, str):
            self._pool = sample.rows()

    def draw_logits(self, x: Tensor, count: int) -> Tensor:
        """Samples ``(count, N, K)`` of the logits; each row is drawn by itself."""
        features, logits = features_and_logits(self.network, x)
        std = safe_sqrt(head_inputs(features, len(self.rho) == 2).square() @ self._variances().T)
        return logits + std * torch.randn(
            (count, *logits.shape), dtype=std.dtype, device=std.device
        )

    def kl(self) -> Tensor:
        """KL divergence at fresh context points."""
        return self.function_kl(self.draw_context())

    def draw_context(self) -> Tensor:
        """Draw ``context_points`` inputs from the source; a ``RuntimeError`` if it is not known."""
        if self._pool is None and self.context is None:
            raise RuntimeError(
                "There is no source of context points: pass context= to train this model."
            )
        if self._pool is None:
            raise RuntimeError(
                "Context points come from the training data, which are not known yet: "
                "call model.before_training(batches, epochs) first, as fit does."
            )
        rows = self._pool[
            torch.randint(len(self._pool), (self.context_points,), device=self._pool.device)
        ]
        return rows.to(self.rho[0])

    def function_kl(self, x: Tensor) -> Tensor:
        """KL divergence of the logits from their prior at inputs ``x``, summed over outputs, in nats."""
        with torch.autocast(x.device.type, enabled=False):  # Cholesky factors need full precision
            mean, covariance = self.function_distribution(x)
            jitter, count = JITTER * self.prior_std**2, len(x)
            variance = self.prior_std**2 + jitter  # of the prior, N(0, variance * I)
            covariance = covariance + jitter * torch.eye(
                count, dtype=mean.dtype, device=mean.device
            )
            squares = covariance.diagonal(dim1=1, dim2=2).sum(1) + mean.square().sum(1)
            log_roots = torch.linalg.cholesky(covariance).diagonal(dim1=1, dim2=2).log().sum(1)
            return (
                0.5 * (squares / variance - count + count * math.log(variance)) - log_roots
            ).sum()

    def function_distribution(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``(K, M)`` and covariance ``(K, M, M)`` of the logits at ``x``, with norms in eval mode."""
        with evaluating(self):
            features, logits = features_and_logits(self.network, x)
            mean = self.norm(logits).T
        features = head_inputs(features, len(self.rho) == 2)
        covariance = torch.einsum("md,kd,nd->kmn", features, self._variances(), features)
        if isinstance(self.norm, torch.nn.BatchNorm1d):
            assert self.norm.running_var is not None  # our norms track statistics
            scale = self.norm.weight * (self.norm.running_var + self.norm.eps).rsqrt()
            covariance = scale.square().view(-1, 1, 1) * covariance
        return mean, covariance

    def _variances(self) -> Tensor:
        """Variances of weight and bias, if there is one, as one matrix ``(K, D)``."""
        variances = [F.softplus(rho).square() for rho in self.rho]
        return torch.cat([v if v.ndim == 2 else v.unsqueeze(1) for v in variances], 1)
