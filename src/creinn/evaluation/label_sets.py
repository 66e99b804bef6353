"""Metrics for sets of classes, which are rows of a boolean mask."""

from typing import Any, NamedTuple

import numpy as np

from creinn.evaluation.arrays import as_labels, as_mask, require

COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Coverages of a plot by default."""


class SetDecisions(NamedTuple):
    """Result of :func:`set_decisions`."""

    coverage: float
    size: float  # the mean number of classes
    single: float  # the fraction of sets with one class
    single_accuracy: float | None
    discounted: float  # the accuracy, with a weight of 1/m for m classes


class Share(NamedTuple):
    """Fraction of covered rows with its 95 % confidence interval."""

    rows: int
    coverage: float
    low: float
    high: float


class SetCoverage(NamedTuple):
    """Result of :func:`set_coverage`."""

    all: Share
    size: float  # the mean number of classes
    empty: float  # the fraction of empty sets
    full: float  # the fraction of sets with all classes
    by_size: dict[int, Share]
    by_class: dict[int, Share]


def set_decisions(classes: Any, labels: Any) -> SetDecisions:
    """Compute the coverage, the size and the accuracy of non-empty sets.

    Example:
        >>> set_decisions([[True, False, False], [False, True, True]], [0, 2])
        SetDecisions(coverage=1.0, size=1.5, single=0.5, single_accuracy=1.0, discounted=0.75)
    """
    _, _, covered, size = _compare(classes, labels)
    require(size > 0, size, "the number of classes in a set must be > 0", "Use set_coverage.")
    single = size == 1
    return SetDecisions(
        coverage=float(covered.mean()),
        size=float(size.mean()),
        single=float(single.mean()),
        single_accuracy=float(covered[single].mean()) if single.any() else None,
        discounted=float((covered / size).mean()),
    )


def set_coverage(classes: Any, labels: Any) -> SetCoverage:
    """Compute the coverage of sets, also by size and by class.

    Example:
        >>> set_coverage([[True, False], [True, True]], [1, 0]).all.coverage
        0.5
    """
    sets, truth, covered, size = _compare(classes, labels)
    return SetCoverage(
        all=binomial_share(covered),
        size=float(size.mean()),
        empty=float((size == 0).mean()),
        full=float((size == sets.shape[1]).mean()),
        by_size={int(n): binomial_share(covered[size == n]) for n in np.unique(size)},
        by_class={int(k): binomial_share(covered[truth == k]) for k in np.unique(truth)},
    )


def binomial_share(covered: Any) -> Share:
    """Compute the fraction of true values; Clopper and Pearson (1934).

    Example:
        >>> round(binomial_share([True] * 9 + [False]).low, 3)
        0.555
    """
    from scipy.stats import binomtest

    hits = as_mask(covered, "covered")
    low, high = binomtest(int(hits.sum()), len(hits)).proportion_ci(0.95, method="exact")
    return Share(len(hits), float(hits.mean()), float(low), float(high))


def _compare(classes: Any, labels: Any) -> tuple[np.ndarray, ...]:
    sets = as_mask(classes, "classes", ndim=2)
    truth = as_labels(labels, sets.shape[1], len(sets))
    return sets, truth, sets[np.arange(len(sets)), truth], sets.sum(1)
