"""Metrics for sets of classes.

The sets are given as a boolean mask of shape ``(samples, classes)``.
"""

from typing import Any, NamedTuple

import numpy as np

from creinn.evaluation.checks import as_label_sets, as_labels, as_mask

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""The default values of the coverage for a plot."""
CONFIDENCE = 0.95  # of the binomial interval


class SetDecisions(NamedTuple):
    """The result of :func:`set_decisions`.

    Attributes:
        coverage: The fraction of the sets that contain the true class.
        size: The mean number of classes in a set.
        single: The fraction of the sets that have only one class.
        single_accuracy: The accuracy of these sets, or ``None`` if there are none.
        discounted: The discounted accuracy, where a set of m classes is weighted by 1/m.
    """

    coverage: float
    size: float
    single: float
    single_accuracy: float | None
    discounted: float


class Share(NamedTuple):
    """The fraction of the rows that are covered, with its confidence interval."""

    rows: int
    coverage: float
    low: float
    high: float


class SetCoverage(NamedTuple):
    """The result of :func:`set_coverage`.

    Attributes:
        all: The coverage of all rows.
        size: The mean number of classes in a set.
        empty: The fraction of the sets that are empty.
        full: The fraction of the sets that contain all of the classes.
        by_size: The coverage for each size of a set.
        by_class: The coverage for each of the true classes.
    """

    all: Share
    size: float
    empty: float
    full: float
    by_size: dict[int, Share]
    by_class: dict[int, Share]


def set_decisions(classes: Any, labels: Any) -> SetDecisions:
    """Compute the coverage, the mean size and the accuracy of sets of classes.

    Args:
        classes: Boolean mask of shape ``(samples, classes)``, for example from
            :meth:`creinn.CredalSet.classes`.
        labels: True classes of shape ``(samples,)``.

    Raises:
        TypeError: If the mask is not a boolean array, or if the labels are not integers.
        ValueError: If the shapes do not match, or if a set is empty.

    Example:
        >>> set_decisions([[True, False, False], [False, True, True]], [0, 2])
        SetDecisions(coverage=1.0, size=1.5, single=0.5, single_accuracy=1.0, discounted=0.75)
    """
    sets = as_label_sets(classes)
    truth = as_labels(labels, sets.shape[1], len(sets))
    size = sets.sum(1)
    if not size.all():
        raise ValueError(
            f"All of the sets must be non-empty, but the set in row {size.argmin()} is empty."
        )
    covered, single = sets[np.arange(len(sets)), truth], size == 1
    return SetDecisions(
        coverage=float(covered.mean()),
        size=float(size.mean()),
        single=float(single.mean()),
        single_accuracy=float(covered[single].mean()) if single.any() else None,
        discounted=float((covered / size).mean()),
    )


def set_coverage(classes: Any, labels: Any) -> SetCoverage:
    """Compute the fraction of the sets that contain the true class.

    The sets can be empty, and the fraction is also computed for each size and for each true class.

    Args:
        classes: Boolean mask of shape ``(samples, classes)``.
        labels: True classes of shape ``(samples,)``.

    Raises:
        TypeError: If the mask is not a boolean array, or if the labels are not integers.
        ValueError: If the shapes do not match, or if the array is empty.

    Example:
        >>> found = set_coverage([[True, False], [True, True], [False, False]], [1, 0, 0])
        >>> found.all.coverage, found.size, found.empty, found.by_size[2].rows
        (0.3333333333333333, 1.0, 0.3333333333333333, 1)
    """
    sets = as_label_sets(classes)
    truth = as_labels(labels, sets.shape[1], len(sets))
    covered, size = sets[np.arange(len(sets)), truth], sets.sum(1)
    return SetCoverage(
        all=binomial_share(covered),
        size=float(size.mean()),
        empty=float((size == 0).mean()),
        full=float((size == sets.shape[1]).mean()),
        by_size={int(n): binomial_share(covered[size == n]) for n in np.unique(size)},
        by_class={int(k): binomial_share(covered[truth == k]) for k in np.unique(truth)},
    )


def binomial_share(covered: Any, confidence: float = CONFIDENCE) -> Share:
    """Compute the fraction of the values that are true, with a confidence interval.

    The interval is the one of Clopper and Pearson (1934).

    Example:
        >>> share = binomial_share([True] * 9 + [False])
        >>> round(share.low, 3), round(share.high, 3)
        (0.555, 0.997)
    """
    from scipy.stats import beta

    hits = as_mask(covered, "covered")
    if hits.ndim != 1 or hits.size == 0:
        raise ValueError(
            f"covered must be a non-empty array of shape (samples,), got {hits.shape}."
        )
    rows, count, tail = len(hits), int(hits.sum()), (1 - confidence) / 2
    low = 0.0 if count == 0 else float(beta.ppf(tail, count, rows - count + 1))
    high = 1.0 if count == rows else float(beta.ppf(1 - tail, count + 1, rows - count))
    return Share(rows, count / rows, low, high)
