"""Metrics for the evaluation of predictions.

The inputs are arrays, tensors or lists. An uncertainty score is higher if
the prediction is less certain. Every metric raises a ``TypeError`` for a
wrong dtype, and a ``ValueError`` for wrong shapes or values.
"""

# fmt: off
# ruff: noqa: I001
from creinn.evaluation.scores import (
    Reliability, brier, confusion, expected_calibration_error, log_loss, reliability,
)
from creinn.evaluation.label_sets import (
    SetCoverage, SetDecisions, Share, binomial_share, set_coverage, set_decisions,
)
from creinn.evaluation.uncertainty import (
    AccuracyRejection, OODDetection, RelativeIncrease,
    accuracy_rejection, auarc, augrc, aurc, bootstrap_interval, ood_detection, relative_increase,
)

__all__ = [  # noqa: RUF022 (in the order of the modules)
    "Reliability", "brier", "confusion", "expected_calibration_error", "log_loss", "reliability",
    "SetCoverage", "SetDecisions", "Share", "binomial_share", "set_coverage", "set_decisions",
    "AccuracyRejection", "OODDetection", "RelativeIncrease",
    "accuracy_rejection", "auarc", "augrc", "aurc", "bootstrap_interval", "ood_detection",
    "relative_increase",
]
