"""Layers of networks, outputs of layers in a forward pass, and checks of both.

Hooks record the calls, in several threads. Hence ``torch.export`` needs
``strict=False``.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import Tensor
from torch.nn import Module

from creinn.classifier.compile_cache import LOCK
from creinn.classifier.endings import find_ending
from creinn.classifier.inputs import (
    LABELS,
    LOGITS_LAYER_ADVICE,
    as_arguments,
    as_logits,
    describe,
    run,
)
from creinn.distance.feature_layers import HEAD, TOKENS, select_feature_layers
from creinn.interval import Interval, as_interval
from creinn.numerics import at_least_single, weight_per_row

_RECORDINGS: ContextVar[tuple["list[Call]", ...]] = ContextVar("recordings", default=())


def logits_cross_entropy(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the mean cross-entropy; a single logit is that of class 1.

    The targets are classes ``(N,)`` or distributions ``(N, K)``. The shape
    of the weights is ``(K,)`` for classes or ``(N, 1)`` for rows.
    """
    logits = at_least_single(logits)
    if logits.shape[1] == 1:
        logits = torch.cat((torch.zeros_like(logits), logits), 1)
    if weight is None:
        return F.cross_entropy(logits, target)
    rows, is_row_weight = weight_per_row(weight, target), weight.ndim > 1
    losses = F.cross_entropy(logits, target, None if is_row_weight else weight, reduction="none")
    return (rows * losses if is_row_weight else losses).sum() / rows.sum()


def find_logits_layer(network: Module, path: str | None = None) -> Module:
    """Return the layer that computes the logits, or raise a ``ValueError``.

    Without a path, it is ``head`` if the network has a method
    ``features``, as in :mod:`creinn.models`, or else the last ``Linear``
    layer.

    Example:
        >>> find_logits_layer(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(8, 3)))
        Linear(in_features=8, out_features=3, bias=True)
    """
    if path is not None:
        check_layers(network, [path], "logits_layer")
        return network.get_submodule(path)
    layers = _linear_layers(network)
    layer: Any = network.head if _has_features(network) else layers[-1] if layers else None
    if not (hasattr(layer, "in_features") and hasattr(layer, "out_features")):
        raise ValueError(
            f"{type(network).__name__} has no linear layer. Pass logits_layer='path', or define "
            "features(x) and head."
        )
    return layer


def check_layers(network: Module, paths: Iterable[str], name: str) -> None:
    """Raise a ``ValueError`` if there is no module at one of the paths."""
    known = [path for path, _ in network.named_modules() if path]
    for path in paths:
        if path != HEAD and path.removesuffix(TOKENS) not in known:
            modules = f"{type(network).__name__} has the modules {', '.join(known)}"
            raise ValueError(f"{name} contains an unknown path, {path!r}. {modules}.")


def outputs_and_logits(
    network: Module, x: Any, layers: Sequence[str] = (HEAD,), logits_layer: str | None = None
) -> tuple[tuple[Any, ...], Any]:
    """Return the outputs of feature layers and the logits, in one pass.

    A method ``outputs_and_logits`` of the network has priority.
    """
    if not layers and logits_layer is None:
        return (), run(network, x)
    if hasattr(network, "outputs_and_logits"):
        return network.outputs_and_logits(x)  # type: ignore[operator]
    modules = _layers_at(network, layers, logits_layer)
    with recording(modules.values()) as calls:
        logits = run(network, x)
    last = {call.module: call for call in calls}
    for path, module in modules.items():
        if module not in last:
            raise ValueError(f"The module {path!r} did not run.")
    outputs = tuple(last[modules[path]].output_at(path) for path in layers)
    return outputs, logits if logits_layer is None else last[modules[logits_layer]].output


