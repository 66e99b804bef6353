"""Conversion of the inputs of metrics to NumPy arrays, with checks."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Numbers = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_SUM_TOLERANCE = 1e-3  # for half precision


def as_numpy(values: Any) -> np.ndarray:
    """Convert an array-like or a tensor to a NumPy array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


def as_numbers(values: Any, name: str, ndim: int | None = None) -> Numbers:
    """Convert to a non-empty array of finite numbers."""
    array = _as_array(values, name, "buif", "real numbers", ndim).astype(np.float64)
    require(np.isfinite(array), array, f"{name} must be finite", "Check the model for NaN.")
    return array


def as_distributions(probabilities: Any) -> Numbers:
    """Convert to an array of distributions ``(samples, classes)``."""
    p = as_numbers(probabilities, "probabilities", ndim=2)
    if p.shape[1] < 2:
        raise ValueError(f"probabilities must have two classes or more, got shape {p.shape}.")
    advice = "If they are logits, apply softmax first."
    require(p >= 0, p, "probabilities must be >= 0", advice)
    total = p.sum(1)
    is_one = np.abs(total - 1) <= _SUM_TOLERANCE
    require(is_one, total, "the sum of each row of probabilities must be 1", advice)
    return p


def as_labels(labels: Any, classes: int, rows: int | None = None) -> Classes:
    """Convert to an array of class indices in [0, classes)."""
    truth = _as_array(labels, "labels", "ui", "integers", ndim=1).astype(np.int64)
    if rows not in (None, len(truth)):
        raise ValueError(f"labels must have shape ({rows},), got shape {truth.shape}.")
    is_class = (truth >= 0) & (truth < classes)
    require(is_class, truth, f"labels must be in [0, {classes})", "Check the labels.")
    return truth


def as_mask(values: Any, name: str, ndim: int = 1) -> Mask:
    """Convert to a non-empty boolean array."""
    return _as_array(values, name, "b", "booleans", ndim)


def require(holds: Mask, found: np.ndarray, rule: str, advice: str) -> None:
    """Raise a ``ValueError`` with the first value that breaks a rule."""
    if not holds.all():
        at = tuple(np.argwhere(~holds)[0].tolist())
        raise ValueError(f"{rule}, got {found[at]:g} at index {at}. {advice}")


def _as_array(values: Any, name: str, kinds: str, expected: str, ndim: int | None) -> np.ndarray:
    array = as_numpy(values)
    if array.size == 0 or ndim not in (None, array.ndim):
        shape = "(samples, classes)" if ndim == 2 else "(samples,)"
        raise ValueError(f"{name} must have shape {shape} and not be empty, got {array.shape}.")
    if array.dtype.kind not in kinds:
        raise TypeError(f"{name} must be an array of {expected}, got dtype {array.dtype}.")
    return array
