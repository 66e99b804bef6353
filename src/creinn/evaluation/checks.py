"""What the metrics accept: NumPy arrays, torch tensors and lists, turned into checked NumPy arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


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
