r"""Variational Bayesian networks with Gaussian weights (BNN-R and BNN-F).

The distribution of a weight is :math:`N(\mu, \sigma^2)` with
:math:`\sigma = \operatorname{softplus}(\rho)`. A layer has the parameters ``weight`` and ``bias``,
which are the means, and ``weight_rho`` and ``bias_rho``. The state dict of an ordinary network can
be loaded as the means.
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
from creinn.baselines.snn import SNN, check_tensor
from creinn.classifier.base import Labelled
from creinn.classifier.network import as_logits, run
from creinn.distributed import all_sum

INITIAL_STD = 0.05
"""Initial standard deviation of a weight, times the root of the fan-in; 9 % of that of torch."""


class GaussianWeights(torch.nn.Module):
    """Mixin that adds standard deviations to the parameters of a torch layer."""

    weight: Tensor
    bias: Any  # a Parameter or None
    weight_rho: Parameter
    bias_rho: Parameter | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.weight_rho = Parameter(torch.empty_like(self.weight))
        self.bias_rho = None if self.bias is None else Parameter(torch.empty_like(self.bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the means and the standard deviations."""
        super().reset_parameters()  # type: ignore[misc]
        if not hasattr(self, "weight_rho"):
            return  # called by the constructor of torch
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
        """Apply the linear map or the convolution of the layer with these parameters."""
        if isinstance(self, torch.nn.Linear):
            return F.linear(x, weight, bias)
        return self._conv_forward(x, weight, bias)  # type: ignore[operator]

    def kl(self, prior_std: float) -> Tensor:
        """Return the KL divergence from the prior ``N(0, prior_std ** 2)`` in nats."""
        prior = Normal(0.0, prior_std, validate_args=False)
        pairs: list[Any] = [(self.weight, self.weight_std), (self.bias, self.bias_std)]
        posteriors = [
            Normal(mean, std, validate_args=False) for mean, std in pairs if std is not None
        ]
        return torch.stack([kl_divergence(one, prior).sum() for one in posteriors]).sum()


def affine_layers(mixin: type[GaussianWeights]) -> Iterator[Any]:
    """Yield ``Linear``, ``Conv1d``, ``Conv2d`` and ``Conv3d`` with the mixin."""
    attributes = {"__module__": mixin.__module__, "__doc__": mixin.__doc__}
    for kind in (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d):
        yield type(kind.__name__, (mixin, kind), attributes)


def other_layers(name: str) -> Any:
    """Return a layer of torch, as the ``__getattr__`` of a module of layers."""
    if name.startswith("_"):
        raise AttributeError(f"torch.nn has no layer {name!r}.")
    return getattr(torch.nn, name)


class BNN(SNN):
    """Mean-field variational network, trained with the negative ELBO.

    Args:
        network: A module that returns logits and has layers of
            :mod:`creinn.baselines.local_reparameterization` (BNN-R) or
            :mod:`creinn.baselines.flipout` (BNN-F).
        samples: The number of forward passes of a prediction.
        prior_std: The standard deviation of the prior ``N(0, prior_std ** 2)`` of the parameters.
        kl_weight: The weight of the KL divergence, divided by the number of training examples. The
            loss is the negative ELBO if it is 1. If the network has many more weights than there
            are examples, use a smaller weight (a "cold" posterior) to avoid underfitting.
        warmup: The fraction of the training steps in which the weight increases from zero.
        num_logits, logit_norm, temperature: See :class:`creinn.baselines.SNN`.

    Raises:
        ValueError: If the network has no Gaussian weights, or if a number is out of range.
    """

    step: Tensor

    def __init__(
        self,
        network: torch.nn.Module,
        samples: int = 10,
        prior_std: float = 1.0,
        kl_weight: float = 1.0,
        warmup: float = 0.25,
        num_logits: int | None = None,
        logit_norm: bool = False,
        temperature: bool = False,
    ) -> None:
        super().__init__(network, num_logits, logit_norm, temperature)
        if samples < 1:
            raise ValueError(f"samples must be at least 1, got {samples}.")
        if not prior_std > 0:
            raise ValueError(f"prior_std must be > 0, got {prior_std}.")
        if not kl_weight >= 0:
            raise ValueError(f"kl_weight must be >= 0, got {kl_weight}.")
        if not 0 <= warmup <= 1:
            raise ValueError(f"warmup must be in [0, 1], got {warmup}.")
        self.samples, self.prior_std = samples, prior_std
        self.kl_weight, self.warmup = kl_weight, warmup
        self.num_examples = self.num_steps = 0  # of the training
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self._start_posterior()

    def _start_posterior(self) -> None:
        if not any(isinstance(layer, GaussianWeights) for layer in self.network.modules()):
            raise ValueError(
                "The network has no layer with Gaussian weights. Use the layers of "
                "creinn.baselines.local_reparameterization or creinn.baselines.flipout."
            )

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Count the examples and the steps in one pass over the data."""
        super().before_training(data, epochs)
        sizes = [len(check_tensor(x)) for x, _ in data]
        # the training loop adds a last batch of one row to the batch before it
        is_joined = len(sizes) > 1 and sizes[-1] == 1 < sizes[0]
        self.num_examples = int(all_sum(torch.tensor(sum(sizes), device=self.step.device)))
        self.num_steps = (len(sizes) - is_joined) * epochs

    def after_step(self) -> None:
        """Increase the number of steps."""
        self.step.add_(1)

    def current_kl_weight(self) -> Tensor:
        """Return the weight of the KL divergence in the loss at the current step."""
        if self.num_examples == 0:
            raise RuntimeError(
                "The number of training examples is not known, so the weight of the KL divergence "
                "cannot be computed. Call model.before_training(batches, epochs), or use fit."
            )
        ramp = (self.step + 1) / max(self.warmup * self.num_steps, 1)
        return self.kl_weight * ramp.clamp_max(1) / self.num_examples

    def normed_logits(self, x: Tensor) -> Tensor:
        """Return one sample of the logits in training mode, and ``samples`` in eval mode."""
        drawn = self.draw_logits(x, 1 if self.training else self.samples)
        return torch.stack([self.norm(logits) for logits in drawn])

    def draw_logits(self, x: Tensor, count: int) -> Iterable[Tensor]:
        """Return samples of the logits, each of shape ``(N, K)``, before batch norm."""
        return (as_logits(run(self.network, x), self.num_logits) for _ in range(count))

    def loss(self, prediction: Predictive, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the cross-entropy, plus the weighted KL divergence in training mode."""
        loss = super().loss(prediction, target, weight)
        return loss + self.current_kl_weight() * self.kl() if self.training else loss

    def _check_network(self, network: torch.nn.Module, x: Any) -> None:
        device = next(self.parameters()).device
        # The check does not change the samples of the predictions that follow.
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            super()._check_network(network, x)

    def kl(self) -> Tensor:
        """Return the KL divergence of all Gaussian weights from the prior in nats."""
        layers = [layer for layer in self.network.modules() if isinstance(layer, GaussianWeights)]
        return torch.stack([layer.kl(self.prior_std) for layer in layers]).sum()


def inverse_softplus(std: float) -> float:
    """Return the value ``rho`` with ``softplus(rho) = std``."""
    return std + math.log(-math.expm1(-std))
