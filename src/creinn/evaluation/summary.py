"""The one evaluator: predictions and true classes in, numbers by name out; knows no model.

A prediction is anything with ``label``, ``probabilities``, ``aleatoric``, ``epistemic`` and ``total``; a credal set has
sets of classes too. What exists for each uncertainty is given as a mapping by the names of :data:`MEASURES`.
"""

from typing import Any

import numpy as np

from creinn.credal.credal_set import CredalSet
from creinn.evaluation import uncertainty
from creinn.evaluation.checks import Numbers, as_numpy
from creinn.evaluation.coverage import SetCoverage, set_coverage
from creinn.evaluation.predictions import (
    SetDecisions,
    brier,
    expected_calibration_error,
    log_loss,
    set_decisions,
)
from creinn.evaluation.uncertainty import AccuracyRejection, OODDetection, RelativeIncrease

MEASURES = {"aleatoric": "AU", "epistemic": "EU", "total": "TU"}  # and their names in tables
_RESOLUTION = (
    1e-6  # uncertainties below it are rounding errors, and count as 0 where ratios are taken
)


def quality(prediction: Any, labels: Any) -> dict[str, float]:
    """Accuracy, log loss, Brier score and calibration error; the probabilities of a credal set are the intersection."""
    p, predicted, truth = (
        as_numpy(prediction.probabilities),
        as_numpy(prediction.label),
        as_numpy(labels),
    )
    return {
        "accuracy": float((predicted == truth).mean()),
        "log_loss": log_loss(p, truth),
        "brier": brier(p, truth),
        "expected_calibration_error": expected_calibration_error(p, truth, predicted=predicted),
    }


def uncertainties(prediction: Any) -> dict[str, Numbers]:
    """Each uncertainty, a number per row."""
    return {name: as_numpy(getattr(prediction, name)) for name in MEASURES}


def means(prediction: Any) -> dict[str, float]:
    """Mean of each uncertainty, and of credal sets the mean ``width`` of their probability intervals."""
    found = {name: float(values.mean()) for name, values in uncertainties(prediction).items()}
    if isinstance(prediction, CredalSet):
        found["width"] = float(prediction.width.mean())
    return found


def rejection(prediction: Any, labels: Any) -> dict[str, AccuracyRejection]:
    """Accuracy-rejection curve by each uncertainty; the ``area`` of a curve is the AUARC."""
    correct = as_numpy(prediction.label) == as_numpy(labels)
    return {
        name: uncertainty.accuracy_rejection(values, correct)
        for name, values in uncertainties(prediction).items()
    }


def detection(inside: Any, outside: Any) -> dict[str, OODDetection]:
    """How well each uncertainty tells the rows of ``outside``, out of distribution, from those of ``inside``."""
    foreign = uncertainties(outside)
    return {
        name: uncertainty.ood_detection(values, foreign[name])
        for name, values in uncertainties(inside).items()
    }


def increase(prediction: Any, base: Any) -> dict[str, RelativeIncrease | None]:
    """Relative increase of each uncertainty over that of ``base``, the same rows; ``None`` if that is 0 for all."""
    shifted, known = uncertainties(prediction), uncertainties(base)
    known = {name: np.where(values < _RESOLUTION, 0, values) for name, values in known.items()}
    return {
        n: uncertainty.relative_increase(shifted[n], known[n]) if known[n].any() else None
        for n in MEASURES
    }


def sets(prediction: Any, labels: Any, rule: str) -> SetDecisions | None:
    """Coverage, size and accuracy of the sets of classes by a rule; ``None`` if they are no credal sets."""
    return (
        set_decisions(prediction.classes(rule), labels)
        if isinstance(prediction, CredalSet)
        else None
    )


def coverage(prediction: CredalSet, labels: Any, asked: float | None = None) -> SetCoverage:
    """How often conformal sets of a calibrated model hold the true class, for the coverage ``asked``, or its own."""
    return set_coverage(prediction.classes("conformal", asked), labels)


def set_size(prediction: Any, rule: str) -> float | None:
    """Mean number of classes in a set, which needs no labels; ``None`` if they are no credal sets."""
    return (
        float(prediction.classes(rule).sum(-1).double().mean())
        if isinstance(prediction, CredalSet)
        else None
    )
