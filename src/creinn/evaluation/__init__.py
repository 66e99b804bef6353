"""Scores and labels in, numbers out; knows no model.

A score is any number per sample that is higher where the prediction is less certain; a set of classes is a row of a
boolean mask. NumPy arrays, torch tensors and lists are taken alike; floats and NumPy arrays are given.
"""

from creinn.evaluation.ood import OODDetection, ood_detection
from creinn.evaluation.rejection import AccuracyRejection, accuracy_rejection, auarc
from creinn.evaluation.scores import (
    Reliability,
    brier,
    confusion,
    expected_calibration_error,
    log_loss,
    reliability,
)
from creinn.evaluation.sets import (
    SetDecisions,
    cumulative_sets,
    set_decisions,
    tail_for_size,
    threshold_for_size,
    threshold_sets,
)
from creinn.evaluation.shift import RelativeIncrease, relative_increase

__all__ = [
    "AccuracyRejection",
    "OODDetection",
    "RelativeIncrease",
    "Reliability",
    "SetDecisions",
    "accuracy_rejection",
    "auarc",
    "brier",
    "confusion",
    "cumulative_sets",
    "expected_calibration_error",
    "log_loss",
    "ood_detection",
    "relative_increase",
    "reliability",
    "set_decisions",
    "tail_for_size",
    "threshold_for_size",
    "threshold_sets",
]
