r"""Folded layers: an affine interval layer, the batch norm and the ReLU behind it as one, for inference.

In: an interval. Out: the interval that the layers it was made of give, up to rounding.

Between folded layers an interval stays in one tensor, centre :math:`c` and radius :math:`r`, ``(N, 2, C, ...)``. In
eval mode every batch norm is affine in each of them (:func:`norm_maps`), so it goes into the rows of the layer's block
weight (:func:`creinn.nn._nonnegative.nonnegative_rows`). Bounds are not formed: a block weight on bounds would compute
radii as differences, and lose the digits that batch norm needs where intervals are narrow.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.interval import Interval
from creinn.nn import functional as functions
from creinn.nn._nonnegative import by_group, nonnegative_rows, on_blocks
from creinn.nn._onepixel import Product
from creinn.nn._widening import widened
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.families import arguments, build_layer
from creinn.nn.parameters import IntervalParameters
from creinn.nn.relative import RelativeParameters, valid_relative_radius
from creinn.numerics import valid_radius, widen


@dataclass(frozen=True)
class NormMaps:
    """A batch norm in eval mode, channel by channel: an affine map each of centre and radius.

    Attributes:
        scales: Of centre and radius.
        shifts: Of centre and radius.
        magnitude: Whether the radius is the absolute value of what its map gives.
    """

    scales: tuple[Tensor, Tensor]
    shifts: tuple[Tensor, Tensor]
    magnitude: bool


def norm_maps(norm: IntervalBatchNorm) -> NormMaps | None:
    """What ``norm`` does in eval mode; ``None`` if that depends on the batch, or its mode is not known here.

    Example:
        >>> norm = IntervalBatchNorm(1, eps=0.0, mode="sound")
        >>> _ = norm.running_var.fill_(4), norm.running_mean.fill_(6), norm.weight.data.fill_(-1)
        >>> maps = norm_maps(norm)   # centre: -(c - 6) / 2; radius: r / 2
        >>> [t.item() for t in (*maps.scales, *maps.shifts)]
        [-0.5, 0.5, 3.0, 0.0]
    """
    if norm.running_mean is None or norm.running_var is None or norm.mode not in ("paper", "scaled", "sound"):
        return None
    scale = (widen(norm.running_var.detach()) + norm.eps).rsqrt()
    weight = torch.ones_like(scale) if norm.weight is None else norm.weight.detach()
    bias = torch.zeros_like(scale) if norm.bias is None else norm.bias.detach()
    center, radius = (slice(norm.num_features), slice(norm.num_features, None))
    if norm.mode == "sound":
        scale = scale * weight
        shift = bias - norm.running_mean * scale
        return NormMaps((scale, scale.abs()), (shift, torch.zeros_like(shift)), magnitude=False)
    if norm.mode == "scaled":
        weight, bias = (torch.cat((t[center], t[radius].abs())) for t in (weight, bias))
    scale = scale * weight
    shift = bias - norm.running_mean * scale
    return NormMaps((scale[center], scale[radius]), (shift[center], shift[radius]), magnitude=norm.mode == "paper")


class FoldedLayer(torch.nn.Module):
    """An affine interval layer with a batch norm and a ReLU behind it.

    Args:
        layer: The affine layer.
        norm: What the batch norm does, or ``None``.
        relu: Whether a ReLU follows.
        general: Layer, norm and ReLU as they were, for inputs that the folded form is not made for; ``None`` if there
            are none.
    """

    def __init__(
        self, layer: IntervalParameters, norm: NormMaps | None, relu: bool, general: torch.nn.Module | None
    ) -> None:
        super().__init__()
        self.relu = relu
        self.magnitude = norm is not None and norm.magnitude
        self.general = general
        self._ndim = layer.weight.ndim
        with torch.no_grad():
            self._fold(layer, norm)

    def forward(self, x: Interval) -> Interval:
        """Map a batch of intervals."""
        if self.general is not None and not self._takes(x):
            return self.general(x)
        return finish(self._product(x), self.magnitude, self.relu)

    def _fold(self, layer: IntervalParameters, norm: NormMaps | None) -> None:
        raise NotImplementedError

    def _takes(self, x: Interval) -> bool:
        return x.ndim == self._ndim

    def _product(self, x: Interval) -> Tensor:
        """Centre and radius ``(N, 2, O, ...)`` after the norm's affine maps, in memory that nothing else uses."""
        raise NotImplementedError


