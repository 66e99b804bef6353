r"""Bounds that are valid in floating point; see :func:`creinn.compile`.

The input is a CreINN in mode ``"sound"`` with an interval network, or an ensemble of them. The
credal sets of the result contain the probabilities in real numbers of every network with weights
in center ± radius, for every input within its bounds. With a distance, they contain the softmax of
:math:`l + e` for every :math:`|e_k|` up to the real radius. The weights, statistics, temperature
and inputs are assumed to be exact.

The traced network is evaluated in float64, layer by layer. Each result is widened by a bound of the
rounding error. See ``graph/outward.py`` for the notation.

**Affine layers.** The error is included in the weights. The radius of the weight :math:`w_i` is
:math:`v_i = \rho_i + g (|w_i| + \rho_i) + F` instead of :math:`\rho_i`. For a point, the computed
:math:`\sum v_i |x_i|` is a bound of the radius and of the errors of both sums, because
:math:`|w_i| + v_i \le (1 + g)(|w_i| + \rho_i) + F` and :math:`g \ge (1 + g)\,\gamma_{k - 30}`. For
an interval, the lower bound is the sum of the products of :math:`t_i = w_i - v_i` and
:math:`s_i = w_i + v_i` with the positive and the negative parts of the bounds. Each term is
non-decreasing in :math:`t_i` and non-increasing in :math:`s_i`. The computed sum is a lower bound,
because :math:`t_i + \gamma |t_i| \le w_i - \rho_i` and
:math:`s_i - \gamma |s_i| \ge w_i + \rho_i`. There is no rounding for terms that are zero. There is
at most one other term for each weight if the inputs are :math:`\ge 0`, and at most two otherwise.

Convolutions in float64 are sums of products, because torch uses a product of matrices. The result
of an overflow is infinity or NaN. The credal set of such a row is vacuous.
"""

import copy
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx

from creinn import nn as inn
from creinn.classifier.base import Inputs
from creinn.classifier.creinn import CredalClassifier, CreINN, Ensemble
from creinn.classifier.network import HEAD, TOKENS, as_logits, find_logits_layer
from creinn.credal.credal_set import CredalSet
from creinn.graph.fold import input_node, output_node
from creinn.graph.outward import (
    FLOOR,
    FUNCTION,
    TINY,
    Bounds,
    above,
    exact_box,
    exact_double,
    growth,
    magnitude_of,
    outward,
    widen_by_error,
)
from creinn.graph.outward_distance import radius_bound
from creinn.graph.trace import trace
from creinn.interval import Interval
from creinn.nn import functional as functions
from creinn.nn._operations import Matrix, Operation
from creinn.nn._product import by_group, on_blocks
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.families import known_families
from creinn.numerics import logsumexp_others, valid_radius

_EXACT = (  # layers that do not round
    *(inn.Flatten, inn.Identity, inn.ReLU, inn.ReLU6, inn.Hardtanh),
    *(inn.ZeroPad1d, inn.ZeroPad2d, inn.ZeroPad3d, inn.ReflectionPad2d, inn.ReplicationPad2d),
    *(inn.MaxPool1d, inn.MaxPool2d, inn.AdaptiveMaxPool1d, inn.AdaptiveMaxPool2d),
)
_DROPOUT = (inn.Dropout, inn.Dropout1d, inn.Dropout2d)
_AVERAGE = (inn.AvgPool1d, inn.AvgPool2d, inn.AdaptiveAvgPool1d, inn.AdaptiveAvgPool2d)
_PRODUCT = (inn.GELU, inn.SiLU, inn.Mish, inn.Hardswish)  # functions of the form x h(x)
_MONOTONE = (inn.LeakyReLU, inn.ELU, inn.SELU, inn.Softplus, inn.Sigmoid, inn.Tanh)
_ROUNDED = {"add", "sub", "mul", "truediv"}
_SUMS = {"mean", "sum"}


# Layers and functions.


