r"""Accuracy-rejection curve and the area under it (AUARC), as in Wang et al. (2025).

In: an uncertainty score per sample, and whether the prediction was correct. Out: the accuracy of what is kept when
the most uncertain samples are rejected first, and its mean.

Rule: of :math:`N` samples :math:`k = N, N - 1, \dots, 1` are kept, the least uncertain ones, so the rejection rate
runs through :math:`(N - k) / N`. AUARC is the plain mean of the :math:`N` accuracies. Samples of equal score are kept
in random order; what is given is the exact expectation over all such orders, so the order of the input is of no
account and a constant score gives a flat curve.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from creinn.evaluation.checks import as_numpy, as_scores


class AccuracyRejection(NamedTuple):
    """Accuracy of the kept samples against the share rejected; from nothing rejected to all but one."""

    rejection: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64]

    @property
    def area(self) -> float:
        """Mean accuracy over all numbers kept."""
        return float(self.accuracy.mean())


def accuracy_rejection(score: Any, correct: Any) -> AccuracyRejection:
    r"""Accuracy among the kept, for every number kept.

    With :math:`k` kept, of which :math:`m` come from the last tie, of size :math:`g` with :math:`c` correct, and
    :math:`C` correct ones among the samples of lower score, the expected accuracy is :math:`(C + m\, c / g) / k`.

    Args:
        score: Uncertainty per sample, shape ``(N,)``; higher is rejected first.
        correct: Whether the prediction was correct, boolean, shape ``(N,)``.

    Raises:
        TypeError: If the scores are not numbers, or ``correct`` is not boolean.
        ValueError: If a score is NaN or infinite, there are none, or the lengths differ.

    Example:
        >>> curve = accuracy_rejection([0.1, 0.4, 0.9], [True, True, False])
        >>> curve.rejection.round(2), curve.accuracy.round(2)
        (array([0.  , 0.33, 0.67]), array([0.67, 1.  , 1.  ]))
    """
    scores, hits = _checked(score, correct)
    n = len(scores)
    _, tie, size = np.unique(scores, return_inverse=True, return_counts=True)
    expected_hit = np.bincount(tie, weights=hits) / size  # per tie: chance that one drawn from it is correct
    kept_hits = np.cumsum(np.repeat(expected_hit, size))  # entry k - 1: expected hits among the first k
    kept = np.arange(1, n + 1)
    return AccuracyRejection(rejection=((n - kept) / n)[::-1], accuracy=(kept_hits / kept)[::-1])


def auarc(score: Any, correct: Any) -> float:
    """Area under the accuracy-rejection curve: mean accuracy over all numbers kept.

    Args:
        score: Uncertainty per sample, shape ``(N,)``; higher is rejected first.
        correct: Whether the prediction was correct, boolean, shape ``(N,)``.

    Raises:
        TypeError: If the scores are not numbers, or ``correct`` is not boolean.
        ValueError: If a score is NaN or infinite, there are none, or the lengths differ.

    Example:
        >>> auarc([0.1, 0.9], [True, False])
        0.75
    """
    return accuracy_rejection(score, correct).area


def _checked(score: Any, correct: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    scores = as_scores(score, "score")
    hits = as_numpy(correct)
    if hits.dtype != np.bool_ and hits.size:
        raise TypeError(
            f"correct must be boolean, but its dtype is {hits.dtype}. Were labels passed? Pass `predicted == label`."
        )
    if hits.shape != scores.shape:
        raise ValueError(
            f"score and correct must have one entry per sample each, but their shapes are {scores.shape} and "
            f"{hits.shape}."
        )
    return scores, hits
