"""Variational networks (BNN-R, BNN-F): a network that samples its weights in, samples of distributions out."""

from typing import Any

import torch
from torch import Tensor

from creinn.classifier.base import Inputs
from creinn.classifier.logits import as_logits
from creinn.rivals.gaussian import network_kl
from creinn.rivals.prediction import Predictive
from creinn.rivals.schedule import KLSchedule
from creinn.rivals.snn import SNN, points, predict_logits


class BNN(SNN):
    """Mean-field variational network, trained on the negative ELBO per example.

    BNN-R is built of :mod:`creinn.rivals.local` layers, BNN-F of :mod:`creinn.rivals.flipout` layers.

    In training one sample per forward pass, in eval mode ``samples`` of them. Batch norm keeps point parameters.

    Args:
        network: A module from inputs to logits with Gaussian weights, drawn afresh at every call.
        samples: Forward passes per prediction.
        prior_std: Standard deviation of the prior ``N(0, prior_std ** 2)`` of every weight and bias.
        kl_weight: Weight of the KL divergence; 1 is the ELBO. Deep networks with many more weights than examples
            underfit with 1, since mean-field KL grows with the weights; less is a tempered ("cold") posterior.
        warmup: Fraction of the training steps over which the KL weight rises from zero.
        logits: Number of logits ``K``; by default that of the network's last parameter.
        logit_norm: Whether to put batch norm on the logits.

    Raises:
        ValueError: If the network has no Gaussian weights, or a number is out of range.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        samples: int = 10,
        prior_std: float = 1.0,
        kl_weight: float = 1.0,
        warmup: float = 0.25,
        logits: int | None = None,
        logit_norm: bool = False,
    ) -> None:
        super().__init__(network, logits, logit_norm)
        if samples < 1:
            raise ValueError(f"samples must be at least 1, got {samples}.")
        if not prior_std > 0:
            raise ValueError(f"prior_std must be > 0, got {prior_std}.")
        network_kl(network, prior_std)  # refuses a network without Gaussian weights
        self.samples = samples
        self.prior_std = prior_std
        self.schedule = KLSchedule(kl_weight, warmup)

    def options(self) -> dict[str, Any]:
        """Constructor arguments apart from the network, as plain values."""
        return {
            **super().options(),
            "samples": self.samples,
            "prior_std": self.prior_std,
            "kl_weight": self.schedule.kl_weight,
            "warmup": self.schedule.warmup,
        }

    def before_training(self, x: Inputs, target: Tensor, steps: int) -> None:
        """Take the number of training examples and of steps."""
        self.schedule.start(len(points(x)), steps)

    def after_step(self) -> None:
        """Go on in the KL warm-up."""
        self.schedule.advance()

    def forward(self, x: Tensor) -> Predictive:
        """Predict one distribution per row in training, ``samples`` of them in eval mode."""
        count = 1 if self.training else self.samples
        logits = (as_logits(self.network(x), self.logits) for _ in range(count))
        return predict_logits(torch.stack([self.norm(sample) for sample in logits]))

    def loss(self, prediction: Predictive, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Cross-entropy averaged over samples, plus the weighted KL divergence of the weights in training mode."""
        loss = super().loss(prediction, target, weight)
        return loss + self.schedule() * network_kl(self.network, self.prior_std) if self.training else loss
