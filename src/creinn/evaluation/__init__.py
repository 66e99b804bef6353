"""Scores and labels in, numbers out; knows no model.

A score is any number per sample, higher where the prediction is less certain; a set of classes is a row of a boolean
mask. NumPy arrays, torch tensors and lists are taken; floats and NumPy arrays are given. Read ``predictions``,
``coverage``, ``uncertainty``, ``summary`` (all numbers of a prediction), ``timing``; ``checks`` refuses.
"""

# fmt: off
# ruff: noqa: I001
from creinn.evaluation.predictions import (
    Reliability, SetDecisions, brier, confusion, cumulative_sets, expected_calibration_error, log_loss, reliability,
    set_decisions, tail_for_size, threshold_for_size, threshold_sets,
)
from creinn.evaluation.coverage import SetCoverage, Share, binomial_share, set_coverage
from creinn.evaluation.uncertainty import (
    AccuracyRejection, OODDetection, RelativeIncrease, accuracy_rejection, auarc, ood_detection, relative_increase,
)

__all__ = [  # noqa: RUF022 (in the order of the files)
    "Reliability", "brier", "confusion", "expected_calibration_error", "log_loss", "reliability",
    "SetDecisions", "cumulative_sets", "set_decisions", "tail_for_size", "threshold_for_size", "threshold_sets",
    "SetCoverage", "Share", "binomial_share", "set_coverage",
    "AccuracyRejection", "accuracy_rejection", "auarc",
    "OODDetection", "ood_detection", "RelativeIncrease", "relative_increase",
]
