"""What the metrics accept: NumPy arrays, torch tensors and lists, turned into checked NumPy arrays.

The wrong kind of number is a TypeError; anything else that does not fit is a ValueError that says where.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Numbers = npt.NDArray[np.float64]
_SUM_TOLERANCE = (
    1e-3  # how far the sum of a distribution may be from 1; half precision needs as much
)


def as_numpy(values: Any) -> npt.NDArray[Any]:
    """Any array-like as a NumPy array; a tensor is detached and brought to the CPU first."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


def as_numbers(values: Any, name: str) -> Numbers:
    """Finite real numbers, of any shape but not empty."""
    array = as_numpy(values)
    if array.dtype.kind not in "buif" and array.size:
        raise TypeError(f"{name} must hold real numbers, but its dtype is {array.dtype}.")
    if array.size == 0:
        raise ValueError(f"{name} is empty: there is nothing to evaluate. Pass at least one value.")
    numbers = array.astype(np.float64)
    advice = "A score that is NaN or infinite cannot be ranked: mend the model first."
    _require(np.isfinite(numbers), numbers, f"{name} must be finite", advice)
    return numbers


def as_scores(values: Any, name: str) -> Numbers:
    """Finite scores, one per sample."""
    numbers = as_numbers(values, name)
    if numbers.ndim != 1:
        raise ValueError(
            f"{name} must have shape (samples,), but has shape {numbers.shape}: one number per sample."
        )
    return numbers


def as_uncertainties(values: Any, name: str) -> Numbers:
    """Finite numbers of any shape, none of them negative."""
    numbers = as_numbers(values, name)
    _require(numbers >= 0, numbers, f"{name} must be >= 0", "Uncertainties are never negative.")
    return numbers


def as_distributions(probabilities: Any) -> Numbers:
    """Distributions over two classes or more, one per row."""
    p = as_numbers(probabilities, "probabilities")
    if p.ndim != 2 or p.shape[1] < 2:
        found = f"but have shape {p.shape}."
        raise ValueError(
            f"probabilities must have shape (samples, classes) with two classes or more, {found}"
        )
    advice = "Were logits passed? Apply softmax first."
    _require(p >= 0, p, "probabilities must be >= 0", advice)
    total = p.sum(1)
    _require(
        np.abs(total - 1) <= _SUM_TOLERANCE,
        total,
        "the sum of each row of probabilities must be 1",
        advice,
    )
    return p


def as_labels(labels: Any, classes: int, rows: int | None = None) -> npt.NDArray[np.int64]:
    """Class indices in [0, classes), one per sample; as many as there are rows."""
    truth = as_numpy(labels)
    if truth.dtype.kind not in "ui":
        raise TypeError(
            f"labels must be class indices (integers), but their dtype is {truth.dtype}."
        )
    if truth.ndim != 1 or truth.size == 0 or rows not in (None, len(truth)):
        needed = "samples" if rows is None else rows
        raise ValueError(
            f"labels must have shape ({needed},), one class per row, but have shape {truth.shape}."
        )
    wrong = (truth < 0) | (truth >= classes)
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(
            f"Label {truth[at]} in row {at} is not a class: there are {classes}, counted from 0."
        )
    return truth.astype(np.int64)


def as_mask(values: Any, name: str, advice: str) -> npt.NDArray[np.bool_]:
    """Booleans of any shape."""
    mask = as_numpy(values)
    if mask.dtype != np.bool_ and mask.size:
        raise TypeError(f"{name} must be boolean, but its dtype is {mask.dtype}. {advice}")
    return mask


def _require(holds: npt.NDArray[np.bool_], numbers: Numbers, rule: str, advice: str) -> None:
    if not holds.all():
        at = tuple(np.argwhere(~holds)[0].tolist())
        raise ValueError(f"{rule}, but is {numbers[at]:g} at index {at}. {advice}")
