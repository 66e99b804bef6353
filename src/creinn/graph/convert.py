"""Conversion of an ordinary network to an interval network.

Small intervals can grow by a factor of :math:`10^{14}`, so the initial
radius of a layer is divided by the growth after it. In mode ``"sound"``,
the result encloses the original network. In the other modes, the norms are
heuristics.
"""

import math
from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor, fx
from torch.nn import Module, Sequential

from creinn.classifier.creinn import CreINN
from creinn.graph.checks import GraphError
from creinn.graph.trace import Traced, trace
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm, Mode
from creinn.nn.registry import INTERVAL_FAMILIES, Family, family_name, family_of, twin
from creinn.nn.relative import MAX_RELATIVE_RADIUS, RelativeParameters


class ConversionError(ValueError):
    """Error for a network that has no interval version."""


def convert(
    module: Module,
    radius: float = 0.01,
    mode: Mode = "paper",
    layers: Family | str = "interval",
) -> Module:
    """Convert an ordinary network to an interval network.

    The result is a ``torch.fx.GraphModule``, or an interval layer if
    ``module`` is a layer. Paths, state keys, shared layers, device, dtype,
    ``requires_grad`` and training flags are the same. Layers that are not
    called are removed.

    Args:
        module: A network with one input that returns logits, of
            ``torch.nn`` layers with an interval version and functions in
            :data:`creinn.nn.functional.FUNCTIONS`.
        radius: The initial radius of the weights relative to their mean
            magnitude, or to the magnitude of each weight for relative
            radii.
        mode: The mode of the batch norms, as in :class:`creinn.CreINN`.
            With ``"sound"``, the radii vanish with the depth.
        layers: The family ``"interval"`` or ``"relative"``, or its module.

    Raises:
        ConversionError: If a part of the network is not known.
        ValueError: If the radius, the mode or the family is invalid.

    Example:
        >>> ordinary = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
        >>> convert(ordinary)(torch.zeros(2, 4)).shape
        torch.Size([2, 8])
    """
    family = layers if isinstance(layers, str) else family_name(layers)
    largest = MAX_RELATIVE_RADIUS if family == "relative" else math.inf
    if family not in INTERVAL_FAMILIES:
        raise ValueError(f"Unknown family {layers!r}. Use 'interval' or 'relative'.")
    if not (0 < radius <= largest and math.isfinite(radius)):
        raise ValueError(f"radius must be positive and at most {largest}, got {radius}.")
    if mode not in get_args(Mode):
        raise ValueError(f"Unknown mode {mode!r}. Use 'paper', 'scaled' or 'sound'.")
    is_layer = family_of(module) == "ordinary"
    try:
        traced = trace(Sequential(module) if is_layer else module, ("ordinary",))
        _check_parameters(traced)
    except GraphError as error:
        raise ConversionError(f"Cannot convert {error}") from error
    twins = {layer: _twin(path, layer, family, mode) for path, layer in traced.layers.items()}
    if not any(isinstance(layer, IntervalParameters) for layer in twins.values()):
        raise ConversionError(f"{type(module).__name__} has no layer with weights.")
    interval = traced._replace(layers={p: twins[layer] for p, layer in traced.layers.items()})
    _initialize_radii(interval, radius, mode)
    if is_layer:
        return twins[module]
    network = interval.module(type(module).__name__)
    sources = dict(module.named_modules(remove_duplicate=False))
    for path, part in network.named_modules():
        if path in sources:
            part.training = sources[path].training
    return network


def _check_parameters(traced: Traced) -> None:
    owners: dict[Tensor, tuple[str, Module]] = {}
    for path, layer in traced.layers.items():
        for name, parameter in layer.named_parameters():
            first, owner = owners.setdefault(parameter, (f"{path}.{name}", layer))
            if owner is not layer:
                raise GraphError(
                    f"{path}.{name}: it is also {first}. Share the layer or copy the parameter."
                )


