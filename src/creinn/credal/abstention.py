r"""Abstention with a bound on the error rate among accepted rows.

A row is accepted if its uncertainty is at most a threshold. The threshold is the largest one whose
error rate among accepted rows is at most ``max_error``, with probability ``confidence`` over random
calibration sets (Learn then Test: Angelopoulos et al., 2021; selective classification: Geifman and
El-Yaniv, 2017).

The candidates are the uncertainties at fixed shares of the calibration rows, so they do not depend
on the labels. They are tested from the strictest one onwards until a test fails (fixed-sequence
testing). The p-value of a candidate that accepts n calibration rows with k errors is the binomial
tail probability :math:`P(\mathrm{Bin}(n, \mathrm{max\_error}) \le k)`.

The guarantee assumes exchangeable rows and an error probability that does not decrease with the
uncertainty. It does not hold on data from another distribution.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

SHARES = 50
"""Number of candidate thresholds, at equally spaced shares of the calibration rows."""


class NoThresholdError(ValueError):
    """Error raised if no threshold guarantees the error rate.

    ``smallest`` is the smallest rate that a threshold guarantees.
    """

    def __init__(self, max_error: float, rows: int, smallest: float) -> None:
        super().__init__(
            f"No threshold guarantees an error rate of {max_error:g} with these {rows} calibration "
            f"rows. The smallest rate that they can guarantee is {smallest:.4f}. Use a larger "
            "max_error, a lower confidence, or more calibration rows."
        )
        self.smallest = smallest


@dataclass(frozen=True)
class Candidates:
    """Candidate thresholds, in increasing order.

    Args:
        thresholds: Uncertainties.
        accepted: Numbers of calibration rows with at most this uncertainty.
        errors: Numbers of errors among them.
    """

    thresholds: tuple[float, ...]
    accepted: tuple[int, ...]
    errors: tuple[int, ...]


def candidate_thresholds(
    uncertainty: Float[Tensor, " rows"], is_error: Bool[Tensor, " rows"], tolerance: float = 0.0
) -> Candidates:
    """Return the distinct uncertainties at equally spaced shares of the rows.

    Uncertainties that differ by at most ``tolerance`` are ties, which are accepted together.

    Example:
        >>> uncertainty = torch.tensor([0.25, 0.75, 0.5, 0.75])
        >>> candidate_thresholds(uncertainty, torch.tensor([False, True, False, False]))
        Candidates(thresholds=(0.25, 0.5, 0.75), accepted=(1, 2, 4), errors=(0, 0, 1))
    """
    values, order = uncertainty.detach().cpu().double().sort()
    errors = is_error.cpu()[order].cumsum(0)
    ranks = (torch.arange(1, SHARES + 1) * len(values) + SHARES - 1) // SHARES
    counts = torch.searchsorted(values, values[ranks - 1] + tolerance, right=True).unique()
    return Candidates(
        tuple(values[counts - 1].tolist()),
        tuple(counts.tolist()),
        tuple(errors[counts - 1].tolist()),
    )


def acceptance_threshold(
    uncertainty: Float[Tensor, " rows"],
    is_error: Bool[Tensor, " rows"],
    max_error: float,
    confidence: float = 0.95,
    tolerance: float = 0.0,
) -> float:
    r"""Return the largest threshold that guarantees the error rate among accepted rows.

    Args:
        uncertainty: Uncertainties of the calibration rows.
        is_error: Whether the predicted class of a row is wrong.
        max_error: Largest error rate among accepted rows, above 0 and below 1.
        confidence: Probability of the guarantee over calibration sets, above 0 and below 1.
        tolerance: Difference up to which uncertainties are ties.

    Raises:
        NoThresholdError: If no threshold qualifies.
        ValueError: If ``max_error`` or ``confidence`` is not above 0 and below 1.

    Example:
        >>> uncertainty = torch.arange(1000) / 1000
        >>> round(acceptance_threshold(uncertainty, uncertainty > 0.75, max_error=0.05), 3)
        0.759
    """
    for name, value in (("max_error", max_error), ("confidence", confidence)):
        if isinstance(value, bool) or not 0 < value < 1:
            raise ValueError(f"{name} must be above 0 and below 1, found {value!r}.")
    candidates = candidate_thresholds(uncertainty, is_error, tolerance)
    chosen = _last_qualified(candidates, max_error, confidence)
    if chosen is None:
        smallest = _smallest_rate(candidates, confidence)
        raise NoThresholdError(max_error, len(uncertainty), smallest)
    return candidates.thresholds[chosen]


def rows_needed_without_error(max_error: float, confidence: float) -> int:
    """Return the smallest number of accepted rows that can qualify.

    All of these rows must be correct.

    Example:
        >>> rows_needed_without_error(0.05, 0.95)
        59
    """
    if max_error >= 1:
        return 1
    return math.ceil(math.log(1 - confidence) / math.log1p(-max_error) - 1e-9)


def error_bounds(candidates: Candidates, confidence: float) -> list[float]:
    """Return the upper Clopper-Pearson bound of the error rate for each candidate."""
    from scipy.special import bdtri  # the inverse of the binomial distribution function in its rate

    pairs = zip(candidates.accepted, candidates.errors, strict=True)
    return [1.0 if k == n else float(bdtri(k, n, 1 - confidence)) for n, k in pairs]


def _smallest_rate(candidates: Candidates, confidence: float) -> float:
    """Return the smallest error rate for which the first tested candidate qualifies."""
    bounds = error_bounds(candidates, confidence)
    for rate in sorted(bounds):
        first = bisect_left(candidates.accepted, rows_needed_without_error(rate, confidence))
        if first < len(bounds) and bounds[first] <= rate:
            return rate
    return 1.0


def _last_qualified(candidates: Candidates, max_error: float, confidence: float) -> int | None:
    """Return the index of the last candidate before a test fails.

    The result is ``None`` if the first test fails. Candidates that accept too few rows to pass
    without an error are not tested.
    """
    from scipy.special import bdtr  # the binomial distribution function

    needed = rows_needed_without_error(max_error, confidence)
    p_values = bdtr(candidates.errors, candidates.accepted, max_error).tolist()
    last = None
    for index, p_value in enumerate(p_values):
        if candidates.accepted[index] >= needed:
            if p_value > (1 - confidence) * (1 + 1e-9):  # 1e-9: rounding of error_bounds
                break
            last = index
    return last
