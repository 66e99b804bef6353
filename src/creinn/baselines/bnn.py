"""Variational Bayesian networks with Gaussian weights (BNN-R and BNN-F)."""

from typing import Any

import torch
from torch import Tensor, nn

from creinn.baselines.bayesian_layers import GaussianWeights
from creinn.baselines.predictive import Predictive
from creinn.baselines.snn import SNN, check_tensor
from creinn.classifier.base import Labelled
from creinn.distributed import all_sum
from creinn.numerics import check_integers


class BNN(SNN):
    """Mean-field variational network, trained with the negative ELBO.

    Args:
        network: A module that returns logits, with layers of
            ``creinn.baselines.local_reparameterization`` (BNN-R) or
            ``creinn.baselines.flipout`` (BNN-F).
        samples: Number of forward passes of a prediction.
        prior_std: Standard deviation of the prior
            ``N(0, prior_std ** 2)``.
        kl_weight: Weight of the KL divergence, divided by the number of
            training examples; 1 for the negative ELBO. A smaller weight
            avoids underfitting if there are more weights than examples.
        warmup: Fraction of the training steps in which the weight
            increases from 0.
        num_logits, logit_norm, temperature: See
            :class:`creinn.baselines.SNN`.
    """

    step: Tensor

    def __init__(
        self,
        network: nn.Module,
        samples: int = 10,
        prior_std: float = 1.0,
        kl_weight: float = 1.0,
        warmup: float = 0.25,
        num_logits: int | None = None,
        logit_norm: bool = False,
        temperature: bool = False,
    ) -> None:
        super().__init__(network, num_logits, logit_norm, temperature)
        check_integers(samples=samples)
        if not (prior_std > 0 and kl_weight >= 0 and 0 <= warmup <= 1):
            expected = "prior_std > 0, kl_weight >= 0 and warmup in [0, 1]"
            raise ValueError(f"Expected {expected}, got {prior_std}, {kl_weight} and {warmup}.")
        self.samples, self.prior_std = samples, prior_std
        self.kl_weight, self.warmup = kl_weight, warmup
        self.num_examples = self.num_steps = 0  # of the training
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self._start_posterior()

    def _start_posterior(self) -> None:
        if not self._gaussian_layers():
            raise ValueError(
                "The network needs Gaussian weights. Use layers of "
                "creinn.baselines.local_reparameterization or .flipout."
            )

    def _gaussian_layers(self) -> list[GaussianWeights]:
        return [layer for layer in self.network.modules() if isinstance(layer, GaussianWeights)]

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Count the examples and the steps in one pass over the data."""
        super().before_training(data, epochs)
        sizes = [len(check_tensor(x)) for x, _ in data]
        self.num_examples = int(all_sum(torch.tensor(sum(sizes), device=self.step.device)))
        self.num_steps = len(sizes) * epochs

    def after_step(self) -> None:
        """Count the step."""
        self.step.add_(1)

    def current_kl_weight(self) -> Tensor:
        """Return the weight of the KL divergence at the current step."""
        if self.num_examples == 0:
            advice = "Use fit or model.before_training(batches, epochs)."
            raise RuntimeError(f"The number of training examples is unknown. {advice}")
        ramp = (self.step + 1) / max(self.warmup * self.num_steps, 1)
        return self.kl_weight * ramp.clamp_max(1) / self.num_examples

    def normed_logits(self, x: Tensor) -> Tensor:
        """Return ``samples`` samples of the logits, or one in training mode."""
        draw = super().normed_logits
        return torch.cat([draw(x) for _ in range(1 if self.training else self.samples)])

    def loss(self, prediction: Predictive, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the cross-entropy, plus the weighted KL in training mode."""
        loss = super().loss(prediction, target, weight)
        return loss + self.current_kl_weight() * self.kl() if self.training else loss

    def _check_network(self, network: nn.Module, x: Any) -> None:
        device = self.step.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            super()._check_network(network, x)

    def kl(self) -> Tensor:
        """Return the KL divergence from the prior in nats."""
        return torch.stack([layer.kl(self.prior_std) for layer in self._gaussian_layers()]).sum()