class _Affine:
    """An affine layer with weights that are prepared once for each kind of input."""

    def __init__(self, layer: Any) -> None:
        self.layer, self.groups = layer, getattr(layer, "groups", 1)
        self.center, self.radius = layer.weight, valid_radius(layer.weight_radius)

    def __call__(self, x: Interval) -> Interval:
        layer: Any = self.layer
        if layer.weight.ndim == 2:
            layer._check_features(x, -1, layer.in_features)
            y = self._product(Matrix(), x.reshape(-1, layer.in_features))
            return y.reshape(*x.shape[:-1], layer.out_features)
        layer._check_features(x, 1 - layer.weight.ndim, layer.in_channels)
        batch = x if x.ndim == layer.weight.ndim else x.unsqueeze(0)
        y = self._product(*layer._operation(batch))
        return y if x.ndim == layer.weight.ndim else y.squeeze(0)

    def _product(self, operation: Operation, x: Interval) -> Interval:
        if x.is_point:
            w, v, b, d = self._of_points
            center, radius = operation(x.lower, w, b), operation(x.lower.abs(), v, d)
            return Interval._of_parts(center - radius, center + radius)
        if x.nonnegative:
            return self._by_sign(operation, (x.lower, x.upper), *self._of_nonnegative)
        parts = (t.clamp(*ends) for ends in ((0, None), (None, 0)) for t in (x.lower, x.upper))
        return self._by_sign(operation, parts, *self._of_any)

    def _by_sign(
        self, operation: Operation, parts: Iterable[Tensor], weight: Tensor, bias: Tensor
    ) -> Interval:
        stacked = torch.stack(tuple(parts), 1)
        bounds = on_blocks(lambda t: operation(t, weight, bias), stacked, self.groups)
        return Interval._of_bounds(bounds)

    @cached_property
    def _of_points(self) -> tuple[Tensor, ...]:
        return _rigorous_weights(self.center, self.radius, self.layer._biases())

    @cached_property
    def _of_nonnegative(self) -> Bounds:
        return self._block(1)

    @cached_property
    def _of_any(self) -> Bounds:
        return self._block(2)

    def _block(self, signs: int) -> Bounds:
        """Return the weights and biases for the bounds of the output."""
        w, v, b, d = _rigorous_weights(self.center, self.radius, self.layer._biases(), signs)
        (low, low_), (high, high_) = (
            (t.clamp_min(0), t.clamp_max(0)) for t in (w - v, w + v)
        )  # the positive and the negative part of each bound
        lower = torch.cat((low, low_, high, high_)[: 2 * signs], 1)
        upper = torch.cat((high_, high, low_, low)[: 2 * signs], 1)
        return by_group(lower, upper, self.groups), by_group(b - d, b + d, self.groups)


def _rigorous_weights(
    center: Tensor, radius: Tensor, biases: Sequence[Any], terms: int = 1
) -> tuple[Tensor, ...]:
    """Return the weights ``w`` and ``v`` and the biases.

    ``terms`` is the number of terms of the sum that are not zero for each weight.
    """
    zeros = center.new_zeros(len(center))
    b, d = (zeros if t is None else t for t in biases)
    g = growth(terms * center[0].numel())
    v = radius + g * (center.abs() + radius) + FLOOR
    underflow = 8 * FLOOR + 4 * TINY * (center.abs() + v).flatten(1).sum(1)
    return center, v, b, d + g * (b.abs() + d) + underflow


def _batch_norm(layer: Any, x: Interval) -> Interval:
    """Apply a batch norm in eval mode; ``scale`` has less than 8 roundings."""
    layer._check_shape(x, False)
    scale = torch.rsqrt(layer.running_var + layer.eps)
    scale = scale if layer.weight is None else scale * layer.weight
    bias = torch.zeros_like(scale) if layer.bias is None else layer.bias
    mean, scale, bias = (
        t.view(-1, *(1,) * (x.ndim - 2)) for t in (layer.running_mean, scale, bias)
    )
    a, b = x.lower - mean, x.upper - mean
    magnitude = torch.maximum(a.abs(), b.abs()).add_(FLOOR).mul_(scale.abs() + FLOOR)
    a, b = a.mul_(scale), b.mul_(scale)
    bounds = torch.minimum(a, b).add_(bias), torch.maximum(a, b).add_(bias)
    return Interval._of_parts(*widen_by_error(*bounds, magnitude.add_(bias.abs())))


