"""Conformal calibration that a model saves with its weights.

The mathematics is in :mod:`creinn.credal.conformal`.
"""

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.fitted_on import FittedOn
from creinn.classifier.inputs import as_classes
from creinn.credal.conformal import (
    SCORES,
    By,
    Conformal,
    check_groups,
    check_share,
    class_scores,
    conformal_rank,
    rows_needed,
    usual_mass,
)
from creinn.credal.credal_set import CredalSet
from creinn.credal.margin import UNITS, margin_score
from creinn.credal.probability import check_distributions
from creinn.numerics import shorten_list

_SCORES = (*SCORES, *UNITS)
_BY: tuple[By | None, ...] = (None, "class", "groups")
_COVERAGE_UNIT = 10**9  # the coverage is saved as a multiple of 1e-9


class Calibration(torch.nn.Module):
    """Scores and settings of a calibration.

    All buffers are empty until :meth:`fit` is called. They contain integers, so that a cast of the
    model does not change them.
    """

    bits: Tensor  # (n,): the bits of the scores in float64
    groups: Tensor  # (n,)
    setting: Tensor  # (6,): coverage, score, by, random, and the bits of usual mass and rounding

    def __init__(self) -> None:
        super().__init__()
        for name in ("bits", "groups", "setting"):
            self.register_buffer(name, torch.empty(0, dtype=torch.long))
        self.fitted_on = FittedOn()

    @property
    def is_fitted(self) -> bool:
        """Whether there is a calibration."""
        return len(self.setting) > 0

    @property
    def conformal(self) -> Conformal | None:
        """Calibration for credal sets, ``None`` if there is no calibration."""
        if not self.is_fitted:
            return None
        coverage, score, by, random, usual, rounding = self.setting.tolist()
        scores = self.bits.cpu().view(torch.float64)
        fixed = _SCORES[score], _BY[by], coverage / _COVERAGE_UNIT, bool(random)
        numbers = _from_bits(usual), _from_bits(rounding)
        return Conformal(scores, self.groups.cpu(), *fixed, *numbers)

    def reset(self) -> None:
        """Remove the calibration."""
        for name in ("bits", "groups", "setting"):
            setattr(self, name, getattr(self, name).new_empty(0))
        self.fitted_on.parts = {}

    @torch.no_grad()
    def fit(
        self,
        prediction: CredalSet,
        labels: Any,
        coverage: float = 0.95,
        by: Any = None,
        score: str | None = None,
        random: bool = False,
    ) -> None:
        """Compute the scores of predictions; see :meth:`CredalClassifier.calibrate`."""
        labels = torch.as_tensor(labels)
        if labels.is_floating_point():
            score = _check_choice("deviation" if score is None else score, UNITS)
            labels = _as_distributions(labels, prediction)
            scores = margin_score(prediction.lower, prediction.upper, labels, score)
            usual = 0.0
        else:
            labels = as_classes(
                labels, prediction.num_classes, "the calibration data", len(prediction)
            )
            score = _check_choice("lower" if score is None else score, SCORES)
            scores, usual = _class_scores(prediction, labels, score, random)
        groups = _as_groups(by, labels, score)
        check_enough(groups, check_share("coverage", coverage), by is not None)
        kind = _BY.index("class" if isinstance(by, str) else None if by is None else "groups")
        device = self.setting.device
        self.bits = scores.cpu().double().view(torch.long).to(device)
        self.groups = groups.to(device)
        numbers = _to_bits(usual), _to_bits(torch.finfo(prediction.lower.dtype).eps)
        setting = (
            round(coverage * _COVERAGE_UNIT), _SCORES.index(score), kind, int(random), *numbers,
        )  # fmt: skip
        self.setting = torch.tensor(setting, device=device)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in ("bits", "groups", "setting"):
            if (values := state_dict.get(prefix + name)) is not None:
                setattr(self, name, torch.empty_like(values, device=self.setting.device))
        super()._load_from_state_dict(state_dict, prefix, *args)


def check_enough(groups: Tensor, coverage: float, has_groups: bool) -> None:
    """Check that there are enough rows for a coverage.

    If there are groups or classes, a warning is raised for those with too few rows.

    Raises:
        ValueError: If there are too few rows without groups.
    """
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
    if by != "class":
        raise ValueError(f"by must be 'class', or the number of each row's group, found {by!r}.")
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


def _to_bits(number: float) -> int:
    return int(torch.tensor(number, dtype=torch.float64).view(torch.long))


def _from_bits(bits: int) -> float:
    return float(torch.tensor(bits).view(torch.float64))
