r"""From an ordinary network to its interval twin, or a refusal that says where and why.

In: a ``torch.nn.Module`` built of known layers and functions (:mod:`creinn.graph.trace`). Out: a module of
:mod:`creinn.nn` or :mod:`creinn.nn.relative` layers with the same paths, whose centres are the source's weights, whose
batch norms start from its statistics, and whose radii start small and alive.

How wide to start. Interval propagation adds absolute values where the network adds signed ones, so an interval that is
small relative to the signal grows by about :math:`\kappa = \mathrm{mean}_o \lVert w_o \rVert_1 / \lVert w_o \rVert_2`
in a layer with weight rows :math:`w_o`, up to the square root of the fan-in. Over the layers of a ResNet-20 this is a
factor of :math:`10^{14}`: one relative radius for all layers gives vacuous sets, or none that can be seen. Therefore

- a weight row starts with radius ``radius * mean|w_o| / g``, where ``g`` is the growth between the layer and the next
  batch norm (in sound mode: the output); a relative radius starts at ``radius / g``, which is as wide on average.
  Biases start with radius 0, as in a new layer; a radius of zero has a gradient;
- in modes ``"paper"`` and ``"scaled"`` the radius branch of a batch norm starts as the exact map divided by the growth
  since the last norm, which keeps relative widths as they are, in paper mode while training too. This is a heuristic
  for containment, as are these norms themselves;
- in mode ``"sound"`` batch norms map intervals exactly in eval mode, where the network encloses its source. The radii
  then shrink towards the input.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, fx

from creinn.graph.trace import GraphError, Traced, check_module, graph_module, trace
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.families import INTERVAL_FAMILIES, Family, family_name, family_of, twin
from creinn.nn.parameters import IntervalParameters
from creinn.nn.relative import LARGEST, RelativeParameters

Mode = Literal["paper", "scaled", "sound"]


class ConversionError(ValueError):
    """A network that has no interval twin; the message names the place and the reason."""


def convert(
    module: torch.nn.Module, radius: float = 0.01, mode: Mode = "paper", layers: Family | str = "interval"
) -> torch.nn.Module:
    """The interval twin of an ordinary network.

    The source is left untouched. Paths, state keys, sharing of layers, device, dtype, ``requires_grad`` and the
    training flags carry over (a radius is trained if its weight is). Layers that the forward pass never calls are left
    out. Functional dropout that follows the mode becomes a layer.

    Args:
        module: A network of ``torch.nn`` layers that have an interval version, and of functions in
            :data:`creinn.nn.functional.FUNCTIONS`, by whatever name torch gives them. It takes one input and returns
            logits.
        radius: Initial radius of the weights relative to their mean magnitude; with relative radii, to each magnitude.
        mode: Mode of the batch norms, as for :class:`creinn.CreINN`; ``"sound"`` encloses the source, at the price of
            radii that vanish with depth.
        layers: Family of the twin's layers, by name or itself: ``"interval"`` (:mod:`creinn.nn`) or ``"relative"``
            (:mod:`creinn.nn.relative`).

    Returns:
        A ``torch.fx.GraphModule``; for a single layer, the interval layer.

    Raises:
        ConversionError: If a part of the network is unknown; nothing passes through silently.
        ValueError: If ``radius`` is not a positive number (with relative radii: below 1), or the mode or the family
            is unknown.
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
            f"radius must be a positive number, got {radius}. "
            "Without radii an interval network cannot be told from an ordinary one."
        )
    family = layers if isinstance(layers, str) else family_name(layers)
    if family not in INTERVAL_FAMILIES:
        raise ValueError(f"Unknown family of interval layers {layers!r}; choose 'interval' or 'relative'.")
    if family == "relative" and radius > LARGEST:
        raise ValueError(f"radius must be at most {LARGEST} with relative radii, got {radius}.")
    if mode not in get_args(Mode):
        raise ValueError(f"Unknown mode {mode!r}; choose 'paper', 'scaled' or 'sound'.")
    try:
        traced = _single(module) if family_of(module) == "ordinary" else trace(module, ("ordinary",))
    except GraphError as error:
        raise ConversionError(f"Cannot convert {error}") from error
    _check_parameters(traced)
    twins = {layer: _twin(path, layer, family) for path, layer in traced.layers.items()}
    interval = Traced(traced.graph, {path: twins[layer] for path, layer in traced.layers.items()})
    if not any(isinstance(layer, IntervalParameters) for layer in interval.layers.values()):
        raise ConversionError(
            f"{type(module).__name__} has no layer with weights: there is nothing to make an interval of."
        )
    _start(interval, radius, mode)
    if family_of(module) == "ordinary":
        return twins[module]
    network = graph_module(interval, type(module).__name__)
    sources = dict(module.named_modules(remove_duplicate=False))
    for path, part in network.named_modules():
        if path in sources:
            part.training = sources[path].training
    return network


