"""Recognition of networks that end in a softmax or a sigmoid."""

from typing import Any

import torch
from torch import Tensor

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
_ARITHMETIC = ("", "Div", "Mul", "Sub", "Add", "Exp", "Log")  # last steps of a softmax by hand


def find_ending(values: Tensor) -> str:
    """Return the name of the function that computed probabilities, or ``""``.

    It is the last operation of the autograd graph, or recognized by its
    values.
    """
    node: Any = values.grad_fn
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
    """Return the kind of probabilities in the rows, unless all are equal.

    An untrained layer may return the same logarithms of frequencies in all
    rows. The values of a log-softmax must be below 0, because the
    ``logsumexp`` of small logits and a reference class at 0 is also about
    0.
    """
    tolerance = min(32 * torch.finfo(values.dtype).eps, 1e-3)
    values = values.detach().double().cpu()
    if values.shape[1] < 2 or bool((values - values[:1]).abs().amax() <= tolerance):
        return ""
    if bool((values >= 0).all()) and bool(((values.sum(1) - 1).abs() <= tolerance).all()):
        return "softmax"
    normalized = bool((values.logsumexp(1).abs() <= tolerance).all())
    return "log-softmax" if normalized and bool((values.amax(1) < -tolerance).any()) else ""
