"""Layers of BNN-F with flipout (Wen et al. 2018).

A layer draws one perturbation of the weights at each call, also in eval mode, and multiplies it by
random signs for each example. The weights are uncorrelated between examples, and a call computes
two products. All layers other than ``Linear``, ``Conv1d``, ``Conv2d`` and ``Conv3d`` are the layers
of ``torch.nn``.
"""

from typing import Any

import torch
from torch import Tensor

from creinn.baselines.bnn import GaussianWeights, affine_layers, other_layers


class Flipout(GaussianWeights):
    """Layer with Gaussian weights and random signs for each example.

    Let ``D`` be the perturbation of the weights and ``d`` the one of the bias, and let ``s`` be the
    signs of the inputs and ``r`` the signs of the outputs. The weights of row ``n`` are
    ``W + D * outer(r_n, s_n)`` and its bias is ``b + d * r_n``.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return a sample of the output."""
        mean = self.affine(x, self.weight, self.bias)
        weight = self.weight_std * torch.randn_like(self.weight)
        bias = None if self.bias_std is None else self.bias_std * torch.randn_like(self.bias_std)
        return mean + self.affine(x * self._signs(x), weight, bias) * self._signs(mean)

    def _signs(self, x: Tensor) -> Tensor:
        spatial = 0 if isinstance(self, torch.nn.Linear) else self.weight.ndim - 2
        shape = (*x.shape[: x.ndim - spatial], *(1 for _ in range(spatial)))
        return torch.empty(shape, dtype=x.dtype, device=x.device).bernoulli_(0.5).mul_(2).sub_(1)


Linear, Conv1d, Conv2d, Conv3d = affine_layers(Flipout)


def __getattr__(name: str) -> Any:
    return other_layers(name)