def features_and_logits(network: Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the input ``(N, D)`` and the output of the last linear layer."""
    layer = find_logits_layer(network)
    with recording([layer]) as calls:
        logits = run(network, x)
    if len(calls) != 1 or calls[0].output is not logits:
        raise ValueError(
            f"The last Linear layer, {layer}, must run once and return the output of the network."
        )
    return calls[0].inputs[0], logits


@torch.no_grad()
def find_feature_layers(
    network: Module, x: Any, logits_layer: str | None = None
) -> tuple[str, ...]:
    """Run a network, and select its feature layers.

    Example:
        >>> nn = torch.nn
        >>> network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
        >>> find_feature_layers(network, torch.zeros(1, 1, 4, 4))
        ('1', '<head>')
    """
    last = find_logits_layer(network, logits_layer)
    paths = {module: path for path, module in network.named_modules() if path}
    with recording(paths) as calls:
        run(network, x)
    return select_feature_layers(calls, paths, last)


class Call(NamedTuple):
    """Call of a module."""

    module: Module
    inputs: tuple[Any, ...]
    output: Any

    def output_at(self, path: str) -> Any:
        """Return the output, or the input for the path :data:`HEAD`."""
        return self.inputs[0] if path == HEAD else self.output


@contextmanager
def recording(modules: Iterable[Module]) -> Iterator[list[Call]]:
    """Record all calls of modules in the current context, in order."""
    calls: list[Call] = []

    def recorder(module: Module) -> Any:
        def hook(_: Any, inputs: Any, *rest: Any) -> None:  # without keywords during removal
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


def _linear_layers(network: Module) -> list[torch.nn.Linear]:
    return [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]


def _has_features(network: Module) -> bool:
    features, head = getattr(network, "features", None), getattr(network, "head", None)
    is_method = callable(features) and not isinstance(features, Module)
    return is_method and isinstance(head, Module)


def _layers_at(
    network: Module, paths: Sequence[str], logits_layer: str | None
) -> dict[str, Module]:
    found = {
        path: network.get_submodule(path.removesuffix(TOKENS)) for path in paths if path != HEAD
    }
    if HEAD in paths:
        found[HEAD] = find_logits_layer(network, logits_layer)
    if logits_layer is not None:
        found[logits_layer] = network.get_submodule(logits_layer)
    return found


def check_network(
    network: Module,
    x: Any,
    num_logits: int,
    layers: Sequence[str] = (),
    logits_layer: str | None = None,
) -> None:
    """Run a network, and raise a ``ValueError`` if it has no logits."""
    name = f"The network {type(network).__name__}"
    modules = _layers_at(network, layers, logits_layer)
    with recording([*modules.values(), *_linear_layers(network)]) as calls:
        output = _checked_run(network, x, name)
    if logits_layer is None:
        output = as_logits(output, num_logits)
        if HEAD in layers:
            _check_head(network, modules[HEAD], calls, as_interval(output))
    last = {call.module: call for call in calls}
    for path, module in modules.items():
        count = sum(call.module is module for call in calls)
        if count != 1:
            raise ValueError(f"The layer {path!r} must run once, but ran {count} times.")
    if logits_layer is not None:
        name, output = f"The module {logits_layer!r}", last[modules[logits_layer]].output
    output = as_logits(output, num_logits)
    for path in layers:
        _check_features(path, last[modules[path]].output_at(path), len(output))
    check_logits(output, num_logits, name)


def _checked_run(network: Module, x: Any, name: str) -> Any:
    named = as_arguments(network, x)
    if named is not None and LABELS in x:
        warnings.warn(
            f"The input {LABELS!r} is ignored. Pass the classes separately, as in "
            "fit_distance(x, y).",
            stacklevel=3,
        )
    parameters = (p for p in network.parameters() if p.is_floating_point())
    frozen = [p for p in parameters if not (p.requires_grad or p.is_inference())]
    try:
        for parameter in frozen:  # so that the output has an autograd graph
            parameter.requires_grad_(True)
        return run(network, x)
    except Exception as error:
        advice = ""
        if named is None and not isinstance(x, Tensor | Interval):
            advice = " The keys of a dict must be arguments of forward."
        if any(isinstance(t, Tensor) and not t.is_floating_point() for t in pytree.tree_leaves(x)):
            advice += " Convert integers by .float(), or by Dataset.scaled() for images."
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        message = f"{name} cannot be run on inputs of {describe(x)}: {reason}.{advice}"
        raise ValueError(message) from error
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def is_single_row(network: Module, x: Any, num_logits: int) -> bool:
    """Return whether the inputs are a single row without a batch dimension."""
    is_array = isinstance(x, Tensor | Interval)
    if is_array and x.ndim < 2:
        return True
    try:
        rows = x[None] if is_array else {name: part[None] for name, part in x.items()}
        return as_logits(run(network, rows), num_logits).shape == (1, num_logits)
    except Exception:  # also not valid
        return False


def check_logits(logits: Tensor | Interval, num_logits: int, name: str) -> None:
    """Raise a ``ValueError`` if these are not logits of the right size."""
    if logits.shape[1] != num_logits or not logits.dtype.is_floating_point:
        raise ValueError(
            f"{name} should return logits (N, {num_logits}), but returns {describe(logits)}. "
            f"Pass num_logits={logits.shape[1]} if correct.{LOGITS_LAYER_ADVICE}"
        )
    if ending := find_ending(logits.lower if isinstance(logits, Interval) else logits):
        raise ValueError(
            f"{name} ends in a {ending}. Return its input, the logits.{LOGITS_LAYER_ADVICE}"
        )


def _check_features(path: str, found: Any, rows: int) -> None:
    has_rows = isinstance(found, Tensor | Interval) and found.ndim > 1 and len(found) == rows
    if not has_rows or (path.endswith(TOKENS) and found.ndim != 3):
        raise ValueError(
            f"The features at {path!r} should have shape ({rows}, D) or ({rows}, C, ...), or "
            f"({rows}, tokens, D) with {TOKENS!r}, but are {describe(found)}."
        )


def _check_head(network: Module, layer: Any, calls: Sequence[Call], output: Interval) -> None:
    name = type(network).__name__
    linear = (layer, *_linear_layers(network))
    calls = [call for call in calls if call.module in linear]
    ran = [call.module for call in calls]
    if ran[-1:] != [layer] or ran.count(layer) != 1:
        paths = {part: path for path, part in network.named_modules()}
        order = ", ".join(paths[part] or type(part).__name__ for part in ran) or "none"
        raise ValueError(
            f"The last linear layer of {name}, {paths[layer]!r}, must run last and once, but the "
            f"calls are: {order}.{LOGITS_LAYER_ADVICE}"
        )
    features, logits = calls[-1].inputs[0], as_interval(calls[-1].output)
    is_output = logits.shape == output.shape and all(
        torch.allclose(*pair, 1e-4, 1e-5, equal_nan=True)
        for pair in ((logits.lower, output.lower), (logits.upper, output.upper))
    )
    if _has_features(network) and not is_output:
        raise ValueError(
            f"The output of {name} should be head(features(x)). Rename features if it has another "
            "meaning."
        )
    if features.ndim != 2:
        raise ValueError(
            f"The features of {name} should have shape (N, {layer.in_features}), got "
            f"{tuple(features.shape)}. Pool or flatten before the last linear layer."
        )