def credal(model: Any, form: Mapping[str, Any], needs_radii: bool) -> CreINN:
    """Return a CreINN with the options ``form`` and trained weights.

    An ordinary network is converted if ``needs_radii`` is true. An
    interval network must have the same mode.
    """
    is_interval = isinstance(model, CreINN) and model.is_interval
    if is_interval and form["mode"] != model.mode:
        raise ValueError(f"The model was trained with mode={model.mode!r}. Pass the same mode.")
    options = {"num_logits": model.num_logits, "logit_norm": model.logit_norm, **form}
    if needs_radii and not is_interval:
        network = Sequential(model.network, model.norm) if model.logit_norm else model.network
        options = {"num_logits": model.num_logits, "logit_norm": False, **form}
        return CreINN.from_options(convert(network.eval(), mode=form["mode"]), **options).eval()
    made = CreINN.from_options(model.network, **options)
    made.norm.load_state_dict(model.norm.state_dict())
    made.temperature.load_state_dict(model.temperature.state_dict())
    return made.eval()


def _twin(path: str, layer: Module, family: str, mode: Mode) -> Module:
    try:
        interval = twin(layer, family)
        if isinstance(interval, IntervalBatchNorm):
            interval.set_mode(mode)
    except ValueError as error:
        raise ConversionError(f"Cannot convert {path}: {type(layer).__name__}: {error}") from error
    return interval


@torch.no_grad()
def _initialize_radii(traced: Traced, radius: float, mode: Mode) -> None:
    """Set the radii and the radius branches of the batch norms.

    The radius of a row of weights is ``radius * mean|w_o| / g``, or
    ``radius / g`` if it is relative, where ``g`` is the growth up to the
    next batch norm, or the output in sound mode. In the other modes the
    radius branch of a norm is the exact map divided by the growth since
    the last norm, so that the relative widths are constant.
    """
    for norm, growth in _growth_before(traced).items() if mode != "sound" else ():
        if norm.affine:
            norm.weight[norm.num_features :] /= growth
        elif norm.running_var is not None:
            norm.running_var[norm.num_features :] *= growth**2
    for layer, growth in _growth_ahead(traced, mode).items():
        tiny = torch.finfo(layer.weight.dtype).tiny
        if isinstance(layer, RelativeParameters):
            layer.relative_radius.fill_(max(radius / growth, tiny))
        else:
            layer.weight_radius.copy_(_magnitude(layer.weight) * (radius / growth)).clamp_(min=tiny)
        if layer.bias_radius is not None:
            layer.bias_radius.zero_()


def _magnitude(weight: Tensor) -> Tensor:
    rows = weight.detach().abs().flatten(1).mean(1)
    rows = torch.where(rows > 0, rows, rows.mean())
    rows = torch.where(rows > 0, rows, weight[0].numel() ** -0.5)  # of a new layer
    return rows.view(-1, *(1,) * (weight.ndim - 1))


def _growth(layer: Module | None) -> float:
    """Return the mean of ``|w_o|_1 / |w_o|_2`` over the rows of weights."""
    if not isinstance(layer, IntervalParameters):
        return 1.0
    rows = layer.weight.detach().flatten(1).double()
    rows = rows[rows.norm(dim=1) > 0]
    return (rows.abs().sum(1) / rows.norm(dim=1)).mean().item() if len(rows) else 1.0


def _growth_before(traced: Traced) -> dict[IntervalBatchNorm, float]:
    """Return the maximum growth from the last norm to each batch norm."""
    found: dict[IntervalBatchNorm, float] = {}
    growth: dict[fx.Node, float] = {}
    for node in traced.graph.nodes:
        layer = traced.layer(node)
        before = max((growth[argument] for argument in node.all_input_nodes), default=1.0)
        growth[node] = before * _growth(layer)
        if isinstance(layer, IntervalBatchNorm):
            found[layer] = max(found.get(layer, 1.0), before)
            growth[node] = 1.0
    return found


def _growth_ahead(traced: Traced, mode: Mode) -> dict[IntervalParameters, float]:
    """Return the growth to the next norm or the output, summed over paths."""
    found: dict[IntervalParameters, float] = {}
    ahead: dict[fx.Node, float] = {}
    for node in reversed(traced.graph.nodes):
        ahead[node] = 1.0 if node.op == "output" else 0.0
        for user in node.users:
            reader = traced.layer(user)
            reset = mode != "sound" and isinstance(reader, IntervalBatchNorm)
            ahead[node] += 1.0 if reset else _growth(reader) * ahead[user]
        layer = traced.layer(node)
        if isinstance(layer, IntervalParameters):
            found[layer] = found.get(layer, 0.0) + ahead[node]
    return {layer: max(value, 1.0) for layer, value in found.items()}
