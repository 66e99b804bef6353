r"""Variational networks: a network that samples its weights in, samples of distributions out.

A weight is :math:`N(\mu, \sigma^2)` with :math:`\sigma = \operatorname{softplus}(\rho)`. Layers hold the means as
``weight`` and ``bias``, into which an ordinary state dict loads, and ``weight_rho`` and ``bias_rho``.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn import Parameter

from creinn.baselines.predictive import Predictive
from creinn.baselines.snn import SNN, points
from creinn.classifier.base import Labelled
from creinn.classifier.network import as_logits
from creinn.ranks import all_sum

INITIAL_STD = (
    0.05  # of a weight, times the square root of its fan-in: 9 % of that of torch's initial means
)


class GaussianWeights(torch.nn.Module):
    """Mixin for a torch layer: adds standard deviations, at first ``INITIAL_STD / sqrt(fan_in)``, to its parameters."""

    weight: Tensor
    bias: Any  # a Parameter or None
    weight_rho: Parameter
    bias_rho: Parameter | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.weight_rho = Parameter(torch.empty_like(self.weight))
        self.register_parameter(
            "bias_rho", None if self.bias is None else Parameter(torch.empty_like(self.bias))
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the means anew and set the standard deviations back."""
        super().reset_parameters()  # type: ignore[misc]
        if not hasattr(self, "weight_rho"):
            return  # called by torch's constructor
        rho = inverse_softplus(INITIAL_STD / math.sqrt(self.weight[0].numel()))
        for parameter in (self.weight_rho, self.bias_rho):
            if parameter is not None:
                torch.nn.init.constant_(parameter, rho)

    @property
    def weight_std(self) -> Tensor:
        """Standard deviations of the weights."""
        return F.softplus(self.weight_rho)

    @property
    def bias_std(self) -> Tensor | None:
        """Standard deviations of the biases."""
        return None if self.bias_rho is None else F.softplus(self.bias_rho)

    def affine(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer's linear map or convolution, with other parameters."""
        if isinstance(self, torch.nn.Linear):
            return F.linear(x, weight, bias)
        return self._conv_forward(x, weight, bias)  # type: ignore[operator]

    def kl(self, prior_std: float) -> Tensor:
        """KL divergence of weights and biases from the prior ``N(0, prior_std ** 2)``, summed, in nats."""
        prior = Normal(0.0, prior_std, validate_args=False)
        parts = [(self.weight, self.weight_std), (self.bias, self.bias_std)]
        posteriors = [
            Normal(mean, std, validate_args=False) for mean, std in parts if std is not None
        ]
        return torch.stack(
            [kl_divergence(posterior, prior).sum() for posterior in posteriors]
        ).sum()


def affine_layers(mixin: type[GaussianWeights]) -> Iterator[Any]:
    """``Linear``, ``Conv1d``, ``Conv2d`` and ``Conv3d`` of torch with ``mixin`` in front, at home in its module."""
    for kind in (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d):
        yield type(
            kind.__name__, (mixin, kind), {"__module__": mixin.__module__, "__doc__": mixin.__doc__}
        )


class KLSchedule(torch.nn.Module):
    """Weight of the KL divergence in the loss per example: ``kl_weight / N``, from zero over the first steps."""

    examples: Tensor
    steps: Tensor
    step: Tensor

    def __init__(self, kl_weight: float = 1.0, warmup: float = 0.25) -> None:
        super().__init__()
        if not kl_weight >= 0:
            raise ValueError(f"kl_weight must be >= 0, got {kl_weight}.")
        if not 0 <= warmup <= 1:
            raise ValueError(
                f"warmup is a fraction of the training steps, in [0, 1], got {warmup}."
            )
        self.kl_weight, self.warmup = kl_weight, warmup
        for name in ("examples", "steps", "step"):
            self.register_buffer(name, torch.zeros((), dtype=torch.long))
        self._started = (
            False  # known to the host, so that a training step need not wait for the device
        )

    def start(self, examples: int, steps: int) -> None:
        """Set the number of training examples and of steps; the step count goes on, as for a model that is resumed."""
        self.examples.fill_(examples)
        self.steps.fill_(steps)
        self._started = examples > 0

    def forward(self) -> Tensor:
        """The weight at the present step; a ``RuntimeError`` if the number of training examples is not known."""
        if not self._started and self.examples == 0:
            raise RuntimeError(
                "The KL term is weighed by the number of training examples, which is not known yet: "
                "call model.before_training(batches, epochs) first, as fit does."
            )
        ramp = (self.step + 1) / (self.warmup * self.steps).clamp_min(1)
        return self.kl_weight * ramp.clamp_max(1) / self.examples


class BNN(SNN):
    """Mean-field variational network, trained on the negative ELBO per example.

    Args:
        network: A module from inputs to logits with layers of
            :mod:`creinn.baselines.local_reparameterization` (BNN-R) or
            :mod:`creinn.baselines.flipout` (BNN-F). These layers sample at every call.
        samples: Forward passes per prediction.
        prior_std: Standard deviation of the prior ``N(0, prior_std ** 2)`` of every weight and bias.
        kl_weight: Weight of the KL divergence; 1 is the ELBO, with which networks of many more weights than examples
            underfit; less is a tempered ("cold") posterior.
        warmup: Fraction of the training steps over which the KL weight rises from zero.
        logits, logit_norm, temperature: As for :class:`creinn.baselines.SNN`.

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
        temperature: bool = False,
    ) -> None:
        super().__init__(network, logits, logit_norm, temperature)
        if samples < 1:
            raise ValueError(f"samples must be at least 1, got {samples}.")
        if not prior_std > 0:
            raise ValueError(f"prior_std must be > 0, got {prior_std}.")
        self.samples, self.prior_std = samples, prior_std
        self.kl_weight, self.warmup = kl_weight, warmup
        self.schedule = KLSchedule(kl_weight, warmup)
        self._start_posterior()

    def _start_posterior(self) -> None:
        if not any(isinstance(layer, GaussianWeights) for layer in self.network.modules()):
            raise ValueError(
                "The network has no layer with Gaussian weights. "
                "Build it from creinn.baselines.local_reparameterization or creinn.baselines.flipout."
            )

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Count the training examples and steps, in one pass."""
        super().before_training(data, epochs)
        sizes = [len(points(x)) for x, _ in data]
        is_joined = (
            len(sizes) > 1 and sizes[-1] == 1 < sizes[0]
        )  # a last batch of a single row, in training
        examples = int(all_sum(torch.tensor(sum(sizes), device=self.schedule.step.device)))
        self.schedule.start(examples, (len(sizes) - is_joined) * epochs)

    def after_step(self) -> None:
        """Go on in the KL warm-up."""
        self.schedule.step.add_(1)

    def normed_logits(self, x: Tensor) -> Tensor:
        """One sample per row in training, ``samples`` of them in eval mode."""
        drawn = self.draw_logits(x, 1 if self.training else self.samples)
        return torch.stack([self.norm(logits) for logits in drawn])

    def draw_logits(self, x: Tensor, count: int) -> Iterable[Tensor]:
        """``count`` samples of the logits ``(N, K)``, before their norm."""
        return (as_logits(self.network(x), self.logits) for _ in range(count))

    def loss(self, prediction: Predictive, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Cross-entropy averaged over samples, plus the weighted KL divergence in training mode."""
        loss = super().loss(prediction, target, weight)
        return loss + self.schedule() * self.kl() if self.training else loss

    def kl(self) -> Tensor:
        """KL divergence of all Gaussian weights from the prior, summed, in nats."""
        layers = (layer for layer in self.network.modules() if isinstance(layer, GaussianWeights))
        return torch.stack([layer.kl(self.prior_std) for layer in layers]).sum()


def inverse_softplus(std: float) -> float:
    """The ``rho`` with ``softplus(rho) = std``."""
    return std + math.log(-math.expm1(-std))
