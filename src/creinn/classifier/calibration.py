"""Calibrations that are saved with the weights of a model.

See :mod:`creinn.credal.conformal`, :mod:`creinn.credal.margin` and
:mod:`creinn.credal.abstention` for the mathematics.
"""

import json
import warnings
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.base import check_choice
from creinn.classifier.fitted_on import FittedOn
from creinn.classifier.inputs import as_classes
from creinn.credal.abstention import CRITERIA, Abstention, fit_abstention
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
    """Conformal calibration and limits for abstention, saved as JSON."""

    _affects_output = False  # for the compile cache

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
        """Remove both calibrations."""
        self.conformal = self.abstention = None
        self.fitted_on.parts = {}

    def update(
        self, conformal: Conformal | None, abstention: Abstention | None, now: dict[str, int]
    ) -> None:
        """Replace the given calibrations, and remove stale ones."""
        if self.fitted_on.changes(now):
            self.reset()
        self.conformal = conformal or self.conformal
        self.abstention = abstention or self.abstention
        self.fitted_on.parts = now

    def get_extra_state(self) -> Tensor:
        """Return the calibrations as JSON bytes."""
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
    """Compute scores; see :meth:`CredalClassifier.calibrate`."""
    labels, lower, usual = torch.as_tensor(labels), prediction.lower, 0.0
    if labels.is_floating_point():
        score = "deviation" if score is None else score
        check_choice("score", score, UNITS)
        if labels.shape != lower.shape:
            raise ValueError(
                f"Labels must be classes (N,) or distributions {tuple(lower.shape)}, got shape "
                f"{tuple(labels.shape)}."
            )
        check_distributions(labels, "label")
        scores = margin_score(lower, prediction.upper, labels.to(lower), score)
    else:
        score = "lower" if score is None else score
        check_choice("score", score, SCORES)
        labels = as_classes(labels, prediction.num_classes, _NAME, len(prediction))
        part = torch.rand(len(prediction), 1, device=lower.device) if random else 1.0
        own, usual = usual_mass(lower)
        bounds = lower, prediction.upper, prediction.intersection
        scores = class_scores(score, *bounds, part, own)
        scores = scores.gather(1, labels.to(scores.device).unsqueeze(1)).squeeze(1)
    groups = _as_groups(by, labels, score)
    _check_enough(groups, check_share("coverage", coverage), by is not None)
    kind: Any = None if by is None else "class" if isinstance(by, str) else "groups"
    resolution = torch.finfo(lower.dtype).eps
    scores = scores.cpu().double()
    return Conformal(scores, groups, score, kind, coverage, random, usual, resolution)


@torch.no_grad()
def fit_limits(
    prediction: CredalSet, labels: Any, max_error: float, confidence: float, measure: str, by: Any
) -> Abstention:
    """Find the limits; see :meth:`CredalClassifier.calibrate`."""
    labels = as_classes(labels, prediction.num_classes, _NAME, len(prediction))
    is_error = prediction.label != labels.to(prediction.label.device)
    ranking = prediction.ranking(measure)
    groups = None if isinstance(by, str) else by
    return fit_abstention(ranking, is_error, max_error, confidence, measure, groups)


def split_by(by: Any, coverage: float | None, max_error: float | None) -> tuple[Any, str]:
    """Return the groups and the uncertainty that ranks the rows."""
    if not isinstance(by, str) or (by == "class" and (coverage is not None or max_error is None)):
        return by, "total"
    if by in CRITERIA and max_error is not None:
        return None, by
    raise ValueError(
        f"by must be groups of rows, 'class' for a coverage, or for max_error one of "
        f"{', '.join(map(repr, CRITERIA))}, got {by!r}."
    )


def _check_enough(groups: Tensor, coverage: float, has_groups: bool) -> None:
    counts = enumerate(torch.bincount(groups, minlength=1).tolist())
    few = [f"{group} ({n})" for group, n in counts if conformal_rank(n, coverage) > n]
    if not few:
        return
    rule = f"A coverage of {coverage:g} needs at least {rows_needed(coverage)} calibration rows"
    if not has_groups:
        raise ValueError(f"{rule}, found {len(groups)}. Use more rows or a lower coverage.")
    warnings.warn(
        f"{rule} in each group. Groups with fewer get sets of all classes. These groups "
        f"(rows) are {shorten_list(few)}.",
        stacklevel=4,
    )


def _as_groups(by: Any, labels: Tensor, score: str) -> Tensor:
    rows = len(labels)
    if by is None:
        return torch.zeros(rows, dtype=torch.long)
    if not isinstance(by, str):
        return check_groups(by, torch.Size([rows]))
    if score in UNITS:
        raise ValueError("by='class' needs classes, got distributions.")
    return labels.cpu()
