"""What the metrics accept: NumPy arrays, torch tensors and lists, turned into checked NumPy arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

SUM_TOLERANCE = 1e-3
"""How far the sum of a distribution may be from 1; half precision needs as much."""


def as_numpy(values: Any) -> npt.NDArray[Any]:
    """Any array-like as a NumPy array; a tensor is detached and brought to the CPU first."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


def as_numbers(values: Any, name: str) -> npt.NDArray[np.float64]:
    """Finite real numbers, of any shape but not empty.

    Raises:
        TypeError: If the values are not real numbers.
        ValueError: If there are none, or one is NaN or infinite.
    """
    array = as_numpy(values)
    if array.dtype.kind not in "buif" and array.size:
        raise TypeError(f"{name} must hold real numbers, but its dtype is {array.dtype}.")
    if array.size == 0:
        raise ValueError(f"{name} is empty: there is nothing to evaluate. Pass at least one value.")
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(numbers))[0])
        raise ValueError(
            f"{name} must be finite, but is {numbers[at]} at index {at}. A score that is NaN or infinite cannot be "
            "ranked: mend the model first."
        )
    return numbers


def as_scores(values: Any, name: str) -> npt.NDArray[np.float64]:
    """Finite scores, one per sample.

    Raises:
        TypeError: If the values are not real numbers.
        ValueError: If they are not a vector, there are none, or one is NaN or infinite.
    """
    numbers = as_numbers(values, name)
    if numbers.ndim != 1:
        raise ValueError(
            f"{name} must have shape (samples,), but has shape {numbers.shape}. Give one number per sample."
        )
    return numbers


def as_distributions(probabilities: Any) -> npt.NDArray[np.float64]:
    """Distributions over classes, one per row.

    Raises:
        TypeError: If the values are not real numbers.
        ValueError: If there are none, or a row is not a distribution over two classes or more.
    """
    p = as_numbers(probabilities, "probabilities")
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(
            f"probabilities must have shape (samples, classes) with two classes or more, but have shape {p.shape}."
        )
    if (p < 0).any():
        at = tuple(int(i) for i in np.argwhere(p < 0)[0])
        raise ValueError(
            f"probabilities must be >= 0, but one is {p[at]:g} at index {at}. Were logits passed? Apply softmax first."
        )
    wrong = np.abs(p.sum(1) - 1) > SUM_TOLERANCE
    if wrong.any():
        at_row = int(wrong.argmax())
        raise ValueError(
            f"probabilities must sum to 1 in each row, but sum to {p[at_row].sum():g} in row {at_row}. Were logits "
            "passed? Apply softmax first."
        )
    return p


def as_labels(labels: Any, classes: int) -> npt.NDArray[np.int64]:
    """Class indices in [0, classes), one per sample.

    Raises:
        TypeError: If they are not integers.
        ValueError: If they are not a vector, or one is not a class.
    """
    truth = as_numpy(labels)
    if truth.dtype.kind not in "ui":
        raise TypeError(f"labels must be class indices (integers), but their dtype is {truth.dtype}.")
    if truth.ndim != 1:
        raise ValueError(f"labels must have shape (samples,), but have shape {truth.shape}.")
    wrong = (truth < 0) | (truth >= classes)
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(f"Label {truth[at]} in row {at} is not a class: there are {classes}, counted from 0.")
    return truth.astype(np.int64)
