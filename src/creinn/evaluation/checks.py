"""Validation of the inputs of metrics, and their conversion to NumPy arrays.

A wrong dtype raises a ``TypeError``. Other errors are a ``ValueError`` with the first bad value.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Numbers = npt.NDArray[np.float64]
_SUM_TOLERANCE = 1e-3  # for the sum of a distribution; half precision needs this tolerance


def as_numpy(values: Any) -> npt.NDArray[Any]:
    """Convert an array-like or a tensor to a NumPy array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


def as_numbers(values: Any, name: str) -> Numbers:
    """Convert to a non-empty array of finite numbers, of any shape."""
    array = as_numpy(values)
    if array.size == 0:
        raise ValueError(f"{name} must have at least one value, but the array is empty.")
    if array.dtype.kind not in "buif":
        raise TypeError(f"{name} must be an array of real numbers, got dtype {array.dtype}.")
    numbers = array.astype(np.float64)
    require(np.isfinite(numbers), numbers, f"{name} must be finite", "Check the model for NaN.")
    return numbers


def as_scores(values: Any, name: str) -> Numbers:
    """Convert to an array of finite scores with shape ``(samples,)``."""
    numbers = as_numbers(values, name)
    if numbers.ndim != 1:
        raise ValueError(f"{name} must have shape (samples,), got shape {numbers.shape}.")
    return numbers


def as_distributions(probabilities: Any) -> Numbers:
    """Convert to an array of distributions ``(samples, classes)`` over two classes or more."""
    p = as_numbers(probabilities, "probabilities")
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(
            "probabilities must have shape (samples, classes) with at least two classes, "
            f"got shape {p.shape}."
        )
    advice = "If the values are logits, apply softmax first."
    require(p >= 0, p, "probabilities must be >= 0", advice)
    total = p.sum(1)
    sums_to_one = np.abs(total - 1) <= _SUM_TOLERANCE
    require(sums_to_one, total, "the sum of each row of probabilities must be 1", advice)
    return p


def as_labels(labels: Any, classes: int, rows: int | None = None) -> npt.NDArray[np.int64]:
    """Convert to an array of class indices in [0, classes), one for each row."""
    truth = as_numpy(labels)
    if truth.dtype.kind not in "ui":
        raise TypeError(f"labels must be integers, got dtype {truth.dtype}.")
    if truth.ndim != 1 or truth.size == 0 or rows not in (None, len(truth)):
        expected = "samples" if rows is None else rows
        raise ValueError(f"labels must have shape ({expected},), got shape {truth.shape}.")
    wrong = (truth < 0) | (truth >= classes)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"labels must be in [0, {classes}), got {truth[row]} in row {row}.")
    return truth.astype(np.int64)


def as_mask(values: Any, name: str, ndim: int = 1) -> npt.NDArray[np.bool_]:
    """Convert to a non-empty boolean array with ``ndim`` dimensions."""
    mask = as_numpy(values)
    if mask.dtype != np.bool_ and mask.size:
        raise TypeError(f"{name} must be boolean, got dtype {mask.dtype}.")
    if mask.ndim != ndim or mask.size == 0:
        expected = "(samples,)" if ndim == 1 else "(samples, classes)"
        raise ValueError(
            f"{name} must have shape {expected} with at least one row, got shape {mask.shape}."
        )
    return mask


def require(holds: npt.NDArray[np.bool_], numbers: Numbers, rule: str, advice: str) -> None:
    """Raise a ``ValueError`` with the first number for which ``holds`` is False."""
    if not holds.all():
        at = tuple(np.argwhere(~holds)[0].tolist())
        raise ValueError(f"{rule}, got {numbers[at]:g} at index {at}. {advice}")
