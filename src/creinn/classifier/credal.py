"""Base class of classifiers that predict credal sets, and their ensembles."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

import creinn
from creinn import native
from creinn.classifier import compile_cache
from creinn.classifier.base import (
    Classifier,
    Inputs,
    Missing,
    check_choice,
    common_classes,
    members_of,
)
from creinn.classifier.calibration import (
    DEFAULT_COVERAGE,
    Calibration,
    fit_conformal,
    fit_limits,
    split_by,
)
from creinn.classifier.fitted_on import FittedOn, clear_hashes, digest
from creinn.credal.abstention import Abstention
from creinn.credal.conformal import Conformal
from creinn.credal.credal_set import CredalSet
from creinn.credal.loss import cross_entropy
from creinn.credal.probability import interval_softmax, one_logit_softmax
from creinn.distance.fitting import FeatureBatch, Quality
from creinn.distance.radius import VACUOUS, DistanceRadius, add_radius
from creinn.evaluation.uncertainty import auarc
from creinn.interval import Interval
from creinn.nn.batchnorm import Mode as Mode
from creinn.numerics import at_least_single

Combine = Literal["average", "envelope"]
_MAX_NATIVE_SIZE = 4096  # numbers; for more logits, operations of torch are faster


def credal_set(
    logits: Interval, mode: Mode, radius: Tensor | None = None, training: bool = False
) -> CredalSet:
    """Compute the credal sets of interval logits.

    Args:
        logits: Logits ``(N, K)``; a single logit belongs to class 1 of two
            classes. Points give the ordinary softmax.
        mode: The mode of Interval SoftMax.
        radius: Radii ``(N,)`` that are added, without a change of the
            label.
        training: Whether logits that are not finite give NaN, or a vacuous
            set.
    """
    is_binary, label = logits.shape[1] == 1, None
    lower, upper = at_least_single(logits.lower), at_least_single(logits.upper)
    if logits.is_point:
        scores = torch.cat((-lower, lower), 1) if is_binary else lower
        label = scores.argmax(1)
    if radius is not None:
        wide = credal_set(add_radius(logits, radius), mode)
        return wide.with_label(credal_set(logits, mode).label if label is None else label)
    if logits.is_point:
        q = scores.sigmoid() if is_binary else scores.softmax(1)
        bounds = q, q
    elif is_binary:
        bounds = one_logit_softmax(lower[:, 0], upper[:, 0])
    else:
        bounds = interval_softmax(lower, upper, "paper" if mode == "scaled" else mode)
    if not training:
        finite = (upper - lower < math.inf).all(1, keepdim=True)
        bounds = torch.where(finite, bounds[0], 0.0), torch.where(finite, bounds[1], 1.0)
    return CredalSet._trusted(*bounds) if label is None else CredalSet._wrap(*bounds, label)


def fast_credal_set(
    logits: Interval, mode: Mode, radius: Tensor | None = None, training: bool = False
) -> CredalSet:
    """Compute :func:`credal_set` with the C++ library if there are few logits."""
    lower, upper = logits.lower, logits.upper
    tensors = [lower, upper] if radius is None else [lower, upper, radius]
    fits = native.is_supported(*tensors) and len({len(t) for t in tensors}) == 1 < lower.shape[1]
    if training or not fits or lower.numel() > _MAX_NATIVE_SIZE:
        return credal_set(logits, mode, radius, training)
    lower, upper, *radii = (tensor.contiguous() for tensor in tensors)
    label = lower.argmax(1) if logits.is_point else None
    if radii and label is None:
        label = CredalSet._wrap(*native.credal_set(lower, upper, None, mode, VACUOUS)).label
    bounds = native.credal_set(lower, upper, radii[0] if radii else None, mode, VACUOUS)
    return CredalSet._wrap(*bounds, label)


def prediction_quality(batch: FeatureBatch, radius: Tensor, mode: Mode) -> Quality:
    """Return the quality if a radius is added to the logits."""
    prediction = credal_set(batch.logits, mode, radius)
    correct = prediction.label == batch.labels
    return Quality(
        area=auarc(prediction.ranking("total"), correct),
        loss=float(cross_entropy(prediction, batch.labels, check=False)),
        classes=float(prediction.classes().sum(-1).double().mean()),
        error_rate=float(1 - correct.double().mean()),
    )


class CredalClassifier(Classifier):
    """Base class of :class:`CreINN` and :class:`Ensemble`."""

    prediction_type = CredalSet
    uses_compile_cache = True
    """Whether ``predict`` uses :mod:`creinn.classifier.compile_cache`."""

    def __init__(self) -> None:
        super().__init__()
        self.calibration = Calibration()

    if TYPE_CHECKING:

        def predict(
            self, x: Inputs, batch_size: int = 256, missing: Missing = "refuse"
        ) -> CredalSet:
            """See :meth:`Classifier.predict`."""

    def predict_batches(
        self, x: Inputs, batch_size: int = 256, missing: Missing = "refuse"
    ) -> Iterator[CredalSet]:
        """See :meth:`Classifier.predict_batches`.

        Raises:
            RuntimeError: If a distance is not fitted to the current
                network.
        """
        self.check_fitted()
        return cast(Iterator[CredalSet], super().predict_batches(x, batch_size, missing))

    def check_fitted(self) -> None:
        """Raise a ``RuntimeError`` if a distance is not fitted."""
        for part in self.modules():
            if isinstance(part, DistanceRadius) and not part.fitted:
                raise RuntimeError(
                    "The distance is not fitted. Use creinn.fit or fit_distance(x, y) of the model "
                    "or of each member."
                )
            if isinstance(part, CredalClassifier):
                part.check_distance()

    def check_distance(self) -> None:
        """Raise a ``RuntimeError`` if the network has changed since the fit."""

    def clear_cache(self) -> None:
        """Remove the compiled form, after a write through ``Tensor.data``."""
        compile_cache.clear(self)
        clear_hashes()

    def train(self, mode: bool = True) -> Any:
        """Set the mode. The training mode removes the compiled form."""
        if mode:
            compile_cache.invalidate(self)
        return super().train(mode)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        compile_cache.invalidate(self)  # for methods like ``.to``
        return super()._apply(*args, **kwargs)

    def _forward_fast(self, x: Inputs) -> CredalSet:
        if not self.uses_compile_cache:
            compile_cache.invalidate(self)
        elif compiled := compile_cache.compiled_form(self, x, _compile_fitted):
            return compiled(x)
        self.check_fitted()
        return cast(CredalSet, super()._forward_fast(x))

    def _explain(self, x: Inputs, error: Exception) -> None:
        self.check_fitted()
        super()._explain(x, error)

    def _predict_batch(self, batch: Inputs, missing: Missing, first: int) -> Any:
        prediction: Any = super()._predict_batch(batch, missing, first)
        prediction.conformal, prediction.abstention = self.current_calibration()
        return prediction

    def _vacuous(self, prediction: CredalSet, rows: Tensor) -> CredalSet:
        lower = torch.where(rows.unsqueeze(1), 0.0, prediction.lower)
        upper = torch.where(rows.unsqueeze(1), 1.0, prediction.upper)
        return CredalSet._wrap(lower, upper, torch.where(rows, 0, prediction.label))

    def fit_temperature(self, x: Any, y: Any = None, batch_size: int = 256) -> Any:
        """Fit the temperatures to held-out data.

        The arguments are those of :meth:`CreINN.fit_distance`, and the
        result is the model in eval mode. :meth:`calibrate` needs other
        rows.
        """
        data = list(x) if isinstance(x, Iterator) else x if y is None else (x, y)
        for part in members_of(self):
            part.temperature.is_on = True
            part._fit_temperature(data, batch_size)
        self.calibration.reset()
        return self.eval()

    def calibrate(
        self,
        x: Inputs,
        y: Any = None,
        coverage: float | None = None,
        by: Any = None,
        score: str | None = None,
        random: bool = False,
        max_error: float | None = None,
        confidence: float = 0.95,
    ) -> Any:
        """Calibrate the model with rows not used for training, and return it.

        With ``coverage``, ``classes("conformal")`` contains the true class
        of a new row with this probability; see
        :mod:`creinn.credal.conformal`. With ``max_error``, the error rate
        among the ``accepted`` rows is at most this rate; see
        :mod:`creinn.credal.abstention`. **There is no guarantee under
        distribution shift**, or after a change of the model.

        Args:
            x: The inputs, a Dataset of pairs, or a DataLoader.
            y: The classes ``(N,)``, or ``None`` if ``x`` contains them.
                With distributions ``(N, K)``, ``widened()`` contains that
                of a new row with probability ``coverage``.
            coverage: The coverage; 0.95 if there is no ``max_error``.
            by: ``"class"`` or group numbers ``(N,)`` for a guarantee in
                each class or group. With ``max_error`` also the
                uncertainty that ranks the rows: ``"total"`` (default),
                ``"aleatoric"``, ``"epistemic"`` or ``"entropy"``.
            score: One of :data:`creinn.credal.conformal.SCORES`, by
                default ``"lower"``, or of
                :data:`creinn.credal.margin.UNITS` for distributions, by
                default ``"deviation"``.
            random: Whether the sets are random, so that the coverage is
                exact.
            max_error: The largest error rate among accepted rows.
            confidence: The probability of the guarantee for ``max_error``.

        Raises:
            NoThresholdError: If ``max_error`` cannot be guaranteed.
            ValueError: If there are too few rows, or an argument is not
                valid.

        Example:
            >>> from creinn import CreINN, models
            >>> _ = torch.manual_seed(0)
            >>> x, y = torch.randn(300, 2), torch.arange(300) % 3
            >>> model = CreINN(models.mlp(2, 3)).eval().calibrate(x, y, coverage=0.9)
            >>> contains = model.predict(x).classes("conformal")[torch.arange(300), y]
            >>> contains.double().mean().item() >= 0.9
            True
        """
        self.clear_cache()
        data = x if y is None else (x, y)
        prediction, labels = self._predict_with_labels(data, 256, "refuse", torch.as_tensor)
        return self.calibrate_predictions(
            prediction, labels, coverage, by, score, random, max_error, confidence
        )

    def calibrate_predictions(
        self,
        prediction: CredalSet,
        labels: Any,
        coverage: float | None = None,
        by: Any = None,
        score: str | None = None,
        random: bool = False,
        max_error: float | None = None,
        confidence: float = 0.95,
    ) -> Any:
        """Calibrate the model with its predictions."""
        by, measure = split_by(by, coverage, max_error)
        conformal = abstention = None
        if coverage is None and max_error is None:
            coverage = DEFAULT_COVERAGE
        if coverage is not None:
            conformal = fit_conformal(prediction, labels, coverage, by, score, random)
        if max_error is not None:
            abstention = fit_limits(prediction, labels, max_error, confidence, measure, by)
        clear_hashes()
        now = compile_cache.part_hashes(self, renew=True)
        self.calibration.update(conformal, abstention, now)
        return self

    def part_hashes(self) -> dict[str, int]:
        """Return a hash of each part that predictions depend on."""
        return {}

    @property
    def calibration_is_current(self) -> bool:
        """Whether the calibration is fitted to the current model."""
        return self.calibration.is_fitted and not self._calibration_changes()

    def current_calibration(self) -> tuple[Conformal | None, Abstention | None]:
        """Return both calibrations; if stale, they raise an error when used."""
        conformal, abstention = self.calibration.conformal, self.calibration.abstention
        if conformal is None and abstention is None:
            return None, None
        if names := self._calibration_changes():
            changed = f"The model has changed since the calibration: {', '.join(names)}."
            stale = f"{changed} Call model.calibrate(x, y) with held-out data and predict again."
            conformal = conformal and replace(conformal, stale=stale)
            abstention = abstention and replace(abstention, stale=stale)
        return conformal, abstention

    def adopt_structure(self, saved: int) -> None:
        """Replace the hash of the saved structure by that of the loaded one."""
        now = self.part_hashes()["structure"]
        for name, part in self.named_modules():
            is_own = isinstance(part, FittedOn) and not name.startswith("members.")
            if is_own and part.parts.get("structure") == saved:
                part.parts["structure"] = now

    def _calibration_changes(self) -> list[str]:
        fitted_on = self.calibration.fitted_on
        return fitted_on.changes(compile_cache.part_hashes(self)) if fitted_on.parts else []


def _compile_fitted(model: Any, x: Inputs) -> Any:
    model.check_fitted()
    return creinn.compile_for_predict(model, x)


class Ensemble(CredalClassifier):
    """Ensemble of CreINNs, in eval mode if all members are in eval mode.

    Args:
        members: CreINNs with the same number of classes.
        combine: ``"average"`` for the mean of the reachable bounds, or
            ``"envelope"`` for the smallest intervals that contain all
            sets.
    """

    def __init__(self, members: Sequence[CredalClassifier], combine: Combine = "average") -> None:
        super().__init__()
        check_choice("combine", combine, Combine)
        self.num_classes = common_classes(members)
        self.members = torch.nn.ModuleList(members)
        self.combine = combine
        self._take_mode_of_members()

    def part_hashes(self) -> dict[str, int]:
        """See :meth:`CredalClassifier.part_hashes`."""
        members = [member.part_hashes() for member in self.members]
        known = [name for name in members[0] if all(name in member for member in members)]
        parts = {name: digest([member[name] for member in members]) for name in known}
        return {**parts, "combine": digest(self.combine)}

    @property
    def distance_is_current(self) -> bool:
        """Whether all distances are fitted to the current networks."""
        return all(member.distance_is_current for member in self.members)

    def forward(self, x: Inputs) -> CredalSet:
        """Return the combined credal sets."""
        sets = [member(x) for member in self.members]
        return CredalSet.envelope(sets) if self.combine == "envelope" else CredalSet.average(sets)
