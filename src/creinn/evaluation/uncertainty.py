"""Metrics of uncertainty scores, as in Wang et al. (2025)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from creinn.evaluation.arrays import Numbers, as_mask, as_numbers, as_numpy, require


class AccuracyRejection(NamedTuple):
    """Result of :func:`accuracy_rejection`."""

    rejection: Numbers
    accuracy: Numbers

    @property
    def area(self) -> float:
        """Area under the curve: the mean of the accuracies."""
        return float(self.accuracy.mean())


class OODDetection(NamedTuple):
    """Result of :func:`ood_detection`."""

    auroc: float
    auprc: float
    base_rate: float
    fpr95: float  # false positive rate at a true positive rate of 95 %


class RelativeIncrease(NamedTuple):
    """Result of :func:`relative_increase`."""

    mean: float
    excluded: int  # the number of samples


def accuracy_rejection(score: Any, correct: Any) -> AccuracyRejection:
    r"""Compute the accuracy if the most uncertain samples are rejected first.

    The curve has one point for each number :math:`k = N, \dots, 1` of
    remaining samples. Ties have the expected value for a random order.

    Example:
        >>> accuracy_rejection([0.1, 0.9], [True, False]).accuracy
        array([0.5, 1. ])
    """
    scores, hits = as_numbers(score, "score", ndim=1), as_mask(correct, "correct")
    _check_shapes(score=scores, correct=hits)
    _, tie, size = np.unique(scores, return_inverse=True, return_counts=True)
    hit_rate = np.bincount(tie, weights=hits) / size
    kept = np.arange(1, len(scores) + 1)
    accuracy = np.cumsum(np.repeat(hit_rate, size)) / kept
    return AccuracyRejection((1 - kept / len(scores))[::-1], accuracy[::-1])


def auarc(score: Any, correct: Any) -> float:
    """Compute the area under :func:`accuracy_rejection`.

    Example:
        >>> auarc([0.1, 0.9], [True, False])
        0.75
    """
    return accuracy_rejection(score, correct).area


def aurc(score: Any, correct: Any) -> float:
    """Compute the area under the risk-coverage curve, which is 1 - AUARC.

    Example:
        >>> aurc([0.1, 0.9], [True, False])
        0.25
    """
    return 1 - auarc(score, correct)


def augrc(score: Any, correct: Any) -> float:
    """Compute the area under the generalized risk-coverage curve.

    The risk is the number of errors among the remaining samples divided by
    the number of all samples; Traub et al. (2024).

    Example:
        >>> augrc([0.1, 0.9], [True, False])
        0.25
    """
    curve = accuracy_rejection(score, correct)
    return float(((1 - curve.accuracy) * (1 - curve.rejection)).mean())


def bootstrap_interval(
    metric: Callable[..., float],
    *samples: Any,
    paired: bool = True,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """Compute a percentile bootstrap interval of a metric.

    The samples are the arguments of the metric. If they are ``paired``,
    the same rows are drawn from all of them.

    Example:
        >>> low, high = bootstrap_interval(auarc, [0.1, 0.9], [True, False])
        >>> low <= 0.75 <= high
        True
    """
    arrays = [as_numpy(sample) for sample in samples]
    lengths = [len(array) for array in arrays]
    if paired and len(set(lengths)) > 1:
        raise ValueError(f"Paired samples must have the same length, got {lengths}.")
    generator, values = np.random.default_rng(seed), []
    for _ in range(resamples):
        rows = [generator.integers(length, size=length) for length in lengths]
        own = rows[:1] * len(rows) if paired else rows
        values.append(metric(*(a[i] for a, i in zip(arrays, own, strict=True))))
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def ood_detection(id_score: Any, ood_score: Any) -> OODDetection:
    r"""Compute the AUROC, AUPRC and FPR95 of out-of-distribution detection.

    The AUROC is the probability that an out-of-distribution sample has the
    higher score; ties count one half. The AUPRC is the average precision
    :math:`\sum_t (R_t - R_{t-1}) P_t`. The FPR95 is the share of
    in-distribution samples that are detected with at least 95 % of the
    others; ties have the expected value for a random order.

    Example:
        >>> ood_detection([0.1, 0.2], [0.2, 0.3])
        OODDetection(auroc=0.875, auprc=0.833..., base_rate=0.5, fpr95=0.25)
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    inside = as_numbers(id_score, "id_score", ndim=1)
    outside = as_numbers(ood_score, "ood_score", ndim=1)
    is_ood = np.repeat([0, 1], [len(inside), len(outside)])
    scores = np.concatenate([inside, outside])
    auroc, auprc = roc_auc_score(is_ood, scores), average_precision_score(is_ood, scores)
    return OODDetection(float(auroc), float(auprc), float(is_ood.mean()), _fpr95(inside, outside))


def _fpr95(inside: Numbers, outside: Numbers) -> float:
    needed = -(-95 * len(outside) // 100)
    threshold = np.sort(outside)[len(outside) - needed]
    # The m-th of g samples follows m / (g + 1) of the others in a random order.
    missing = needed - (outside > threshold).sum()
    share = missing / ((outside == threshold).sum() + 1)
    detected = (inside > threshold).sum() + share * (inside == threshold).sum()
    return float(detected / len(inside))


def relative_increase(test: Any, base: Any) -> RelativeIncrease:
    r"""Compute the mean of :math:`U_\mathrm{test} / U_\mathrm{base}`.

    This is Eq. (Relative increase). Samples with a base of 0 are excluded.

    Example:
        >>> relative_increase([0.2, 0.6, 0.5], [0.1, 0.2, 0.0])
        RelativeIncrease(mean=2.5, excluded=1)
    """
    shifted, unshifted = as_numbers(test, "test"), as_numbers(base, "base")
    require(shifted >= 0, shifted, "test must be >= 0", "Pass uncertainties.")
    require(unshifted >= 0, unshifted, "base must be >= 0", "Pass uncertainties.")
    _check_shapes(test=shifted, base=unshifted)
    defined = unshifted > 0
    if not defined.any():
        raise ValueError("The ratio needs a positive base, got 0 for all samples.")
    with np.errstate(over="ignore"):
        mean = float((shifted[defined] / unshifted[defined]).mean())
    if not np.isfinite(mean):
        least = unshifted[defined].min()
        raise ValueError(f"The ratios overflow, because base is {least:g}. Set such values to 0.")
    return RelativeIncrease(mean, int((~defined).sum()))


def _check_shapes(**arrays: np.ndarray) -> None:
    shapes = [array.shape for array in arrays.values()]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{' and '.join(arrays)} must have the same shape, got {shapes}.")
