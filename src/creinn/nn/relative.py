r"""Interval layers with a relative radius, named as in ``torch.nn``: exact bounds from two products, half the weights.

Weights are :math:`W_{ij} (1 \pm \rho_j)`, apart from each other, with one :math:`\rho_j \in [0, 1)` for each input
feature or channel. The factor moves to the input, then :math:`c' \pm r' = [\underline a - \rho |\underline a|,\
\overline a + \rho |\overline a|]`; its image, :math:`W c' \pm |W| r'`, is exact for any sign. An extension, not in the
paper, and less general than :mod:`creinn.nn`: no weight changes its sign, and one of centre 0 gives no gradient.

``Linear`` and ``Conv1d/2d/3d`` are of this kind; every other name is that of :mod:`creinn.nn`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList, Parameter, Sequential  # noqa: F401 (names of the family)

from creinn.interval import Interval
from creinn.nn import activation, affine, batchnorm, weightless
from creinn.nn._operations import Operation
from creinn.nn._product import relative_affine

LARGEST = 1 - 2**-8
"""Relative radii are kept within ``[0, LARGEST]``; the number is exact in every floating dtype, bfloat16 too."""


class RelativeParameters(affine._Affine):
    """Mixin for an interval layer: the parameter ``relative_radius`` ``(in_channels,)`` in place of ``weight_radius``.

    Relative radii start in ``[0.25, 0.75]``, away from both ends of their range. Those of a new layer of
    :mod:`creinn.nn` are 1 on average: at a point, outputs here start about half as wide.
    """

    relative_radius: Parameter
    _crops = False

    def _add_weight_radius(self) -> None:
        self.relative_radius = Parameter(
            self.weight.new_empty(self.weight.shape[1] * getattr(self, "groups", 1))
        )

    def _reset_weight_radius(self) -> None:
        torch.nn.init.uniform_(self.relative_radius, 0.25, 0.75)

    @property
    def weight_radius(self) -> Tensor:
        """One radius for each weight, in the shape of ``weight``: its relative radius times its magnitude."""
        relative = valid_relative_radius(self.relative_radius)
        groups = len(relative) // self.weight.shape[1]
        rows = relative.view(groups, 1, -1).expand(-1, len(self.weight) // groups, -1).flatten(0, 1)
        return self.weight.abs() * rows.view(*self.weight.shape[:2], *(1,) * (self.weight.ndim - 2))

    def project_radii_(self) -> None:
        """Clamp the radii to their range, in place."""
        super().project_radii_()
        with torch.no_grad():
            self.relative_radius.clamp_(max=LARGEST)

    def _affine(self, operation: Operation, x: Interval, *crop: Any) -> Interval:
        if x.is_point:
            return super()._affine(operation, x)
        relative = valid_relative_radius(self.relative_radius).view(-1, *(1,) * (x.ndim - 2))
        return relative_affine(operation, x, self.weight, relative, self._biases())


def valid_relative_radius(radius: Tensor) -> Tensor:
    """``radius`` clipped to ``[0, LARGEST]``, with gradient 1 everywhere: what is clipped is valid, and not dead."""
    detached = radius.detach()
    return detached.clamp(0, LARGEST) + (radius - detached)


class Linear(RelativeParameters, affine.Linear):
    r"""Affine map with weights :math:`W_{ij} (1 \pm \rho_j)`; arguments as in ``torch.nn.Linear``.

    Example:
        >>> layer = Linear(1, 1, bias=False)
        >>> layer.weight.data.fill_(2.0), layer.relative_radius.data.fill_(0.5)
        (tensor([[2.]]), tensor([0.5000]))
        >>> layer(Interval(torch.tensor([[-1.0]]), torch.tensor([[3.0]])))      # [1, 3] * [-1, 3]
        Interval(lower=tensor([[-3.]], ...), upper=tensor([[9.]], ...))
    """


class Conv1d(RelativeParameters, affine.Conv1d):
    """``torch.nn.Conv1d`` with relative radii."""


class Conv2d(RelativeParameters, affine.Conv2d):
    """``torch.nn.Conv2d`` with relative radii.

    Example:
        >>> layer = Conv2d(4, 8, 3, groups=2)
        >>> layer.relative_radius.shape, layer.weight_radius.shape
        (torch.Size([4]), torch.Size([8, 2, 3, 3]))
    """


class Conv3d(RelativeParameters, affine.Conv3d):
    """``torch.nn.Conv3d`` with relative radii."""


def __getattr__(name: str) -> Any:
    for home in (activation, batchnorm, weightless, affine):
        if not name.startswith("_") and hasattr(home, name):
            return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
