"""Layers of BNN-R, named as in ``torch.nn``: local reparameterisation (Kingma, Salimans and Welling 2015).

A layer samples its pre-activation, not its weights: mean ``W_mean x``, variance ``W_std^2 x^2``, afresh at every call,
in eval mode too. That is exact for rows of a linear layer; of a convolution the correlation of positions that share a
weight is left out, as usual. Names other than ``Linear`` and ``Conv1d/2d/3d`` are torch's, their parameters points.
"""

from typing import Any

import torch
from torch import Tensor

from creinn.baselines.bnn import GaussianWeights, affine_layers
from creinn.numerics import safe_sqrt


class LocalReparameterisation(GaussianWeights):
    """A torch layer with Gaussian weights whose pre-activations are sampled."""

    def forward(self, x: Tensor) -> Tensor:
        """Map as the torch layer does, with a fresh sample."""
        mean = self.affine(x, self.weight, self.bias)
        bias_variance = None if self.bias_std is None else self.bias_std.square()
        variance = self.affine(x.square(), self.weight_std.square(), bias_variance)
        return mean + safe_sqrt(variance) * torch.randn_like(mean)


Linear, Conv1d, Conv2d, Conv3d = affine_layers(LocalReparameterisation)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(torch.nn, name)
