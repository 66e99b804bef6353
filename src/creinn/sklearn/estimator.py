"""CreINN as a scikit-learn classifier: arrays or intervals in; labels, probabilities, bounds, uncertainty out.

Networks are trained in single precision on ``device``. Predictions are made on the CPU in double precision, in which
they do not depend on the rows that are predicted together; after a fit on float32 in float32, and are then of that
type.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from os import PathLike
from typing import Any, Literal, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from creinn import models
from creinn.baselines.registry import build_classifier
from creinn.classifier.creinn import Combine, CreINN, Ensemble, Mode
from creinn.classifier.methods import METHODS
from creinn.credal.credal_set import CredalSet
from creinn.data.encoder import TableEncoder
from creinn.interval import Interval
from creinn.numerics import check_integers
from creinn.saving import ESTIMATOR, load, read_config, save
from creinn.sklearn.preparation import (
    Array,
    Preparation,
    as_numbers,
    check_no_missing_labels,
    encode_frame,
    is_mixed_frame,
    learn_frame,
)
from creinn.training import History, TrainConfig
from creinn.training.loop import fit_members
from creinn.training.randomness import derived_seed

Rule = Literal["maximality", "e-admissibility", "conformal"]
FEWEST = 60  # rows, of which "auto" holds some out: of fewer they say little
FEW = 1000  # rows that are worth being learnt from once more, together with those held out
DEFAULTS: dict[str, dict[str, Any]] = {
    "ordinary": {
        "epochs": 200,
        "dropout": 0.1,
    },  # chosen on generated tables, see experiments/study/tabular.py
    "interval": {"epochs": 100, "dropout": 0.0},  # as in the paper
}

_KINDS: dict[str, tuple[Any, str]] = {
    "temperature": (bool | np.bool_ | None, "True, False or None"),
    "standardize": (bool | np.bool_, "True or False"),
    "validation_fraction": (Real, "a number"),
    "distance": (bool | np.bool_ | Real, "True, False or a number"),
}


@dataclass(eq=False, repr=False)
class CreINNClassifier(ClassifierMixin, BaseEstimator):
    """Credal-set interval neural network, a multilayer perceptron, or an ensemble of such.

    With ``distance``, rows far from the training data get wide probability intervals (CreINN-D). Trained on points, the
    network is then an ordinary one, and takes points only. Without, it is an interval network, whose intervals are
    learnt: the longer it is trained, the narrower they get, for the loss knows only the intersection probability. If
    ``predict_interval`` then gives hardly more than points, take fewer epochs, or ``early_stopping``.

    Args:
        hidden: Widths of the hidden layers.
        dropout: Share of hidden units dropped in training; by default 0.1, and none of an interval network.
        epochs: Passes over the training data; by default 200, and 100 of an interval network.
        members: Networks to train and combine.
        batch_size: Rows per step, at least two.
        learning_rate: Of Adam.
        class_weight: Weights in the loss by label; ``"balanced"`` is inverse to the class counts, ``None`` equal.
        early_stopping: Whether to hold out rows, stop when the loss on them no longer falls, and keep the best weights.
            Temperature and scale of the distance are then found by these rows too. ``"auto"`` does so from 60 rows on,
            unless the network is an interval network; of fewer than 1000 all are then learnt from anew, for as many
            epochs as were best, with temperature, units and scale of the distance as they were found.
        validation_fraction: Share of the rows to hold out for that.
        patience: Epochs without a better loss after which to stop.
        distance: Whether intervals grow with the distance from the training data; a number is the scale, which is
            otherwise chosen, see :meth:`creinn.CreINN.fit_distance`. ``False`` for an interval network alone. Trained
            on intervals it is an interval network either way, with ``distance`` on top.
        temperature: Whether rows held out also decide how certain probabilities are, see :class:`creinn.CreINN`; by
            default so, unless the network is an interval network. Without such rows nothing changes.
        mode: ``"paper"``, ``"scaled"`` or ``"sound"``, of an interval network and its head; see :class:`creinn.CreINN`.
        combine: How members make one prediction: ``"average"`` or ``"envelope"``; see :class:`creinn.Ensemble`.
        standardize: Whether to shift and scale columns to mean 0 and deviation 1.
        device: Where to train, as torch names it; ``"auto"`` takes a GPU if there is one.
        random_state: Seed of all that is random; an integer makes fits repeatable.
        verbose: Whether to show a progress bar.

    Attributes:
        classes_: Labels, sorted.
        n_features_in_: Number of columns.
        feature_names_in_: Their names, if the training data had any.
        model_: The :class:`creinn.CreINN` or :class:`creinn.Ensemble`.
        histories_: What happened in training, one :class:`creinn.training.History` per member.
        n_iter_: Epochs of the longest training.
        notes_: Notes on the columns of a data frame that are not all numbers.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = CreINNClassifier(epochs=30, random_state=0).fit(X, y)
        >>> clf.predict_interval(X).shape, bool(clf.score(X, y) > 0.9)
        ((150, 3, 2), True)
    """

    hidden: Sequence[int] = (64, 64)
    dropout: float | None = None
    epochs: int | None = None
    members: int = 1
    batch_size: int = 64
    learning_rate: float = 1e-3
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None
    early_stopping: bool | Literal["auto"] = "auto"
    validation_fraction: float = 1 / 6
    patience: int = 10
    distance: bool | float = True
    temperature: bool | None = None
    mode: Mode = "paper"
    combine: Combine = "average"
    standardize: bool = True
    device: str = "cpu"
    random_state: Any = None
    verbose: int = 0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "CreINNClassifier":
        """Train on a table ``(n, features)`` or an interval of that shape, and labels ``(n,)``.

        A data frame may have columns of texts, categories, booleans and dates; they are encoded as
        by ``creinn train``.

        Rows of weight 0 are left out. Other weights count in the loss, as those of classes do, in the standardisation,
        and in the class frequencies that the network starts from; not in the distance, which asks where there are rows.

        Raises:
            ValueError: If data or settings are not as they must be; also if there is one class only.
            TypeError: If a setting is of the wrong type.
        """
        self._check_settings()
        self.__dict__.pop(
            "model_", None
        )  # if this fit fails, what is left of the one before does not fit together
        check_no_missing_labels(y)
        bounds, y = self._bounds(X, y=y)
        check_classification_targets(y)
        own = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
        used = own > 0
        if not used.any():
            raise ValueError("sample_weight is zero in every row.")
        bounds, y, own = [bound[used] for bound in bounds], y[used], own[used] / own.max()
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            found = f"but the data contains only one class: {self.classes_.tolist()[0]!r}"
            raise ValueError(
                f"CreINNClassifier needs samples of at least 2 classes in the data, {found}."
            )
        if len(labels) == len(self.classes_) and self._distance() is not False:
            why = "There is one row of each class: how far rows of a class lie apart is not known"
            warnings.warn(f"{why}, and uncertainty is likely too small.", stacklevel=2)
        weights = self._weights(labels, own)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        widths = None if self._encoder is None else self._encoder.widths
        self._preparation = Preparation.learn(bounds, own, self.standardize, seed, widths)
        data = [
            self._preparation.completed(bounds, seed),
            torch.from_numpy(labels.astype(np.int64)),
        ]
        if np.ptp(weights) > 0:
            data.append(torch.from_numpy(weights / weights.mean()))
        layers = "ordinary" if len(bounds) == 1 and self._distance() is not False else "interval"
        held = self._held_out(labels, layers, seed)
        train, val = (
            [part[~held] for part in data],
            [part[held] for part in data] if held.any() else None,
        )
        build = partial(self._build, np.bincount(labels, weights), layers)
        config = self._config(seed, layers, val is not None)
        members, self.histories_ = fit_members(build, self.members, train, val, config)
        if self.histories_[-1].interrupted:
            raise KeyboardInterrupt
        if val is not None and self.early_stopping == "auto" and len(labels) < FEW:
            firsts = enumerate(zip(members, self.histories_, strict=True))
            members = [
                self._learn_all(build, data, config, number, *first) for number, first in firsts
            ]
        self.n_iter_ = max(map(len, self.histories_))
        model = members[0] if len(members) == 1 else Ensemble(members, self.combine)
        self.model_ = model.to(
            "cpu", torch.float32 if bounds[0].dtype == np.float32 else torch.float64
        ).eval()
        for part in (model, *members):
            part.preprocessing = self._preparation.to_json()
        return self

    def predict(self, X: Any) -> Array:
        """Labels ``(n,)``: those of the credal sets, see :attr:`creinn.CredalSet.label`."""
        label = self.credal_set(X).label
        return self.classes_[label.numpy()]

    def predict_proba(self, X: Any) -> Array:
        """Intersection probabilities ``(n, K)``, in the order of ``classes_``."""
        return self.credal_set(X).intersection.numpy()

    def predict_log_proba(self, X: Any) -> Array:
        """Natural logarithms of the intersection probabilities ``(n, K)``; of 0, minus infinity."""
        return self.credal_set(X).intersection.log().numpy()

    def predict_interval(self, X: Any) -> Array:
        """Lower and upper probabilities ``(n, K, 2)``; each bound is attained by a member of the credal set."""
        prediction = self.credal_set(X)
        return torch.stack((prediction.lower, prediction.upper), -1).numpy()

    def predict_set(
        self, X: Any, rule: Rule = "maximality", coverage: float | None = None, groups: Any = None
    ) -> Array:
        """Whether each class is not ruled out, boolean ``(n, K)``; see :meth:`creinn.CredalSet.classes`.

        With ``coverage``, or by the rule ``"conformal"``, sets hold the true class so often, if :meth:`calibrate` was
        called before, on data like those of the calibration; ``groups`` if it was by groups.
        """
        rule = rule if coverage is None and groups is None else "conformal"
        return self.credal_set(X).classes(rule, coverage, groups).numpy()

    def calibrate(
        self,
        X: Any,
        y: Any,
        coverage: float = 0.95,
        by: Any = None,
        score: str = "lower",
        random: bool = False,
    ) -> "CreINNClassifier":
        """Give the sets of classes a guarantee, by rows that the estimator was not fitted on.

        Labels ``y`` are those of ``classes_``, or distributions ``(n, K)`` over them; all else is as in
        :meth:`creinn.CreINN.calibrate`. Raises a ValueError for too few rows, or a label that the fit has not met.
        """
        labels = np.asarray(y)
        if labels.ndim == 1:
            if not (known := np.isin(labels, self.classes_)).all():
                raise ValueError(
                    f"The label {labels[~known].tolist()[0]!r} was not met in the fit."
                )
            labels = np.searchsorted(self.classes_, labels)
        self.model_.calibrate_predictions(self.credal_set(X), labels, coverage, by, score, random)
        return self

    def uncertainty(self, X: Any) -> dict[str, Array]:
        """Uncertainties ``(n,)`` by name: ``total``, ``aleatoric`` and ``epistemic``."""
        prediction = self.credal_set(X)
        return {
            name: getattr(prediction, name).numpy() for name in ("total", "aleatoric", "epistemic")
        }

    def credal_set(self, X: Any) -> CredalSet:
        """The prediction itself, on the CPU; in float32 after a fit on float32, in float64 after any other.

        Raises:
            ValueError: If ``X`` is not as it must be, or holds intervals though the network takes points only.
        """
        check_is_fitted(self, "model_")
        bounds, _ = self._bounds(X, reset=False)
        if len(bounds) == 2 and not getattr(self.model_, "members", [self.model_])[0].is_interval:
            why = "this estimator was fitted on points with distance, so that its network takes points only"
            raise ValueError(
                f"X holds intervals, but {why}. Fit it on intervals, or with distance=False."
            )
        return self._preparation.predict(self.model_, bounds)

    def save(self, directory: str | PathLike[str]) -> None:
        """Write the fitted estimator to a directory that :meth:`load` reads: JSON and safetensors, no code.

        A generator as ``random_state`` is not kept, of which a warning tells.

        Raises:
            TypeError: If labels are neither texts, numbers nor truth values.
            OSError: If a file cannot be written.
        """
        check_is_fitted(self, "model_")
        parameters = self.get_params()
        if not isinstance(parameters["random_state"], int | np.integer | None):
            warnings.warn(
                "A generator as random_state is not saved; the loaded estimator has None.",
                stacklevel=2,
            )
            parameters["random_state"] = None
        record = {
            "parameters": {name: _plain(value) for name, value in parameters.items()},
            "classes": _plain(self.classes_),
            "dtype": self.classes_.dtype.str,
            "features": self.n_features_in_,
            "names": _plain(getattr(self, "feature_names_in_", None)),
            "histories": [list(history.rows) for history in self.histories_],
            "columns": None if self._encoder is None else self._encoder.to_json(),
        }
        classes = [str(label) for label in self.classes_.tolist()]
        save(self.model_, directory, classes, {**self._preparation.to_json(), "estimator": record})

    @classmethod
    def load(cls, directory: str | PathLike[str]) -> "CreINNClassifier":
        """Read an estimator that :meth:`save` wrote.

        Raises:
            FileNotFoundError: If there is no saved model.
            ValueError: If a file is damaged, or the directory holds a model, but no estimator.
        """
        prepared = read_config(directory)["preprocessing"]
        if (
            not isinstance(prepared, dict)
            or prepared.get("kind") != ESTIMATOR
            or "estimator" not in prepared
        ):
            found = "a saved model, but no estimator: CreINNClassifier.save was not what wrote it"
            raise ValueError(f"{directory} holds {found}. Read the model with creinn.load.")
        try:
            record = prepared["estimator"]
            estimator = cls(**record["parameters"])
            estimator.hidden = tuple(estimator.hidden)
            if isinstance(estimator.class_weight, list):
                estimator.class_weight = dict(estimator.class_weight)
            estimator.classes_ = np.array(record["classes"], dtype=record["dtype"])
            estimator.n_features_in_ = record["features"]
            if record["names"] is not None:
                estimator.feature_names_in_ = np.array(record["names"], dtype=object)
            estimator.histories_ = [History(tuple(rows)) for rows in record["histories"]]
            estimator.n_iter_ = max(map(len, estimator.histories_))
            estimator._preparation = Preparation.from_json(prepared)
            columns = record["columns"]
            estimator._encoder = None if columns is None else TableEncoder.from_json(columns)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{directory} does not describe an estimator that can be built: {error!r}."
            ) from error
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "The model in .* is the network of a CreINNClassifier"
            )
            estimator.model_ = load(directory)
        return estimator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _bounds(self, X: Any, **options: Any) -> tuple[list[Array], Any]:
        """Points, or both bounds, as arrays of floats; and labels, if ``y`` is passed."""
        if "y" in options:
            encoder, notes = (
                learn_frame(X, bool(self.standardize)) if is_mixed_frame(X) else (None, [])
            )
            self._encoder, self.notes_ = encoder, notes
        if self._encoder is not None:
            checked = validate_data(self, X, skip_check_array=True, **options)
            labels = column_or_1d(checked[1], warn=True) if "y" in options else None
            check_consistent_length(X, labels)
            return [encode_frame(self._encoder, X)], labels
        first = X.lower.detach().cpu().numpy() if isinstance(X, Interval) else as_numbers(X)
        checked = validate_data(
            self, first, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", **options
        )
        bound, labels = checked if "y" in options else (checked, None)
        if isinstance(X, Interval):
            return [bound, check_array(X.upper.detach().cpu().numpy(), dtype=bound.dtype)], labels
        return [bound], labels

    def _check_settings(self) -> None:
        """Refuse what network and training do not; scikit-learn wants the constructor to take anything."""
        check_integers(members=_plain(self.members), patience=_plain(self.patience))
        if self._config(seed=0).batch_size < 2:
            raise ValueError(f"batch_size must be at least 2, got {self.batch_size}.")
        for name, (kind, what) in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be {what}, got {getattr(self, name)!r}.")
        if self.early_stopping != "auto" and not isinstance(self.early_stopping, bool | np.bool_):
            raise TypeError(
                f"early_stopping must be True, False or 'auto', got {self.early_stopping!r}."
            )
        if self.combine not in get_args(Combine):
            raise ValueError(f"combine must be 'average' or 'envelope', got {self.combine!r}.")
        if not np.iterable(self.hidden):
            raise TypeError(f"hidden must be a sequence of widths, got {self.hidden!r}.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must be between 0 and 1, got {self.validation_fraction!r}."
            )

    def _held_out(self, labels: Array, layers: str, seed: int) -> Any:
        """A mask of the rows that are held out, a share of each class; by ``"auto"`` none of classes of a few rows."""
        rows = np.arange(len(labels))
        if self.early_stopping == "auto":
            rows = rows[np.bincount(labels)[labels] * self.validation_fraction >= 1]
            if layers == "interval" or len(rows) < FEWEST:
                rows = rows[:0]
        elif not self.early_stopping:
            rows = rows[:0]
        held = np.zeros(len(labels), bool)
        if len(rows):
            share = {"test_size": self.validation_fraction, "random_state": seed}
            held[train_test_split(rows, stratify=labels[rows], **share)[1]] = True
        return torch.from_numpy(held)

    def _learn_all(
        self,
        build: Any,
        data: Any,
        config: TrainConfig,
        number: int,
        first: CreINN,
        history: History,
    ) -> CreINN:
        """A network that learns from all rows, as long as was best for the ``first``; with what those held out say."""
        seed = derived_seed(config.seed, number)
        config = replace(
            config, epochs=history.best_epoch or 1, patience=None, keep="last", seed=seed
        )
        (model,), (again,) = fit_members(build, 1, data, None, config)
        if again.interrupted:
            raise KeyboardInterrupt
        model.temperature.load_state_dict(first.temperature.state_dict())
        assert model.distance_radius is not None
        assert first.distance_radius is not None
        model.distance_radius.copy_scaling(first.distance_radius)
        return model

    def _weights(self, labels: Array, own: Array) -> Array:
        """Weight of each row in the loss: that of its class, times its own."""
        weights = compute_class_weight(
            self.class_weight, classes=self.classes_, y=self.classes_[labels]
        )
        if isinstance(self.class_weight, str):
            counts = np.bincount(labels, own)
            weights = counts.sum() / (len(counts) * counts)  # "balanced", by weights
        for label, weight in zip(self.classes_.tolist(), weights.tolist(), strict=True):
            if not 0 < weight < np.inf:
                raise ValueError(
                    f"class_weight: the weight of class {label!r} must be positive, got {weight}."
                )
        return weights[labels] * own

    def _build(self, masses: Array, layers: str) -> CreINN:
        """A network that starts from the weighted class frequencies, which batch norm would be slow to find."""
        logits = 1 if len(masses) == 2 else len(masses)
        dropout = _plain(self.dropout) if self.dropout is not None else DEFAULTS[layers]["dropout"]
        features, hidden = self._preparation.missing.num_features, _plain(self.hidden)
        network = partial(models.mlp, features, logits, hidden, dropout=dropout)
        form = {
            "mode": self.mode,
            "distance": self._distance(),
            "temperature": _plain(self.temperature),
        }
        model: CreINN = build_classifier(METHODS["creinn"], network, layers=layers, **form)
        start = np.log(masses) - np.log(masses).mean()
        shift = start[1:] - start[:1] if logits == 1 else start
        bias = (model.norm if model.logit_norm else model.network.head).get_parameter("bias")
        with torch.no_grad():
            bias[:logits] = torch.from_numpy(shift)
        return model

    def _distance(self) -> bool | float:
        return (
            bool(self.distance)
            if isinstance(self.distance, bool | np.bool_)
            else float(self.distance)
        )

    def _config(self, seed: int, layers: str = "ordinary", stops: bool = False) -> TrainConfig:
        same = ("epochs", "batch_size", "learning_rate", "device")
        settings = {name: _plain(getattr(self, name)) for name in same}
        settings |= {} if self.epochs is not None else {"epochs": DEFAULTS[layers]["epochs"]}
        if stops:
            settings |= {"patience": _plain(self.patience), "keep": "best"}
        return TrainConfig(**settings, seed=seed, progress=bool(self.verbose))


def _plain(value: Any) -> Any:
    """NumPy's values as Python's, sequences as lists, and mappings, whose keys may be other than texts, as pairs."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(entry)] for key, entry in value.items()]
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
