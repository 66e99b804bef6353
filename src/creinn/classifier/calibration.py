"""Calibrations that a model saves with its weights.

The mathematics is in :mod:`creinn.credal.conformal`, :mod:`creinn.credal.margin` and
:mod:`creinn.credal.abstention`.
"""

import json
import warnings
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.fitted_on import FittedOn
from creinn.classifier.inputs import as_classes
from creinn.credal.abstention import MEASURES, Abstention, fit_abstention
from creinn.credal.conformal import (
    SCORES,
    Conformal,
    class_scores,
    conformal_rank,
    rows_needed,
    usual_mass,
)
from creinn.credal.credal_set import CredalSet
from creinn.credal.margin import UNITS, margin_score
from creinn.credal.probability import check_distributions
from creinn.numerics import check_groups, check_share, shorten_list

DEFAULT_COVERAGE = 0.95
_NAME = "the calibration data"


class Calibration(torch.nn.Module):
    """Conformal calibration and limits for abstention of a model.

    They are saved as JSON in the ``state_dict``, so that a cast of the model does not change them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conformal: Conformal | None = None
        self.abstention: Abstention | None = None
        self.fitted_on = FittedOn()

    @property
    def is_fitted(self) -> bool:
        """Whether there is a calibration."""
        return self.conformal is not None or self.abstention is not None

    def reset(self) -> None:
        """Remove the calibrations."""
        self.conformal = self.abstention = None
        self.fitted_on.parts = {}

    def update(
        self, conformal: Conformal | None, abstention: Abstention | None, now: dict[str, int]
    ) -> None:
        """Replace the calibrations that are given, and remove others that are stale.

        Args:
            conformal: The new conformal calibration.
            abstention: The new limits.
            now: The hashes of the parts of the model.
        """
        if self.fitted_on.changes(now):
            self.reset()
        self.conformal = conformal or self.conformal
        self.abstention = abstention or self.abstention
        self.fitted_on.parts = now

    def get_extra_state(self) -> Tensor:
        """Return the calibrations as the bytes of a JSON text."""
        found = {"conformal": self.conformal, "abstention": self.abstention}
        parts = {name: None if one is None else asdict(one) for name, one in found.items()}
        text = json.dumps(parts, default=Tensor.tolist)
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Set the calibrations from a ``state_dict``."""
        parts = json.loads(state.cpu().numpy().tobytes())
        conformal, abstention = parts["conformal"], parts["abstention"]
        self.conformal = self.abstention = None
        if conformal is not None:
            conformal["scores"] = torch.tensor(conformal["scores"], dtype=torch.float64)
            conformal["groups"] = torch.tensor(conformal["groups"], dtype=torch.long)
            self.conformal = Conformal(**conformal)
        if abstention is not None:
            limits, groups = abstention.pop("limits"), abstention.pop("groups")
            groups = None if groups is None else tuple(groups)
            self.abstention = Abstention(tuple(limits), groups, **abstention)


@torch.no_grad()
def fit_conformal(
    prediction: CredalSet,
    labels: Any,
    coverage: float = DEFAULT_COVERAGE,
    by: Any = None,
    score: str | None = None,
    random: bool = False,
) -> Conformal:
    """Compute the scores of predictions; see :meth:`CredalClassifier.calibrate`."""
    labels = torch.as_tensor(labels)
    if labels.is_floating_point():
        score = _check_choice("deviation" if score is None else score, UNITS)
        labels = _as_distributions(labels, prediction)
        scores, usual = margin_score(prediction.lower, prediction.upper, labels, score), 0.0
    else:
        labels = as_classes(labels, prediction.num_classes, _NAME, len(prediction))
        score = _check_choice("lower" if score is None else score, SCORES)
        scores, usual = _class_scores(prediction, labels, score, random)
    groups = _as_groups(by, labels, score)
    check_enough(groups, check_share("coverage", coverage), by is not None)
    return Conformal(
        scores.cpu().double(),
        groups,
        score,
        "class" if isinstance(by, str) else None if by is None else "groups",
        coverage,
        random,
        usual,
        torch.finfo(prediction.lower.dtype).eps,
    )


