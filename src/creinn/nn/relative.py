r"""Interval layers with a relative radius, named as in ``torch.nn``: exact bounds from two products, half the weights.

In: an interval or a tensor (a point). Out: the interval of an affine map with weights :math:`W_{ij} (1 \pm \rho_j)`,
one :math:`\rho_j \in [0, 1)` for each input feature, for convolutions each input channel. Every weight lies anywhere in
its own interval, apart from the others. An extension, not in the paper.

The factor :math:`1 \pm \rho_j` can be moved from the weight to the input, which becomes :math:`c' \pm r' = [\underline
a - \rho |\underline a|,\ \overline a + \rho |\overline a|]`. Its image under the centres, :math:`W c' \pm |W| r'`, is
exact for points, for non-negative and for signed intervals alike. The layers of :mod:`creinn.nn` are more general: here
a weight cannot change its sign, and one whose centre is zero is the point zero. Until such a centre moves, it gives its
relative radius no gradient.

``Linear`` and ``Conv1d/2d/3d`` are of this kind; every other name is that of :mod:`creinn.nn`. A layer has the
parameters ``weight``, ``bias`` (centres), ``bias_radius`` and ``relative_radius`` of shape ``(in_channels,)``; its
``weight_radius``, one radius for each weight as everywhere else, is computed from them.
"""

# mypy: disable-error-code="misc, override"
# Layers take and give Interval where torch's signatures say Tensor.

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from creinn import nn as inn
from creinn.interval import Interval, as_interval, stack_axis
from creinn.nn._operations import Matrix, Operation
from creinn.nn._points import point_product
from creinn.nn._widening import relative_product, widened
from creinn.nn.conv import convolution
from creinn.nn.parameters import IntervalParameters
from creinn.numerics import valid_radius

LARGEST = 1 - 2**-8
"""Relative radii are kept within ``[0, LARGEST]``; the number is exact in every floating dtype, bfloat16 too."""

_START = (0.25, 0.75)


