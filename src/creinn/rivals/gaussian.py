r"""What variational layers share: independent Gaussian weights and their KL divergence.

A weight is :math:`N(\mu, \sigma^2)` with :math:`\sigma = \operatorname{softplus}(\rho)`. In a layer of this package
``weight`` and ``bias`` are the means, so an ordinary state dict loads into them; ``weight_rho`` and ``bias_rho`` give
the standard deviations. The prior belongs to the model (:class:`creinn.rivals.BNN`), not to the layer.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

INITIAL_STD = 0.05
"""Initial standard deviation of a weight times the square root of its fan-in: 9 % of that of torch's initial means."""


class GaussianWeights(torch.nn.Module):
    """Mixin for a torch layer with ``weight`` and ``bias``: adds their standard deviations.

    The means start as in torch, the standard deviations at ``INITIAL_STD / sqrt(fan_in)``.
    """

    weight: Tensor
    bias: Any  # a Parameter or None
    weight_rho: Parameter
    bias_rho: Parameter | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.weight_rho = Parameter(torch.empty_like(self.weight))
        if self.bias is None:
            self.register_parameter("bias_rho", None)
        else:
            self.bias_rho = Parameter(torch.empty_like(self.bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the means anew and set the standard deviations back."""
        super().reset_parameters()  # type: ignore[misc]
        if not hasattr(self, "weight_rho"):
            return  # called by torch's constructor, before the standard deviations exist
        rho = inverse_softplus(INITIAL_STD / math.sqrt(self.weight[0].numel()))
        torch.nn.init.constant_(self.weight_rho, rho)
        if self.bias_rho is not None:
            torch.nn.init.constant_(self.bias_rho, rho)

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
        total = gaussian_kl(self.weight, self.weight_std, prior_std).sum()
        if self.bias is not None and self.bias_std is not None:
            total = total + gaussian_kl(self.bias, self.bias_std, prior_std).sum()
        return total


def gaussian_kl(mean: Tensor, std: Tensor, prior_std: float) -> Tensor:
    r"""KL divergence of each weight from the prior, in nats.

    .. math::
        KL(N(\mu, \sigma^2) \,\|\, N(0, \sigma_0^2))
        = \frac{\mu^2 + \sigma^2}{2 \sigma_0^2} - \frac12 - \log \frac{\sigma}{\sigma_0}

    Example:
        >>> gaussian_kl(torch.tensor(2.0), torch.tensor(1.0), prior_std=1.0).item()
        2.0
    """
    return (mean.square() + std.square()) / (2 * prior_std**2) - 0.5 - (std / prior_std).log()


def network_kl(network: torch.nn.Module, prior_std: float) -> Tensor:
    """KL divergence of all Gaussian weights in ``network`` from the prior, summed over weights, in nats.

    Raises:
        ValueError: If there is no layer with Gaussian weights.
    """
    parts = [layer.kl(prior_std) for layer in network.modules() if isinstance(layer, GaussianWeights)]
    if not parts:
        raise ValueError(
            "The network has no layer with Gaussian weights. "
            "Build it from creinn.rivals.local or creinn.rivals.flipout."
        )
    return torch.stack(parts).sum()


def inverse_softplus(std: float) -> float:
    """The ``rho`` with ``softplus(rho) = std``."""
    return std + math.log(-math.expm1(-std))
