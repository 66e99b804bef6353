"""Base class of classifiers that predict credal sets, and ensembles of them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import torch
from torch import Tensor

import creinn
from creinn.classifier import compile_cache
from creinn.classifier.base import Classifier, Inputs, Missing, common_classes, is_training
from creinn.classifier.calibration import Calibration
from creinn.classifier.fitted_on import FittedOn, clear_hashes, digest
from creinn.classifier.inputs import as_inputs, find_not_finite, labelled_batches, take
from creinn.classifier.temperature import Temperature
from creinn.credal.conformal import Conformal
from creinn.credal.credal_set import CredalSet
from creinn.credal.loss import cross_entropy
from creinn.credal.probability import interval_softmax, one_logit_softmax
from creinn.distance.fitting import FeatureBatch, Quality
from creinn.distance.radius import DistanceRadius, add_radius
from creinn.evaluation.uncertainty import auarc
from creinn.interval import Interval
from creinn.numerics import at_least_single

Mode = Literal["paper", "scaled", "sound"]
Combine = Literal["average", "envelope"]


def credal_set(
    logits: Interval, mode: Mode, radius: Tensor | None = None, training: bool = False
) -> CredalSet:
    """Compute the credal sets of interval logits.

    Args:
        logits: Logits ``(N, K)``. A single logit belongs to class 1 of two classes. If they are
            points, the sets are the ordinary softmax. Half precision is converted to float32.
        mode: The mode of Interval SoftMax.
        radius: The radius by distance ``(N,)``, which is added to the radius of all logits. The
            label is the label of the logits.
        training: If true, the bounds for logits that are not finite are NaN, so that training can
            stop. Otherwise, the set is vacuous.
    """
    if radius is not None:
        wide = credal_set(add_radius(logits, radius), mode)
        return CredalSet._wrap(wide.lower, wide.upper, credal_set(logits, mode).label)
    lower, upper = at_least_single(logits.lower), at_least_single(logits.upper)
    label = None
    if logits.is_point:
        scores = torch.cat((-lower, lower), 1) if logits.shape[1] == 1 else lower
        q = scores.sigmoid() if logits.shape[1] == 1 else scores.softmax(1)
        bounds, label = (q, q), scores.argmax(1)
    elif logits.shape[1] == 1:
        bounds = one_logit_softmax(lower[:, 0], upper[:, 0])
    else:
        bounds = interval_softmax(lower, upper, "paper" if mode == "scaled" else mode)
    if not training:
        finite = (upper - lower < math.inf).all(1, keepdim=True)
        bounds = torch.where(finite, bounds[0], 0.0), torch.where(finite, bounds[1], 1.0)
    return CredalSet._wrap(*bounds, label) if label is not None else CredalSet._trusted(*bounds)


def prediction_quality(batch: FeatureBatch, radius: Tensor, mode: Mode) -> Quality:
    """Return the quality of the predictions if a radius is added to the logits."""
    prediction = credal_set(batch.logits, mode, radius)
    correct = prediction.label == batch.labels
    # with more than two classes, total also computes the lower entropy, which is slower
    total = prediction.total if prediction.num_classes == 2 else prediction.upper_entropy()
    assert isinstance(total, Tensor)
    return Quality(
        area=auarc(total, correct),
        loss=float(cross_entropy(prediction, batch.labels, check=False)),
        classes=float(prediction.classes().sum(-1).double().mean()),
        error_rate=float(1 - correct.double().mean()),
    )


class CredalClassifier(Classifier):
    """Base class of :class:`CreINN` and :class:`Ensemble`."""

    prediction_type = CredalSet
    uses_compile_cache = True
    """Whether ``predict`` compiles the model; see :mod:`creinn.classifier.compile_cache`."""

    def __init__(self) -> None:
        super().__init__()
        self.calibration = Calibration()

    if TYPE_CHECKING:

        def predict(
            self, x: Inputs | Iterable[Any], batch_size: int = 256, missing: Missing = "refuse"
        ) -> CredalSet:
            """See :meth:`Classifier.predict`."""

    def predict_batches(
        self, x: Inputs | Iterable[Any], batch_size: int = 256, missing: Missing = "refuse"
    ) -> Iterator[CredalSet]:
        """Yield the credal sets of successive batches.

        See :meth:`Classifier.predict_batches` for the arguments.

        Raises:
            RuntimeError: If a distance is not fitted, or if the network has changed since then.
        """
        self.check_fitted()
        return cast(Iterator[CredalSet], super().predict_batches(x, batch_size, missing))

    def check_fitted(self) -> None:
        """Check that the distances of the model are fitted to the current network.

        Raises:
            RuntimeError: If a distance is not fitted, or if the network has changed since then.
        """
        for part in self.modules():
            if isinstance(part, DistanceRadius) and not part.fitted:
                raise RuntimeError(
                    "The distance is not fitted to the training data. Call model.fit_distance(x, y) "
                    "for the model or for each member of an ensemble. creinn.fit does this at the "
                    "end of the training."
                )
            if isinstance(part, CredalClassifier):
                part.check_distance()

    def check_distance(self) -> None:
        """Check that the network has not changed since the distance was fitted.

        Raises:
            RuntimeError: If the network has changed.
        """

    def clear_cache(self) -> None:
        """Remove the compiled form of the model and the hashes of its weights.

        Call this method after you have changed a weight through ``Tensor.data`` or a NumPy view, or
        if you have changed an object that is an attribute of a module. Other changes of weights,
        layers, options and hooks are detected.
        """
        compile_cache.clear(self)
        clear_hashes()

    def train(self, mode: bool = True) -> Any:
        """Set the model to training mode or to eval mode.

        In training mode, the compiled form of the model is removed.
        """
        if mode:
            compile_cache.invalidate(self)
        return super().train(mode)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        compile_cache.invalidate(self)  # for ``.to`` and similar methods
        return super()._apply(*args, **kwargs)

    def _forward_fast(self, x: Inputs) -> CredalSet:
        if not self.uses_compile_cache:
            compile_cache.invalidate(self)
        elif not is_training(self):
            compiled = compile_cache.compiled_form(self, x, creinn.compile_for_predict)
            if compiled is not None:
                return compiled(x)
        return cast(CredalSet, super()._forward_fast(x))

    def _predict_batch(self, batch: Inputs, missing: Missing, first: int) -> Any:
        prediction: Any = super()._predict_batch(batch, missing, first)
        return prediction.with_conformal(self.current_conformal())

    def _vacuous(self, prediction: CredalSet, rows: Tensor) -> CredalSet:
        lower = torch.where(rows.unsqueeze(1), 0.0, prediction.lower)
        upper = torch.where(rows.unsqueeze(1), 1.0, prediction.upper)
        return CredalSet._wrap(lower, upper, torch.where(rows, 0, prediction.label))

    def calibrate(
        self,
        x: Inputs | Iterable[Any],
        y: Any = None,
        coverage: float = 0.95,
        by: Any = None,
        score: str | None = None,
        random: bool = False,
        temperature: bool = False,
        batch_size: int = 256,
    ) -> Any:
        """Calibrate the predictions by split conformal prediction.

        The sets of classes that ``classes("conformal")`` returns have a guaranteed coverage. For
        rows from the same distribution as the calibration rows, the set of classes contains the
        true class with a probability of at least ``coverage``; see :mod:`creinn.credal.conformal`.
        **There is no guarantee under distribution shift.** The calibration is removed by training,
        and it is not valid after other changes of the model.

        For rows with missing values, see :meth:`calibrate_predictions`.

        Args:
            x: The inputs, which must not have been used for training or model selection, or a
                Dataset or DataLoader of pairs.
            y: The classes ``(N,)`` of the rows, or ``None`` if ``x`` contains them. If ``y`` are
                distributions ``(N, K)``, for example of several annotators, the credal sets
                ``s.widened()`` contain the true distribution with this probability.
            coverage: The coverage. ``classes("conformal", coverage=...)`` uses another one.
            by: ``"class"`` for the coverage of each class, or group numbers ``(N,)`` for the
                coverage of each group, which ``classes("conformal", groups=...)`` needs as well.
                The sets of groups with too few rows contain all classes.
            score: ``"lower"`` (default) or ``"dominance"`` for scores of the intervals; ``"lac"``,
                ``"aps"`` or ``"raps"`` for scores of the intersection probability. For
                distributions ``"deviation"`` (default), a margin proportional to the standard
                deviation of a vote, or ``"additive"``; see :mod:`creinn.credal.margin`.
            random: Whether to randomize the sets, so that the coverage is exactly ``coverage``. It
                can still be higher for ``score="lower"`` and for groups with too few rows; see
                :class:`creinn.credal.conformal.Conformal`.
            temperature: Whether to fit the temperature to one half of the rows, and to calibrate
                with the other half.
            batch_size: The number of rows per batch, unless ``x`` contains batches.

        Returns:
            The model.

        Raises:
            ValueError: If there are too few rows, or if an argument is not valid.
            TypeError: If the data have another type.

        Example:
            >>> from creinn import CreINN, models
            >>> _ = torch.manual_seed(0)
            >>> x, y = torch.randn(300, 2), torch.arange(300) % 3
            >>> model = CreINN(models.mlp(2, 3)).eval().calibrate(x, y, coverage=0.9)
            >>> contains = model.predict(x).classes("conformal")[torch.arange(300), y]
            >>> contains.double().mean().item() >= 0.9
            True
        """
        with _unchanged_on_error(self):
            if temperature:
                if y is not None and (found := find_not_finite(as_inputs(x))):
                    raise ValueError(f"{found}. Impute or drop it.")
                x, y, by = self._fit_temperatures(x, y, by, batch_size)
            labels: list[Tensor] = []

            def inputs() -> Iterator[tuple[Inputs]]:
                data, name = x if y is None else (x, y), "the calibration data"
                for batch, found in labelled_batches(data, batch_size, name):
                    labels.append(torch.as_tensor(found))
                    yield (batch,)

            prediction = self.predict(inputs(), batch_size)
            return self.calibrate_predictions(
                prediction, torch.cat(labels), coverage, by, score, random
            )

    def calibrate_predictions(
        self,
        prediction: CredalSet,
        labels: Any,
        coverage: float = 0.95,
        by: Any = None,
        score: str | None = None,
        random: bool = False,
    ) -> Any:
        """Calibrate the model with its own current predictions; see :meth:`calibrate`."""
        self.calibration.fit(prediction, labels, coverage, by, score, random)
        clear_hashes()
        self.calibration.fitted_on.parts = self.part_hashes()
        return self

    def part_hashes(self) -> dict[str, int]:
        """Return a hash of each part that the predictions depend on.

        The result is empty if the parts of the model cannot change.
        """
        return {}

    @property
    def calibration_is_current(self) -> bool:
        """Whether the model is calibrated and has not changed since."""
        return self.calibration.is_fitted and not self._calibration_changes()

    def current_conformal(self) -> Conformal | None:
        """Return the calibration for predictions, or ``None`` if there is none.

        If the model has changed since the calibration, the result raises an error when it is used.
        """
        conformal = self.calibration.conformal
        if conformal is None or not (names := self._calibration_changes()):
            return conformal
        return replace(
            conformal,
            stale=f"The calibration is not valid any more. Changed since it was fitted: "
            f"{', '.join(names)}. Call model.calibrate(x, y) with held-out data, and predict again.",
        )

    def adopt_structure(self, saved: int) -> None:
        """Replace the hash of the saved structure by the hash of the loaded structure."""
        now = self.part_hashes()["structure"]
        for name, part in self.named_modules():
            if isinstance(part, FittedOn) and not name.startswith("members."):
                part.replace("structure", saved, now)

    def _calibration_changes(self) -> list[str]:
        fitted_on = self.calibration.fitted_on
        return fitted_on.changes(self.part_hashes()) if fitted_on.parts else []

    def _fit_temperatures(self, x: Any, y: Any, by: Any, batch_size: int) -> tuple[Any, Any, Any]:
        """Fit the temperatures to half of the rows, and return the other half."""
        if y is None or torch.as_tensor(y).is_floating_point():
            raise TypeError(
                "temperature=True needs inputs and classes as tensors: "
                "calibrate(x, y, temperature=True)."
            )
        y = torch.as_tensor(y)
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
        first, rest = order.tensor_split(2)
        for part in getattr(self, "members", [self]):
            part.temperature.is_on = True
            part._fit_temperature((take(x, first), y[first]), batch_size)
        is_grouped = by is not None and not isinstance(by, str)
        return take(x, rest), y[rest], torch.as_tensor(by)[rest] if is_grouped else by


class Ensemble(CredalClassifier):
    """Ensemble of CreINNs, in eval mode if all members are in eval mode.

    Args:
        members: CreINNs with the same number of classes.
        combine: ``"average"`` for the mean of the reachable bounds of the members (ensemble of
            CreINN), or ``"envelope"`` for the smallest intervals that contain the sets of all
            members, where disagreement is part of the epistemic uncertainty.
    """

    def __init__(self, members: Sequence[CredalClassifier], combine: Combine = "average") -> None:
        super().__init__()
        check_choice("combine", combine, Combine)
        self.num_classes = common_classes(members)
        self.members = torch.nn.ModuleList(members)
        self.combine = combine
        self._take_mode_of_members()

    def part_hashes(self) -> dict[str, int]:
        """Return a hash of each part of all members."""
        members = [member.part_hashes() for member in self.members]
        known = [name for name in members[0] if all(name in member for member in members)]
        parts = {name: digest([member[name] for member in members]) for name in known}
        return {**parts, "combine": digest(self.combine)}

    @property
    def distance_is_current(self) -> bool:
        """Whether the distances of all members are fitted and current."""
        return all(member.distance_is_current for member in self.members)

    def forward(self, x: Inputs) -> CredalSet:
        """Return the combined credal set of each row."""
        sets = [member(x) for member in self.members]
        return CredalSet.envelope(sets) if self.combine == "envelope" else CredalSet.average(sets)


def check_choice(name: str, value: Any, choices: Any) -> None:
    """Raise a ``ValueError`` if a value is not in a ``Literal`` type."""
    *others, last = (repr(choice) for choice in get_args(choices))
    if value not in get_args(choices):
        raise ValueError(f"Unknown {name} {value!r}; choose {', '.join(others)} or {last}.")


@contextmanager
def _unchanged_on_error(model: torch.nn.Module) -> Iterator[None]:
    """Restore temperatures, calibrations and training modes if an error is raised."""
    modes = [(part, part.training) for part in model.modules()]
    parts = [part for part in model.modules() if isinstance(part, Calibration | Temperature)]
    buffers = [dict(part._buffers) for part in parts]
    hashes = [(part, part.parts) for part in model.modules() if isinstance(part, FittedOn)]
    switches = [(part, part.is_on) for part in parts if isinstance(part, Temperature)]
    try:
        yield
    except BaseException:
        for module, mode in modes:
            module.training = mode
        for part, values in zip(parts, buffers, strict=True):
            part._buffers.update(values)
        for mark, before in hashes:
            mark.parts = before
        for temperature, is_on in switches:
            temperature.is_on = is_on
        raise