def _single(layer: torch.nn.Module) -> Traced:
    check_module("", layer, ("ordinary",))
    graph = fx.Graph()
    graph.output(graph.call_module("layer", (graph.placeholder("x"),)))
    return Traced(graph, {"layer": layer})


def _twin(path: str, layer: torch.nn.Module, family: str) -> torch.nn.Module:
    try:
        return twin(layer, family)
    except ValueError as error:
        raise ConversionError(f"Cannot convert {path}: {type(layer).__name__}: {error}") from error


def _check_parameters(traced: Traced) -> None:
    owner: dict[Tensor, tuple[str, torch.nn.Module]] = {}
    for path, layer in traced.layers.items():
        for name, parameter in layer.named_parameters():
            first, other = owner.setdefault(parameter, (f"{path}.{name}", layer))
            if other is not layer:
                raise ConversionError(
                    f"Cannot convert {path}.{name}: it is the same parameter as {first} of another layer. "
                    "Share the whole layer, or copy the parameter."
                )
            if not parameter.is_floating_point():
                raise ConversionError(
                    f"Cannot convert {path}.{name}: its dtype is {parameter.dtype}; intervals need a real floating one."
                )


@torch.no_grad()
def _start(traced: Traced, radius: float, mode: Mode) -> None:
    """Set the radii, and the radius branches of the batch norms."""
    growth = _growth_before(traced)
    for layer in set(traced.layers.values()):
        if isinstance(layer, IntervalBatchNorm):
            try:
                layer.set_mode(mode)
            except ValueError as error:
                path = next(path for path, other in traced.layers.items() if other is layer)
                raise ConversionError(f"Cannot convert {path}: {type(layer).__name__}: {error}") from error
            if mode != "sound":
                _divide_radius(layer, growth[layer])
    ahead = _growth_ahead(traced, mode)
    for layer in set(traced.layers.values()):
        if isinstance(layer, IntervalParameters):
            _start_weight_radius(layer, radius / ahead[layer])
            if layer.bias_radius is not None:
                layer.bias_radius.zero_()


def _start_weight_radius(layer: IntervalParameters, share: float) -> None:
    tiny = torch.finfo(layer.weight.dtype).tiny
    if isinstance(layer, RelativeParameters):
        layer.relative_radius.fill_(max(share, tiny))
    else:
        layer.weight_radius.copy_(_magnitude(layer.weight).mul_(share)).clamp_(min=tiny)


def _divide_radius(layer: IntervalBatchNorm, growth: float) -> None:
    count = layer.num_features
    if layer.affine:
        layer.weight[count:] /= growth
    elif layer.running_var is not None:
        layer.running_var[count:] *= growth**2


def _magnitude(weight: Tensor) -> Tensor:
    """Mean magnitude of each weight row, spread over it.

    A row of zeros takes the mean of the layer, a layer of zeros the magnitude of a new one.
    """
    rows = weight.detach().abs().flatten(1).mean(1)
    rows = torch.where(rows > 0, rows, rows.mean())
    rows = torch.where(rows > 0, rows, weight[0].numel() ** -0.5)
    return rows.view(-1, *(1,) * (weight.ndim - 1)).expand_as(weight).clone()


def _growth(layer: torch.nn.Module | None) -> float:
    r"""How much a small relative radius grows: :math:`\kappa` of the module's docstring; 1 without weights."""
    if not isinstance(layer, IntervalParameters):
        return 1.0
    rows = layer.weight.detach().flatten(1).double()
    norm = rows.norm(dim=1)
    alive = norm > 0
    return (rows.abs().sum(1)[alive] / norm[alive]).mean().item() if bool(alive.any()) else 1.0


def _growth_before(traced: Traced) -> dict[torch.nn.Module, float]:
    """For every batch norm, the growth since the last norm; the largest over the paths to it."""
    found: dict[torch.nn.Module, float] = {}
    grown: dict[fx.Node, float] = {}
    for node in traced.graph.nodes:
        layer = traced.layers.get(str(node.target)) if node.op == "call_module" else None
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
        layer = traced.layers.get(str(node.target)) if node.op == "call_module" else None
        ahead[node] = 1.0 if node.op == "output" else 0.0
        for user in node.users:
            reader = traced.layers.get(str(user.target)) if user.op == "call_module" else None
            reset = mode != "sound" and isinstance(reader, IntervalBatchNorm)
            ahead[node] += 1.0 if reset else _growth(reader) * ahead[user]
        if layer is not None:
            found[layer] = found.get(layer, 0.0) + ahead[node]
    return {layer: max(value, 1.0) for layer, value in found.items()}
