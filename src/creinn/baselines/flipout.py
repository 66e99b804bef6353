"""Layers of BNN-F, named as in ``torch.nn``: Gaussian weights with flipout (Wen et al. 2018).

One perturbation of the weights is drawn per call, in eval mode too, and its signs are flipped per example: a sample of
the weights for every example, uncorrelated across the batch, at the price of two products. Names other than ``Linear``
and ``Conv1d/2d/3d`` are torch's, their parameters points.
"""

from typing import Any

import torch
from torch import Tensor

from creinn.baselines.bnn import GaussianWeights, affine_layers


class Flipout(GaussianWeights):
    """A torch layer with Gaussian weights, perturbed with random signs per example.

    With perturbation ``D`` of the weights and ``d`` of the bias, and signs ``s`` of the inputs and ``r`` of the
    outputs, row ``n`` sees the weights ``W + D * outer(r_n, s_n)`` and the bias ``b + d * r_n``.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map as the torch layer does, with a fresh sample."""
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
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(torch.nn, name)
