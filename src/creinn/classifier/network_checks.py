"""Checks that a network runs on given inputs, and returns logits and features."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from creinn.classifier.inputs import (
    LABELS,
    LOGITS_LAYER_ADVICE,
    as_arguments,
    as_logits,
    describe,
    run,
)
from creinn.classifier.network import Call, has_features, layers_at, recording
from creinn.distance.feature_layers import HEAD, TOKENS
from creinn.interval import Interval, as_interval

_VIEWS = (
    "Squeeze", "Unsqueeze", "View", "UnsafeView", "Reshape", "Select", "Slice", "Alias", "Unbind",
    "Clone", "ToCopy", "TBackward", "Transpose", "Permute",
)  # fmt: skip
_PROBABILITIES = {
    "Sigmoid": "sigmoid",
    "LogSigmoid": "log-sigmoid",
    "Softmax": "softmax",
    "LogSoftmax": "log-softmax",
}
_ARITHMETIC = ("", "Div", "Mul", "Sub", "Add", "Exp", "Log")  # the last steps of a softmax by hand


def check_network(
    network: torch.nn.Module,
    x: Any,
    num_logits: int,
    layers: Sequence[str] = (),
    logits_layer: str | None = None,
) -> None:
    """Run a network, and raise a ``ValueError`` if it returns no logits or has no features."""
    name = f"The network {type(network).__name__}"
    linear = [part for part in network.modules() if isinstance(part, torch.nn.Linear)]
    modules = layers_at(network, layers, logits_layer)
    with recording([*modules.values(), *linear]) as calls:
        output = _checked_run(network, x, name)
    if logits_layer is None:
        output = as_logits(output, num_logits)
        if HEAD in layers:
            _check_head(network, modules[HEAD], calls, as_interval(output))
    found = {path: _only_call(path, module, calls) for path, module in modules.items()}
    if logits_layer is not None:
        name, output = f"The module {logits_layer!r}", found[logits_layer].output
    output = as_logits(output, num_logits)
    for path in layers:
        _check_features(path, found[path].output_at(path), len(output))
    check_logits(output, num_logits, name)


def _checked_run(network: torch.nn.Module, x: Any, name: str) -> Any:
    """Return the output of a network; an error describes the inputs and contains advice."""
    named = as_arguments(network, x)
    if named is not None and LABELS in x:
        warnings.warn(
            f"The inputs have the key {LABELS!r}, which is not passed to the network. Pass the "
            "classes separately, for example fit_distance(x, y).",
            stacklevel=3,
        )
    try:
        with _tracking_operations(network):
            return run(network, x)
    except Exception as error:
        advice = ""
        if named is None and not isinstance(x, Tensor | Interval):
            advice = " A dict needs the names of the arguments of forward as keys."
        if any(isinstance(t, Tensor) and not t.is_floating_point() for t in pytree.tree_leaves(x)):
            advice += " Convert integers by .float(), or by Dataset.scaled() for images."
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        message = f"{name} cannot be run on inputs of {describe(x)}: {reason}.{advice}"
        raise ValueError(message) from error


def is_single_row(network: torch.nn.Module, x: Any, num_logits: int) -> bool:
    """Return whether inputs with an error are a single row without a batch dimension."""
    is_dict = isinstance(x, Mapping) and all(isinstance(part, Tensor) for part in x.values())
    if not is_dict and (not isinstance(x, Tensor | Interval) or x.ndim < 2):
        return isinstance(x, Tensor | Interval)
    try:
        rows = {name: part[None] for name, part in x.items()} if is_dict else x[None]
        return as_logits(run(network, rows), num_logits).shape == (1, num_logits)
    except Exception:  # the network does not take these inputs either
        return False


def check_logits(logits: Tensor | Interval, num_logits: int, name: str) -> None:
    """Raise a ``ValueError`` if logits ``(N, K)`` have a wrong size or are probabilities."""
    if logits.shape[1] != num_logits or not logits.dtype.is_floating_point:
        advice = f" If these are the logits, pass num_logits={logits.shape[1]}."
        raise ValueError(
            f"{name} should return logits (N, {num_logits}), but returns {describe(logits)}."
            f"{advice}{LOGITS_LAYER_ADVICE}"
        )
    if ending := _ending(logits.lower if isinstance(logits, Interval) else logits):
        raise ValueError(
            f"{name} ends in a {ending}, but logits are needed. Return the input of the {ending}."
            f"{LOGITS_LAYER_ADVICE}"
        )


@contextmanager
def _tracking_operations(network: torch.nn.Module) -> Iterator[None]:
    """Let frozen parameters require gradients, so that outputs have an autograd graph."""
    frozen = [
        parameter
        for parameter in network.parameters()
        if parameter.is_floating_point()
        and not (parameter.requires_grad or parameter.is_inference())
    ]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _ending(values: Tensor) -> str:
    """Return the name of the function that computed probabilities, or an empty string.

    The function is the last operation of the autograd graph, or it is recognized by its values.
    """
    node: Any = values.grad_fn
    # interval activations add the product of their argument and 0, which is NaN for infinity
    while node is not None and (
        node.name().startswith(_VIEWS) or getattr(node, "_saved_alpha", 1) == 0
    ):
        node = node.next_functions[0][0]
    operation = "" if node is None else node.name().partition("Backward")[0]
    if operation in _PROBABILITIES:
        return _PROBABILITIES[operation]
    found = _sum_to_one(values)
    return found if found == "softmax" or operation in _ARITHMETIC else ""


def _sum_to_one(values: Tensor) -> str:
    """Return "softmax" or "log-softmax" if all rows are probabilities and not all equal.

    An untrained layer may return the logarithms of class frequencies in all rows. The ``logsumexp``
    of small logits and a reference class at 0 is also 0 up to rounding, so all values of a
    log-softmax must be below 0.
    """
    tolerance = min(32 * torch.finfo(values.dtype).eps, 1e-3)
    values = values.detach().double().cpu()
    if values.shape[1] < 2 or bool((values - values[:1]).abs().amax() <= tolerance):
        return ""
    if bool((values >= 0).all()) and bool(((values.sum(1) - 1).abs() <= tolerance).all()):
        return "softmax"
    normalized = bool((values.logsumexp(1).abs() <= tolerance).all())
    return "log-softmax" if normalized and bool((values.amax(1) < -tolerance).any()) else ""


def _only_call(path: str, module: torch.nn.Module, calls: Sequence[Call]) -> Call:
    own = [call for call in calls if call.module is module]
    if len(own) != 1:
        raise ValueError(f"The layer {path!r} ran {len(own)} times. It must run once.")
    return own[0]


def _check_features(path: str, found: Any, rows: int) -> None:
    """Check the shape of the features at a path."""
    has_rows = isinstance(found, Tensor | Interval) and found.ndim > 1 and len(found) == rows
    if not has_rows or (path.endswith(TOKENS) and found.ndim != 3):
        raise ValueError(
            f"The features at {path!r} are {describe(found)}. Their shape must be ({rows}, D) or "
            f"({rows}, C, ...), or (N, tokens, D) with {TOKENS!r}."
        )


def _check_head(
    network: torch.nn.Module, layer: Any, calls: Sequence[Call], output: Interval
) -> None:
    """Check that the last linear layer computes the logits, if no ``logits_layer`` is given."""
    name = type(network).__name__
    calls = [
        call for call in calls if call.module is layer or isinstance(call.module, torch.nn.Linear)
    ]
    ran = [call.module for call in calls]
    if not ran or ran[-1] is not layer or ran.count(layer) != 1:
        paths = {part: path for path, part in network.named_modules()}
        order = ", ".join(paths[part] or type(part).__name__ for part in ran) or "none"
        raise ValueError(
            f"The last linear layer of {name}, {paths[layer]!r}, must run once and after all "
            f"others, but they ran in the order: {order}.{LOGITS_LAYER_ADVICE}"
        )
    features, logits = as_interval(calls[-1].inputs[0]), as_interval(calls[-1].output)
    is_output = logits.shape == output.shape and all(
        torch.allclose(*pair, 1e-4, 1e-5, equal_nan=True)
        for pair in ((logits.lower, output.lower), (logits.upper, output.upper))
    )
    if has_features(network) and not is_output:
        raise ValueError(
            f"The output of {name} is not head(features(x)). Rename the method features, or make "
            "forward(x) equal to head(features(x))."
        )
    if features.ndim != 2 or features.shape[1] != layer.in_features:
        raise ValueError(
            f"The features of {name} should have the shape (N, {layer.in_features}), but it is "
            f"{tuple(features.shape)}. Pool or flatten before the last linear layer."
        )
