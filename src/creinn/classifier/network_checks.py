"""Checks that a network runs on given inputs, and returns logits and features."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from creinn.classifier.inputs import describe
from creinn.classifier.network import (
    LABELS,
    LOGITS_LAYER_ADVICE,
    as_arguments,
    as_logits,
    find_logits_layer,
    has_features,
    outputs_and_logits,
    recording,
    run,
)
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
_ARITHMETIC = ("Div", "Mul", "Sub", "Add", "Exp", "Log")  # the last steps of an explicit softmax


def check_network(
    network: torch.nn.Module,
    x: Any,
    num_logits: int,
    layers: Sequence[str] = (),
    logits_layer: str | None = None,
) -> None:
    """Run a network, and raise a ``ValueError`` if it returns no logits or has no features."""
    name = f"The network {type(network).__name__}"
    output = _checked_run(network, x, name)
    if logits_layer is None:
        output = as_logits(output, num_logits)
        if HEAD in layers:
            _check_head(network, x)
    if layers or logits_layer is not None:
        _check_features(network, x, layers, logits_layer)
    if logits_layer is not None:
        name = f"The module {logits_layer!r}"
        with tracking_operations(network):
            _, output = outputs_and_logits(network, x, (), logits_layer)
    check_logits(as_logits(output, num_logits), num_logits, name)


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
        with tracking_operations(network):
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
    """Raise a ``ValueError`` if logits have a wrong shape or are probabilities."""
    if logits.ndim != 2 or logits.shape[1] != num_logits or not logits.dtype.is_floating_point:
        advice = ""
        if logits.ndim == 2 and logits.dtype.is_floating_point:
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
def tracking_operations(network: torch.nn.Module) -> Iterator[None]:
    """Let frozen parameters require gradients, so that outputs have an autograd graph."""
    frozen = [
        parameter
        for parameter in network.parameters()
        if parameter.is_floating_point()
        and not (parameter.requires_grad or parameter.is_inference())
    ]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
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
    return found if found == "softmax" or operation in ("", *_ARITHMETIC) else ""


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


@torch.no_grad()
def _check_features(
    network: torch.nn.Module, x: Any, layers: Sequence[str], logits_layer: str | None
) -> None:
    """Check that the layers run once, and that their outputs have a suitable shape."""
    paths = [path for path in (*layers, logits_layer) if path not in (None, HEAD)]
    modules = {path: network.get_submodule(path.removesuffix(TOKENS)) for path in paths if path}
    with recording(set(modules.values())) as calls:
        run(network, x)
    ran = [call.module for call in calls]
    for path, module in modules.items():
        if (count := ran.count(module)) != 1:
            raise ValueError(f"The layer {path!r} ran {count} times. It must run once.")
    outputs, logits = outputs_and_logits(network, x, layers, logits_layer)
    for path, found in zip(layers, outputs, strict=True):
        is_array = isinstance(found, Tensor | Interval)
        has_rows = is_array and found.ndim > 1 and len(found) == len(logits)
        if not has_rows or (path.endswith(TOKENS) and found.ndim != 3):
            what = f"input of {logits_layer}" if path == HEAD else f"feature layer {path!r}"
            raise ValueError(
                f"The {what} is {describe(found)}. Its shape must be ({len(logits)}, D) or "
                f"({len(logits)}, C, ...), or (N, tokens, D) with {TOKENS!r}."
            )


@torch.no_grad()
def _check_head(network: torch.nn.Module, x: Any) -> None:
    """Check that the last linear layer computes the logits, if no ``logits_layer`` is given."""
    name = type(network).__name__
    paths = {layer: path for path, layer in network.named_modules()}
    layer: Any = find_logits_layer(network)
    linear = (part for part in paths if isinstance(part, torch.nn.Linear))
    with recording({layer, *linear}) as calls:
        output = as_interval(run(network, x))
    ran = [call.module for call in calls]
    if not ran or ran[-1] is not layer or ran.count(layer) != 1:
        order = ", ".join(paths.get(part) or type(part).__name__ for part in ran) or "none"
        raise ValueError(
            f"The last linear layer of {name}, {paths.get(layer)!r}, must run once and after all "
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
