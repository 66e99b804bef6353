r"""Interval layers with relative radii and the names of ``torch.nn``.

The weights are the intervals :math:`W_{ij} (1 \pm \rho_j)`, with one :math:`\rho_j \in [0, 1)` for
each input feature or channel, so a layer has half of the parameters. The factor is applied to the
input: :math:`c' \pm r' = [\underline a - \rho |\underline a|,\ \overline a + \rho |\overline a|]`.
Then the output is :math:`W c' \pm |W| r'`, which needs two products and is exact for inputs of any
sign.

These layers are not part of the paper. They are less general than the layers of :mod:`creinn.nn`: a
weight cannot change its sign, and a weight with center 0 has no gradient. All layers other than
``Linear``, ``Conv1d``, ``Conv2d`` and ``Conv3d`` are the layers of :mod:`creinn.nn`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList, Parameter, Sequential  # noqa: F401 (names of the family)

from creinn.interval import Interval
from creinn.nn import activation, affine, batchnorm, pooling
from creinn.nn._operations import Operation
from creinn.nn._product import relative_affine

MAX_RELATIVE_RADIUS = 1 - 2**-8
"""Largest relative radius, which is exact in all floating dtypes."""


class RelativeParameters(affine._Affine):
    """Mixin with the parameter ``relative_radius`` instead of ``weight_radius``.

    The parameter has the shape ``(in_channels,)``. The initial relative radii are between 0.25 and
    0.75. They are 1 on average in a new layer of :mod:`creinn.nn`, so the initial intervals are
    about half as wide for inputs that are points.
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
        """The radius of each weight: the relative radius times the absolute value."""
        relative = valid_relative_radius(self.relative_radius)
        groups = len(relative) // self.weight.shape[1]
        rows = relative.view(groups, 1, -1).expand(-1, len(self.weight) // groups, -1).flatten(0, 1)
        return self.weight.abs() * rows.view(*self.weight.shape[:2], *(1,) * (self.weight.ndim - 2))

    def project_radii_(self) -> None:
        """Clamp the radii to their range in place."""
        super().project_radii_()
        with torch.no_grad():
            self.relative_radius.clamp_(max=MAX_RELATIVE_RADIUS)

    def _affine(self, operation: Operation, x: Interval, *crop: Any) -> Interval:
        if x.is_point:
            return super()._affine(operation, x)
        relative = valid_relative_radius(self.relative_radius).view(-1, *(1,) * (x.ndim - 2))
        return relative_affine(operation, x, self.weight, relative, self._biases())


def valid_relative_radius(radius: Tensor) -> Tensor:
    """Clamp to ``[0, MAX_RELATIVE_RADIUS]`` with a gradient of 1 everywhere."""
    detached = radius.detach()
    return detached.clamp(0, MAX_RELATIVE_RADIUS) + (radius - detached)


class Linear(RelativeParameters, affine.Linear):
    r"""``torch.nn.Linear`` with weights :math:`W_{ij} (1 \pm \rho_j)`.

    Example:
        >>> layer = Linear(1, 1, bias=False)
        >>> layer.weight.data.fill_(2.0), layer.relative_radius.data.fill_(0.5)
        (tensor([[2.]]), tensor([0.5000]))
        >>> layer(Interval(torch.tensor([[-1.0]]), torch.tensor([[3.0]])))  # [1, 3] * [-1, 3]
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
    for home in (activation, batchnorm, pooling, affine):
        if not name.startswith("_") and hasattr(home, name):
            return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
