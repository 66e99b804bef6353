"""Whether a network gives logits: looked at once, on the first rows that it meets.

In: what a network made of a few rows. Out: logits ``(N, K)``, or one sentence that says what was found instead.
"""

from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from creinn.classifier.inputs import in_words
from creinn.interval import Interval

NAME_IT = " Where a module gives the logits, name it: CreINN(network, head='path')."
_VIEWS = ("Squeeze", "Unsqueeze", "View", "UnsafeView", "Reshape", "Select", "Slice", "Alias", "Unbind")
_ENDS = {"Sigmoid": "sigmoid", "LogSigmoid": "log-sigmoid", "Softmax": "softmax", "LogSoftmax": "log-softmax"}


def run(network: torch.nn.Module, x: Any) -> Any:
    """The output of a network on a few rows.

    Raises:
        ValueError: If it cannot be run on them.
    """
    try:
        return network(x)
    except Exception as error:
        advice = "" if isinstance(x, Tensor | Interval) else " It gets a dict or tuple as one argument."
        if any(isinstance(t, Tensor) and not t.is_floating_point() for t in pytree.tree_leaves(x)):
            advice += " Integers reach it as they are: .float() makes numbers of them, Dataset.scaled() of images."
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"The network {type(network).__name__} cannot be run on inputs of {in_words(x)}: {reason}.{advice}"
        ) from error


def as_logits(output: Any, count: int) -> Any:
    """``(N, K)`` of ``(N, K, 1, 1)``, and of ``(N,)`` where there is one logit; other shapes as they are.

    Raises:
        ValueError: If the output is something else than a tensor or an interval.
    """
    if not isinstance(output, Tensor | Interval):
        raise ValueError(
            f"The network should return logits (N, {count}) alone, but returns {in_words(output)}.{NAME_IT}"
        )
    if output.ndim == 1 and count == 1:
        return output.unsqueeze(1)
    return output.flatten(1) if output.ndim > 2 and all(size == 1 for size in output.shape[2:]) else output


def check_logits(logits: Tensor | Interval, count: int, who: str) -> None:
    """Refuse logits that are not ``(N, count)``, and probabilities.

    Probabilities are told by the last operation, where autograd knows it, or by rows that sum to 1. Rows that are all
    the same prove nothing: the bias of an untrained head may hold the log-frequencies of the classes.

    Args:
        logits: Of a few rows.
        count: Number of logits.
        who: What gave them.

    Raises:
        ValueError: If they are no logits.
    """
    if logits.ndim != 2 or logits.shape[1] != count or not logits.dtype.is_floating_point:
        raise ValueError(f"{who} should return logits (N, {count}), but returns {in_words(logits)}.{NAME_IT}")
    end = _last_operation(logits) or _sum_to_one(logits)
    if end:
        raise ValueError(
            f"{who} ends in a {end}, so probabilities would be taken for logits. Return what enters the {end}.{NAME_IT}"
        )


def _last_operation(output: Tensor | Interval) -> str:
    """What turned logits into probabilities; views behind it, and the choice of a bound, are looked through."""
    node: Any = (output.upper if isinstance(output, Interval) else output).grad_fn
    # activations of intervals add their argument times 0, so that what is infinite becomes NaN
    while node is not None and (node.name().startswith(_VIEWS) or getattr(node, "_saved_alpha", 1) == 0):
        node = node.next_functions[0][0]
    return _ENDS.get(node.name().partition("Backward")[0], "") if node is not None else ""


def _sum_to_one(output: Tensor | Interval) -> str:
    values = (output.upper if isinstance(output, Interval) else output).detach().double().cpu()
    tolerance = min(32 * torch.finfo(output.dtype).eps, 1e-3)
    if values.shape[1] < 2 or bool((values - values[:1]).abs().amax() <= tolerance):
        return ""
    if bool((values >= 0).all()) and bool(((values.sum(1) - 1).abs() <= tolerance).all()):
        return "softmax"
    return "log-softmax" if bool((values.logsumexp(1).abs() <= tolerance).all()) else ""
