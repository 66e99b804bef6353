"""Detection of out-of-distribution samples by an uncertainty score, as in Wang et al. (2025).

In: scores of in-distribution samples (class 0) and of out-of-distribution samples (class 1). Out: AUROC, AUPRC and
the base rate.
"""

from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from creinn.evaluation.checks import as_scores


class OODDetection(NamedTuple):
    """How well a score tells out-of-distribution samples from in-distribution ones.

    ``auroc`` is 0.5 and ``auprc`` is ``base_rate``, the share of out-of-distribution samples, for a score that says
    nothing.
    """

    auroc: float
    auprc: float
    base_rate: float


def ood_detection(id_score: Any, ood_score: Any) -> OODDetection:
    r"""AUROC and AUPRC of "out of distribution" against "in distribution".

    AUROC is the chance that an out-of-distribution sample has the higher score; a tie counts one half, which is the
    expectation over the orders of the tied. AUPRC is the average precision :math:`\sum_t (R_t - R_{t-1}) P_t` over
    the distinct scores :math:`t` as thresholds: a threshold takes all samples of one score or none, so the order of
    the input is of no account, and a constant score gives the base rate. (The mean over random orders of the ties is
    another number, for a constant score above the base rate; no threshold attains it.)

    Args:
        id_score: Scores of in-distribution samples, shape ``(N,)``.
        ood_score: Scores of out-of-distribution samples, shape ``(M,)``; expected to be higher.

    Raises:
        TypeError: If the scores are not numbers.
        ValueError: If a score is NaN or infinite, or either part is empty or not a vector.

    Example:
        >>> ood_detection([0.1, 0.2], [0.2, 0.3])
        OODDetection(auroc=0.875, auprc=0.833..., base_rate=0.5)
    """
    inside, outside = as_scores(id_score, "id_score"), as_scores(ood_score, "ood_score")
    is_ood = np.repeat([0, 1], [len(inside), len(outside)])
    scores = np.concatenate([inside, outside])
    return OODDetection(
        auroc=float(roc_auc_score(is_ood, scores)),
        auprc=float(average_precision_score(is_ood, scores)),
        base_rate=float(is_ood.mean()),
    )
