r"""What an uncertainty is worth: a score per sample in, higher where the prediction is less certain; numbers out.

Accuracy-rejection curves, detection of out-of-distribution samples, and growth under a shift, as in Wang et al. (2025).
"""

from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from creinn.evaluation.checks import Numbers, as_mask, as_scores, as_uncertainties


class AccuracyRejection(NamedTuple):
    """Accuracy of the kept samples against the share rejected; from nothing rejected to all but one."""

    rejection: Numbers
    accuracy: Numbers

    @property
    def area(self) -> float:
        """Mean accuracy over all numbers kept: the AUARC."""
        return float(self.accuracy.mean())


class OODDetection(NamedTuple):
    """How well a score tells foreign samples; one that says nothing has AUROC 0.5, AUPRC ``base_rate``, their share."""

    auroc: float
    auprc: float
    base_rate: float


class RelativeIncrease(NamedTuple):
    """Mean ratio of shifted to base uncertainty, and the number of samples left out because their base is 0."""

    mean: float
    excluded: int


def accuracy_rejection(score: Any, correct: Any) -> AccuracyRejection:
    r"""Accuracy of what is kept when the most uncertain samples are rejected first, for every number kept.

    ``correct`` says which predictions were, a mask. Of :math:`N` samples :math:`k = N, \dots, 1` are kept. Of a tie
    they are drawn at random, and the accuracy is the exact expectation: with :math:`m` kept from the last tie, of size
    :math:`g` with :math:`c` correct, and :math:`C` correct ones of lower score, :math:`(C + m\, c / g) / k`.

    Raises:
        TypeError: If the scores are not numbers, or ``correct`` is not boolean.
        ValueError: If a score is NaN or infinite, there are none, or the lengths differ.

    Example:
        >>> curve = accuracy_rejection([0.1, 0.4, 0.9], [True, True, False])
        >>> curve.rejection.round(2), curve.accuracy.round(2)
        (array([0.  , 0.33, 0.67]), array([0.67, 1.  , 1.  ]))
    """
    scores = as_scores(score, "score")
    hits = as_mask(correct, "correct", "Were labels passed? Pass `predicted == label`.")
    if hits.shape != scores.shape:
        raise ValueError(
            f"score and correct are of the same samples, but shapes are {scores.shape} and {hits.shape}."
        )
    n = len(scores)
    _, tie, size = np.unique(scores, return_inverse=True, return_counts=True)
    expected_hit = (
        np.bincount(tie, weights=hits) / size
    )  # per tie: chance that one drawn from it is correct
    kept_hits = np.cumsum(
        np.repeat(expected_hit, size)
    )  # entry k - 1: expected hits among the first k
    kept = np.arange(1, n + 1)
    return AccuracyRejection(rejection=((n - kept) / n)[::-1], accuracy=(kept_hits / kept)[::-1])


def auarc(score: Any, correct: Any) -> float:
    """Area under the curve of :func:`accuracy_rejection`, with its arguments and errors: mean of all its accuracies.

    Example:
        >>> auarc([0.1, 0.9], [True, False])
        0.75
    """
    return accuracy_rejection(score, correct).area


def ood_detection(id_score: Any, ood_score: Any) -> OODDetection:
    r"""AUROC and AUPRC of "out of distribution" (class 1) against "in distribution" (class 0).

    AUROC is the chance that an out-of-distribution sample has the higher score; a tie counts one half. AUPRC is the
    average precision :math:`\sum_t (R_t - R_{t-1}) P_t` over the distinct scores :math:`t` as thresholds: a threshold
    takes all samples of one score or none, so a constant score gives the base rate. Raises what
    :func:`accuracy_rejection` does; the parts may differ in length.

    Example:
        >>> ood_detection([0.1, 0.2], [0.2, 0.3])
        OODDetection(auroc=0.875, auprc=0.833..., base_rate=0.5)
    """
    inside, outside = as_scores(id_score, "id_score"), as_scores(ood_score, "ood_score")
    is_ood, scores = (
        np.repeat([0, 1], [len(inside), len(outside)]),
        np.concatenate([inside, outside]),
    )
    auroc, auprc = roc_auc_score(is_ood, scores), average_precision_score(is_ood, scores)
    return OODDetection(float(auroc), float(auprc), base_rate=float(is_ood.mean()))


def relative_increase(test: Any, base: Any) -> RelativeIncrease:
    r"""Mean over samples, and runs if given, of :math:`U_\mathrm{test} / U_\mathrm{base}`; Eq. (Relative increase).

    Of any shape, not negative, of the same samples with and without shift; where the base is 0, they are left out.
    Raises what :func:`accuracy_rejection` does, and a ValueError if a value is negative, or no ratio is finite.

    Example:
        >>> relative_increase([0.2, 0.6, 0.5], [0.1, 0.2, 0.0])
        RelativeIncrease(mean=2.5, excluded=1)
    """
    shifted, unshifted = as_uncertainties(test, "test"), as_uncertainties(base, "base")
    if shifted.shape != unshifted.shape:
        found = f"{shifted.shape} and {unshifted.shape}"
        raise ValueError(f"test and base are of the same samples, but shapes are {found}.")
    defined = unshifted > 0
    if not defined.any():
        raise ValueError(
            f"base is 0 for all {defined.size} samples, so no ratio is defined. Choose another measure."
        )
    with np.errstate(over="ignore"):
        mean = float((shifted[defined] / unshifted[defined]).mean())
    if not np.isfinite(mean):
        least = unshifted[defined].min()
        raise ValueError(
            f"The ratios overflow: base is as small as {least:g}. Round such values to 0 to leave it out."
        )
    return RelativeIncrease(mean=mean, excluded=int((~defined).sum()))
