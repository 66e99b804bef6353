r"""Interval layers with relative radii and the names of ``torch.nn``.

These layers are not in the paper. The weights are
:math:`W_{ij} (1 \pm \rho_j)`, with one :math:`\rho_j \in [0, 1)` for each
input feature or channel, so a layer has about half of the parameters. The
factor is applied to the input:
:math:`c' \pm r' = [\underline a - \rho |\underline a|,\ \overline a + \rho |\overline a|]`.
Then the output is :math:`W c' \pm |W| r'`, which is exact for inputs of
any sign. The weights do not change their signs, and a weight with center 0
is a point.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Module, ModuleList, Parameter, Sequential  # noqa: F401

from creinn.interval import Interval
from creinn.nn import affine
from creinn.nn._operations import Operation, interval_version
from creinn.nn._product import relative_affine
from creinn.nn.activation import *  # noqa: F403
from creinn.nn.batchnorm import *  # noqa: F403
from creinn.nn.pooling import *  # noqa: F403

MAX_RELATIVE_RADIUS = 1 - 2**-8
"""Largest relative radius, which is exact in bfloat16."""


class RelativeParameters(affine.IntervalParameters):
    """Mixin with a ``relative_radius`` ``(in_channels,)``.

    The initial values are between 0.25 and 0.75.
    """

    relative_radius: Parameter
    _crops = False

    def _add_weight_radius(self) -> None:
        channels = self.weight.shape[1] * getattr(self, "groups", 1)
        self.relative_radius = Parameter(self.weight.new_empty(channels))

    def _reset_weight_radius(self) -> None:
        nn.init.uniform_(self.relative_radius, 0.25, 0.75)

    @property
    def weight_radius(self) -> Tensor:
        """The relative radius times the absolute value of the weight."""
        outputs, inputs, *kernel = self.weight.shape
        relative = valid_relative_radius(self.relative_radius).view(-1, inputs)  # by group
        rows = relative.repeat_interleave(outputs // len(relative), 0)
        return self.weight.abs() * rows.view(outputs, inputs, *(1 for _ in kernel))

    def project_radii_(self) -> None:
        """Clamp the radii to the valid range in place."""
        super().project_radii_()
        with torch.no_grad():
            self.relative_radius.clamp_(max=MAX_RELATIVE_RADIUS)

    def _affine(self, operation: Operation, x: Interval, window: Any = None) -> Interval:
        if x.is_point:
            return super()._affine(operation, x)
        relative = valid_relative_radius(self.relative_radius).view(-1, *(1,) * (x.ndim - 2))
        return relative_affine(operation, x, self.weight, relative, self._biases())


def valid_relative_radius(radius: Tensor) -> Tensor:
    """Clamp to ``[0, MAX_RELATIVE_RADIUS]`` with a gradient of 1."""
    detached = radius.detach()
    return detached.clamp(0, MAX_RELATIVE_RADIUS) + (radius - detached)


class Linear(RelativeParameters, affine.Linear):
    r"""``torch.nn.Linear`` with weights :math:`W_{ij} (1 \pm \rho_j)`.

    Example:
        >>> layer = Linear(1, 1, bias=False)
        >>> layer.weight.data.fill_(2.0), layer.relative_radius.data.fill_(0.5)
        (tensor([[2.]]), tensor([0.5000]))
        >>> layer(Interval([[-1.0]], [[3.0]]))  # [1, 3] * [-1, 3]
        Interval(lower=tensor([[-3.]], ...), upper=tensor([[9.]], ...))
    """


Conv1d = interval_version(RelativeParameters, affine.Conv1d)
Conv2d = interval_version(RelativeParameters, affine.Conv2d)
Conv3d = interval_version(RelativeParameters, affine.Conv3d)
