"""Layers of BNN-R with local reparameterization.

The method is the one of Kingma, Salimans and Welling (2015). A layer does not sample the weights
but the output, which has the mean ``W_mean x`` and the variance ``W_std^2 x^2``. It draws a new
sample at each call, also in eval mode. This is exact for a linear layer. For a convolution, the
correlation between positions is ignored, as in the paper. All layers other than ``Linear``,
``Conv1d``, ``Conv2d`` and ``Conv3d`` are the layers of ``torch.nn``.
"""

from typing import Any

import torch
from torch import Tensor

from creinn.baselines.bnn import GaussianWeights, affine_layers, other_layers
from creinn.numerics import safe_sqrt


class LocalReparameterization(GaussianWeights):
    """Layer with Gaussian weights that samples its output."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a sample of the output."""
        mean = self.affine(x, self.weight, self.bias)
        bias_variance = None if self.bias_std is None else self.bias_std.square()
        variance = self.affine(x.square(), self.weight_std.square(), bias_variance)
        return mean + safe_sqrt(variance) * torch.randn_like(mean)


Linear, Conv1d, Conv2d, Conv3d = affine_layers(LocalReparameterization)


def __getattr__(name: str) -> Any:
    return other_layers(name)
