"""Predictions in, the numbers of one record out; knows no model (Section "Uncertainty evaluation metrics").

A prediction is anything with ``label``, ``total``, ``aleatoric`` and ``epistemic``: a credal set, or samples of
distributions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from creinn.evaluation import accuracy_rejection, ood_detection, relative_increase
from creinn.experiments.definition import Shift

MEASURES = ("aleatoric", "epistemic", "total")
GRID = tuple(round(i / 100, 2) for i in range(100))
"""Rejection rates at which accuracy-rejection curves are recorded."""

RESOLUTION = 1e-6
"""Uncertainties below it are rounding errors, and count as 0 where ratios are taken."""

POINTS = "points"
"""Name of the test set that is not shifted."""


@dataclass(frozen=True)
class Scores:
    """A prediction as numbers per image; each uncertainty is computed once."""

    label: npt.NDArray[np.int64]
    uncertainty: Mapping[str, npt.NDArray[np.float64]]
    width: float | None

    @classmethod
    def of(cls, prediction: Any) -> "Scores":
        """Read a prediction."""
        uncertainty = {name: getattr(prediction, name).detach().cpu().double().numpy() for name in MEASURES}
        width = float((prediction.upper - prediction.lower).mean()) if hasattr(prediction, "lower") else None
        return cls(prediction.label.cpu().numpy(), uncertainty, width)


def measure_all(
    tests: Mapping[str, Any], labels: Tensor, ood: Mapping[str, Any], shifts: Sequence[Shift | None]
) -> dict[str, Any]:
    """All numbers of a prediction.

    Args:
        tests: Predictions of the test images by the name of the shift, :data:`POINTS` for none; in the order of
            ``shifts``.
        labels: Their classes.
        ood: Predictions of out-of-distribution sets, by name; they are told from the first of ``tests``.
        shifts: The shifts of ``tests``.
    """
    scores = {name: Scores.of(prediction) for name, prediction in tests.items()}
    bases: dict[str, Scores] = {}
    sets: dict[str, Any] = {}
    for (name, found), shift in zip(scores.items(), shifts, strict=True):
        sets[name] = measure_test(found, labels)
        if shift is not None:
            sets[name]["increase"] = measure_increase(found, bases.setdefault(shift.kind, found))
    inside = next(iter(scores.values()))
    outside = {name: Scores.of(prediction) for name, prediction in ood.items()}
    return {"sets": sets, "ood": {name: measure_ood(inside, found) for name, found in outside.items()}}


def measure_test(scores: Scores, labels: Tensor) -> dict[str, Any]:
    """Accuracy, AUARC and accuracy-rejection curve by each measure, mean uncertainties."""
    correct = scores.label == labels.cpu().numpy()
    curves = {name: accuracy_rejection(score, correct).accuracy for name, score in scores.uncertainty.items()}
    return {
        "accuracy": _number(correct.mean()),
        "auarc": {name: _number(curve.mean()) for name, curve in curves.items()},
        "curves": {name: _thinned(curve) for name, curve in curves.items()},
        "means": _means(scores),
    }


def measure_ood(inside: Scores, outside: Scores) -> dict[str, Any]:
    """AUROC, AUPRC and base rate by epistemic and by total uncertainty, and mean uncertainties of the outside set."""
    found: dict[str, Any] = {}
    for name in ("epistemic", "total"):
        detection = ood_detection(inside.uncertainty[name], outside.uncertainty[name])
        found[name] = {key: _number(value) for key, value in detection._asdict().items()}
    return {**found, "means": _means(outside)}


def measure_increase(scores: Scores, base: Scores) -> dict[str, Any]:
    """Relative increase of each measure over ``base``, ``None`` if undefined for all images, and for how many it is."""
    found: dict[str, Any] = {}
    for name in MEASURES:
        reference = np.where(base.uncertainty[name] < RESOLUTION, 0, base.uncertainty[name])
        found[name] = {"mean": None, "excluded": len(reference)}
        if reference.any():
            increase = relative_increase(scores.uncertainty[name], reference)
            found[name] = {"mean": _number(increase.mean), "excluded": increase.excluded}
    return found


def set_name(shift: Shift | None) -> str:
    """Name of a test set in records."""
    return POINTS if shift is None else str(shift)


def _thinned(accuracy: npt.NDArray[np.float64]) -> list[float]:
    at = np.minimum(np.round(np.array(GRID) * len(accuracy)).astype(int), len(accuracy) - 1)
    return [round(float(value), 5) for value in accuracy[at]]


def _means(scores: Scores) -> dict[str, float]:
    means = {name: _number(score.mean()) for name, score in scores.uncertainty.items()}
    return means if scores.width is None else {**means, "width": _number(scores.width)}


def _number(value: Any) -> float:
    return round(float(value), 6)
