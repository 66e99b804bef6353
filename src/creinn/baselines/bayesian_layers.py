r"""Layers with Gaussian weights: ``local_reparameterization`` and ``flipout``.

The distribution of a weight is :math:`N(\mu, \sigma^2)` with
:math:`\sigma = \operatorname{softplus}(\rho)`. The means are ``weight``
and ``bias``, so that the state dict of an ordinary network can be loaded.
Each call draws a new sample, also in eval mode.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import Parameter

from creinn.nn.registry import register_family
from creinn.numerics import safe_sqrt

INITIAL_STD = 0.05
"""Initial standard deviation of a weight times the root of the fan-in; torch has 0.58."""


class GaussianWeights(nn.Module):
    """Mixin that adds standard deviations to the parameters of a layer."""

    weight: Tensor
    bias: Any  # a Parameter or None
    weight_rho: Parameter
    bias_rho: Parameter | None

    def reset_parameters(self) -> None:
        """Initialize means and standard deviations."""
        super().reset_parameters()  # type: ignore[misc]
        rho = initial_rho(self.weight[0].numel())
        self.weight_rho = Parameter(torch.full_like(self.weight, rho))
        self.bias_rho = None if self.bias is None else Parameter(torch.full_like(self.bias, rho))

    @property
    def weight_std(self) -> Tensor:
        """Standard deviations of the weights."""
        return F.softplus(self.weight_rho)

    @property
    def bias_std(self) -> Tensor | None:
        """Standard deviations of the biases."""
        return None if self.bias_rho is None else F.softplus(self.bias_rho)

    def affine(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Apply the layer with other parameters."""
        if isinstance(self, nn.Linear):
            return F.linear(x, weight, bias)
        return self._conv_forward(x, weight, bias)  # type: ignore[operator]

    def kl(self, prior_std: float) -> Tensor:
        """Return the KL divergence from the prior in nats."""
        prior = Normal(0.0, prior_std, validate_args=False)
        posteriors = [Normal(self.weight, self.weight_std, validate_args=False)]
        if (bias_std := self.bias_std) is not None:
            posteriors.append(Normal(self.bias, bias_std, validate_args=False))
        return torch.stack([kl_divergence(q, prior).sum() for q in posteriors]).sum()


class LocalReparameterization(GaussianWeights):
    """Layer of BNN-R: local reparameterization (Kingma et al. 2015).

    For a convolution, the correlation between positions is ignored, as in
    the paper.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return a sample of the output."""
        mean = self.affine(x, self.weight, self.bias)
        bias_variance = None if self.bias_std is None else self.bias_std.square()
        variance = self.affine(x.square(), self.weight_std.square(), bias_variance)
        return mean + safe_sqrt(variance) * torch.randn_like(mean)


class Flipout(GaussianWeights):
    """Layer of BNN-F: flipout (Wen et al. 2018).

    A call draws one perturbation ``D`` of the weights, and for each
    example ``n`` random signs ``s_n`` of the inputs and ``r_n`` of the
    outputs. The weights ``W + D * outer(r_n, s_n)`` are uncorrelated
    between examples.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return a sample of the output."""
        mean = self.affine(x, self.weight, self.bias)
        weight = self.weight_std * torch.randn_like(self.weight)
        bias = None if self.bias_std is None else self.bias_std * torch.randn_like(self.bias_std)
        return mean + self.affine(x * self._signs(x), weight, bias) * self._signs(mean)

    def _signs(self, x: Tensor) -> Tensor:
        spatial = 0 if isinstance(self, nn.Linear) else self.weight.ndim - 2
        shape = x.shape[: x.ndim - spatial] + (1,) * spatial
        return torch.empty(shape, dtype=x.dtype, device=x.device).bernoulli_(0.5).mul_(2).sub_(1)


class LayerFamily:
    """``Linear`` and convolutions with a mixin, and other layers of torch."""

    def __init__(self, name: str, mixin: type[GaussianWeights]) -> None:
        for kind in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d):
            layer = type(kind.__name__, (mixin, kind), {"__doc__": mixin.__doc__})
            layer.__module__, layer.__qualname__ = __name__, f"{name}.{kind.__name__}"
            setattr(self, kind.__name__, layer)
        register_family(name, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.nn, name)


local_reparameterization = LayerFamily("local_reparameterization", LocalReparameterization)
flipout = LayerFamily("flipout", Flipout)


def initial_rho(fan_in: int) -> float:
    """Return the initial value of ``rho`` for a fan-in."""
    return inverse_softplus(INITIAL_STD / math.sqrt(fan_in))


def inverse_softplus(std: float) -> float:
    """Return ``rho`` with ``softplus(rho) = std``."""
    return std + math.log(-math.expm1(-std))
