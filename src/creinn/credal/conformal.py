r"""Split conformal calibration: sets of classes with a guaranteed coverage.

The score :math:`s(x, y)` is large if y is not the class of the row x. A
class is kept if its score is at most the
:math:`\lceil (n + 1) c \rceil`-th smallest score of n calibration rows,
which must not be used for training or model selection. The set contains
the true class with probability at least c, *if the new row and the
calibration rows are exchangeable* (Vovk, Gammerman and Shafer, 2005). This
is the average over the calibrations and the rows, in each class or group
that has its own quantile. **There is no guarantee for data with another
distribution.**
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from creinn.credal.margin import UNITS, add_margin
from creinn.credal.probability import Bounds
from creinn.numerics import PerClass, check_groups, check_share

By = Literal["class", "groups"]
SCORES = ("lower", "dominance", "lac", "aps", "raps")
"""Scores of :func:`class_scores`."""
ONE_GROUP = torch.zeros(1, dtype=torch.long)
GROWTH = 0.02
PENALTY, FREE = 0.01, 5  # of RAPS


def class_scores(
    score: str,
    lower: PerClass,
    upper: PerClass,
    probabilities: PerClass,
    part: Tensor | float = 1.0,
    usual: float = 0.0,
) -> PerClass:
    """Compute a score of :data:`SCORES` for each class.

    The scores ``"lower"`` and ``"dominance"`` use the intervals. The
    others use the predicted distribution: ``"lac"`` is one minus the
    probability (Sadinle, Lei and Wasserman, 2019).
    """
    if score == "lower":
        return lower_score(lower, usual)
    if score == "dominance":
        return dominance_score(lower, upper)
    if score == "lac":
        return 1 - probabilities
    return aps_score(probabilities, part, PENALTY if score == "raps" else 0.0)


def lower_score(lower: PerClass, usual: float = 0.0) -> PerClass:
    r"""Compute the share of the lower probabilities of the other classes.

    .. math:: \frac{\sum_{k \ne y} \underline q_k}{\max(\sum_k \underline q_k,\ t)}

    The value of t is ``usual``; see :func:`usual_mass`. The scores of a
    vacuous set are 0.

    Example:
        >>> lower_score(torch.tensor([0.375, 0.125]))
        tensor([0.2500, 0.7500])
    """
    mass = lower.sum(-1, keepdim=True)
    return (mass - lower) / mass.clamp_min(max(usual, torch.finfo(lower.dtype).tiny))


def usual_mass(lower: PerClass) -> tuple[float, float]:
    """Return the values of t in :func:`lower_score` for all rows.

    If all classes were kept for the rows whose lower probabilities sum to
    less than t, the mean number of classes would increase by at most
    :data:`GROWTH`. The guarantee needs the same t for all rows, which is
    between the values for the calibration and for new rows: the first does
    not decrease the calibration scores, and the second does not increase
    those of a new row.

    Example:
        >>> lower = torch.arange(101.0)[:, None].expand(101, 2) / 256
        >>> usual_mass(lower)
        (0.0, 0.0078125)
    """
    ordered = lower.sum(-1).sort().values
    rank = max(1, int(GROWTH * (len(ordered) + 1) / (lower.shape[-1] - 1)))
    return float(ordered[rank - 2]) if rank > 1 else 0.0, float(ordered[rank - 1])


def dominance_score(lower: PerClass, upper: PerClass) -> PerClass:
    r"""Compute :math:`\max_{k \ne y} \underline q_k - \overline q_y`.

    The score is positive if y is dominated by another class. Sets can be
    empty if the coverage is smaller than the accuracy.

    Example:
        >>> dominance_score(torch.tensor([0.4, 0.1, 0.0]), torch.tensor([0.8, 0.5, 0.2]))
        tensor([-0.7000, -0.1000,  0.2000])
    """
    best, second = lower.topk(2, -1).values.split(1, -1)
    is_best = torch.arange(lower.shape[-1], device=lower.device) == lower.argmax(-1, keepdim=True)
    return torch.where(is_best, second, best) - upper


def aps_score(
    probabilities: PerClass, part: Tensor | float = 1.0, penalty: float = 0.0
) -> PerClass:
    """Compute the probability of all larger classes and ``part`` of the class.

    This is adaptive prediction sets (APS; Romano, Sesia and Candès, 2020),
    or regularized APS (RAPS; Angelopoulos et al., 2021) with a penalty for
    each class after the first :data:`FREE`.

    Example:
        >>> aps_score(torch.tensor([0.5, 0.125, 0.375]))
        tensor([0.5000, 1.0000, 0.8750])
    """
    count = probabilities.shape[-1]
    ordered, order = probabilities.topk(count, -1)  # supported by ONNX
    before = F.pad(ordered.cumsum(-1)[..., :-1], (1, 0))
    scores = before + part * ordered
    if penalty:
        rank = torch.arange(count, device=order.device) + 1
        scores = scores + penalty * (rank - FREE).clamp_min(0).to(scores)
    return torch.empty_like(ordered).scatter(-1, order, scores)


def conformal_rank(rows: int, coverage: float) -> int:
    """Return the rank of the quantile, which can be larger than ``rows``.

    Example:
        >>> conformal_rank(99, 0.95)
        95
    """
    return math.ceil((rows + 1) * coverage - 1e-9)  # for rounding errors


def rows_needed(coverage: float) -> int:
    """Return the smallest number of rows for which the quantile is finite."""
    return math.ceil(coverage / (1 - coverage) - 1e-9)


@dataclass(frozen=True, eq=False)
class Conformal:
    r"""Calibration that the credal sets of a calibrated model carry.

    Scores that differ by at most :meth:`tolerance` are ties. A class that
    ties with the quantile is kept. If ``random`` is true, a class with the
    score s is kept if

    .. math:: \frac{\#\{i : s_i > s\} + u\,(1 + \#\{i : s_i = s\})}{n + 1} > 1 - c

    with a uniform :math:`u` for each row. The coverage is then exactly c.
    It is higher for the score ``"lower"``, and for groups with too few
    rows, which get all classes.
    """

    scores: Tensor  # of the true classes
    groups: Tensor  # the class or the group of each row, or 0
    score: str = "lower"  # the name of the score or of the unit
    by: By | None = None
    coverage: float = 0.95
    random: bool = False  # smoothed p-values and random ``part``
    usual: float = 0.0  # of new rows
    rounding: float = 0.0  # machine epsilon of the scores
    stale: str = ""  # the error message if the model has changed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Conformal):
            return NotImplemented
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(
            a is b or (torch.equal(a, b) if isinstance(a, Tensor) else a == b) for a, b in pairs
        )

    def tolerance(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the largest difference for which scores are ties.

        The tolerance allows for errors of the logits. In float32, it is
        1.6e-5 for a sum of 1/2, and for scores that are not sums of
        probabilities. It is 1.2e-4 for ``"deviation"``.
        """
        epsilon = max(self.rounding, torch.finfo(dtype).eps)
        share, slope = values.clamp(0, 1), torch.ones_like(values)
        if self.score in ("lower", "lac", "aps"):
            slope = 4 * share * (1 - share)
        elif self.score == "deviation":  # divided by a unit of at least 0.02
            slope = 8 * slope
        return epsilon * (4 + 128 * slope)

    def quantiles(
        self, coverage: float | None = None, groups: Tensor = ONE_GROUP
    ) -> Float[Tensor, "*groups"]:
        """Return the quantile of each group, which can be infinite."""
        coverage = self._coverage(coverage)
        names, position = groups.unique(return_inverse=True)
        found = torch.full(names.shape, math.inf, dtype=torch.float64)
        for index, group in enumerate(names.tolist()):
            scores = self.scores[self.groups == group]
            rank = max(1, conformal_rank(len(scores), coverage))
            if rank <= len(scores):
                found[index] = scores.kthvalue(rank).values
        return found[position]

    def classes(
        self,
        lower: PerClass,
        upper: PerClass,
        probabilities: PerClass,
        coverage: float | None,
        groups: Any,
    ) -> Bool[Tensor, "*batch classes"]:
        """Return the classes whose score is at most the quantile."""
        if self.score in UNITS:
            raise ValueError("Calibrated by distributions. Use s.widened().")
        index = self._groups_of(groups, lower.shape)
        draws = torch.rand(2, *lower.shape[:-1], 1, device=lower.device) if self.random else None
        part = 1.0 if draws is None else draws[0]
        scores = class_scores(self.score, lower, upper, probabilities, part, self.usual).double()
        if draws is not None:
            ties = self.tolerance(scores, lower.dtype)
            return self._smoothed(scores, ties, index, draws[1], self._coverage(coverage))
        quantiles = self.quantiles(coverage, index).to(scores.device)
        return scores <= quantiles + self.tolerance(quantiles, lower.dtype)

    def widened(
        self, lower: PerClass, upper: PerClass, coverage: float | None, groups: Any
    ) -> Bounds:
        """Return reachable bounds, widened by the quantile."""
        if self.score not in UNITS:
            raise ValueError("Calibrated by classes. Use s.classes('conformal').")
        quantiles = self.quantiles(coverage, self._groups_of(groups, lower.shape))
        size = quantiles + self.tolerance(quantiles, lower.dtype)
        return add_margin(lower, upper, size, self.score)

    def _smoothed(
        self, scores: Tensor, ties: Tensor, index: Tensor, draw: Tensor, coverage: float
    ) -> Tensor:
        index, draw = index.to(scores.device).expand_as(scores), draw.expand_as(scores)
        kept = torch.ones_like(scores, dtype=torch.bool)
        for group in index.unique().tolist():
            own = self.scores[self.groups == group].sort().values.to(scores.device)
            rows = len(own)
            if conformal_rank(rows, coverage) > rows:
                continue
            here = index == group
            above = rows - torch.searchsorted(own, (scores + ties)[here], right=True)
            equal = rows - torch.searchsorted(own, (scores - ties)[here]) - above
            kept[here] = above + draw[here] * (equal + 1) > (1 - coverage) * (rows + 1)
        return kept

    def _coverage(self, coverage: float | None) -> float:
        return self.coverage if coverage is None else check_share("coverage", coverage)

    def _groups_of(self, groups: Any, shape: torch.Size) -> Tensor:
        if self.by != "groups":
            return torch.arange(shape[-1] if self.by == "class" else 1)
        if groups is None:
            raise ValueError("Calibrated by groups. Pass groups=... for these rows.")
        return check_groups(groups, shape[:-1]).unsqueeze(-1)