class RelativeParameters(IntervalParameters):
    r"""Mixin for a torch layer with ``weight`` and ``bias``: relative radii of the weights, radii of the biases.

    Centres start as in :mod:`creinn.nn`, biases at ``[0, 0]``. Relative radii are drawn from ``[0.25, 0.75]``, away
    from both ends of their range. In a new layer of :mod:`creinn.nn` radii are on average as large as the magnitudes of
    the centres, which would be a relative radius of 1: at a point, outputs here start about half as wide.
    """

    relative_radius: Parameter

    def _add_weight_radius(self) -> None:
        self.relative_radius = Parameter(self.weight.new_empty(self._inputs))

    def _reset_weight_radius(self) -> None:
        torch.nn.init.uniform_(self.relative_radius, *_START)

    @property
    def _inputs(self) -> int:
        raise NotImplementedError

    @property
    def weight_radius(self) -> Tensor:
        """One radius for each weight, in the shape of ``weight``: its relative radius times its magnitude."""
        relative = valid_relative_radius(self.relative_radius)
        groups = self._inputs // self.weight.shape[1]
        rows = relative.view(groups, 1, -1).expand(-1, len(self.weight) // groups, -1).flatten(0, 1)
        return self.weight.abs() * rows.view(*self.weight.shape[:2], *(1,) * (self.weight.ndim - 2))

    def radii(self) -> dict[str, Parameter]:
        """The radius parameters by name."""
        return {"relative_radius": self.relative_radius, **self._bias_radii()}

    def project_radii_(self) -> None:
        """Clamp the radii to their range, in place."""
        super().project_radii_()
        with torch.no_grad():
            self.relative_radius.clamp_(max=LARGEST)

    def _affine(self, x: Interval, features: int) -> Interval:
        """The exact image of ``x``; ``features`` is the dimension of the input features."""
        if not -x.ndim <= features < x.ndim or x.shape[features] != self._inputs:
            raise ValueError(
                f"{type(self).__name__} expects {self._inputs} features in dimension {features}, "
                f"got shape {tuple(x.shape)}."
            )
        batch = x.unsqueeze(0) if x.ndim < self.weight.ndim else x
        operation, batch = self._operation(batch)
        relative = valid_relative_radius(self.relative_radius).view(-1, *(1,) * (-1 - features))
        biases = self.bias, None if self.bias_radius is None else valid_radius(self.bias_radius)
        if batch.ndim == self.weight.ndim and batch.is_point:
            y = Interval._of_moments(point_product(operation, batch.lower, self.weight, self.weight_radius, *biases))
        elif batch.ndim == self.weight.ndim and batch.nonnegative:
            y = Interval._of_moments(relative_product(operation, batch.moments, self.weight, relative, *biases))
        else:
            center, radius = widened(batch, relative)
            mid, rad = operation(center, self.weight, biases[0]), operation(radius, self.weight.abs(), biases[1])
            y = Interval._of_moments(torch.stack((mid, rad), stack_axis(mid.ndim)))
        return y.squeeze(0) if x.ndim < self.weight.ndim else y

    def _operation(self, x: Interval) -> tuple[Operation, Interval]:
        """What the layer does, and the input as that takes it."""
        raise NotImplementedError


def valid_relative_radius(radius: Tensor) -> Tensor:
    """``radius`` clipped to ``[0, LARGEST]``, with gradient 1 everywhere: what is clipped is valid, and not dead."""
    detached = radius.detach()
    return detached.clamp(0, LARGEST) + (radius - detached)


class Linear(RelativeParameters, torch.nn.Linear):
    r"""Affine map with weights :math:`W_{ij} (1 \pm \rho_j)`; arguments as in ``torch.nn.Linear``.

    Example:
        >>> layer = Linear(1, 1, bias=False)
        >>> layer.weight.data.fill_(2.0), layer.relative_radius.data.fill_(0.5)
        (tensor([[2.]]), tensor([0.5000]))
        >>> layer(Interval(torch.tensor([[-1.0]]), torch.tensor([[3.0]])))      # [1, 3] * [-1, 3]
        Interval(lower=tensor([[-3.]], ...), upper=tensor([[9.]], ...))
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self._add_radii()

    @property
    def _inputs(self) -> int:
        return self.in_features

    def forward(self, x: Interval | Tensor) -> Interval:
        """Map ``(..., in_features)`` to ``(..., out_features)``.

        Raises:
            ValueError: If the number of features is another.
        """
        return self._affine(as_interval(x), -1)

    def _operation(self, x: Interval) -> tuple[Operation, Interval]:
        return Matrix(), x


class _RelativeConv(RelativeParameters, torch.nn.modules.conv._ConvNd):
    """Convolution with relative radii, one for each input channel; takes every argument of torch's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._add_radii()

    @property
    def _inputs(self) -> int:
        return self.in_channels

    def forward(self, x: Interval | Tensor) -> Interval:
        """Map ``(N, in_channels, ...)`` or ``(in_channels, ...)`` to the convolved intervals.

        Raises:
            ValueError: If the number of channels is another.
        """
        return self._affine(as_interval(x), 1 - self.weight.ndim)

    def _operation(self, x: Interval) -> tuple[Operation, Interval]:
        return convolution(self, x)


class Conv1d(_RelativeConv, torch.nn.Conv1d):
    """``torch.nn.Conv1d`` with relative radii."""


class Conv2d(_RelativeConv, torch.nn.Conv2d):
    """``torch.nn.Conv2d`` with relative radii.

    Example:
        >>> layer = Conv2d(4, 8, 3, groups=2)
        >>> layer.relative_radius.shape, layer.weight_radius.shape
        (torch.Size([4]), torch.Size([8, 2, 3, 3]))
    """


class Conv3d(_RelativeConv, torch.nn.Conv3d):
    """``torch.nn.Conv3d`` with relative radii."""


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(inn, name)
