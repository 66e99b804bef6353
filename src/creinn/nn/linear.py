"""Interval linear layer: interval features in, interval features out."""

from typing import Any

import torch
from torch import Tensor

from creinn.interval import Interval, as_interval
from creinn.nn._operations import Matrix
from creinn.nn._product import interval_affine
from creinn.nn.parameters import IntervalParameters


class Linear(IntervalParameters, torch.nn.Linear):
    r"""Affine map with interval weights :math:`[c - r,\, c + r]`, :math:`r \ge 0`; arguments as in ``torch.nn.Linear``.

    A sound enclosure for inputs of any sign, exact for points and non-negative intervals; see
    :func:`creinn.nn._product.interval_affine`.

    Example:
        >>> layer = Linear(1, 1)
        >>> _ = layer.load_state_dict({k: torch.ones_like(v) for k, v in layer.state_dict().items()})
        >>> layer(torch.tensor([[-2.0]]))      # [0, 2] * -2 + [0, 2]
        Interval(lower=tensor([[-4.]], ...), upper=tensor([[2.]], ...))
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self._add_radii()

    def forward(self, x: Interval | Tensor) -> Interval:
        """Map ``(..., in_features)`` to ``(..., out_features)``."""
        x = as_interval(x)
        rows = x if x.ndim == 2 else x.reshape(-1, self.in_features)
        y = interval_affine(Matrix(), rows, self.weight, self.weight_radius, self.bias, self.bias_radius)
        return y if x.ndim == 2 else y.reshape(*x.shape[:-1], self.out_features)
