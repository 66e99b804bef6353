"""Scikit-learn classifier with credal sets.

The network is trained in single precision. Predictions are computed on the
CPU in double precision, so that they do not depend on the other rows, or
in float32 if the training data are float32.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval as Range
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from creinn.classifier.base import members_of
from creinn.classifier.credal import Ensemble, Mode
from creinn.classifier.creinn import CreINN
from creinn.credal.credal_set import CredalSet
from creinn.credal.probability import check_distributions
from creinn.saving import load, read_config, save
from creinn.sklearn.preparation import (
    Array,
    Preparation,
    Rows,
    check_labels,
    class_frequencies,
    held_out_rows,
    is_mixed_frame,
    plain,
    validate_rows,
    weigh_classes,
)
from creinn.training.config import TrainConfig
from creinn.training.history import History

Rule = Literal["maximality", "e-admissibility", "conformal"]

EPOCHS = {"point": 200, "interval": 100}
DROPOUT = {"point": 0.1, "interval": 0.0}
_POSITIVE = Range(Integral, 1, None, closed="left")


@dataclass(eq=False, repr=False)
class CreINNClassifier(ClassifierMixin, BaseEstimator):
    """Multilayer perceptron with credal sets, or an ensemble of such networks.

    By default this is CreINN-D: an ordinary network, whose probability
    intervals grow with the distance from the training data. With
    ``distance=False``, or for interval data, it is an interval neural
    network. If its intervals are too narrow, use fewer epochs.

    The columns are standardized, and outliers are clipped. If a number is
    missing, the credal set covers all of the plausible values.

    Args:
        hidden_layer_sizes: Number of units of each hidden layer.
        n_estimators: Number of networks, whose credal sets are averaged,
            or enclosed if ``model_.combine`` is set to ``"envelope"``
            after the fit.
        max_iter: Number of epochs; by default 200, or 100 for interval
            networks.
        batch_size: Rows per step, at least two; by default 64 to 256 (see
            :meth:`creinn.TrainConfig.for_rows`), or 64 for interval
            networks.
        learning_rate: Learning rate of Adam; by default 0.002 for a batch
            size of 64, growing with its square root, or 0.001 for interval
            networks.
        dropout: Dropout rate of hidden layers; by default 0.1, or 0 for
            interval networks.
        class_weight: Weights of the classes in the loss. ``"balanced"`` is
            inversely proportional to the class frequencies.
        early_stopping: Whether to hold out a fraction of the rows (1/6 by
            default), to stop if their loss does not decrease, and to use
            the best weights. They also fit the temperature and the
            distance. ``"auto"`` needs an ordinary network and at least 60
            rows.
        n_iter_no_change: Number of epochs to wait for a smaller loss.
        distance: Whether intervals grow with the distance from the
            training data. A number is the scale, which is fitted by
            default.
        mode: Mode of an interval network; see :class:`creinn.CreINN`.
        device: Torch device for the training. ``"auto"`` is a GPU if
            available.
        random_state: Seed of the random numbers.
        verbose: Whether to show a progress bar.

    Attributes:
        classes_: Sorted labels, or the columns of label distributions.
        n_features_in_: Number of columns.
        feature_names_in_: Names of the columns, if there are any.
        model_: Fitted :class:`creinn.CreINN` or :class:`creinn.Ensemble`.
        histories_: A :class:`creinn.training.History` for each network.
        n_iter_: Number of epochs of the longest training.
        notes_: Notes on the outliers and the columns that are not numeric.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = CreINNClassifier(max_iter=30, random_state=0).fit(X, y)
        >>> clf.predict_interval(X).shape, bool(clf.score(X, y) > 0.9)
        ((150, 3, 2), True)
    """

    hidden_layer_sizes: Sequence[int] = (64, 64)
    n_estimators: int = 1
    max_iter: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    dropout: float | None = None
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None
    early_stopping: bool | float | Literal["auto"] = "auto"
    n_iter_no_change: int = 10
    distance: bool | float = True
    mode: Mode = "paper"
    device: str = "cpu"
    random_state: Any = None
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "hidden_layer_sizes": ["array-like"],
        "n_estimators": [_POSITIVE],
        "max_iter": [_POSITIVE, None],
        "batch_size": [Range(Integral, 2, None, closed="left"), None],
        "learning_rate": [Range(Real, 0, None, closed="neither"), None],
        "dropout": [Range(Real, 0, 1, closed="left"), None],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "early_stopping": ["boolean", StrOptions({"auto"}), Range(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [_POSITIVE],
        "distance": ["boolean", Range(Real, 0, None, closed="left")],
        "mode": [StrOptions(set(get_args(Mode)))],
        "device": [str],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "CreINNClassifier":
        """Fit the classifier.

        ``X`` is an array, an interval or a data frame ``(n, features)``,
        whose texts, categories, booleans and dates are encoded as in
        ``creinn train``. ``y`` has labels ``(n,)``, or label distributions
        ``(n, K)`` such as shares of votes, for the cross-entropy. The
        weights are used in the loss, the standardization and the initial
        class frequencies. Rows with a weight of 0 are not used.

        Raises:
            ValueError: If the data or the parameters are not valid, or
                there is only one class.
        """
        self._validate_params()
        self.__dict__.pop("model_", None)  # not fitted if an error is raised
        rows, targets, weights = self._training_rows(X, y, sample_weight)
        kind = "interval" if len(rows) == 2 or plain(self.distance) is False else "point"
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._preparation, self.notes_ = Preparation.fit(rows, weights, seed)
        targets, weights = weigh_classes(self.class_weight, self.classes_, targets, weights)
        data = [self._preparation.apply_for_training(rows, seed), torch.from_numpy(targets)]
        if np.ptp(weights) > 0:
            data.append(torch.from_numpy(weights / weights.mean()))
        held_out = torch.from_numpy(held_out_rows(self.early_stopping, targets, kind, seed))
        frequencies = class_frequencies(targets, weights, len(self.classes_))
        build = partial(self._build, frequencies, kind)
        members = self._train(build, data, held_out, seed, kind)
        model = members[0] if len(members) == 1 else Ensemble(members)
        is_single = getattr(rows[0], "dtype", None) == np.float32
        self.model_ = model.to("cpu", torch.float32 if is_single else torch.float64).eval()
        for part in (model, *members):
            part.preprocessing = self._preparation.to_json()
        return self

    def predict(self, X: Any) -> Array:
        """Predict labels ``(n,)``; see :attr:`creinn.CredalSet.label`."""
        label = self.credal_set(X).label.numpy()
        return self.classes_[label]

    def predict_proba(self, X: Any) -> Array:
        """Predict intersection probabilities ``(n, K)``, in the order of ``classes_``."""
        return self.credal_set(X).intersection.numpy()

    def predict_log_proba(self, X: Any) -> Array:
        """Predict logarithms of :meth:`predict_proba`."""
        return self.credal_set(X).intersection.log().numpy()

    def predict_interval(self, X: Any) -> Array:
        """Predict reachable lower and upper probabilities ``(n, K, 2)``."""
        prediction = self.credal_set(X)
        return torch.stack((prediction.lower, prediction.upper), -1).numpy()

    def predict_set(
        self, X: Any, rule: Rule = "maximality", coverage: float | None = None, groups: Any = None
    ) -> Array:
        """Predict sets of classes ``(n, K)``; see :meth:`creinn.CredalSet.classes`.

        With ``coverage`` or ``groups``, the rule is ``"conformal"``, after
        :meth:`calibrate`.
        """
        if coverage is not None or groups is not None:
            rule = "conformal"
        return self.credal_set(X).classes(rule, coverage, groups).numpy()

    def predict_or_abstain(self, X: Any, sentinel: Any = None, groups: Any = None) -> Array:
        """Predict labels ``(n,)``, with ``sentinel`` for rows that are not accepted.

        Requires ``calibrate(X, y, max_error=...)``, and ``groups`` after a
        calibration by groups. The dtype is object if the types of the
        sentinel and the labels differ.

        Raises:
            ValueError: If the sentinel is a label, or if there is no
                calibration.
        """
        if sentinel in self.classes_.tolist():
            raise ValueError(f"The sentinel {sentinel!r} is a label. Use another value.")
        prediction = self.credal_set(X)
        labels = self.classes_[prediction.label.numpy()]
        if np.asarray(sentinel).dtype.kind != labels.dtype.kind:
            labels = labels.astype(object)
        return np.where(prediction.accept(groups).numpy(), labels, sentinel)

    def calibrate(
        self, X: Any, y: Any, coverage: float | None = None, by: Any = None, **options: Any
    ) -> "CreINNClassifier":
        """Calibrate the sets of classes, or the abstention, on new rows.

        ``y`` has labels in ``classes_`` or distributions ``(n, K)``. See
        :meth:`creinn.CreINN.calibrate` for the other arguments, such as
        ``max_error``.

        Raises:
            ValueError: If there are too few rows, or a label is unknown.
        """
        labels = np.asarray(y)
        if labels.ndim == 1:
            if unknown := labels[~np.isin(labels, self.classes_)].tolist():
                raise ValueError(f"The label {unknown[0]!r} is not in the training data.")
            order = np.argsort(self.classes_)
            labels = order[np.searchsorted(self.classes_, labels, sorter=order)]
        self.model_.calibrate_predictions(self.credal_set(X), labels, coverage, by, **options)
        return self

    def uncertainty(self, X: Any) -> dict[str, Array]:
        """Compute the ``total``, ``aleatoric`` and ``epistemic`` uncertainty, each ``(n,)``."""
        prediction = self.credal_set(X)
        names = ("total", "aleatoric", "epistemic")
        return {name: getattr(prediction, name).numpy() for name in names}

    def credal_set(self, X: Any) -> CredalSet:
        """Predict credal sets on the CPU; only interval networks accept intervals."""
        check_is_fitted(self, "model_")
        rows, _ = validate_rows(self, X, self._preparation.encoder is not None, reset=False)
        if len(rows) == 2 and not members_of(self.model_)[0].is_interval:
            raise ValueError("X is an interval, but the network is not. Use distance=False.")
        return self._preparation.predict(self.model_, rows)

    def save(self, directory: str | PathLike[str]) -> None:
        """Save the fitted estimator to a directory, without a generator as ``random_state``.

        Raises:
            TypeError: If labels are not texts, numbers or booleans.
            OSError: If a file cannot be written.
        """
        check_is_fitted(self, "model_")
        parameters = self.get_params()
        if not isinstance(parameters["random_state"], int | np.integer | None):
            warnings.warn("A generator as random_state is not saved, but None.", stacklevel=2)
            parameters["random_state"] = None
        record = {
            "parameters": {name: plain(value) for name, value in parameters.items()},
            "classes": plain(self.classes_),
            "dtype": self.classes_.dtype.str,
            "features": self.n_features_in_,
            "names": plain(getattr(self, "feature_names_in_", None)),
            "histories": [list(history.rows) for history in self.histories_],
        }
        classes = [str(label) for label in self.classes_.tolist()]
        save(self.model_, directory, classes, {**self._preparation.to_json(), "estimator": record})

    @classmethod
    def load(cls, directory: str | PathLike[str]) -> "CreINNClassifier":
        """Load a saved estimator.

        Raises:
            ValueError: If a file is damaged, or the saved model is not an
                estimator.
        """
        prepared = read_config(directory)["preprocessing"]
        if not isinstance(prepared, dict) or "estimator" not in prepared:
            raise ValueError(f"{directory} holds no estimator. Use creinn.load.")
        try:
            record = prepared["estimator"]
            estimator = cls(**record["parameters"])
            estimator.hidden_layer_sizes = tuple(estimator.hidden_layer_sizes)
            if isinstance(estimator.class_weight, list):
                estimator.class_weight = dict(estimator.class_weight)
            estimator.classes_ = np.array(record["classes"], dtype=record["dtype"])
            estimator.n_features_in_ = record["features"]
            if record["names"] is not None:
                estimator.feature_names_in_ = np.array(record["names"], dtype=object)
            estimator.histories_ = [History(tuple(rows)) for rows in record["histories"]]
            estimator.n_iter_ = max(map(len, estimator.histories_))
            estimator._preparation = Preparation.from_json(prepared)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{directory} holds no valid estimator: {error!r}.") from error
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*the network of a CreINNClassifier")
            estimator.model_ = load(directory)
        return estimator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _training_rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[Rows, Array, Array]:
        """Return the rows with a positive weight, the targets and the weights."""
        check_labels(y)
        shape = np.asarray(y).shape
        is_soft = len(shape) == 2 and shape[1] > 1
        rows, targets = validate_rows(self, X, is_mixed_frame(X), y=y, multi_output=is_soft)
        options = {"dtype": np.float64, "ensure_non_negative": True}
        weights = _check_sample_weight(sample_weight, targets, **options)
        used = weights > 0
        if not used.any():
            raise ValueError("sample_weight is zero in every row.")
        if is_soft:
            self.classes_ = np.asarray(getattr(y, "columns", range(shape[1])))
            targets = np.asarray(targets, np.float64)[used]
            check_distributions(torch.from_numpy(targets), "row of y")
        else:
            check_classification_targets(targets)
            self.classes_, targets = np.unique(targets[used], return_inverse=True)
        if len(self.classes_) < 2:
            found = f"only one class: {self.classes_.tolist()[0]!r}"
            raise ValueError(f"CreINNClassifier needs at least 2 classes, but y has {found}.")
        if len(targets) == len(self.classes_) and plain(self.distance) is not False:
            found = "There is one row of each class"
            warnings.warn(f"{found}: the uncertainty is probably too small.", stacklevel=3)
        return [side[used] for side in rows], targets, weights[used] / weights.max()

    def _train(self, build: Any, data: Any, held_out: Any, seed: int, kind: str) -> list[CreINN]:
        """Train all networks, and set ``histories_`` and ``n_iter_``."""
        from creinn.training.loop import fit_members

        size, rate = plain(self.batch_size), plain(self.learning_rate)
        if kind == "interval":
            size, rate = size or 64, rate or 1e-3
        is_held_out = bool(held_out.any())
        config = TrainConfig(
            epochs=plain(self.max_iter) or EPOCHS[kind],
            batch_size=size,
            learning_rate=rate,
            seed=seed,
            device=plain(self.device),
            patience=plain(self.n_iter_no_change) if is_held_out else None,
            keep="best" if is_held_out else "last",
            progress=bool(self.verbose),
        )
        train = [part[~held_out] for part in data]
        val = [part[held_out] for part in data] if is_held_out else None
        members, self.histories_ = fit_members(build, plain(self.n_estimators), train, val, config)
        if self.histories_[-1].interrupted:
            raise KeyboardInterrupt
        self.n_iter_ = max(map(len, self.histories_))
        return members

    def _build(self, frequencies: Array, kind: str) -> CreINN:
        """Build a network that predicts the class frequencies."""
        from creinn import models
        from creinn.baselines.factory import build_classifier
        from creinn.classifier.methods import METHODS

        logits = 1 if len(frequencies) == 2 else len(frequencies)
        dropout = DROPOUT[kind] if self.dropout is None else plain(self.dropout)
        features, hidden = self._preparation.missing.num_features, plain(self.hidden_layer_sizes)
        network = partial(models.mlp, features, logits, hidden, dropout=dropout)
        layers = "ordinary" if kind == "point" else "interval"
        form = {"mode": self.mode, "distance": plain(self.distance)}
        model: CreINN = build_classifier(METHODS["creinn"], network, layers=layers, **form)
        start = np.log(np.maximum(frequencies, 1e-6 * frequencies.sum()))
        start -= start.mean()
        shift = start[1:] - start[:1] if logits == 1 else start
        bias = (model.norm if model.logit_norm else model.network.head).get_parameter("bias")
        with torch.no_grad():
            bias[:logits] = torch.from_numpy(shift)
        return model
