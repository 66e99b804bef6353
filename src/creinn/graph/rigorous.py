r"""LowerUpper that are valid in floating point; see :func:`creinn.compile`.

A CreINN in mode ``"sound"`` is evaluated in float64, and the result of
each layer is widened by a bound of the rounding error. The credal sets
contain the real probabilities of all networks with weights in center ±
radius, for all inputs within the bounds. With a distance, they contain the
softmax of :math:`l + e` for all :math:`|e_k|` up to the real radius.
Weights, statistics, temperature and inputs are exact by definition. The
arithmetic is IEEE with rounding to nearest; subnormal numbers can be
flushed to zero.

In the following, :math:`u = 2^{-53}`, :math:`\gamma_k = ku / (1 - ku)`,
*tiny* is the smallest normal number and :math:`F = 2 \sqrt{\text{tiny}}`.

**Sums.** The error of a computed sum of :math:`n` products, in any order,
fused or not, is at most :math:`\gamma_n \sum |w_i x_i|`, plus tiny for
each underflow. :func:`widen_by_error` adds :math:`g` times the sum of the
magnitudes and :math:`8F`, with :math:`g = ku / (1 - 2ku)` and
:math:`k = n + 40`. The 40 roundings include those of the magnitudes and of
the addition.

**Functions** (exp, log1p, tanh, erf, ...). The relative error in float64
is assumed to be less than :math:`2^{-44}`, a hundred times the documented
error. For a function :math:`x\,h(x)`, the error can also be
:math:`2^{-44}` of :math:`|x|`.

**Affine layers.** The radius of the weight :math:`w_i` is
:math:`v_i = \rho_i + g (|w_i| + \rho_i) + F` instead of :math:`\rho_i`.
The lower bound is the sum of the products of :math:`t_i = w_i - v_i` and
:math:`s_i = w_i + v_i` with the positive and the negative parts of the
bounds. Each term is non-decreasing in :math:`t_i` and non-increasing in
:math:`s_i`. The computed sum is a lower bound, because
:math:`t_i + \gamma |t_i| \le w_i - \rho_i` and
:math:`s_i - \gamma |s_i| \ge w_i + \rho_i`. There is no rounding for terms
that are zero. There is at most one other term for each weight if the
inputs are :math:`\ge 0`, and at most two otherwise. Convolutions in
float64 are such sums, because torch uses a product of matrices.

An overflow results in infinity or NaN, and the credal set of such a row is
vacuous.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from creinn import nn as inn
from creinn.distance.mahalanobis import Distance, nearest_of
from creinn.distance.radius import (
    FAR_WEIGHT,
    MAX_SCORE,
    NUM_NEAR_LAYERS,
    DistanceRadius,
    stack_terms,
)
from creinn.interval import Interval, as_interval, cat
from creinn.nn import functional as functions
from creinn.nn._operations import Matrix, Operation
from creinn.nn._product import by_group, by_sign, on_blocks
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.numerics import logsumexp_others, valid_radius

TINY = 2.0**-1022
FLOOR = 2.0**-510  # F
FUNCTION = 512  # error of a function in roundings: 2 ** -44
_EXACT = (  # layers without rounding
    *(inn.Flatten, inn.Identity, inn.ReLU, inn.ReLU6, inn.Hardtanh),
    *(inn.ZeroPad1d, inn.ZeroPad2d, inn.ZeroPad3d, inn.ReflectionPad2d, inn.ReplicationPad2d),
    *(inn.MaxPool1d, inn.MaxPool2d, inn.AdaptiveMaxPool1d, inn.AdaptiveMaxPool2d),
)
_DROPOUT = (inn.Dropout, inn.Dropout1d, inn.Dropout2d)
_AVERAGE = (inn.AvgPool1d, inn.AvgPool2d, inn.AdaptiveAvgPool1d, inn.AdaptiveAvgPool2d)
_PRODUCT = (inn.GELU, inn.SiLU, inn.Mish, inn.Hardswish)  # functions of the form x h(x)
_MONOTONE = (inn.LeakyReLU, inn.ELU, inn.SELU, inn.Softplus, inn.Sigmoid, inn.Tanh)
_ROUNDED, _SUMS = {"add", "sub", "mul", "truediv"}, {"mean", "sum"}

LowerUpper = tuple[Tensor, Tensor]


# Rounding.


def growth(terms: int) -> float:
    """Return the relative error ``g`` of a sum."""
    share = (terms + 40) * 2.0**-53
    return share / (1 - 2 * share)


def widen_by_error(lower: Tensor, upper: Tensor, magnitude: Tensor, terms: int = 1) -> LowerUpper:
    """Widen the bounds by the error of a sum with this total magnitude."""
    error = growth(terms) * magnitude + 8 * FLOOR
    return lower - error, upper + error


def outward(y: Interval, magnitude: Tensor | None = None, terms: int = 1) -> Interval:
    """Widen an interval by the rounding error of its bounds."""
    magnitude = magnitude_of(y) if magnitude is None else magnitude
    lower, upper = widen_by_error(y.lower, y.upper, magnitude, terms)
    return Interval._of_parts(lower.clamp_min(0) if y.nonnegative else lower, upper, y.nonnegative)


def above(y: Tensor, magnitude: Tensor | None = None, terms: int = 1) -> Tensor:
    """Return an upper bound of a number with the computed value ``y``."""
    return widen_by_error(y, y, y.abs() if magnitude is None else magnitude, terms)[1]


def magnitude_of(x: Interval) -> Tensor:
    """Return the maximum of the absolute values in each interval."""
    return torch.maximum(x.lower.abs(), x.upper.abs())


def exact_double(x: Tensor) -> Tensor:
    """Convert to float64 without flushing subnormal numbers to zero."""
    if not x.is_floating_point() or (x.dtype == torch.float64 and x.device.type == "cpu"):
        return x
    if x.dtype != torch.float32 or x.device.type != "cpu":
        found = f"found {x.dtype} on {x.device}. Call model.float().cpu()"
        raise ValueError(f"Rigorous bounds need float32 or float64 on a CPU, {found}.")
    bits = x.view(torch.int32)
    subnormal = (bits & 0x7FFFFFFF).double() * 2.0**-149
    is_small = (bits & 0x7F800000) == 0
    return torch.where(is_small, torch.where(bits < 0, -subnormal, subnormal), x.double())


def exact_box(x: Interval | Tensor) -> Interval:
    """Convert the bounds of the inputs to float64."""
    return as_interval(x).map_monotone(exact_double)


# Layers and functions.


class _Affine:
    def __init__(self, layer: Any) -> None:
        self.layer, self.groups = layer, getattr(layer, "groups", 1)
        self.blocks: dict[int, LowerUpper] = {}

    def __call__(self, x: Interval) -> Interval:
        layer = self.layer
        if layer.weight.ndim == 2:
            y = self._product(Matrix(), x.reshape(-1, layer.in_features))
            return y.reshape(*x.shape[:-1], layer.out_features)
        batch = x if x.ndim == layer.weight.ndim else x.unsqueeze(0)
        y = self._product(*layer._operation(batch))
        return y if x.ndim == layer.weight.ndim else y.squeeze(0)

    def _product(self, operation: Operation, x: Interval) -> Interval:
        signs = 1 if x.nonnegative else 2
        if signs not in self.blocks:
            self.blocks[signs] = self._block(signs)
        weight, bias = self.blocks[signs]
        parts = x.bounds if x.nonnegative else torch.stack(by_sign(x.lower, x.upper), 1)
        bounds = on_blocks(lambda t: operation(t, weight, bias), parts, self.groups)
        return Interval._of_bounds(bounds)

    def _block(self, signs: int) -> LowerUpper:
        w, radius = self.layer.weight, valid_radius(self.layer.weight_radius)
        v, b, d = rigorous_weights(w, radius, self.layer._biases(), signs)
        low, high, low_, high_ = by_sign(w - v, w + v)
        lower = torch.cat((low, low_, high, high_)[: 2 * signs], 1)
        upper = torch.cat((high_, high, low_, low)[: 2 * signs], 1)
        return by_group(lower, upper, self.groups), by_group(b - d, b + d, self.groups)


def rigorous_weights(
    center: Tensor, radius: Tensor, biases: Sequence[Any], terms: int = 1
) -> tuple[Tensor, ...]:
    """Return the radii ``v``, and the centers and radii of the biases.

    For each weight, at most ``terms`` terms of the sum are not zero.
    """
    zeros = center.new_zeros(len(center))
    b, d = (zeros if t is None else t for t in biases)
    g = growth(terms * center[0].numel())
    v = radius + g * (center.abs() + radius) + FLOOR
    underflow = 8 * FLOOR + 4 * TINY * (center.abs() + v).flatten(1).sum(1)
    return v, b, d + g * (b.abs() + d) + underflow


def _batch_norm(layer: Any, x: Interval) -> Interval:
    """Apply a batch norm; ``scale`` has less than 8 roundings."""
    layer._check_shape(x, False)
    scale = torch.rsqrt(layer.running_var + layer.eps)
    scale = scale if layer.weight is None else scale * layer.weight
    bias = torch.zeros_like(scale) if layer.bias is None else layer.bias
    channels = (-1, *(1,) * (x.ndim - 2))
    mean, scale, bias = (t.view(channels) for t in (layer.running_mean, scale, bias))
    a, b = x.lower - mean, x.upper - mean
    magnitude = (torch.maximum(a.abs(), b.abs()) + FLOOR) * (scale.abs() + FLOOR) + bias.abs()
    a, b = a * scale, b * scale
    y = Interval._of_parts(torch.minimum(a, b) + bias, torch.maximum(a, b) + bias)
    return outward(y, magnitude)


def apply_layer(layer: Any, x: Interval) -> Interval:
    """Apply a batch norm or a layer without weights."""
    if isinstance(layer, IntervalBatchNorm):
        return _batch_norm(layer, x)
    if isinstance(layer, _DROPOUT):
        if layer.training and layer.p > 0:
            raise ValueError("Rigorous bounds require dropout in eval mode.")
        return x
    if isinstance(layer, _AVERAGE):
        size = getattr(layer, "kernel_size", x.shape[-2:])
        terms = math.prod(size) if isinstance(size, tuple) else size**2
        return outward(layer(x), layer(Interval._of_point(magnitude_of(x))).lower, terms)
    if isinstance(layer, inn.Softplus):  # it has a jump
        x = outward(x, terms=FUNCTION)
    if isinstance(layer, _EXACT):
        return layer(x)
    if not isinstance(layer, (*_PRODUCT, *_MONOTONE)):
        raise TypeError(f"{type(layer).__name__} has no rigorous bounds.")
    y = layer(x)
    magnitude = magnitude_of(y) + (magnitude_of(x) if isinstance(layer, _PRODUCT) else 0)
    return outward(y, magnitude, FUNCTION)


class Evaluation(fx.Interpreter):
    """Interpreter of a traced network."""

    def __init__(self, network: fx.GraphModule) -> None:
        super().__init__(network)
        layers = [m for m in network.modules() if isinstance(m, IntervalParameters)]
        self.affine = {layer: _Affine(layer) for layer in layers}

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Apply a layer."""
        layer = self.fetch_attr(target)
        return self.affine[layer](*args) if layer in self.affine else apply_layer(layer, *args)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Apply a function, or the layer that it stands for."""
        x, name = args[0] if args else kwargs.get("input"), functions.TARGETS[target]
        if hasattr(target, "layer"):
            options = {key: value for key, value in kwargs.items() if key != "input"}
            return apply_layer(target.layer(*args[1:], **options), x)
        y = target(*args, **kwargs)
        if not isinstance(y, Interval):
            return y
        if name in _SUMS:
            magnitude = target(Interval._of_point(magnitude_of(x)), *args[1:], **kwargs).lower
            return outward(y, magnitude, x.shape.numel() // max(y.shape.numel(), 1))
        return outward(y) if name in _ROUNDED else y


# Distances.


def radius_bound(
    radius: DistanceRadius, outputs: Sequence[Interval | Tensor], tokens: Sequence[bool]
) -> Tensor:
    """Return upper bounds ``(N,)`` of the real radii of all members.

    The real radius is non-decreasing in each term, and unbounded for 10⁶
    spreads or more. Outputs and radius are in float64, spreads and
    deviations ``> 0``, and shares ``<= 1``. An output with ``tokens`` is
    ``(N, tokens, C)``.
    """
    features = [pooled(as_interval(x), of) for x, of in zip(outputs, tokens, strict=True)]
    boxes = *features, *map(_directions, features[-NUM_NEAR_LAYERS:])
    found = [_distances(one, box) for one, box in zip(radius.distances, boxes, strict=True)]
    z = _standardized(stack_terms(found, len(features)), radius.medians, radius.spreads)
    last = 2 * NUM_NEAR_LAYERS if z.shape[1] > 3 else 2
    parts = z[:, -last:], z[:, :-last].relu()
    sums = (above(part.sum(1), part.abs().sum(1), z.shape[1]) for part in parts)
    near, far = (_standardized(t, *of) for t, of in zip(sums, radius.sums, strict=False))
    z = _standardized(above(near + above(FAR_WEIGHT * far)), *radius.sums[2])
    tail = above(above((-z.abs()).exp(), terms=FUNCTION).log1p(), terms=FUNCTION)
    root = above(tail + z.relu())
    bound = above(above(above(root.square()).square()) * radius.scale)
    return torch.where((z < MAX_SCORE) | (radius.scale == 0), bound, math.inf)  # false for NaN


def _standardized(x: Tensor, median: Tensor, spread: Tensor) -> Tensor:
    return above(above(x - median) / spread)


def pooled(maps: Interval, tokens: bool) -> Interval:
    r"""Return intervals of the mean and the standard deviation of each channel.

    For any :math:`a`, the deviation of the centers :math:`c` is at most
    the root mean square of :math:`c - a`, and smaller by at most
    :math:`|\bar c - a|`. The deviation of a member differs from it by at
    most the deviation of the radii.
    """
    if maps.ndim == 2:
        return maps
    maps = maps.transpose(1, 2) if tokens else maps.flatten(2)
    count, (center, radius) = maps.shape[2], _center_radius(maps)
    mean = center.mean(2)
    off = above(growth(count) * center.abs().mean(2), terms=count)
    residuals = outward(Interval._of_point(center) - mean.unsqueeze(2))
    pair = residuals, Interval._of_point(radius)
    deviation, slack = (outward(_norm(x) / math.sqrt(count)) for x in pair)
    lower = outward(outward(deviation - slack.upper) - off).lower.clamp_min(0)
    deviations = Interval._of_parts(lower, outward(deviation + slack.upper).upper)
    return cat((outward(maps.mean(2), magnitude_of(maps).mean(2), count), deviations), 1)


def _directions(features: Interval) -> Interval:
    """Return the features divided by their norms, which can underflow."""
    lower, upper, norm = features.lower, features.upper, _norm(features).unsqueeze(1)
    low = torch.where(lower < 0, lower / norm.lower, lower / norm.upper)
    high = torch.where(upper > 0, upper / norm.lower, upper / norm.upper)
    return outward(Interval._of_parts(low, high)).map_monotone(lambda t: t.clamp(-1, 1))


def _distances(distance: Distance, features: Interval) -> LowerUpper:
    """Return bounds of the squared and of the relative distance.

    The bound for any class is a bound for the nearest class.
    """
    centered = outward(features - distance.origin)
    along = _matrix_product(centered, distance.directions)
    whitened = outward(along / distance.deviations)
    if distance.directions.shape[0] != distance.directions.shape[1]:
        across = outward(centered - _matrix_product(along, distance.directions.mT))
        whitened = cat((whitened, outward(across / distance.rest)), 1)
    u = _matrix_product(whitened, distance.axes)
    nearest = nearest_of(distance.coordinates, u.center)
    relative = []  # the maximum of a convex function is at an end
    for end in map(Interval._of_point, (u.lower, u.upper)):
        to_mean = _square(outward(end - distance.coordinates[nearest]))
        relative.append(outward(to_mean - outward(_square(end) * distance.shares)).upper)
    squared = _sum(_square(outward(whitened - distance.means[nearest])))
    return squared.upper, _sum(Interval._of_point(torch.maximum(*relative))).upper


def _center_radius(x: Interval) -> LowerUpper:
    center = (x.lower + x.upper) / 2
    return center, above(torch.maximum(x.upper - center, center - x.lower))


def _matrix_product(x: Interval, matrix: Tensor) -> Interval:
    (center, radius), size = _center_radius(x), matrix.abs() + FLOOR
    mid, reach = center @ matrix, radius @ size
    y = Interval._of_parts(mid - reach, mid + reach)
    return outward(y, center.abs() @ size + reach, len(matrix))


def _sum(x: Interval) -> Interval:
    return outward(x.sum(-1), magnitude_of(x).sum(-1), x.shape[-1])


def _square(x: Interval) -> Interval:
    least = torch.maximum(x.lower, -x.upper).clamp_min(0)
    return outward(Interval._of_parts(least.square(), magnitude_of(x).square(), nonnegative=True))


def _norm(x: Interval) -> Interval:
    return outward(_sum(_square(x)).map_monotone(torch.sqrt))


# Probabilities.


def probability_bounds(logits: Interval) -> LowerUpper:
    r"""Return bounds of the softmax of all logits ``(N, K)``.

    One logit belongs to class 1 of two classes. The arguments of the
    sigmoid are :math:`z_k = a_k - p_k - \ln S_k`, where :math:`S_k \ge 1`
    is a sum of :math:`K` terms :math:`e^d`. A term is used if
    :math:`|d| < 746`. Its error is less than
    :math:`746 \cdot 2^{-53} + 2^{-44} < 2^{-42}`, plus the rounding of two
    sums that are at most :math:`K`. The error of :math:`\ln S_k` is
    therefore less than :math:`2^{-40} K + 2^{-50} K^2`. The error of the
    differences is :math:`2^{-50} |z_k|`, which is less than
    :math:`2^{-39}` if :math:`|z_k| < 2048`. Otherwise the sigmoid is 0 or
    1 up to :math:`e^{-2047}`.
    """
    lower, upper, count = logits.lower, logits.upper, logits.shape[1]
    finite = (upper - lower < math.inf).all(1, keepdim=True)
    if count == 1:
        low, high = torch.cat((-upper, lower), 1), torch.cat((-lower, upper), 1)
    else:
        error = 2.0**-39 + 2.0**-40 * count + 2.0**-50 * count**2
        (pivot, rest), (upper_pivot, upper_rest) = logsumexp_others(upper), logsumexp_others(lower)
        low, high = lower - pivot - (rest + error), upper - upper_pivot - (upper_rest - error)
    low, high = low.sigmoid(), high.sigmoid()
    low, high = widen_by_error(low, low, low, FUNCTION)[0], above(high, terms=FUNCTION)
    return torch.where(finite, low.clamp_min(0), 0.0), torch.where(finite, high.clamp_max(1), 1.0)
