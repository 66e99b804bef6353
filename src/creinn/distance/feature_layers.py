"""Selection of the feature layers of a network, and pooling of their outputs.

A feature layer is the path of a module. It ends in ``:tokens`` if the
output has the shape ``(N, tokens, D)``. ``<head>`` is the input of the
logits layer.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from creinn.interval import Interval, as_interval

HEAD, TOKENS = "<head>", ":tokens"
MAX_LAYERS = 4  # of the same resolution, without HEAD


def select_feature_layers(
    calls: Sequence[Any], paths: Mapping[Module, str], logits_layer: Module
) -> tuple[str, ...]:
    """Select feature layers at several depths; ``<head>`` is the last one.

    For images and signals, this is the last output of each resolution,
    preferably of a block. For tokens, it is the output of at most
    :data:`MAX_LAYERS` blocks, and for perceptrons of as many hidden
    layers. Modules that are called more than once are not selected.
    """
    modules = [call.module for call in calls]
    counts = Counter(modules)
    end = modules.index(logits_layer) if logits_layer in modules else len(calls)
    head_input = calls[end].inputs[0] if end < len(calls) else None
    once = [
        call
        for call in calls[:end]
        if counts[call.module] == 1
        and isinstance(call.output, Tensor | Interval)
        and call.output is not head_input
    ]
    is_signal = any(type(module).__name__.endswith("Conv1d") for module in paths)
    tokens = [call for call in once if _is_tokens(call, is_signal)]
    maps = [call for call in once if call.output.ndim > 2 and call not in tokens]
    selected = _by_resolution(maps, blocks=True) + _some_blocks(tokens, paths)
    selected = selected or _by_resolution(maps, False) or _hidden_layers(once, calls[:end])
    names = [
        paths[call.module] + TOKENS if call in tokens else _last_layer(call, once, paths)
        for call in selected
    ]
    return *names, HEAD


def pooled(
    output: Interval | Tensor, tokens: bool = False, mask: Tensor | None = None
) -> Interval | Tensor:
    r"""Pool the output of a layer to features ``(N, D)``.

    The features of ``(N, C, ...)``, or with ``tokens`` of
    ``(N, tokens, C)``, are the mean and the standard deviation of each
    channel. For a box :math:`c \pm r`, the standard deviation is in
    :math:`\operatorname{sd}(c) \pm \operatorname{rms}(r)`. Tokens of a
    tensor where a mask ``(N, tokens)`` is 0 are ignored.

    Example:
        >>> pooled(torch.tensor([[[1.0, 3.0], [2.0, 2.0]]]))
        tensor([[2., 2., 1., 0.]])
    """
    if output.ndim == 2:
        return output
    if tokens and mask is not None and mask.shape == output.shape[:2]:
        return _masked_moments(as_interval(output).lower, mask.unsqueeze(2) > 0)
    maps = as_interval(output)
    maps = maps.transpose(1, 2) if tokens else maps.flatten(2)
    mean, root = maps.mean(2), math.sqrt(maps.shape[2])
    residuals = maps.center - mean.center.unsqueeze(2)
    deviation = torch.linalg.vector_norm(residuals, dim=2) / root  # faster than torch.std
    if maps.is_point:
        return torch.cat((mean.lower, deviation), 1)
    slack = torch.linalg.vector_norm(maps.radius, dim=2) / root
    lower = torch.cat((mean.lower, (deviation - slack).clamp_min(0)), 1)
    return Interval._of_parts(lower, torch.cat((mean.upper, deviation + slack), 1))


def _masked_moments(tokens: Tensor, mask: Tensor) -> Tensor:
    count = mask.sum(1).clamp_min(1)
    mean = torch.where(mask, tokens, 0).sum(1) / count
    residuals = torch.where(mask, tokens - mean.unsqueeze(1), 0)
    return torch.cat((mean, torch.linalg.vector_norm(residuals, dim=1) / count.sqrt()), 1)


def _last_layer(block: Any, calls: Sequence[Any], paths: Mapping[Module, str]) -> str:
    """Return the path of the last layer of a block, or of the block."""
    parts = [part for part in block.module.modules() if not any(part.children())]
    same = (call.module for call in calls if call.output is block.output and call.module in parts)
    return paths[next(same, block.module)]


def _by_resolution(maps: Sequence[Any], blocks: bool) -> list[Any]:
    last = {}
    for call in maps:
        resolution = tuple(call.output.shape[2:])
        if math.prod(resolution) > 1 and _is_block(call.module) == blocks:
            last[resolution] = call
    return list(last.values())


def _some_blocks(tokens: Sequence[Any], paths: Mapping[Module, str]) -> list[Any]:
    """Return transformer blocks of the outermost repeated type."""
    blocks = [call for call in tokens if _is_block(call.module)]
    counts = Counter(type(call.module) for call in blocks)
    repeated = [call for call in blocks if counts[type(call.module)] > 1]
    if repeated:
        outermost = min(repeated, key=lambda call: paths[call.module].count(".")).module
        blocks = [call for call in repeated if type(call.module) is type(outermost)]
    return _evenly(blocks)


def _hidden_layers(once: Sequence[Any], calls: Sequence[Any]) -> list[Any]:
    linear = [call for call in calls if hasattr(call.module, "in_features") and call.inputs]
    inputs = {id(call.inputs[0]) for call in linear}
    return _evenly([call for call in once if call.output.ndim == 2 and id(call.output) in inputs])


def _is_block(module: Module) -> bool:
    return sum(any(True for _ in part.parameters(recurse=False)) for part in module.modules()) > 1


def _is_tokens(call: Any, is_signal: bool) -> bool:
    """Return whether an output is ``(N, tokens, D)``, not a signal."""
    names = [type(part).__name__ for part in call.module.modules()]
    on_last = ("Linear", "LayerNorm", "RMSNorm", "Transformer")
    is_row = any(name.startswith(on_last) for name in names)
    convolves = any(name.startswith(("Conv", "BatchNorm")) for name in names)
    return call.output.ndim == 3 and (not is_signal or (is_row and not convolves))


def _evenly(calls: list[Any]) -> list[Any]:
    step = max(1, math.ceil(len(calls) / MAX_LAYERS))
    return calls[::-1][::step][::-1]
