"""Scores of predicted distributions ``(samples, classes)``."""

from typing import Any, NamedTuple

import numpy as np

from creinn.evaluation.arrays import Classes, Numbers, as_distributions, as_labels

_BINS = 15  # as in Guo et al. (2017)


class Reliability(NamedTuple):
    """Bins ``(lower, upper]`` of the confidence, with NaN for empty bins."""

    edges: Numbers
    rows: Classes
    confidence: Numbers
    accuracy: Numbers


def log_loss(probabilities: Any, labels: Any) -> float:
    r"""Compute the mean of :math:`-\ln p_y`, with :math:`p_y` of at least 2.2e-16.

    Example:
        >>> log_loss([[0.5, 0.5], [0.25, 0.75]], [0, 0])  # (ln 2 + ln 4) / 2
        1.0397...
    """
    p, truth = _checked(probabilities, labels)
    chosen = p[np.arange(len(p)), truth] / p.sum(1)
    return float(-np.log(chosen.clip(min=np.finfo(float).eps)).mean())


def brier(probabilities: Any, labels: Any) -> float:
    r"""Compute the Brier score, the mean of :math:`\sum_k (p_k - [k = y])^2`.

    Example:
        >>> brier([[0.5, 0.5], [0.25, 0.75]], [0, 0])  # (0.5 + 1.125) / 2
        0.8125
    """
    p, truth = _checked(probabilities, labels)
    return float(((p - np.eye(p.shape[1])[truth]) ** 2).sum(1).mean())


def reliability(
    probabilities: Any, labels: Any, bins: int = _BINS, predicted: Any = None
) -> Reliability:
    """Compute the accuracy in bins of the probability of the predicted class.

    By default, the most probable classes are ``predicted``.

    Example:
        >>> found = reliability([[0.75, 0.25], [0.0, 1.0]], [0, 1], bins=2)
        >>> found.rows, found.confidence
        (array([0, 2]), array([  nan, 0.875]))
    """
    p, truth = _checked(probabilities, labels)
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}.")
    edges = np.linspace(0, 1, bins + 1)
    found = p.argmax(1) if predicted is None else as_labels(predicted, p.shape[1], len(p))
    confidence = p[np.arange(len(p)), found]
    index = np.digitize(confidence, edges[1:-1], right=True)
    count = np.bincount(index, minlength=bins)

    def mean(values: np.ndarray) -> Numbers:
        total = np.bincount(index, weights=values, minlength=bins)
        return np.divide(total, count, out=np.full(bins, np.nan), where=count > 0)

    return Reliability(edges, count, mean(confidence), mean(found == truth))


def expected_calibration_error(
    probabilities: Any, labels: Any, bins: int = _BINS, predicted: Any = None
) -> float:
    """Compute the expected calibration error of Guo et al. (2017).

    This is the mean of ``|accuracy - confidence|`` in :func:`reliability`.

    Example:
        >>> expected_calibration_error([[0.75, 0.25], [0.0, 1.0]], [0, 1])
        0.125
    """
    found = reliability(probabilities, labels, bins, predicted)
    gap = np.abs(found.accuracy - found.confidence)
    return float(np.nansum(found.rows * gap) / found.rows.sum())


def confusion(predicted: Any, labels: Any, classes: int) -> Classes:
    """Compute the confusion matrix with a row per true class.

    Example:
        >>> confusion([0, 1, 1], [0, 0, 1], classes=2).tolist()
        [[1, 1], [0, 1]]
    """
    found = as_labels(predicted, classes)
    truth = as_labels(labels, classes, len(found))
    counts = np.bincount(truth * classes + found, minlength=classes**2)
    return counts.reshape(classes, classes)


def _checked(probabilities: Any, labels: Any) -> tuple[Numbers, Classes]:
    p = as_distributions(probabilities)
    return p, as_labels(labels, p.shape[1], len(p))
