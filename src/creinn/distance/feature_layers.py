"""Where in a network to measure a distance: its structure and a few rows in, names of places out, the deepest last."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.network import HEAD, TOKENS, find_logits_layer, run
from creinn.classifier.recording import Call, recording
from creinn.interval import Interval

MAX_LAYERS = 4  # of layers that do not differ in resolution, beside the head


@torch.no_grad()
def find_feature_layers(
    network: torch.nn.Module, x: Any, head: str | None = None
) -> tuple[str, ...]:
    """Where to measure a distance: at several depths of a network, found by running it on a few rows, and at its head.

    Of images and signals it is the last output of each resolution, that of a block where there are blocks; of tokens at
    most :data:`MAX_LAYERS` of the blocks, and of perceptrons as many hidden layers. Only modules that run once count.

    Example:
        >>> layers = torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(4, 8, 3)
        >>> network = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(8 * 3 * 3, 2))
        >>> find_feature_layers(network, torch.zeros(1, 1, 12, 12))
        ('1', '2', '3', '<head>')
    """
    last, paths = (
        find_logits_layer(network, head),
        {module: path for path, module in network.named_modules() if path},
    )
    with recording(paths) as calls:
        run(network, x)
    counts = Counter(call.module for call in calls)
    before = next((index for index, call in enumerate(calls) if call.module is last), len(calls))
    features = calls[before].inputs[0] if before < len(calls) else None
    once = [
        call
        for call in calls[:before]
        if counts[call.module] == 1
        and isinstance(call.output, Tensor | Interval)
        and call.output is not features
    ]
    signals = any(type(module).__name__.endswith("Conv1d") for module in paths)
    tokens = [call for call in once if _is_tokens(call, signals)]
    maps = [call for call in once if call.output.ndim > 2 and call not in tokens]
    places = _by_resolution(maps, blocks=True) + _some_blocks(tokens, paths)
    places = places or _by_resolution(maps, blocks=False) or _hidden_layers(once, calls[:before])
    return *(
        paths[call.module] + TOKENS if call in tokens else _last_layer(call, once, paths)
        for call in places
    ), HEAD


def _last_layer(block: Call, calls: Sequence[Call], paths: Mapping[torch.nn.Module, str]) -> str:
    """The path of a layer that gives the output of its block, if one does: a saved graph of layers has it, too."""
    layers = (
        call for call in calls if call.output is block.output and not any(call.module.children())
    )
    inside = (paths[call.module] for call in layers if call.module in set(block.module.modules()))
    return next(inside, paths[block.module])


def _by_resolution(maps: Sequence[Call], blocks: bool) -> list[Call]:
    """The last call of each resolution, of blocks or of single layers."""
    chosen = [
        call
        for call in maps
        if math.prod(call.output.shape[2:]) > 1 and _is_block(call.module) == blocks
    ]
    return list({tuple(call.output.shape[2:]): call for call in chosen}.values())


def _some_blocks(tokens: Sequence[Call], paths: Mapping[torch.nn.Module, str]) -> list[Call]:
    """Some of the blocks of a transformer: of the kind of module that is repeated, and contains the others."""
    blocks = [call for call in tokens if _is_block(call.module)]
    repeated = Counter(type(call.module) for call in blocks)
    depths = {
        type(call.module): paths[call.module].count(".")
        for call in blocks
        if repeated[type(call.module)] > 1
    }
    kind = min(depths, key=depths.__getitem__, default=None)
    return _spread([call for call in blocks if kind in (None, type(call.module))])


def _hidden_layers(once: Sequence[Call], calls: Sequence[Call]) -> list[Call]:
    """What enters a linear layer, if it is the output of a module."""
    entering = {
        id(call.inputs[0]) for call in calls if hasattr(call.module, "in_features") and call.inputs
    }
    return _spread([call for call in once if call.output.ndim == 2 and id(call.output) in entering])


def _is_block(module: torch.nn.Module) -> bool:
    """Whether there are several layers with weights in a module; a convolution may have a padding as its part."""
    return sum(any(True for _ in part.parameters(recurse=False)) for part in module.modules()) > 1


def _is_tokens(call: Call, signals: bool) -> bool:
    """Whether three dimensions are ``(N, tokens, D)``: nothing convolves signals, or layers act on the last one."""
    kinds = [type(part).__name__ for part in call.module.modules()]
    acts = any(name.startswith(("Linear", "LayerNorm", "RMSNorm", "Transformer")) for name in kinds)
    convolves = any(name.startswith(("Conv", "BatchNorm")) for name in kinds)
    return call.output.ndim == 3 and (not signals or (acts and not convolves))


def _spread(calls: list[Call]) -> list[Call]:
    """At most :data:`MAX_LAYERS`, evenly, the last one among them."""
    step = max(1, -(-len(calls) // MAX_LAYERS))
    return calls[::-1][::step][::-1]
