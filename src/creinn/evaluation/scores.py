r"""How good predicted probabilities are: log loss, Brier score, calibration, and which classes are taken for which.

In: distributions ``(N, K)``, of a credal set the intersection probability, and true classes. Out: numbers.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn import metrics

from creinn.evaluation.checks import as_distributions, as_labels

BINS = 15
"""Equal-width bins of confidence, as in Guo et al. (2017)."""


class Reliability(NamedTuple):
    """Predictions by the probability of their class, bin by bin; ``confidence`` and ``accuracy`` are NaN in empty bins.

    ``edges`` has one entry more than the others; a bin contains its upper edge, not its lower one.
    """

    edges: npt.NDArray[np.float64]
    rows: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]


def log_loss(probabilities: Any, labels: Any) -> float:
    r"""Mean of :math:`-\ln p_y`; a probability of 0 counts as 2.2e-16, so that one error costs at most 36.04.

    Args:
        probabilities: Distributions, shape ``(N, K)``, K >= 2.
        labels: True classes, integers in [0, K), shape ``(N,)``.

    Raises:
        TypeError: If the probabilities are not real numbers, or the labels not integers.
        ValueError: If the rows are not distributions, there are none, or the labels do not fit.

    Example:
        >>> round(log_loss([[0.5, 0.5], [0.25, 0.75]], [0, 0]), 4)  # (ln 2 + ln 4) / 2
        1.0397
    """
    p, truth = _checked(probabilities, labels)
    return float(metrics.log_loss(truth, p / p.sum(1, keepdims=True), labels=range(p.shape[1])))


def brier(probabilities: Any, labels: Any) -> float:
    r"""Mean of :math:`\sum_k (p_k - [k = y])^2`, from 0 to 2.

    Args:
        probabilities: Distributions, shape ``(N, K)``, K >= 2.
        labels: True classes, integers in [0, K), shape ``(N,)``.

    Raises:
        TypeError: If the probabilities are not real numbers, or the labels not integers.
        ValueError: If the rows are not distributions, there are none, or the labels do not fit.

    Example:
        >>> brier([[0.5, 0.5], [0.25, 0.75]], [0, 0])  # (0.25 + 0.25 + 0.5625 + 0.5625) / 2
        0.8125
    """
    p, truth = _checked(probabilities, labels)
    return float(((p - np.eye(p.shape[1])[truth]) ** 2).sum(1).mean())


def reliability(probabilities: Any, labels: Any, bins: int = BINS, predicted: Any = None) -> Reliability:
    """How often the predicted class is right, by how probable it is said to be.

    Args:
        probabilities: Distributions, shape ``(N, K)``, K >= 2.
        labels: True classes, integers in [0, K), shape ``(N,)``.
        bins: Number of bins of equal width between 0 and 1.
        predicted: Predicted classes; without them the most probable ones, the first where several are.

    Raises:
        TypeError: If the probabilities are not real numbers, or the labels not integers.
        ValueError: If the rows are not distributions, there are none, the labels do not fit, or there are no bins.

    Example:
        >>> found = reliability([[0.75, 0.25], [0.75, 0.25], [0.0, 1.0]], [0, 1, 1], bins=2)
        >>> found.rows.tolist(), found.confidence[1].round(4).item(), found.accuracy[1].round(4).item()
        ([0, 3], 0.8333, 0.6667)
    """
    p, truth = _checked(probabilities, labels)
    if bins < 1:
        raise ValueError(f"There must be at least one bin, found {bins}.")
    edges = np.linspace(0, 1, bins + 1)
    found = p.argmax(1) if predicted is None else _checked(p, predicted)[1]
    stated = p[np.arange(len(p)), found]
    place = np.digitize(stated, edges[1:-1], right=True)
    count = np.bincount(place, minlength=bins)

    def mean(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        total = np.bincount(place, weights=values, minlength=bins)
        return np.divide(total, count, out=np.full(bins, np.nan), where=count > 0)

    return Reliability(edges, count, mean(stated), mean(found == truth))


def expected_calibration_error(probabilities: Any, labels: Any, bins: int = BINS, predicted: Any = None) -> float:
    """Mean over samples of ``|accuracy - confidence|`` of their bin, Guo et al. (2017); see :func:`reliability`.

    Args:
        probabilities: Distributions, shape ``(N, K)``, K >= 2.
        labels: True classes, integers in [0, K), shape ``(N,)``.
        bins: Number of bins of equal width between 0 and 1.
        predicted: Predicted classes; without them the most probable ones, the first where several are.

    Raises:
        TypeError: If the probabilities are not real numbers, or the labels not integers.
        ValueError: If the rows are not distributions, there are none, the labels do not fit, or there are no bins.

    Example:
        >>> expected_calibration_error([[0.75, 0.25], [0.75, 0.25], [0.0, 1.0]], [0, 1, 1])  # (2 * 0.25 + 0) / 3
        0.16666666666666666
    """
    _, rows, confidence, accuracy = reliability(probabilities, labels, bins, predicted)
    return float(np.nansum(rows * np.abs(accuracy - confidence)) / rows.sum())


def confusion(predicted: Any, labels: Any, classes: int) -> npt.NDArray[np.int64]:
    """How often each class is taken for each: ``(K, K)`` counts, true classes in rows, predicted ones in columns.

    Args:
        predicted: Predicted classes, integers in [0, K), shape ``(N,)``.
        labels: True classes, the same.
        classes: Number of classes K.

    Raises:
        TypeError: If they are not integers.
        ValueError: If there are none, the lengths differ, or one is not a class.

    Example:
        >>> confusion([0, 1, 1], [0, 0, 1], classes=2).tolist()
        [[1, 1], [0, 1]]
    """
    found, truth = as_labels(predicted, classes), as_labels(labels, classes)
    if len(truth) == 0 or len(found) != len(truth):
        raise ValueError(f"Each row needs a predicted and a true class, but there are {len(found)} and {len(truth)}.")
    return metrics.confusion_matrix(truth, found, labels=range(classes)).astype(np.int64)


def _checked(probabilities: Any, labels: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    p = as_distributions(probabilities)
    truth = as_labels(labels, p.shape[1])
    if len(truth) != len(p):
        raise ValueError(f"There must be one label per distribution, but there are {len(truth)} for {len(p)}.")
    return p, truth
