"""The weight of the KL term in a variational loss per example: ``1 / N``, warmed up from zero over the first steps."""

import torch
from torch import Tensor


class KLSchedule(torch.nn.Module):
    """Counts optimiser steps and weighs the KL divergence; its state is saved and resumed with the model.

    Args:
        kl_weight: Weight of the KL divergence; 1 is the evidence lower bound, less a tempered posterior.
        warmup: Fraction of all steps over which the weight rises linearly from zero.

    Raises:
        ValueError: If ``kl_weight`` is negative or ``warmup`` outside ``[0, 1]``.
    """

    examples: Tensor
    steps: Tensor
    step: Tensor

    def __init__(self, kl_weight: float = 1.0, warmup: float = 0.25) -> None:
        super().__init__()
        if not kl_weight >= 0:
            raise ValueError(f"kl_weight must be >= 0, got {kl_weight}.")
        if not 0 <= warmup <= 1:
            raise ValueError(f"warmup is a fraction of the training steps, in [0, 1], got {warmup}.")
        self.kl_weight = kl_weight
        self.warmup = warmup
        for name in ("examples", "steps", "step"):
            self.register_buffer(name, torch.zeros((), dtype=torch.long))
        self._started = False  # known to the host, so that a training step need not wait for the device

    def start(self, examples: int, steps: int) -> None:
        """Set the number of training examples and of steps; the step count goes on, as for a model that is resumed."""
        self.examples.fill_(examples)
        self.steps.fill_(steps)
        self._started = examples > 0

    def advance(self) -> None:
        """Count one optimiser step."""
        self.step.add_(1)

    def forward(self) -> Tensor:
        """Weight of the KL divergence in the loss per example, at the present step.

        Raises:
            RuntimeError: If the number of training examples is not known.
        """
        if not self._started and self.examples == 0:
            raise RuntimeError(
                "The KL term is weighed by the number of training examples, which is not known yet: "
                "call model.before_training(x, target, steps) first, as fit does."
            )
        ramp = (self.step + 1) / (self.warmup * self.steps).clamp_min(1)
        return self.kl_weight * ramp.clamp_max(1) / self.examples
