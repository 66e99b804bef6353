"""Functions that run a network and record the outputs of its modules.

Hooks write to a store of the current context only, so that several threads may run the same modules
at the same time. ``LOCK`` is held while hooks are added or removed, and while a module is copied,
checked or compiled. Because of the hooks, ``torch.export`` needs ``strict=False``.
"""

import inspect
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules import module as torch_module

from creinn.classifier.inputs import describe
from creinn.distance.feature_layers import HEAD, TOKENS, select_feature_layers
from creinn.interval import Interval
from creinn.nn.affine import IntervalParameters
from creinn.numerics import at_least_single, weight_per_row

LABELS = "labels"
LOCK = threading.RLock()
LOGITS_LAYER_ADVICE = " If a module computes the logits, pass its path as logits_layer='path'."

_LAST_CALLS: ContextVar["LastCalls | None"] = ContextVar("last_calls", default=None)
_RECORDINGS: ContextVar[tuple["list[Call]", ...]] = ContextVar("recordings", default=())


def run(network: torch.nn.Module, x: Any) -> Any:
    """Call a network and return its output, or the attribute ``logits`` of its output.

    A mapping is passed as keyword arguments if ``forward`` has parameters of these names, except
    for ``labels``, from which a Hugging Face model would compute a loss.

    Example:
        >>> run(torch.nn.Linear(2, 3), {"input": torch.zeros(1, 2)}).shape
        torch.Size([1, 3])
    """
    named = as_arguments(network, x)
    output = network(x) if named is None else network(**named)
    return output if isinstance(output, Tensor | Interval) else getattr(output, "logits", output)


def as_arguments(network: torch.nn.Module, x: Any) -> dict[str, Any] | None:
    """Return the keyword arguments for ``forward``, or ``None`` if ``x`` does not match them."""
    if not isinstance(x, Mapping) or not all(isinstance(name, str) for name in x):
        return None
    named = {name: part for name, part in x.items() if name != LABELS}
    try:
        inspect.signature(network.forward).bind(**named)
    except TypeError:
        return None
    return named


def as_logits(output: Any, count: int) -> Any:
    """Return an output ``(N, K)``, ``(N, K, 1, 1)`` or ``(N,)`` as logits ``(N, K)``.

    Raises:
        ValueError: If the output has a different shape or type.
    """
    is_array = isinstance(output, Tensor | Interval)
    if is_array and output.ndim == 1 and count == 1:
        return output.unsqueeze(1)
    if is_array and output.ndim > 2 and all(size == 1 for size in output.shape[2:]):
        return output.flatten(1)
    if not is_array or output.ndim != 2:
        raise ValueError(
            f"The network should return logits (N, {count}){'' if is_array else ' alone'}, but "
            f"returns {describe(output)}.{LOGITS_LAYER_ADVICE}"
        )
    return output


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


def count_logits(network: torch.nn.Module, logits_layer: str | None = None) -> int:
    """Return the output size of the layer of the logits, or of the last interval layer.

    Raises:
        ValueError: If the layer has no attribute with the number of its outputs.

    Example:
        >>> count_logits(torch.nn.Linear(8, 3))
        3
    """
    layers = [layer for layer in network.modules() if isinstance(layer, IntervalParameters)]
    is_last = layers and logits_layer is None
    layer: Any = layers[-1] if is_last else find_logits_layer(network, logits_layer)
    if isinstance(layer, IntervalParameters):
        return layer.weight.shape[0]
    count = getattr(layer, "out_features", getattr(layer, "out_channels", None))
    if count is None:
        raise ValueError(
            f"The number of logits of {logits_layer!r} is not known. Pass it as num_logits=..."
        )
    return int(count)


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
    last = None
    if HEAD in layers or logits_layer is not None:
        last = find_logits_layer(network, logits_layer)
    modules = [
        last if path == HEAD else network.get_submodule(path.removesuffix(TOKENS))
        for path in layers
    ]
    with last_calls(module for module in (*modules, last) if module is not None) as calls:
        logits = run(network, x)
    for path, module in zip((*layers, logits_layer or HEAD), (*modules, last), strict=True):
        if module is not None and calls[module] is None:
            raise ValueError(f"The module {path!r} did not run, so it has no output.")
    outputs = tuple(
        calls[module].inputs[0] if path == HEAD else calls[module].output  # type: ignore
        for path, module in zip(layers, modules, strict=True)
    )
    return outputs, logits if logits_layer is None else calls[last].output  # type: ignore


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


class LastCalls:
    """The last call of each module, or ``None``.

    Modules are identified by their attributes, because ``torch.export`` replaces them by proxies.
    """

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._calls: dict[int, Call | None] = {id(vars(module)): None for module in modules}

    def __getitem__(self, module: torch.nn.Module) -> Call | None:
        return self._calls[id(vars(module))]

    def add(self, call: Call) -> None:
        """Replace the last call of a module, if it is one of these."""
        if id(vars(call.module)) in self._calls:
            self._calls[id(vars(call.module))] = call


@contextmanager
def recording(modules: Iterable[torch.nn.Module]) -> Iterator[list[Call]]:
    """Record all calls of the given modules in order; the hooks are removed on exit."""
    calls: list[Call] = []

    def hook(module: torch.nn.Module, inputs: tuple[Any, ...], *rest: Any) -> None:
        if any(calls is active for active in _RECORDINGS.get()):
            calls.append(_call(module, inputs, rest))

    hook.is_recorder = True  # type: ignore[attr-defined]
    with LOCK:
        handles = [module.register_forward_hook(hook, with_kwargs=True) for module in modules]
    token = _RECORDINGS.set((*_RECORDINGS.get(), calls))
    try:
        yield calls
    finally:
        _RECORDINGS.reset(token)
        with LOCK:
            for handle in handles:
                handle.remove()


@contextmanager
def last_calls(modules: Iterable[torch.nn.Module]) -> Iterator[LastCalls]:
    """Record the last call of each of these modules.

    The hooks are not removed, because other threads may run the modules at the same time.
    """
    modules = list(modules)
    calls = LastCalls(modules)
    if any(_record_last not in module._forward_hooks.values() for module in modules):
        with LOCK:
            for module in modules:
                if _record_last not in module._forward_hooks.values():
                    module.register_forward_hook(_record_last, with_kwargs=True)
    token = _LAST_CALLS.set(calls)
    try:
        yield calls
    finally:
        _LAST_CALLS.reset(token)


def has_hooks(module: torch.nn.Module) -> bool:
    """Return whether a module has forward hooks other than the ones of this file."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(not hasattr(hook, "is_recorder") for hook in hooks)


def has_global_hooks() -> bool:
    """Return whether there are forward hooks for all modules."""
    return bool(torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks)


def _record_last(module: torch.nn.Module, inputs: tuple[Any, ...], *rest: Any) -> None:
    calls = _LAST_CALLS.get()
    if calls is not None:
        calls.add(_call(module, inputs, rest))


_record_last.is_recorder = True  # type: ignore[attr-defined]


def _call(module: torch.nn.Module, inputs: tuple[Any, ...], rest: tuple[Any, ...]) -> Call:
    """Return a call; another thread may run a hook before its keyword arguments are enabled."""
    *named, output = rest
    values = named[0].values() if named else ()
    return Call(module, (*inputs, *values), output)
