"""Logits of a network: their shape, and a check that they are not probabilities."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.classifier.inputs import describe
from creinn.interval import Interval
from creinn.numerics import at_least_single

_NAME_IT = " Where a module gives the logits, name it: CreINN(network, logits_layer='path')."
_VIEWS = (
    "Squeeze",
    "Unsqueeze",
    "View",
    "UnsafeView",
    "Reshape",
    "Select",
    "Slice",
    "Alias",
    "Unbind",
    "Clone",
    "ToCopy",
    "TBackward",
    "Transpose",
    "Permute",
)
_ENDS = {
    "Sigmoid": "sigmoid",
    "LogSigmoid": "log-sigmoid",
    "Softmax": "softmax",
    "LogSoftmax": "log-softmax",
}
_ARITHMETIC = (
    "Div",
    "Mul",
    "Sub",
    "Add",
    "Exp",
    "Log",
)  # last steps of a softmax that is written out


def as_logits(output: Any, count: int) -> Any:
    """``(N, K)`` of ``(N, K, 1, 1)``, and of ``(N,)`` for one logit; refuses what is no tensor or interval."""
    if not isinstance(output, Tensor | Interval):
        raise ValueError(
            f"The network should return logits (N, {count}) alone, but returns {describe(output)}.{_NAME_IT}"
        )
    if output.ndim == 1 and count == 1:
        return output.unsqueeze(1)
    if output.ndim > 2 and all(size == 1 for size in output.shape[2:]):
        return output.flatten(1)
    if output.ndim != 2:
        raise ValueError(
            f"The network should return logits (N, {count}), but returns {describe(output)}.{_NAME_IT}"
        )
    return output


def logits_cross_entropy(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the mean cross-entropy of logits ``(N, K)``; one logit is that of class 1 of two.

    Args:
        logits: Logits; half precision is converted to float32.
        target: Classes ``(N,)``.
        weight: Weights of the classes ``(K,)`` or of the rows ``(N, 1)``.
    """
    logits = at_least_single(logits)
    if logits.shape[1] == 1:
        logits = torch.cat((torch.zeros_like(logits), logits), 1)
    if weight is None or weight.ndim == 1:
        return F.cross_entropy(logits, target, weight)
    losses = F.cross_entropy(logits, target, reduction="none")
    return (weight[:, 0] * losses).sum() / weight.sum()


def check_logits(logits: Tensor | Interval, count: int, who: str) -> None:
    """Raise a ``ValueError`` if a few rows of logits have a wrong shape or are probabilities.

    Probabilities are recognised by the last operation in the autograd graph. Without a graph, they
    are recognised by rows that sum to 1 and are not all equal: an untrained head may return the
    log-frequencies of the classes.
    """
    if logits.ndim != 2 or logits.shape[1] != count or not logits.dtype.is_floating_point:
        other = logits.ndim == 2 and logits.dtype.is_floating_point
        advice = f" If these are the logits, pass num_logits={logits.shape[1]}." if other else ""
        raise ValueError(
            f"{who} should return logits (N, {count}), but returns {describe(logits)}."
            f"{advice}{_NAME_IT}"
        )
    values = (
        logits.lower if isinstance(logits, Interval) else logits
    )  # upper bounds may have been put in order
    if end := _ending(values):
        found = f"{who} ends in a {end}, so probabilities would be taken for logits."
        raise ValueError(f"{found} Return what enters the {end}.{_NAME_IT}")


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
    """Name the function that turned logits into probabilities; empty if there is none.

    The autograd graph decides. After any other operation, rows of values that sum to 1 show a
    softmax. Values show a log-softmax only if there is no graph, or if it ends in arithmetic that
    may be one in several steps.
    """
    node: Any = values.grad_fn
    # activations of intervals add their argument times 0, so that what is infinite becomes NaN
    while node is not None and (
        node.name().startswith(_VIEWS) or getattr(node, "_saved_alpha", 1) == 0
    ):
        node = node.next_functions[0][0]
    operation = "" if node is None else node.name().partition("Backward")[0]
    if operation in _ENDS:
        return _ENDS[operation]
    found = _sum_to_one(values)
    return found if found == "softmax" or operation in ("", *_ARITHMETIC) else ""


def _sum_to_one(values: Tensor) -> str:
    """Return "softmax" or "log-softmax" if the values of all rows show one; empty otherwise.

    Logits with a reference class that is fixed at 0 have a ``logsumexp`` of 0 up to rounding where
    the others are far below. In a log-softmax all values of uncertain rows are below 0.
    """
    tolerance = min(32 * torch.finfo(values.dtype).eps, 1e-3)
    values = values.detach().double().cpu()
    if values.shape[1] < 2 or bool((values - values[:1]).abs().amax() <= tolerance):
        return ""
    if bool((values >= 0).all()) and bool(((values.sum(1) - 1).abs() <= tolerance).all()):
        return "softmax"
    normalized = bool((values.logsumexp(1).abs() <= tolerance).all())
    return "log-softmax" if normalized and bool((values.amax(1) < -tolerance).any()) else ""
