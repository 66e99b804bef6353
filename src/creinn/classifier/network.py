"""Layers of networks, and the outputs of layers in a forward pass.

Several threads may record calls of the same modules at the same time. ``torch.export`` needs
``strict=False``, because the calls are recorded by hooks.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.classifier.compile_cache import LOCK
from creinn.classifier.inputs import run
from creinn.distance.feature_layers import HEAD, TOKENS, select_feature_layers
from creinn.numerics import at_least_single, weight_per_row

_RECORDINGS: ContextVar[tuple["list[Call]", ...]] = ContextVar("recordings", default=())


def logits_cross_entropy(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the mean cross-entropy of logits.

    Args:
        logits: Logits ``(N, K)``. A single logit belongs to class 1 of two classes. Half precision
            is converted to float32.
        target: Classes ``(N,)`` or label distributions ``(N, K)``.
        weight: Weights of the classes ``(K,)`` or of the rows ``(N, 1)``.
    """
    logits = at_least_single(logits)
    if logits.shape[1] == 1:
        logits = torch.cat((torch.zeros_like(logits), logits), 1)
    if weight is None or (weight.ndim == 1 and not target.is_floating_point()):
        return F.cross_entropy(logits, target, weight)
    rows = weight_per_row(weight, target)
    if weight.ndim == 1:
        return F.cross_entropy(logits, target, weight, reduction="sum") / rows.sum()
    return (rows * F.cross_entropy(logits, target, reduction="none")).sum() / rows.sum()


def find_logits_layer(network: torch.nn.Module, path: str | None = None) -> torch.nn.Module:
    """Return the layer that computes the logits from the features.

    This is the module with the path. Without a path, it is the layer ``head`` of a network with a
    method ``features``, as in :mod:`creinn.models`, or else the last ``Linear`` layer.

    Raises:
        ValueError: If there is no such layer.

    Example:
        >>> layers = torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
        >>> find_logits_layer(torch.nn.Sequential(*layers))
        Linear(in_features=8, out_features=3, bias=True)
    """
    if path is not None:
        check_layers(network, [path], "logits_layer")
        return network.get_submodule(path)
    layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
    layer: Any = network.head if has_features(network) else layers[-1] if layers else None
    if not (hasattr(layer, "in_features") and hasattr(layer, "out_features")):
        raise ValueError(
            f"{type(network).__name__} has no linear layer, so there are no features before it. "
            "Pass logits_layer='path', or add a method features(x) and a layer head to the network."
        )
    return layer


def has_features(network: torch.nn.Module) -> bool:
    """Return whether the network has a method ``features`` and a layer ``head``."""
    features, head = getattr(network, "features", None), getattr(network, "head", None)
    is_method = callable(features) and not isinstance(features, torch.nn.Module)
    return is_method and isinstance(head, torch.nn.Module)


def check_layers(network: torch.nn.Module, paths: Iterable[str], name: str) -> None:
    """Raise a ``ValueError`` if the network has no module at one of the paths."""
    known = [path for path, _ in network.named_modules() if path]
    for path in paths:
        if path != HEAD and path.removesuffix(TOKENS) not in known:
            raise ValueError(
                f"{type(network).__name__} has no module {path!r} for {name}. Its modules are: "
                f"{', '.join(known)}."
            )


def layers_at(
    network: torch.nn.Module, paths: Sequence[str], logits_layer: str | None = None
) -> dict[str, torch.nn.Module]:
    """Return the modules at the paths of feature layers and of the logits layer."""
    found = {path: path.removesuffix(TOKENS) for path in (logits_layer, *paths) if path is not None}
    return {
        path: find_logits_layer(network, logits_layer)
        if path == HEAD
        else network.get_submodule(target)
        for path, target in found.items()
    }


def outputs_and_logits(
    network: torch.nn.Module,
    x: Any,
    layers: Sequence[str] = (HEAD,),
    logits_layer: str | None = None,
) -> tuple[tuple[Any, ...], Any]:
    """Return the outputs of feature layers and the logits, in one forward pass.

    If the network has a method ``outputs_and_logits``, it is called instead.
    """
    if hasattr(network, "outputs_and_logits"):
        return network.outputs_and_logits(x)  # type: ignore[operator]
    modules = layers_at(network, layers, logits_layer)
    with recording(modules.values()) as calls:
        logits = run(network, x)
    last = {call.module: call for call in calls}
    for path, module in modules.items():
        if module not in last:
            raise ValueError(f"The module {path!r} did not run, so it has no output.")
    outputs = tuple(last[modules[path]].output_at(path) for path in layers)
    return outputs, logits if logits_layer is None else last[modules[logits_layer]].output


def features_and_logits(network: torch.nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the input ``(N, D)`` of the last linear layer and the logits ``(N, K)``.

    Raises:
        ValueError: If the output of the network is not the output of this layer.
    """
    layer = find_logits_layer(network)
    with recording([layer]) as calls:
        logits = run(network, x)
    if len(calls) != 1 or calls[0].output is not logits:
        raise ValueError(
            f"The output of the network is not the output of its last Linear layer, {layer}, or "
            "this layer runs more than once. Use a network that ends in a Linear layer."
        )
    return calls[0].inputs[0], logits


@torch.no_grad()
def find_feature_layers(
    network: torch.nn.Module, x: Any, logits_layer: str | None = None
) -> tuple[str, ...]:
    """Run a network and select feature layers by its calls.

    See :func:`creinn.distance.feature_layers.select_feature_layers`.

    Example:
        >>> convolutions = torch.nn.Conv2d(1, 4, 3), torch.nn.Conv2d(4, 8, 3)
        >>> pool, flatten = torch.nn.MaxPool2d(2), torch.nn.Flatten()
        >>> network = torch.nn.Sequential(
        ...     convolutions[0], torch.nn.ReLU(), pool,
        ...     convolutions[1], flatten, torch.nn.Linear(72, 2),
        ... )
        >>> find_feature_layers(network, torch.zeros(1, 1, 12, 12))
        ('1', '2', '3', '<head>')
    """
    last = find_logits_layer(network, logits_layer)
    paths = {module: path for path, module in network.named_modules() if path}
    with recording(paths) as calls:
        run(network, x)
    return select_feature_layers(calls, paths, last)


class Call(NamedTuple):
    """The inputs and the output of a call of a module."""

    module: torch.nn.Module
    inputs: tuple[Any, ...]
    output: Any

    def output_at(self, path: str) -> Any:
        """Return the output for the path of a feature layer, which is the input for ``HEAD``."""
        return self.inputs[0] if path == HEAD else self.output


@contextmanager
def recording(modules: Iterable[torch.nn.Module]) -> Iterator[list[Call]]:
    """Record all calls of the given modules in the current context, in order."""
    calls: list[Call] = []

    def recorder(module: torch.nn.Module) -> Any:
        def hook(_: Any, inputs: tuple[Any, ...], *rest: Any) -> None:
            if any(calls is active for active in _RECORDINGS.get()):
                named, output = rest
                calls.append(Call(module, (*inputs, *named.values()), output))

        hook.is_recorder = True  # type: ignore[attr-defined]
        return hook  # torch.export calls it with a proxy of the module

    with LOCK:
        handles = [
            module.register_forward_hook(recorder(module), with_kwargs=True)
            for module in set(modules)
        ]
    token = _RECORDINGS.set((*_RECORDINGS.get(), calls))
    try:
        yield calls
    finally:
        _RECORDINGS.reset(token)
        with LOCK:
            for handle in handles:
                handle.remove()
