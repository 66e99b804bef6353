r"""Sets of classes with a guarantee: split conformal calibration. Beyond the paper.

In: predictions of calibration rows, which nothing was learnt or chosen by, and their classes. Out: sets of classes for
new rows. A score :math:`s(x, y)` says how ill class y fits row x; a class stays if its score is at most the
:math:`\lceil (n + 1) c \rceil`-th smallest of the n calibration scores. Then the set holds the true class with
probability at least c, whatever the model, *if the new row and those of the calibration are exchangeable*, such as
drawn independently from one distribution (Vovk, Gammerman and Shafer, 2005). It holds on average over calibrations and
rows, not for each kind of row; with one quantile per class or group it holds in each of these. **On data of another
distribution nothing is guaranteed.**

Scores act on the last axis. The first two see the intervals: of points they are the third, and the margin to the best.
All take the same arguments, and each what it needs of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from creinn.credal.probability import PerClass, reachable

By = Literal["class", "groups"]
GROWTH = (
    0.02  # classes that sets of rows like those of the calibration may get in addition, on average
)
PENALTY, FREE = 0.01, 5  # of RAPS: what each class costs, in order of probability, beyond so many


def lower_score(
    lower: PerClass,
    upper: PerClass,
    probabilities: PerClass,
    part: Tensor | float = 1.0,
    usual: float = 0.0,
) -> PerClass:
    r"""Lower probability of the other classes, as a share of that of all, or of what is usual where that is more.

    .. math:: \frac{\sum_{k \ne y} \underline q_k}{\max(\sum_k \underline q_k,\ t)}

    Usual rows, whose lower probabilities sum to :math:`t` or more, have the :func:`lac_score` of these, divided by
    their sum. In others less than usual speaks for any class: scores are lower, and sets larger. The vacuous set has
    score 0 for every class. See :func:`usual_mass` for t.

    Example:
        >>> lower = torch.tensor([0.375, 0.125])
        >>> lower_score(lower, 1 - lower, lower), lower_score(lower, 1 - lower, lower, usual=1.0)
        (tensor([0.2500, 0.7500]), tensor([0.1250, 0.3750]))
    """
    mass = lower.sum(-1, keepdim=True)
    return (mass - lower) / mass.clamp_min(max(usual, torch.finfo(lower.dtype).tiny))


def usual_mass(lower: PerClass) -> tuple[float, float]:
    """The t of :func:`lower_score`: for calibration rows, and for new ones.

    So few rows have less that all classes for each of them would add no more than :data:`GROWTH` to the mean set; but
    always one. A new row and those of the calibration have to be treated alike: by the j-th smallest sum of lower
    probabilities of all of them. That lies between the j-th and the one before it of the calibration rows alone. The
    smaller one makes no score of these lower, the larger one makes that of the new row no higher, so the guarantee
    holds.

    Example:
        >>> lower = torch.linspace(0, 0.5, 101, dtype=torch.float64).unsqueeze(1).expand(101, 2)  # the second is usual
        >>> usual_mass(lower) == (float(lower[0].sum()), float(lower[1].sum()))
        True
    """
    ordered = lower.sum(-1).sort().values
    rank = max(1, int(GROWTH * (len(ordered) + 1) / (lower.shape[-1] - 1)))
    return float(ordered[rank - 2]) if rank > 1 else 0.0, float(ordered[rank - 1])


def dominance_score(
    lower: PerClass,
    upper: PerClass,
    probabilities: PerClass,
    part: Tensor | float = 1.0,
    usual: float = 0.0,
) -> PerClass:
    r"""How far another class dominates y, :math:`\max_{k \ne y} \underline q_k - \overline q_y`; above 0 it does.

    Wide intervals have low scores, for nothing dominates. That k is not y matters only for negative quantiles, where
    the coverage asked for is less than the accuracy: those rows are then left without a class that are least certain.

    Example:
        >>> lower, upper = torch.tensor([0.4, 0.1, 0.0]), torch.tensor([0.8, 0.5, 0.2])
        >>> dominance_score(lower, upper, lower)
        tensor([-0.7000, -0.1000,  0.2000])
    """
    best, second = lower.topk(2, -1).values.split(1, -1)
    is_best = torch.arange(lower.shape[-1], device=lower.device) == lower.argmax(-1, keepdim=True)
    return torch.where(is_best, second, best) - upper


def lac_score(
    lower: PerClass,
    upper: PerClass,
    probabilities: PerClass,
    part: Tensor | float = 1.0,
    usual: float = 0.0,
) -> PerClass:
    """One less the probability (least ambiguous classifiers: Sadinle, Lei and Wasserman, 2019)."""
    return 1 - probabilities


def aps_score(
    lower: PerClass,
    upper: PerClass,
    probabilities: PerClass,
    part: Tensor | float = 1.0,
    usual: float = 0.0,
) -> PerClass:
    """Probability of all classes before y, in falling order, and of ``part`` of y (Romano, Sesia and Candès, 2020).

    Example:
        >>> p = torch.tensor([0.5, 0.125, 0.375])
        >>> aps_score(p, p, p), aps_score(p, p, p, 0.0)
        (tensor([0.5000, 1.0000, 0.8750]), tensor([0.0000, 0.8750, 0.5000]))
    """
    ordered, order = probabilities.topk(
        probabilities.shape[-1], -1
    )  # which ONNX has, unlike a stable sort
    before = F.pad(ordered.cumsum(-1)[..., :-1], (1, 0))
    return torch.empty_like(ordered).scatter(-1, order, before + part * ordered)


def raps_score(
    lower: PerClass,
    upper: PerClass,
    probabilities: PerClass,
    part: Tensor | float = 1.0,
    usual: float = 0.0,
) -> PerClass:
    """:func:`aps_score`, and :data:`PENALTY` for each class beyond :data:`FREE` (Angelopoulos et al., 2021)."""
    order = probabilities.topk(probabilities.shape[-1], -1).indices
    paid = PENALTY * (torch.arange(order.shape[-1], device=order.device) + 1 - FREE).clamp_min(
        0
    ).to(probabilities)
    penalty = torch.empty_like(probabilities).scatter(-1, order, paid.expand_as(order))
    return aps_score(lower, upper, probabilities, part) + penalty


SCORES: dict[str, Callable[..., Tensor]] = {
    "lower": lower_score,
    "dominance": dominance_score,
    "lac": lac_score,
    "aps": aps_score,
    "raps": raps_score,
}
"""Scores of classes by name."""
DISTRIBUTION = "distribution"
"""The score where labels are distributions, as of several annotators."""


def distribution_score(
    lower: PerClass, upper: PerClass, distribution: PerClass
) -> Float[Tensor, "*batch"]:
    r"""By how much bounds miss one: :math:`\max_k \max(\underline q_k - \lambda_k,\ \lambda_k - \overline q_k)`."""
    return torch.maximum(lower - distribution, distribution - upper).amax(-1)


def conformal_rank(rows: int, coverage: float) -> int:
    """Which of the scores of so many rows, from the smallest on, is the quantile; more than there are if none is.

    Example:
        >>> conformal_rank(99, 0.95), conformal_rank(18, 0.95), rows_needed(0.95)
        (95, 19, 19)
    """
    return math.ceil(
        (rows + 1) * coverage - 1e-9
    )  # the product of 0.95 and 20 may be a little more than 19


def rows_needed(coverage: float) -> int:
    """The least number of rows that have a quantile."""
    return math.ceil(coverage / (1 - coverage) - 1e-9)


@dataclass(frozen=True, eq=False)
class Conformal:
    """What credal sets of a calibrated model carry: scores of the calibration rows, on the CPU and in float64.

    Args:
        scores: Of the true classes, ``(n,)``.
        groups: Number of the group of each row ``(n,)``: its class, or what the user says; 0 if there are none.
        score: Of :data:`SCORES`, or :data:`DISTRIBUTION`.
        by: Whether each class, or each group of rows, has a quantile of its own.
        coverage: That was asked for.
        random: Whether to draw, so that coverage is not more than asked for: in ``"aps"`` and ``"raps"`` the part of
            the last class, otherwise which of the classes stay whose score is the quantile.
        usual: Sum of the lower probabilities of new rows that is usual, for ``"lower"``.
        stale: Message of the error that is raised on use, if the model has changed since.
    """

    scores: Tensor
    groups: Tensor
    score: str = "lower"
    by: By | None = None
    coverage: float = 0.95
    random: bool = False
    usual: float = 0.0
    stale: str = ""

    def equals(self, other: "Conformal") -> bool:
        """Whether both calibrations have the same scores and settings."""
        tensors = (self.scores, other.scores), (self.groups, other.groups)
        settings = [(c.score, c.by, c.coverage, c.random, c.usual, c.stale) for c in (self, other)]
        return settings[0] == settings[1] and all(a is b or torch.equal(a, b) for a, b in tensors)

    def quantiles(self, coverage: float | None = None, count: int = 1) -> tuple[Tensor, Tensor]:
        """Quantiles ``(count,)`` of groups, infinite where rows are too few; and the share of ties to keep."""
        coverage = self.coverage if coverage is None else check_coverage(coverage)
        found = [_quantile(self.scores[self.groups == group], coverage) for group in range(count)]
        quantiles, shares = torch.tensor(found, dtype=torch.float64).unbind(1)
        return quantiles, shares if self.random else torch.ones_like(shares)

    def classes(
        self,
        lower: PerClass,
        upper: PerClass,
        probabilities: PerClass,
        coverage: float | None,
        groups: Any,
    ) -> Bool[Tensor, "*batch classes"]:
        """Classes whose score is at most the quantile.

        Raises:
            ValueError: If the calibration was by distributions, or by groups and those of the rows are not given.
        """
        if self.score == DISTRIBUTION:
            raise ValueError(
                "The calibration was by distributions, not by classes: ask for s.widened() instead."
            )
        part = (
            torch.rand(lower.shape[:-1], device=lower.device).unsqueeze(-1)
            if self._draws_part
            else 1.0
        )
        scores = SCORES[self.score](lower, upper, probabilities, part, self.usual)
        quantile, share = (
            found.to(scores) for found in self._of_rows(coverage, groups, lower.shape)
        )
        ties = scores == quantile
        if self.random:
            ties &= torch.rand(scores.shape, device=scores.device) < share
        return (scores < quantile) | ties

    def widened(
        self, lower: PerClass, upper: PerClass, coverage: float | None, groups: Any
    ) -> tuple[PerClass, PerClass]:
        """Reachable bounds, each moved outwards by the quantile.

        Raises:
            ValueError: If the calibration was by classes; or as :meth:`classes` does.
        """
        if self.score != DISTRIBUTION:
            raise ValueError(
                "The calibration was by classes, not by distributions: ask for s.classes('conformal')."
            )
        return widen(lower, upper, self._of_rows(coverage, groups, lower.shape)[0])

    @property
    def _draws_part(self) -> bool:
        return self.random and self.score in ("aps", "raps")

    def _of_rows(
        self, coverage: float | None, groups: Any, shape: torch.Size
    ) -> tuple[Tensor, Tensor]:
        """Quantiles and shares of ties, to be compared with scores of this shape."""
        if self.by != "groups":
            return self.quantiles(coverage, shape[-1] if self.by == "class" else 1)
        if groups is None:
            raise ValueError(
                "The calibration was by groups: say that of each row, s.classes('conformal', groups=...)."
            )
        groups = check_groups(groups, shape[:-1])
        found = self.quantiles(coverage, max(int(groups.max()), int(self.groups.max())) + 1)
        quantile, share = (part[groups].unsqueeze(-1) for part in found)
        return quantile, share


def widen(lower: PerClass, upper: PerClass, margin: Tensor) -> tuple[PerClass, PerClass]:
    """Reachable bounds, each moved outwards by a margin, if that is positive."""
    margin = margin.clamp_min(0).to(lower)
    return reachable((lower - margin).clamp_min(0), (upper + margin).clamp_max(1), check=False)


def check_coverage(coverage: float) -> float:
    """Refuse what is no share of rows between 0 and 1."""
    if isinstance(coverage, bool) or not 0 < coverage < 1:
        raise ValueError(f"coverage is a share of rows, above 0 and below 1, got {coverage!r}.")
    return float(coverage)


def check_groups(groups: Any, shape: torch.Size) -> Tensor:
    """Refuse what are no numbers of groups, one for each row."""
    groups = torch.as_tensor(groups).cpu()
    if (
        groups.is_floating_point()
        or groups.dtype == torch.bool
        or groups.shape != shape
        or bool((groups < 0).any())
    ):
        found = f"{groups.dtype} of shape {tuple(groups.shape)}"
        raise ValueError(
            f"Groups are whole numbers from 0 on, of shape {tuple(shape)}, one for each row, got {found}."
        )
    return groups.long()


def _quantile(scores: Float[Tensor, " rows"], coverage: float) -> tuple[float, float]:
    """Quantile, and the share of classes with just that score that smoothed p-values keep."""
    rows, rank = len(scores), conformal_rank(len(scores), coverage)
    if rank > rows:
        return math.inf, 1.0
    value = scores.kthvalue(max(rank, 1)).values
    above, equal = int((scores > value).sum()), int((scores == value).sum())
    return float(value), min(1.0, 1 - ((1 - coverage) * (rows + 1) - above) / (equal + 1))
