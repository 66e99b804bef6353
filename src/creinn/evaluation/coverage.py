"""Sets of classes that shall hold the true one so often: a mask ``(N, K)`` and true classes in, how often they do out.

Unlike in :func:`creinn.evaluation.set_decisions`, sets may be empty: those of a conformal rule are, where less coverage
is asked for than the model has accuracy.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import beta

from creinn.evaluation.checks import as_labels, as_mask

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Coverages that are asked for, for a picture of what is found."""
CONFIDENCE = 0.95  # of the binomial interval


class Share(NamedTuple):
    """How many of so many rows are covered, with the binomial interval of what it may be in truth."""

    rows: int
    coverage: float
    low: float
    high: float


class SetCoverage(NamedTuple):
    """All rows; mean number of classes; shares of sets without a class and with all; rows by size, and by true class.

    Sizes and classes that do not occur are left out.
    """

    all: Share
    size: float
    empty: float
    full: float
    by_size: dict[int, Share]
    by_class: dict[int, Share]


def set_coverage(classes: Any, labels: Any) -> SetCoverage:
    """How often sets of classes, a mask ``(N, K)``, hold the true ones ``(N,)``.

    Raises:
        TypeError: If the mask is not boolean, or labels are not integers.
        ValueError: If shapes do not fit, there is no row, or a label is no class.

    Example:
        >>> found = set_coverage([[True, False], [True, True], [False, False]], [1, 0, 0])
        >>> found.all.coverage, found.size, found.empty, found.by_size[2].rows
        (0.3333333333333333, 1.0, 0.3333333333333333, 1)
    """
    sets = as_mask(classes, "classes", "Pass a mask, such as CredalSet.classes gives.")
    if sets.ndim != 2 or sets.size == 0:
        raise ValueError(
            f"classes must have shape (samples, classes) with one row at least, but have {sets.shape}."
        )
    truth = as_labels(labels, sets.shape[1], len(sets))
    covered, size = sets[np.arange(len(sets)), truth], sets.sum(1)
    by_size = {int(value): binomial_share(covered[size == value]) for value in np.unique(size)}
    by_class = {int(value): binomial_share(covered[truth == value]) for value in np.unique(truth)}
    empty, full = float((size == 0).mean()), float((size == sets.shape[1]).mean())
    return SetCoverage(binomial_share(covered), float(size.mean()), empty, full, by_size, by_class)


def binomial_share(covered: Any, confidence: float = CONFIDENCE) -> Share:
    """The share of true values, with the exact interval of Clopper and Pearson (1934).

    Example:
        >>> share = binomial_share([True] * 9 + [False])
        >>> round(share.low, 3), round(share.high, 3)
        (0.555, 0.997)
    """
    hits = as_mask(covered, "covered", "Pass whether each row is covered.")
    if hits.ndim != 1 or hits.size == 0:
        raise ValueError(
            f"covered must have shape (samples,) with one at least, but has {hits.shape}."
        )
    rows, count, tail = len(hits), int(hits.sum()), (1 - confidence) / 2
    low = 0.0 if count == 0 else float(beta.ppf(tail, count, rows - count + 1))
    high = 1.0 if count == rows else float(beta.ppf(1 - tail, count + 1, rows - count))
    return Share(rows, count / rows, low, high)