class FoldedFull(FoldedLayer):
    """Full radii: one block product for intervals known to be ``>= 0``, two products for points."""

    def _fold(self, layer: IntervalParameters, norm: NormMaps | None) -> None:
        self.groups: int = getattr(layer, "groups", 1)
        rows = nonnegative_rows(widen(layer.weight), widen(valid_radius(layer.weight_radius)))
        weights, biases = _normed(rows, _biases(layer), norm)
        bias = None if biases is None else by_group(*biases, self.groups)
        self.block = _ordinary(layer, by_group(*weights, self.groups), bias, times=2)

    def _takes(self, x: Interval) -> bool:
        return super()._takes(x) and (x.is_point or x.nonnegative)

    def _product(self, x: Interval) -> Tensor:
        if not x.is_point:
            return on_blocks(self.block, x.moments, self.groups)
        layer = self.block.layer
        weight, bias = layer.weight, layer.bias
        columns = weight[:, : weight.shape[1] // 2]  # those of the input's centre
        center, radius = (t.flatten(0, 1) for t in columns.unflatten(0, (self.groups, 2, -1)).unbind(1))
        shifts = (None, None) if bias is None else [t.flatten() for t in bias.view(self.groups, 2, -1).unbind(1)]
        operation = F.linear if isinstance(layer, torch.nn.Linear) else layer._conv_forward
        products = (operation(x.lower, center, shifts[0]), operation(x.lower.abs(), radius, shifts[1]))
        return torch.cat(products, 1).unflatten(1, (2, -1))


class FoldedRelative(FoldedLayer):
    """Relative radii: two products, for inputs of any kind."""

    relative_radius: Tensor

    def _fold(self, layer: IntervalParameters, norm: NormMaps | None) -> None:
        assert isinstance(layer, RelativeParameters)
        weight = widen(layer.weight)
        weights, biases = _normed((weight, weight.abs()), _biases(layer), norm)
        shifts = (None, None) if biases is None else biases
        self.center, self.radius = (_ordinary(layer, w, b) for w, b in zip(weights, shifts, strict=True))
        relative = valid_relative_radius(layer.relative_radius).clone()
        self.register_buffer("relative_radius", relative.view(-1, *(1,) * (self._ndim - 2)))

    def _product(self, x: Interval) -> Tensor:
        center, radius = widened(x, self.relative_radius)
        return torch.cat((self.center(center), self.radius(radius)), 1).unflatten(1, (2, -1))


def finish(moments: Tensor, magnitude: bool, relu: bool, nonnegative: bool = False) -> Interval:
    r"""Intervals from centre and radius ``(N, 2, C, ...)``, which are changed in place.

    ReLU without bounds: with :math:`h = \max(c + r, 0)` the new radius is :math:`\min(r, h / 2)`, the new centre
    :math:`h` minus that. No digit of a narrow radius is lost. What is infinite becomes NaN, or stays, as in
    :func:`creinn.nn._moments.relu_moments`.

    Example:
        >>> x = finish(torch.tensor([[[1.0, 1.0, -3.0], [-0.5, 3.0, 1.0]]]), magnitude=True, relu=True)
        >>> x.lower, x.upper   # of [0.5, 1.5], [-2, 4], [-4, -2]
        (tensor([[0.5000, 0.0000, 0.0000]]), tensor([[1.5000, 4.0000, 0.0000]]))
    """
    if magnitude or relu:
        center, radius = moments.select(1, 0), moments.select(1, 1)
        if magnitude:
            radius.abs_()
        if relu:
            high = F.leaky_relu_(center.add_(radius), 0.0)
            radius.clamp_max_(high / 2)
            center.sub_(radius)
    return Interval._new(moments=moments, point=False, nonnegative=nonnegative or relu)


def sum_moments(input: Any, other: Any, relu: bool = False) -> Any:
    """``input + other`` and maybe its ReLU; of two intervals of one shape, by centre and radius. Also on sizes."""
    if isinstance(input, Interval) and isinstance(other, Interval) and not (input.is_point or other.is_point):
        a, b = input.moments, other.moments
        if a.shape == b.shape and a.ndim > 2:
            return finish(a + b, False, relu, input.nonnegative and other.nonnegative)
    total = functions.add(input, other)
    return functions.relu(total) if relu else total


def _biases(layer: IntervalParameters) -> tuple[Tensor, Tensor] | None:
    if layer.bias is None or layer.bias_radius is None:
        return None
    return widen(layer.bias), widen(valid_radius(layer.bias_radius))


def _normed(
    weights: tuple[Tensor, Tensor], biases: tuple[Tensor, Tensor] | None, norm: NormMaps | None
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]:
    """Rows and biases of centre and radius with the norm multiplied into them."""
    if norm is None:
        return weights, biases
    center, radius = (w * s.view(-1, *(1,) * (w.ndim - 1)) for w, s in zip(weights, norm.scales, strict=True))
    if biases is None:
        return (center, radius), norm.shifts
    of_center, of_radius = (b * s + t for b, s, t in zip(biases, norm.scales, norm.shifts, strict=True))
    return (center, radius), (of_center, of_radius)


def _ordinary(layer: IntervalParameters, weight: Tensor, bias: Tensor | None, times: int = 1) -> Product:
    """The ordinary layer of the same kind with this weight and bias, over ``times`` as many channels."""
    options = {**arguments(layer), "bias": bias is not None}
    for name in ("in_features", "out_features", "in_channels", "out_channels"):
        if name in options:
            options[name] *= times
    with torch.device("meta"):
        ordinary: Any = build_layer("ordinary", type(layer).__name__, options)
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None:
            setattr(ordinary, name, torch.nn.Parameter(value.to(layer.weight.dtype), requires_grad=False))
    return Product(ordinary)