@torch.no_grad()
def fit_limits(
    prediction: CredalSet,
    labels: Any,
    max_error: float,
    confidence: float,
    measure: str = "total",
    groups: Any = None,
) -> Abstention:
    """Find the limits for abstention; see :meth:`CredalClassifier.calibrate`."""
    labels = as_classes(labels, prediction.num_classes, _NAME, len(prediction))
    is_error = prediction.label != labels.to(prediction.label.device)
    ranking = prediction.ranking(measure)
    return fit_abstention(ranking, is_error, max_error, confidence, measure, groups)


def split_by(by: Any, coverage: float | None, max_error: float | None) -> tuple[Any, str]:
    """Return ``"class"``, the groups or ``None``, and the uncertainty that ranks the rows.

    Raises:
        ValueError: If ``by`` has no meaning for what is calibrated.
    """
    if not isinstance(by, str):
        return by, "total"
    if by == "class" and (coverage is not None or max_error is None):
        return by, "total"
    if by in MEASURES and max_error is not None:
        return None, by
    raise ValueError(
        f"by must be the groups of the rows, 'class' for a coverage, or for max_error one of "
        f"{', '.join(map(repr, MEASURES))}, got {by!r}."
    )


def check_enough(groups: Tensor, coverage: float, has_groups: bool) -> None:
    """Raise a ``ValueError`` if there are too few rows; groups with too few rows get a warning."""
    needed = rows_needed(coverage)
    if not has_groups and conformal_rank(len(groups), coverage) > len(groups):
        raise ValueError(
            f"A coverage of {coverage:g} needs at least {needed} calibration rows, but there are "
            f"{len(groups)}. Pass more rows, or a lower coverage."
        )
    counts = torch.bincount(groups).tolist() if has_groups else []
    few = [
        f"{group} ({count})"
        for group, count in enumerate(counts)
        if conformal_rank(count, coverage) > count
    ]
    if few:
        warnings.warn(
            f"A coverage of {coverage:g} needs at least {needed} calibration rows in each group. "
            "The sets of groups with fewer rows contain all classes. These groups, with their "
            f"numbers of rows, are {shorten_list(few)}.",
            stacklevel=4,
        )


def _check_choice(score: str, names: Iterable[str]) -> str:
    if score not in names:
        raise ValueError(f"score must be one of {', '.join(map(repr, names))}; found {score!r}.")
    return score


def _class_scores(
    prediction: CredalSet, labels: Tensor, score: str, random: bool
) -> tuple[Tensor, float]:
    """Return the scores of the classes of rows, and the usual mass."""
    lower = prediction.lower
    part = torch.rand(len(prediction), 1, device=lower.device) if random else 1.0
    own, usual = usual_mass(lower)
    bounds = lower, prediction.upper, prediction.intersection
    scores = class_scores(score, *bounds, part, own)
    return scores.gather(1, labels.to(scores.device).unsqueeze(1)).squeeze(1), usual


def _as_groups(by: Any, labels: Tensor, score: str) -> Tensor:
    rows = len(labels)
    if by is None:
        return torch.zeros(rows, dtype=torch.long)
    if not isinstance(by, str):
        return check_groups(by, torch.Size([rows]))
    if score in UNITS:
        raise ValueError("by='class' needs classes, but the labels are distributions.")
    return labels.cpu().long()


def _as_distributions(labels: Tensor, prediction: CredalSet) -> Tensor:
    if labels.shape != prediction.shape:
        raise ValueError(
            f"Labels must be classes (N,) or distributions {tuple(prediction.shape)}, but their "
            f"shape is {tuple(labels.shape)}."
        )
    check_distributions(labels, "label")
    return labels.to(prediction.lower)
