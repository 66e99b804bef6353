"""Conformal calibration of a credal model: rows that it has not seen in, sets with a guarantee in what it predicts.

The mathematics is in :mod:`creinn.credal.conformal`; here is what a model keeps of it, saved with its weights.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.base import Classifier, Inputs, Missing
from creinn.classifier.fitted_on import FittedOn, clear_hashes
from creinn.classifier.inputs import (
    as_classes,
    as_inputs,
    find_not_finite,
    labelled_batches,
    take,
)
from creinn.classifier.temperature import Temperature
from creinn.credal.conformal import (
    DISTRIBUTION,
    SCORES,
    By,
    Conformal,
    check_coverage,
    check_groups,
    conformal_rank,
    distribution_score,
    rows_needed,
    usual_mass,
)
from creinn.credal.credal_set import CredalSet
from creinn.numerics import first_index

_SCORES = (*SCORES, DISTRIBUTION)
_BY: tuple[By | None, ...] = (None, "class", "groups")
_UNIT = 10**9  # coverage is kept as a whole number of these parts
_SUM_TOLERANCE = 1e-3  # of distributions: votes are divided, and rounded


class Calibration(torch.nn.Module):
    """What a model keeps: empty until :meth:`fit`. Whole numbers only, so that a cast of the model leaves it alone."""

    bits: Tensor  # (n,): scores in float64, taken as int64
    groups: Tensor  # (n,)
    setting: Tensor  # (6,): coverage, score, by, random, usual mass as bits, rounding as bits

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
        """For the sets that the model predicts; ``None`` if it is not calibrated."""
        if not self.is_fitted:
            return None
        coverage, score, by, random, usual, rounding = self.setting.tolist()
        scores = self.bits.cpu().view(torch.float64)
        fixed = _SCORES[score], _BY[by], coverage / _UNIT, bool(random)
        numbers = _from_bits(usual), _from_bits(rounding)
        return Conformal(scores, self.groups.cpu(), *fixed, *numbers)

    def reset(self) -> None:
        """Be empty again: predictions are about to change."""
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
        score: str = "lower",
        random: bool = False,
    ) -> None:
        """Compute the scores of predictions; see :meth:`Calibrated.calibrate`."""
        labels = torch.as_tensor(labels)
        if labels.is_floating_point():
            found = distribution_score(
                prediction.lower, prediction.upper, _as_distributions(labels, prediction)
            )
            score, usual = DISTRIBUTION, 0.0
        else:
            if score not in SCORES:
                raise ValueError(
                    f"score must be one of {', '.join(map(repr, SCORES))}; found {score!r}."
                )
            labels = as_classes(
                labels, prediction.num_classes, "the calibration data", len(prediction)
            )
            part = torch.rand(len(prediction), 1, device=prediction.lower.device) if random else 1.0
            own, usual = usual_mass(prediction.lower)
            of_classes = SCORES[score](
                prediction.lower, prediction.upper, prediction.intersection, part, own
            )
            found = of_classes.gather(1, labels.to(of_classes.device).unsqueeze(1)).squeeze(1)
        groups = _as_groups(by, labels, score)
        check_enough(groups, check_coverage(coverage), by is not None)
        kind = _BY.index("class" if isinstance(by, str) else None if by is None else "groups")
        device = self.setting.device
        self.bits = found.cpu().double().view(torch.long).to(device)
        self.groups = groups.to(device)
        numbers = _to_bits(usual), _to_bits(torch.finfo(prediction.lower.dtype).eps)
        setting = round(coverage * _UNIT), _SCORES.index(score), kind, int(random), *numbers
        self.setting = torch.tensor(setting, device=device)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in ("bits", "groups", "setting"):
            if (values := state_dict.get(prefix + name)) is not None:
                setattr(self, name, torch.empty_like(values, device=self.setting.device))
        super()._load_from_state_dict(state_dict, prefix, *args)


class Calibrated(Classifier):
    """A classifier whose credal sets carry its calibration."""

    def __init__(self) -> None:
        super().__init__()
        self.calibration = Calibration()

    def calibrate(
        self,
        x: Inputs | Iterable[Any],
        y: Any = None,
        coverage: float = 0.95,
        by: Any = None,
        score: str = "lower",
        random: bool = False,
        temperature: bool = False,
        batch_size: int = 256,
        missing: Missing = "refuse",
    ) -> Any:
        """Give the sets that the model predicts from now on a rule ``s.classes("conformal")`` with a guarantee.

        On data like the calibration rows the set holds the true class with probability ``coverage`` at least (split
        conformal prediction, see :mod:`creinn.credal.conformal`). **Under shift there is no guarantee**: sets of a
        CreINN-D still grow far from the training data, but nobody says by how much they should. Training forgets it.

        Args:
            x: Inputs that nothing was trained on and nothing chosen by; or a Dataset or DataLoader of pairs.
            y: Their classes ``(N,)``; ``None`` if ``x`` gives them. Distributions ``(N, K)``, as of several annotators,
                make ``s.widened()``, credal sets that hold the true distribution with that probability.
            coverage: Share of sets that shall hold the truth; ``classes("conformal", coverage=...)`` asks for another.
            by: ``"class"``: so often in each class; or the number of each row's group ``(N,)``, from 0 on: in each
                group, which ``s.classes("conformal", groups=...)`` must then be told. A group of too few rows gets all
                classes, and a warning.
            score: ``"lower"`` or ``"dominance"``, of the intervals; ``"lac"``, ``"aps"`` or ``"raps"``, of the
                intersection probability.
            random: Whether to randomise the sets, so that the coverage is exactly ``coverage`` instead of at least
                that. It can still be higher with ``score="lower"`` and in groups of too few rows; see
                :class:`creinn.credal.conformal.Conformal`.
            temperature: Whether to find that anew, by one half of the rows, of tensors; the other half calibrates.
            batch_size: Rows that are predicted at once, unless they come in batches.
            missing: As in :meth:`predict`.

        Returns:
            The model.

        Raises:
            ValueError: If there are too few rows for the coverage, or an argument is not as it must be.
            TypeError: If data are of another kind.

        Example:
            >>> from creinn import CreINN, models
            >>> _ = torch.manual_seed(0)
            >>> x, y = torch.randn(300, 2), torch.arange(300) % 3
            >>> model = CreINN(models.mlp(2, 3)).eval().calibrate(x, y, coverage=0.9)
            >>> model.predict(x).classes("conformal").double()[torch.arange(300), y].mean().item() >= 0.9
            True
        """
        with _unchanged_on_error(self):
            if temperature:
                is_checked = y is not None and missing == "refuse"
                if is_checked and (where := find_not_finite(as_inputs(x))):
                    raise ValueError(f"{where}. Impute or drop it, or pass missing='vacuous'.")
                x, y, by = self._fit_temperatures(x, y, by, batch_size)
            prediction, labels = self._predict_for_calibration(x, y, batch_size, missing)
            return self.calibrate_predictions(prediction, labels, coverage, by, score, random)

    def calibrate_predictions(
        self,
        prediction: CredalSet,
        labels: Any,
        coverage: float = 0.95,
        by: Any = None,
        score: str = "lower",
        random: bool = False,
    ) -> Any:
        """Calibrate the model as :meth:`calibrate` does, with its own predictions of the rows.

        The predictions must be those of the model as it is now.
        """
        self.calibration.fit(prediction, labels, coverage, by, score, random)
        clear_hashes()
        self.calibration.fitted_on.parts = self.part_hashes()
        return self

    def part_hashes(self) -> dict[str, int]:
        """Return a hash of each part that predictions depend on; empty if it cannot change."""
        return {}

    @property
    def calibration_is_current(self) -> bool:
        """Whether the model is calibrated and has not changed since."""
        return self.calibration.is_fitted and not self._calibration_changes()

    def current_conformal(self) -> Conformal | None:
        """Return the calibration for predictions; it raises on use if it is not current."""
        conformal = self.calibration.conformal
        if conformal is None or not (names := self._calibration_changes()):
            return conformal
        return replace(
            conformal,
            stale=f"The calibration is not valid any more. Changed since it was fitted: "
            f"{', '.join(names)}. Call model.calibrate(x, y) with held-out data, and predict again.",
        )

    def adopt_structure(self, saved: int) -> None:
        """Accept a network that was rebuilt from the description of the network that was saved."""
        now = self.part_hashes()["structure"]
        parts = self.calibration, getattr(self, "distance_radius", None)
        for part in parts:
            if part is not None:
                part.fitted_on.replace("structure", saved, now)

    def _calibration_changes(self) -> list[str]:
        fitted_on = self.calibration.fitted_on
        return fitted_on.changes(self.part_hashes()) if fitted_on.parts else []

    def _predict_for_calibration(
        self, x: Any, y: Any, batch_size: int, missing: Missing
    ) -> tuple[Any, Tensor]:
        labels: list[Tensor] = []

        def inputs() -> Iterator[tuple[Inputs]]:
            for batch, found in labelled_batches(
                x if y is None else (x, y), batch_size, "the calibration data"
            ):
                labels.append(torch.as_tensor(found))
                yield (batch,)

        return self.predict(inputs(), batch_size, missing), torch.cat(labels)

    def _fit_temperatures(self, x: Any, y: Any, by: Any, batch_size: int) -> tuple[Any, Any, Any]:
        """Fit the temperatures on half of the rows, and return the other half."""
        if y is None or torch.as_tensor(y).is_floating_point():
            raise TypeError(
                "temperature=True needs inputs and classes as tensors, calibrate(x, y, temperature=True)."
            )
        y = torch.as_tensor(y)
        first, rest = torch.randperm(
            len(y), generator=torch.Generator().manual_seed(0)
        ).tensor_split(2)
        for part in getattr(self, "members", [self]):
            part.temperature.is_on = True
            part._fit_temperature((take(x, first), y[first]), batch_size)
        is_grouped = by is not None and not isinstance(by, str)
        return take(x, rest), y[rest], torch.as_tensor(by)[rest] if is_grouped else by

    def _predict_batch(self, batch: Inputs, missing: Missing, first: int) -> Any:
        prediction: Any = super()._predict_batch(batch, missing, first)
        return prediction.with_conformal(self.current_conformal())


@contextmanager
def _unchanged_on_error(model: torch.nn.Module) -> Iterator[None]:
    """Restore temperatures, calibrations and training modes if an error is raised."""
    modes = [(part, part.training) for part in model.modules()]
    parts = [part for part in model.modules() if isinstance(part, Calibration | Temperature)]
    buffers = [dict(part._buffers) for part in parts]
    marks = [(part, part.parts) for part in model.modules() if isinstance(part, FittedOn)]
    switches = [(part, part.is_on) for part in parts if isinstance(part, Temperature)]
    try:
        yield
    except BaseException:
        for module, mode in modes:
            module.training = mode
        for part, values in zip(parts, buffers, strict=True):
            part._buffers.update(values)
        for mark, before in marks:
            mark.parts = before
        for temperature, is_on in switches:
            temperature.is_on = is_on
        raise


def check_enough(groups: Tensor, coverage: float, has_groups: bool) -> None:
    """Refuse too few rows for a coverage; warn of groups, or classes, that have too few."""
    needed = rows_needed(coverage)
    if not has_groups and conformal_rank(len(groups), coverage) > len(groups):
        raise ValueError(
            f"A coverage of {coverage:g} needs at least {needed} calibration rows, but there are {len(groups)}. Give "
            "more, or ask for less."
        )
    counts = torch.bincount(groups).tolist() if has_groups else []
    if few := [
        group for group, count in enumerate(counts) if conformal_rank(count, coverage) > count
    ]:
        shown = ", ".join(f"{group} ({counts[group]})" for group in few[:10]) + (
            ", ..." if len(few) > 10 else ""
        )
        warnings.warn(
            f"A coverage of {coverage:g} needs at least {needed} calibration rows in each group, so that these, with "
            f"their numbers of rows, get all classes: {shown}.",
            stacklevel=4,
        )


def _as_groups(by: Any, labels: Tensor, score: str) -> Tensor:
    rows = len(labels)
    if by is None:
        return torch.zeros(rows, dtype=torch.long)
    if not isinstance(by, str):
        return check_groups(by, torch.Size([rows]))
    if by != "class":
        raise ValueError(f"by must be 'class', or the number of each row's group, found {by!r}.")
    if score == DISTRIBUTION:
        raise ValueError("by='class' needs classes, but the labels are distributions.")
    return labels.cpu().long()


def _as_distributions(labels: Tensor, prediction: CredalSet) -> Tensor:
    if labels.shape != prediction.shape:
        found = f"{tuple(labels.shape)}, where {tuple(prediction.shape)} were predicted"
        raise ValueError(
            f"Labels are classes (N,), or distributions (N, K), but have shape {found}."
        )
    bad = ~((labels >= 0).all(1) & ((labels.sum(1) - 1).abs() <= _SUM_TOLERANCE))
    if bool(bad.any()):
        (row,) = first_index(bad)
        raise ValueError(
            f"The label of row {row} is no distribution: {labels[row].tolist()}. Divide votes by their sum."
        )
    return labels.to(prediction.lower)


def _to_bits(number: float) -> int:
    return int(torch.tensor(number, dtype=torch.float64).view(torch.long))


def _from_bits(bits: int) -> float:
    return float(torch.tensor(bits).view(torch.float64))
