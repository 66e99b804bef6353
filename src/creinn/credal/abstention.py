r"""Abstention with a bound on the error rate among accepted rows.

A row is accepted if its uncertainty is at most a limit. The limit is found
by Learn then Test (Angelopoulos et al., 2021) with fixed-sequence testing:

1. A fifth of the calibration rows, at most :data:`GRID_ROWS`, gives the
   candidates: the uncertainties at :data:`SHARES` equally spaced shares.
2. The candidates are tested by the other rows. If n rows are accepted with k
   errors, the p-value is
   :math:`P(\mathrm{Bin}(n, \mathrm{max\_error}) \le k)`.
3. The tests start at a candidate that accepts enough rows, and stop at the
   first p-value above ``1 - confidence``. The limit is the last candidate
   before.

The candidates and the start do not depend on the other rows. With
probability ``confidence`` over calibration sets, the error rate among
accepted rows is at most ``max_error``, *if all rows are independent and
identically distributed* and ``max_error`` was chosen before. This is valid
in each group. **There is no guarantee for data with another
distribution.**
"""

import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from creinn.numerics import check_groups, check_share

CRITERIA = ("total", "aleatoric", "epistemic", "entropy")
"""Uncertainties, and the entropy of the predicted distribution."""
SHARES = 50
GRID_ROWS = 1000
PerCandidate = Float[Tensor, "*sets candidates"]


class NoThresholdError(ValueError):
    """Error if no limit has the guarantee. The best rate is ``smallest``."""

    def __init__(self, max_error: float, rows: int, smallest: float) -> None:
        super().__init__(
            f"max_error={max_error:g} cannot be guaranteed with {rows} calibration rows, only "
            f"{smallest:g} or more. Use a larger max_error, a lower confidence, or more rows."
        )
        self.smallest = smallest


@dataclass(frozen=True)
class Abstention:
    """Limits of the uncertainty for each group."""

    limits: tuple[float, ...]  # minus infinity accepts no row
    groups: tuple[int, ...] | None
    by: str  # a name of CRITERIA
    max_error: float
    confidence: float
    stale: str = ""  # error message if the model has changed

    def accepts(
        self, uncertainty: Float[Tensor, "*batch"], groups: Any = None
    ) -> Bool[Tensor, "*batch"]:
        """Return the accepted rows. Rows of unknown groups are not accepted."""
        if self.groups is None:
            return uncertainty <= self.limits[0]
        if groups is None:
            raise ValueError("Calibrated by groups. Use s.accept(groups=...).")
        groups = check_groups(groups, uncertainty.shape).to(uncertainty.device)
        found = torch.zeros_like(uncertainty, dtype=torch.bool)
        for group, limit in zip(self.groups, self.limits, strict=True):
            found |= (groups == group) & (uncertainty <= limit)
        return found


def fit_abstention(
    uncertainty: Float[Tensor, " rows"],
    is_error: Bool[Tensor, " rows"],
    max_error: float,
    confidence: float = 0.95,
    by: str = "total",
    groups: Any = None,
) -> Abstention:
    """Find the largest limit that guarantees the error rate.

    Differences of at most 128 machine epsilons are ties. Each of the
    ``groups`` has its own limit. If there is none, a warning is given and
    no row is accepted.

    Raises:
        NoThresholdError: If no limit qualifies.

    Example:
        >>> u = torch.arange(1000) / 1000
        >>> round(fit_abstention(u, u > 0.75, max_error=0.05).limits[0], 3)
        0.752
    """
    if len(uncertainty) == 0:
        raise ValueError("There are no calibration rows; at least one is needed.")
    max_error = check_share("max_error", max_error)
    confidence = check_share("confidence", confidence)
    tolerance = 128 * torch.finfo(uncertainty.dtype).eps
    values, errors = uncertainty.detach().cpu().double(), is_error.cpu()
    if groups is None:
        limit = _find_limit(values, errors, max_error, confidence, tolerance)
        return Abstention((limit,), None, by, max_error, confidence)
    groups, limits = check_groups(groups, values.shape), []
    names = groups.unique().tolist()
    for group in names:
        own = groups == group
        try:
            limit = _find_limit(values[own], errors[own], max_error, confidence, tolerance)
        except NoThresholdError as error:
            if len(names) == 1:
                raise
            warnings.warn(f"Group {group}: {error} No row is accepted.", stacklevel=2)
            limit = -math.inf
        limits.append(limit)
    return Abstention(tuple(limits), tuple(names), by, max_error, confidence)


