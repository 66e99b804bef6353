r"""From an ordinary network to its interval twin, or a refusal that says where and why.

One relative radius for all layers would give vacuous sets, or none that can be seen: over a ResNet-20 small intervals
grow by :math:`10^{14}`. So a layer starts the narrower, the more grows behind it; see :func:`_start`. In mode
``"sound"`` norms are exact and the network encloses its source; the other modes are heuristics, as their norms are.
"""

import math
from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor, fx

from creinn.baselines.snn import SNN
from creinn.classifier.creinn import CreINN
from creinn.graph.checks import GraphError, check_module
from creinn.graph.trace import Traced, graph_module, trace
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm, Mode
from creinn.nn.families import INTERVAL_FAMILIES, Family, family_name, family_of, twin
from creinn.nn.relative import MAX_RELATIVE_RADIUS, RelativeParameters


class ConversionError(ValueError):
    """A network that has no interval twin; the message names the place and the reason."""


def convert(
    module: torch.nn.Module,
    radius: float = 0.01,
    mode: Mode = "paper",
    layers: Family | str = "interval",
) -> torch.nn.Module:
    """The interval twin of an ordinary network, a ``torch.fx.GraphModule``; of a single layer, the interval layer.

    Paths, state keys, sharing of layers, device, dtype, ``requires_grad`` and the training flags carry over (a radius
    is trained if its weight is). Layers that the forward pass never calls are left out; functional dropout that follows
    the mode becomes a layer.

    Args:
        module: A network of ``torch.nn`` layers that have an interval version, and of functions in
            :data:`creinn.nn.functional.FUNCTIONS`, by whatever name torch gives them; one input, logits out.
        radius: Initial radius of the weights relative to their mean magnitude; with relative radii, to each magnitude.
        mode: Mode of the batch norms, as for :class:`creinn.CreINN`; ``"sound"`` encloses the source, at the price of
            radii that vanish with depth.
        layers: Family of the twin's layers, by name or itself: ``"interval"`` (:mod:`creinn.nn`) or ``"relative"``
            (:mod:`creinn.nn.relative`).

    Raises:
        ConversionError: If a part of the network is unknown; nothing passes through silently.
        ValueError: If ``radius`` is not positive (with relative radii: below 1), or mode or family are unknown.
        TypeError: If ``module`` is not a module.

    Example:
        >>> network = convert(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)))
        >>> network(torch.zeros(2, 4)).shape
        torch.Size([2, 3])
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"Expected a torch.nn.Module, got {type(module).__name__}.")
    if not (math.isfinite(radius) and radius > 0):
        raise ValueError(
            f"radius must be a positive number, got {radius}. Without radii there are no intervals."
        )
    family = layers if isinstance(layers, str) else family_name(layers)
    if family not in INTERVAL_FAMILIES:
        raise ValueError(
            f"Unknown family of interval layers {layers!r}; choose 'interval' or 'relative'."
        )
    if family == "relative" and radius > MAX_RELATIVE_RADIUS:
        raise ValueError(
            f"radius must be at most {MAX_RELATIVE_RADIUS} with relative radii, got {radius}."
        )
    if mode not in get_args(Mode):
        raise ValueError(f"Unknown mode {mode!r}; choose 'paper', 'scaled' or 'sound'.")
    try:
        traced = (
            _single(module) if family_of(module) == "ordinary" else trace(module, ("ordinary",))
        )
    except GraphError as error:
        raise ConversionError(f"Cannot convert {error}") from error
    _check_parameters(traced)
    twins = {layer: _twin(path, layer, family, mode) for path, layer in traced.layers.items()}
    if not any(isinstance(layer, IntervalParameters) for layer in twins.values()):
        raise ConversionError(
            f"{type(module).__name__} has no layer with weights, to make intervals of."
        )
    interval = Traced(traced.graph, {path: twins[layer] for path, layer in traced.layers.items()})
    _start(interval, radius, mode)
    if module in twins:
        return twins[module]
    network = graph_module(interval, type(module).__name__)
    sources = dict(module.named_modules(remove_duplicate=False))
    for path, part in network.named_modules():
        if path in sources:
            part.training = sources[path].training
    return network


def credal(model: SNN | CreINN, form: Mapping[str, Any], needs_radii: bool) -> CreINN:
    """A CreINN, of options ``form``, around the network and norm of a trained model, whose weights it shares.

    If it ``needs_radii``, an ordinary network becomes its interval twin; a distance comes on top of it as it is.

    Raises:
        ValueError: If the network has no interval twin, or is an interval network of another mode.
    """
    is_interval = isinstance(model, CreINN) and model.is_interval
    mode = getattr(model, "mode", None)
    if is_interval and form["mode"] != mode:
        raise ValueError(
            f"The model to start from was trained with mode={mode!r}. Pass the same mode."
        )
    if needs_radii and not is_interval:
        ordinary = (
            torch.nn.Sequential(model.network, model.norm) if model.logit_norm else model.network
        )
        twin = convert(ordinary.eval(), mode=form["mode"])
        return CreINN(twin, logits=model.logits, logit_norm=False, **form).eval()
    made = CreINN(model.network, logits=model.logits, logit_norm=model.logit_norm, **form)
    made.norm.load_state_dict(model.norm.state_dict())
    made.temperature.load_state_dict(model.temperature.state_dict())
    return made.eval()


def _single(layer: torch.nn.Module) -> Traced:
    check_module("", layer, ("ordinary",))
    graph = fx.Graph()
    graph.output(graph.call_module("layer", (graph.placeholder("x"),)))
    return Traced(graph, {"layer": layer})


def _twin(path: str, layer: torch.nn.Module, family: str, mode: Mode) -> torch.nn.Module:
    try:
        interval = twin(layer, family)
        if isinstance(interval, IntervalBatchNorm):
            interval.set_mode(mode)
    except ValueError as error:
        raise ConversionError(f"Cannot convert {path}: {type(layer).__name__}: {error}") from error
    return interval


def _check_parameters(traced: Traced) -> None:
    owner: dict[Tensor, tuple[str, torch.nn.Module]] = {}
    for path, layer in traced.layers.items():
        for name, parameter in layer.named_parameters():
            why, (first, other) = "", owner.setdefault(parameter, (f"{path}.{name}", layer))
            if other is not layer:
                why = f"it is the same parameter as {first} of another layer. Share the whole layer, or copy it."
            elif not parameter.is_floating_point():
                why = f"its dtype is {parameter.dtype}; intervals need a real floating one."
            if why:
                raise ConversionError(f"Cannot convert {path}.{name}: {why}")


@torch.no_grad()
def _start(traced: Traced, radius: float, mode: Mode) -> None:
    """Set the radii, and the radius branches of the batch norms.

    A weight row starts with radius ``radius * mean|w_o| / g`` (a relative one with ``radius / g``), where ``g`` is the
    growth to the next batch norm, in sound mode to the output; biases with 0. In the other modes the radius branch of a
    norm starts as the exact map divided by the growth since the last norm, which keeps relative widths.
    """
    for norm, growth in _growth_before(traced).items() if mode != "sound" else ():
        if norm.affine:
            norm.weight[norm.num_features :] /= growth
        elif norm.running_var is not None:
            norm.running_var[norm.num_features :] *= growth**2
    for layer, growth in _growth_ahead(traced, mode).items():
        if not isinstance(layer, IntervalParameters):
            continue
        tiny = torch.finfo(layer.weight.dtype).tiny
        if isinstance(layer, RelativeParameters):
            layer.relative_radius.fill_(max(radius / growth, tiny))
        else:
            layer.weight_radius.copy_(_magnitude(layer.weight) * (radius / growth)).clamp_(min=tiny)
        if layer.bias_radius is not None:
            layer.bias_radius.zero_()


def _magnitude(weight: Tensor) -> Tensor:
    """Mean magnitude of each weight row, of the layer if the row is zero, of a new layer if all are; to broadcast."""
    rows = weight.detach().abs().flatten(1).mean(1)
    rows = torch.where(rows > 0, rows, rows.mean())
    rows = torch.where(rows > 0, rows, weight[0].numel() ** -0.5)
    return rows.view(-1, *(1,) * (weight.ndim - 1))


def _growth(layer: torch.nn.Module | None) -> float:
    r"""How much a small relative radius grows: :math:`\mathrm{mean}_o \lVert w_o \rVert_1 / \lVert w_o \rVert_2`."""
    if not isinstance(layer, IntervalParameters):
        return 1.0
    rows = layer.weight.detach().flatten(1).double()
    norm = rows.norm(dim=1)
    alive = norm > 0
    return (rows.abs().sum(1)[alive] / norm[alive]).mean().item() if bool(alive.any()) else 1.0


def _growth_before(traced: Traced) -> dict[IntervalBatchNorm, float]:
    """For every batch norm, the growth since the last norm; the largest over the paths to it."""
    found: dict[IntervalBatchNorm, float] = {}
    grown: dict[fx.Node, float] = {}
    for node in traced.graph.nodes:
        layer = traced.layer(node)
        before = max((grown[argument] for argument in node.all_input_nodes), default=1.0)
        if isinstance(layer, IntervalBatchNorm):
            found[layer] = max(found.get(layer, 1.0), before)
            grown[node] = 1.0
        else:
            grown[node] = before * _growth(layer)
    return found


def _growth_ahead(traced: Traced, mode: Mode) -> dict[torch.nn.Module, float]:
    """For every layer, the growth to the next norm (in sound mode: to the network's output), summed over the paths."""
    found: dict[torch.nn.Module, float] = {}
    ahead: dict[fx.Node, float] = {}
    for node in reversed(traced.graph.nodes):
        ahead[node] = 1.0 if node.op == "output" else 0.0
        for user in node.users:
            reader = traced.layer(user)
            reset = mode != "sound" and isinstance(reader, IntervalBatchNorm)
            ahead[node] += 1.0 if reset else _growth(reader) * ahead[user]
        if (layer := traced.layer(node)) is not None:
            found[layer] = found.get(layer, 0.0) + ahead[node]
    return {layer: max(value, 1.0) for layer, value in found.items()}
