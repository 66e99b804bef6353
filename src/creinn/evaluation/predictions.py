r"""How good predictions are: distributions ``(N, K)`` or sets of classes, and true classes ``(N,)`` in; numbers out.

A larger set of classes contains the true one more easily, so methods are compared at one mean size: ``*_sets`` make
sets of an ordinary network, with one number for all rows that ``*_for_size`` finds.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn import metrics

from creinn.evaluation.checks import Numbers, as_distributions, as_labels, as_mask

_BINS = 15  # as in Guo et al. (2017)


class Reliability(NamedTuple):
    """Predictions by the probability of their class, bin by bin; ``confidence`` and ``accuracy`` are NaN in empty bins.

    ``edges`` has one entry more than the others; a bin contains its upper edge, not its lower one.
    """

    edges: Numbers
    rows: npt.NDArray[np.int64]
    confidence: Numbers
    accuracy: Numbers


class SetDecisions(NamedTuple):
    """Share of sets that contain the true class, mean number of classes, share of sets of one class, accuracy of those.

    The last is ``None`` if there are none. ``discounted`` accuracy counts 1/m for a set of m classes with the true one.
    """

    coverage: float
    size: float
    single: float
    single_accuracy: float | None
    discounted: float


def log_loss(probabilities: Any, labels: Any) -> float:
    r"""Mean of :math:`-\ln p_y`; a probability of 0 counts as 2.2e-16, so that one error costs at most 36.04.

    Raises:
        TypeError: If the probabilities are not real numbers, or the labels not integers.
        ValueError: If the rows are not distributions over two classes or more, or the labels do not fit.

    Example:
        >>> round(log_loss([[0.5, 0.5], [0.25, 0.75]], [0, 0]), 4)  # (ln 2 + ln 4) / 2
        1.0397
    """
    p, truth = _checked(probabilities, labels)
    return float(metrics.log_loss(truth, p / p.sum(1, keepdims=True), labels=range(p.shape[1])))


def brier(probabilities: Any, labels: Any) -> float:
    r"""Mean of :math:`\sum_k (p_k - [k = y])^2`, from 0 to 2. Raises what :func:`log_loss` does.

    Example:
        >>> brier([[0.5, 0.5], [0.25, 0.75]], [0, 0])  # (0.25 + 0.25 + 0.5625 + 0.5625) / 2
        0.8125
    """
    p, truth = _checked(probabilities, labels)
    return float(((p - np.eye(p.shape[1])[truth]) ** 2).sum(1).mean())


def reliability(
    probabilities: Any, labels: Any, bins: int = _BINS, predicted: Any = None
) -> Reliability:
    """How often the predicted class is right, by how probable it is said to be; in bins of equal width.

    Without ``predicted`` classes the most probable ones are taken, the first where several are. Raises what
    :func:`log_loss` does, and a ValueError if there are no bins.

    Example:
        >>> found = reliability([[0.75, 0.25], [0.75, 0.25], [0.0, 1.0]], [0, 1, 1], bins=2)
        >>> found.rows.tolist(), found.confidence[1].round(4).item(), found.accuracy[1].round(4).item()
        ([0, 3], 0.8333, 0.6667)
    """
    p, truth = _checked(probabilities, labels)
    if bins < 1:
        raise ValueError(f"There must be at least one bin, found {bins}.")
    edges = np.linspace(0, 1, bins + 1)
    found = p.argmax(1) if predicted is None else as_labels(predicted, p.shape[1], len(p))
    stated = p[np.arange(len(p)), found]
    place = np.digitize(stated, edges[1:-1], right=True)
    count = np.bincount(place, minlength=bins)

    def mean(values: npt.NDArray[Any]) -> Numbers:
        total = np.bincount(place, weights=values, minlength=bins)
        return np.divide(total, count, out=np.full(bins, np.nan), where=count > 0)

    return Reliability(edges, count, mean(stated), mean(found == truth))


def expected_calibration_error(
    probabilities: Any, labels: Any, bins: int = _BINS, predicted: Any = None
) -> float:
    """Mean over samples of ``|accuracy - confidence|`` of their bin, Guo et al. (2017); called as :func:`reliability`.

    Example:
        >>> expected_calibration_error([[0.75, 0.25], [0.75, 0.25], [0.0, 1.0]], [0, 1, 1])  # (2 * 0.25 + 0) / 3
        0.16666666666666666
    """
    _, rows, confidence, accuracy = reliability(probabilities, labels, bins, predicted)
    return float(np.nansum(rows * np.abs(accuracy - confidence)) / rows.sum())


def confusion(predicted: Any, labels: Any, classes: int) -> npt.NDArray[np.int64]:
    """Counts ``(K, K)``, true classes in rows, predicted ones in columns. Raises what :func:`log_loss` does.

    Example:
        >>> confusion([0, 1, 1], [0, 0, 1], classes=2).tolist()
        [[1, 1], [0, 1]]
    """
    found = as_labels(predicted, classes)
    truth = as_labels(labels, classes, len(found))
    return metrics.confusion_matrix(truth, found, labels=range(classes)).astype(np.int64)


def set_decisions(classes: Any, labels: Any) -> SetDecisions:
    """Coverage, size and accuracy of sets of classes, a mask ``(N, K)`` as :meth:`creinn.CredalSet.classes` gives.

    Raises what :func:`log_loss` does, a TypeError if the mask is not boolean, and a ValueError if a set is empty.

    Example:
        >>> set_decisions([[True, False, False], [False, True, True]], [0, 2])
        SetDecisions(coverage=1.0, size=1.5, single=0.5, single_accuracy=1.0, discounted=0.75)
    """
    sets = as_mask(classes, "classes", "Pass a mask, such as CredalSet.classes gives.")
    if sets.ndim != 2 or sets.size == 0:
        found = f"but have shape {sets.shape}."
        raise ValueError(
            f"classes must have shape (samples, classes) with one row at least, {found}"
        )
    truth = as_labels(labels, sets.shape[1], len(sets))
    size = sets.sum(1)
    if not size.all():
        row = int(size.argmin())
        raise ValueError(
            f"The set of row {row} is empty. A decision keeps at least one; in doubt, keep all."
        )
    covered, single = sets[np.arange(len(sets)), truth], size == 1
    coverage, mean_size, share, discounted = (
        float(x.mean()) for x in (covered, size, single, covered / size)
    )
    accuracy = float(covered[single].mean()) if single.any() else None
    return SetDecisions(coverage, mean_size, share, accuracy, discounted)


def threshold_for_size(probabilities: Any, size: float) -> float:
    """The least threshold with which the sets of :func:`threshold_sets` have at most ``size`` classes on average.

    It lies next above the largest probability that has to stay out. Classes of equal probability are all in or all
    out, so the mean size may be less than ``size``. Raises a ValueError if it is not in [1, K], or the rows are not
    distributions.

    Example:
        >>> p = [[0.7, 0.2, 0.1], [0.5, 0.4, 0.1]]
        >>> threshold_sets(p, threshold_for_size(p, 1.5)).tolist()
        [[True, False, False], [True, True, False]]
    """
    largest_out = _largest_out(np.sort(as_distributions(probabilities), 1)[:, :-1], size)
    return 0.0 if largest_out is None else float(np.nextafter(largest_out, math.inf))


def threshold_sets(probabilities: Any, threshold: float) -> npt.NDArray[np.bool_]:
    """Classes whose probability is at least ``threshold``, and always the first most probable one; bool ``(N, K)``.

    Raises a ValueError if ``threshold`` is not in [0, 1], or the rows are not distributions.
    """
    p = as_distributions(probabilities)
    sets: npt.NDArray[np.bool_] = p >= _as_share(threshold, "threshold")
    sets[np.arange(len(p)), p.argmax(1)] = True
    return sets


def tail_for_size(probabilities: Any, size: float) -> float:
    """The least tail with which the sets of :func:`cumulative_sets` have at most ``size`` classes on average.

    Sets that grow at the same tail grow together, so the mean size may be less than ``size``. Raises what
    :func:`threshold_for_size` does.

    Example:
        >>> tail_for_size([[0.75, 0.125, 0.125], [0.5, 0.25, 0.25]], 1.5)  # a quarter is left to the third of row 1
        0.25
    """
    left = np.cumsum(np.sort(as_distributions(probabilities), 1)[:, :-1], 1)
    return float(_largest_out(left, size) or 0.0)


def cumulative_sets(probabilities: Any, tail: float) -> npt.NDArray[np.bool_]:
    """The fewest, most probable classes that leave at most ``tail`` to the others: their sum reaches 1 - ``tail``.

    Of classes of equal probability the first is taken first. These are the sets of adaptive conformal prediction
    without randomisation, Romano, Sesia and Candès (2020). Raises what :func:`threshold_sets` does.

    Example:
        >>> cumulative_sets([[0.5, 0.375, 0.125], [0.25, 0.0, 0.75]], 0.25).tolist()
        [[True, True, False], [False, False, True]]
    """
    p = as_distributions(probabilities)
    others = np.argsort(-p, axis=1, kind="stable")[
        :, :0:-1
    ]  # all but the most probable, that first which goes first
    left = np.cumsum(
        np.take_along_axis(p, others, 1), 1
    )  # from the smallest on: a sum near 1 has lost digits
    sets = np.ones(p.shape, bool)
    np.put_along_axis(sets, others, left > _as_share(tail, "tail"), 1)
    return sets


def _largest_out(levels: Numbers, size: float) -> float | None:
    """Largest level that is out when as many classes beside the first of each row are in as the mean size allows."""
    rows, classes = len(levels), levels.shape[1] + 1
    if not 1 <= size <= classes:
        allowed = f"from 1 to {classes} for {classes} classes"
        raise ValueError(f"size is the mean number of classes in a set, {allowed}, found {size!r}.")
    total = math.floor(size * rows)  # one too few, or too many, where the product is rounded
    total += (total + 1) / rows <= size
    total -= total / rows > size
    return None if total == rows * classes else np.sort(levels, None)[::-1][total - rows]


def _as_share(value: float, name: str) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is a probability, in [0, 1], found {value!r}.")
    return value


def _checked(probabilities: Any, labels: Any) -> tuple[Numbers, npt.NDArray[np.int64]]:
    p = as_distributions(probabilities)
    return p, as_labels(labels, p.shape[1], len(p))