class Candidates(NamedTuple):
    """Candidates in increasing order, with the results of the tests."""

    limits: PerCandidate
    expected: PerCandidate  # accepted rows, estimated by the grid rows
    accepted: Int[Tensor, "*sets candidates"]
    errors: Int[Tensor, "*sets candidates"]


def find_candidates(uncertainty: Tensor, is_error: Tensor, tolerance: float) -> Candidates:
    """Choose candidates at random, and count the errors of the other rows.

    The shape ``(*sets, rows)`` can have several calibration sets.
    """
    order = torch.randperm(uncertainty.shape[-1], generator=torch.Generator().manual_seed(0))
    size = min(max(len(order) // 5, 1), GRID_ROWS)
    grid, tested = uncertainty[..., order[:size]].sort().values, order[size:]
    ranks = (torch.arange(1, SHARES + 1) * size + SHARES - 1) // SHARES
    limits = grid[..., ranks - 1] + tolerance
    share = torch.searchsorted(grid, limits, right=True) / size
    values, by_value = uncertainty[..., tested].sort()
    accepted = torch.searchsorted(values, limits, right=True)
    errors = F.pad(is_error[..., tested].gather(-1, by_value).cumsum(-1), (1, 0))
    return Candidates(limits, share * len(tested), accepted, errors.gather(-1, accepted))


def rows_needed_without_error(max_error: float, confidence: float) -> int:
    """Return the smallest number of rows for which a test can succeed.

    Example:
        >>> rows_needed_without_error(0.05, 0.95)
        59
    """
    return math.ceil(math.log(1 - confidence) / math.log1p(-max_error) - 1e-9)


def error_bounds(candidates: Candidates, confidence: float) -> PerCandidate:
    """Return the upper Clopper-Pearson bound of each error rate."""
    from scipy.special import bdtri

    errors, accepted = candidates.errors, candidates.accepted
    bounds = torch.from_numpy(bdtri(errors.numpy(), accepted.numpy(), 1 - confidence))
    return torch.where(errors == accepted, 1.0, bounds)


def find_limits(
    candidates: Candidates, max_error: float, confidence: float
) -> Float[Tensor, "*sets"]:
    """Return the last limit before a test fails, or minus infinity.

    The first candidate accepts about half of the rows, or three times the
    necessary number if this is smaller.
    """
    limits, expected = candidates.limits, candidates.expected
    needed, rows = rows_needed_without_error(max_error, confidence), expected.max().item()
    enough = max(needed, min(3 * needed, rows / 2))
    first = (expected < enough).sum(-1, keepdim=True).clamp_max(SHARES - 1)
    # p-value <= 1 - confidence if and only if bound <= max_error
    is_before = torch.arange(SHARES) < first
    passes = is_before | (error_bounds(candidates, confidence) <= max_error)
    passed = passes.long().cumprod(-1).sum(-1, keepdim=True)
    last = limits.gather(-1, (passed - 1).clamp_min(0))
    return torch.where(passed > first, last, -math.inf).squeeze(-1)


def _find_limit(
    uncertainty: Tensor, is_error: Tensor, max_error: float, confidence: float, tolerance: float
) -> float:
    candidates = find_candidates(uncertainty, is_error, tolerance)
    limit = find_limits(candidates, max_error, confidence).item()
    if limit > -math.inf:
        return limit
    rates = (step / 1000 for step in range(1, 1000))
    possible = (rate for rate in rates if find_limits(candidates, rate, confidence) > -math.inf)
    raise NoThresholdError(max_error, len(uncertainty), next(possible, 1.0))
