"""All metrics of a prediction, by name.

A prediction has the attributes ``label``, ``probabilities``,
``aleatoric``, ``epistemic`` and ``total``.
"""

from typing import Any

import numpy as np

from creinn.credal.credal_set import CredalSet
from creinn.credal.margin import UNITS
from creinn.evaluation.arrays import Numbers, as_numpy
from creinn.evaluation.label_sets import SetCoverage, SetDecisions, set_coverage, set_decisions
from creinn.evaluation.scores import brier, expected_calibration_error, log_loss
from creinn.evaluation.uncertainty import (
    AccuracyRejection,
    OODDetection,
    RelativeIncrease,
    accuracy_rejection,
    ood_detection,
    relative_increase,
)

MEASURES = {"aleatoric": "AU", "epistemic": "EU", "total": "TU"}
"""Names of the uncertainties in tables."""
_RESOLUTION = 1e-6  # smaller uncertainties are rounding errors


def quality(prediction: Any, labels: Any) -> dict[str, float]:
    """Compute the accuracy, log loss, Brier score and calibration error."""
    p, label, truth = map(as_numpy, (prediction.probabilities, prediction.label, labels))
    return {
        "accuracy": float((label == truth).mean()),
        "log_loss": log_loss(p, truth),
        "brier": brier(p, truth),
        "expected_calibration_error": expected_calibration_error(p, truth, predicted=label),
    }


def uncertainties(prediction: Any) -> dict[str, Numbers]:
    """Return the uncertainties of each row as arrays."""
    return {name: as_numpy(getattr(prediction, name)) for name in MEASURES}


def means(prediction: Any) -> dict[str, float]:
    """Compute the mean uncertainties, and the mean ``width`` of credal sets."""
    found = {name: float(values.mean()) for name, values in uncertainties(prediction).items()}
    if isinstance(prediction, CredalSet):
        found["width"] = float(prediction.width.mean())
    return found


def rejection(prediction: Any, labels: Any) -> dict[str, AccuracyRejection]:
    """Compute the accuracy-rejection curve of each uncertainty."""
    correct = as_numpy(prediction.label) == as_numpy(labels)
    scores = uncertainties(prediction)
    return {name: accuracy_rejection(scores[name], correct) for name in MEASURES}


def detection(inside: Any, outside: Any) -> dict[str, OODDetection]:
    """Compute how well each uncertainty detects the rows of ``outside``."""
    known, foreign = uncertainties(inside), uncertainties(outside)
    return {name: ood_detection(known[name], foreign[name]) for name in MEASURES}


def increase(prediction: Any, base: Any) -> dict[str, RelativeIncrease | None]:
    """Compute the increase of each uncertainty, or ``None`` for a base of 0."""
    found: dict[str, RelativeIncrease | None] = {}
    shifted = uncertainties(prediction)
    for name, values in uncertainties(base).items():
        known = np.where(values < _RESOLUTION, 0, values)
        found[name] = relative_increase(shifted[name], known) if known.any() else None
    return found


def sets(prediction: Any, labels: Any, rule: str) -> SetDecisions | None:
    """Compute the metrics of credal sets, or return ``None``."""
    if not isinstance(prediction, CredalSet):
        return None
    return set_decisions(prediction.classes(rule), labels)


def set_size(prediction: Any, rule: str) -> float | None:
    """Compute the mean size of the sets of classes, or return ``None``."""
    if not isinstance(prediction, CredalSet):
        return None
    return float(prediction.classes(rule).sum(-1).double().mean())


def has_conformal_sets(prediction: Any) -> bool:
    """Return whether there are conformal sets, without groups of rows."""
    conformal = getattr(prediction, "conformal", None)
    return conformal is not None and conformal.score not in UNITS and conformal.by != "groups"


def accepted(prediction: Any) -> Any:
    """Return the accepted rows, or ``None`` without a limit for all groups."""
    abstention = getattr(prediction, "abstention", None)
    if abstention is None or abstention.groups is not None:
        return None
    return as_numpy(prediction.accepted)


def coverage(prediction: CredalSet, labels: Any, nominal: float | None = None) -> SetCoverage:
    """Compute the coverage of the conformal sets."""
    return set_coverage(prediction.classes("conformal", nominal), labels)