def _apply_layer(layer: Any, x: Interval) -> Interval:
    """Apply a batch norm or a layer without weights."""
    if isinstance(layer, IntervalBatchNorm):
        return _batch_norm(layer, x)
    if isinstance(layer, _DROPOUT):
        if layer.training and layer.p > 0:
            raise ValueError("Dropout in training has no rigorous bounds; pass training=False.")
        return x
    if isinstance(layer, _AVERAGE):
        size = getattr(layer, "kernel_size", x.shape[-2:])
        terms = math.prod(size) if isinstance(size, tuple) else size**2
        return outward(layer(x), layer(Interval._of_point(magnitude_of(x))).lower, terms)
    if isinstance(layer, inn.Softplus):  # it has a jump, so that both ends are needed nearby
        x = outward(x, terms=FUNCTION)
    if isinstance(layer, _EXACT):
        return layer(x)
    if not isinstance(layer, (*_PRODUCT, *_MONOTONE)):
        raise TypeError(f"{type(layer).__name__} has no rigorous bounds.")
    y = layer(x)
    magnitude = magnitude_of(y)
    if isinstance(layer, _PRODUCT):
        magnitude = magnitude + magnitude_of(x)
    return outward(y, magnitude, FUNCTION)


class _Evaluation(fx.Interpreter):
    """Interpreter of the nodes of a traced network."""

    def __init__(self, network: fx.GraphModule, products: dict[Any, _Affine]) -> None:
        super().__init__(network)
        self.products = products

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Apply a layer."""
        layer = self.fetch_attr(target)
        return (
            self.products[layer](args[0])
            if layer in self.products
            else _apply_layer(layer, args[0])
        )

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Apply a function; a function of a layer without weights is applied as the layer."""
        x, name = args[0] if args else kwargs.get("input"), functions.TARGETS[target]
        if hasattr(target, "layer"):
            given = {key: value for key, value in kwargs.items() if key != "input"}
            return _apply_layer(target.layer(*args[1:], **given), x)
        y = target(*args, **kwargs)
        if not isinstance(y, Interval):
            return y  # a size
        if name in _SUMS:
            of_magnitude = target(Interval._of_point(magnitude_of(x)), *args[1:], **kwargs)
            return outward(y, of_magnitude.lower, x.shape.numel() // max(y.shape.numel(), 1))
        return outward(y) if name in _ROUNDED else y


# Models.


class _Member:
    """A CreINN in float64 that returns the bounds of the probabilities."""

    def __init__(self, model: CreINN) -> None:
        _check_model(model)
        self.model = copy.deepcopy(model)._apply(exact_double).requires_grad_(False).eval()
        network, head = torch.nn.Sequential(self.model.network), self.model.logits_layer
        self.radius = self.model.distance_radius
        self.places = () if self.radius is None else self.model.feature_layers or ()
        traced = trace(network, known_families())
        wanted = [
            input_node(find_logits_layer(self.model.network, head), traced)
            if place == HEAD
            else output_node(f"0.{place.removesuffix(TOKENS)}", network, traced.graph)
            for place in self.places
        ]
        output = next(node for node in traced.graph.nodes if node.op == "output")
        logits = output.args[0] if head is None else output_node(f"0.{head}", network, traced.graph)
        output.args = ((*wanted, logits),)
        self.network = traced.module().eval()
        affine = {one for one in traced.layers.values() if isinstance(one, IntervalParameters)}
        self.products = {layer: _Affine(layer) for layer in affine}

    def logits(self, x: Interval) -> tuple[list[Any], Interval]:
        """Return the outputs at the places of the distance, and the logits after the norm."""
        *outputs, logits = _Evaluation(self.network, self.products).run(x)
        logits = _apply_layer(self.model.norm, as_logits(logits, self.model.num_logits))
        is_on, value = self.model.temperature.is_on, self.model.temperature.value
        return outputs, outward(logits / value) if is_on else logits

    def __call__(self, x: Interval) -> tuple[Bounds, Tensor | None]:
        """Return bounds of the probabilities, and the label if they do not define it."""
        outputs, logits = self.logits(x)
        if self.radius is None:
            return probability_bounds(logits), None
        tokens = [place.endswith(TOKENS) for place in self.places]
        added = radius_bound(self.radius, outputs, tokens).unsqueeze(1)
        wide = outward(Interval._of_parts(logits.lower - added, logits.upper + added))
        return probability_bounds(wide), CredalSet._wrap(*probability_bounds(logits)).label


def _check_model(model: CreINN) -> None:
    if not model.is_interval:
        raise ValueError(
            "Rigorous bounds need an interval network, found an ordinary one. Make its interval "
            "twin with creinn.convert(network, 1e-30, 'sound'), and fit the distance to that."
        )
    norms = [layer for layer in model.modules() if isinstance(layer, IntervalBatchNorm)]
    modes = {model.mode, *(layer.mode for layer in norms)} - {"sound"}
    if modes:
        raise ValueError(
            f"Rigorous bounds need mode 'sound', found {modes.pop()!r}. Set model.mode = 'sound'."
        )
    model.check_fitted()


def probability_bounds(logits: Interval) -> Bounds:
    r"""Return a box that contains the softmax of all logits ``(N, K)``.

    If there is one logit, it is the logit of class 1 of two classes. The arguments of the sigmoid
    are :math:`z_k = a_k - p_k - \ln S_k`, where :math:`S_k \ge 1` is a sum of :math:`K` terms
    :math:`e^d`. A term is used if :math:`|d| < 746`. Its error is less than
    :math:`746 \cdot 2^{-53} + 2^{-44} < 2^{-42}`, plus the rounding of two sums that are at most
    :math:`K`. The error of :math:`\ln S_k` is therefore less than :math:`2^{-40} K + 2^{-50} K^2`.
    The error of the differences is :math:`2^{-50} |z_k|`, which is less than :math:`2^{-39}` if
    :math:`|z_k| < 2048`. Otherwise the sigmoid is 0 or 1 up to :math:`e^{-2047}`. If a row is not
    finite, the result is the vacuous set.
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


class RigorousModel(CredalClassifier):
    """A model with credal sets that are valid in floating point.

    It has the same interface as the model and runs on a CPU. It cannot be trained, moved or saved.
    """

    uses_compile_cache = False

    def __init__(self, model: CreINN | Ensemble) -> None:
        super().__init__()
        members: Any = model.members if isinstance(model, Ensemble) else [model]
        self._networks = [_Member(member) for member in members]
        self._combine = model.combine if isinstance(model, Ensemble) else "envelope"
        self.calibration = copy.deepcopy(model.calibration)
        if not model.calibration_is_current:
            self.calibration.reset()
        self.calibration.fitted_on.parts = {}  # the weights of the copy do not change
        self.num_classes, self.class_names = model.num_classes, model.class_names
        like = next(model.parameters())
        self.like = torch.nn.Parameter(like.new_empty(0), requires_grad=False)  # dtype and device
        super().train(False)

    @torch.no_grad()
    def forward(self, x: Inputs) -> CredalSet:
        """Predict a credal set for each row."""
        x = exact_box(x)
        with torch.autocast("cpu", enabled=False):
            found = [network(x) for network in self._networks]
        lower, upper = (torch.stack([one[0][end] for one in found]) for end in (0, 1))
        label = found[0][1] if len(found) == 1 else None
        if self._combine == "envelope":
            return CredalSet._wrap(*self._rounded(lower.amin(0), upper.amax(0)), label)
        average = widen_by_error(lower.mean(0), upper.mean(0), upper.mean(0), len(found))
        return CredalSet._wrap(*self._rounded(*average), label)

    def _rounded(self, lower: Tensor, upper: Tensor) -> Bounds:
        """Convert to the dtype of the model.

        The error is 2 ** -24 of the number, or 2 ** -126.
        """
        if self.like.dtype != torch.float64:
            lower = lower * (1 - 2.0**-23) - 2.0**-124
            upper = upper * (1 + 2.0**-23) + 2.0**-124
        return lower.clamp_min(0).to(self.like.dtype), upper.clamp_max(1).to(self.like.dtype)

    def train(self, mode: bool = True) -> "RigorousModel":
        """Raise a ``ValueError`` if ``mode`` is true, because the model cannot be trained."""
        if mode:
            raise ValueError("A rigorous model cannot be trained. Train the model it came from.")
        return self

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("A rigorous model cannot be moved or cast. Compile the model again.")

    def save(self, *args: object, **kwargs: object) -> None:
        """Raise a ``TypeError``, because the model cannot be saved."""
        raise TypeError("A rigorous model cannot be saved. Save the model it came from.")
