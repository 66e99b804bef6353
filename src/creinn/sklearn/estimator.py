"""Scikit-learn classifier with credal sets.

The network is trained in single precision on ``device``. The predictions are computed on the CPU in
double precision, so that they do not depend on the other rows. If the type of the training data is
float32, the predictions are computed in float32.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from creinn.saving import ESTIMATOR, load, read_config, save
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

Rule = Literal["maximality", "e-admissibility", "conformal"]

EPOCHS = {"point": 200, "interval": 100}
DROPOUT = {"point": 0.1, "interval": 0.0}
_POSITIVE = Range(Integral, 1, None, closed="left")


@dataclass(eq=False, repr=False)
class CreINNClassifier(ClassifierMixin, BaseEstimator):
    """Multilayer perceptron with credal sets, or an ensemble of such networks.

    By default this is CreINN-D: an ordinary network, whose probability intervals grow with the
    distance of a row from the training data. With ``distance=False``, or if the training data are
    intervals, it is an interval neural network. Its intervals become narrower during the training.
    If they are too narrow, use fewer epochs.

    The columns are standardized, and outliers are clipped. If a number is missing, all plausible
    values are used, so that the credal set is wider.

    Args:
        hidden_layer_sizes: Number of units of each hidden layer.
        n_estimators: The number of networks. The prediction is the average of the credal sets, or
            the envelope if ``model_.combine`` is set to ``"envelope"`` after the fit.
        max_iter: The number of epochs. The default is 200, or 100 for interval networks.
        batch_size: The number of rows per step, at least two. The default grows with the data from
            64 to 256 (see :meth:`creinn.TrainConfig.for_rows`), or is 64 for interval networks.
        learning_rate: The learning rate of Adam. The default is 0.002 for a batch size of 64 and
            grows with its square root, or is 0.001 for interval networks.
        dropout: The dropout rate of hidden layers; by default 0.1, or 0 for interval networks.
        class_weight: The weights of the classes in the loss. ``"balanced"`` is inversely
            proportional to the class frequencies.
        early_stopping: Whether to hold out a fraction of the rows (1/6 by default), to stop if
            their loss does not decrease, and to use the best weights. The temperature and the scale
            of the distance are fitted on these rows. ``"auto"`` is true for an ordinary network and
            at least 60 rows.
        n_iter_no_change: The number of epochs to wait for a smaller loss.
        distance: Whether intervals grow with the distance from the training data. A number is the
            scale, which is fitted by default; see :meth:`creinn.CreINN.fit_distance`.
        mode: ``"paper"``, ``"scaled"`` or ``"sound"``, for interval networks; see
            :class:`creinn.CreINN`.
        device: Torch device for the training. ``"auto"`` is a GPU if there is one.
        random_state: The seed of the random numbers.
        verbose: Whether to show a progress bar.

    Attributes:
        classes_: Sorted labels, or the columns of label distributions.
        n_features_in_: Number of columns.
        feature_names_in_: The names of the columns, if there are any.
        model_: The fitted :class:`creinn.CreINN` or :class:`creinn.Ensemble`.
        histories_: A :class:`creinn.training.History` for each network.
        n_iter_: Number of epochs of the longest training.
        notes_: Notes on outliers, and on the columns of a data frame that are not numeric.

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

        ``X`` is an array, an interval or a data frame ``(n, features)``. Columns of texts,
        categories, booleans and dates are encoded as in ``creinn train``. ``y`` has labels
        ``(n,)``, or label distributions ``(n, K)``, such as shares of votes. The loss is then the
        cross-entropy to the distribution. The weights are used for the loss, the standardization
        and the initial class frequencies. Rows of weight 0 are not used.

        Raises:
            ValueError: If the data or the parameters are not valid, or if there is only one class.
        """
        self._validate_params()
        self.__dict__.pop("model_", None)  # not fitted if an error is raised
        rows, targets, weights = self._training_rows(X, y, sample_weight)
        kind = "interval" if len(rows) == 2 or self._distance() is False else "point"
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._preparation, self.notes_ = Preparation.fit(rows, weights, seed)
        targets, weights = weigh_classes(self.class_weight, self.classes_, targets, weights)
        data = [self._preparation.apply_for_training(rows, seed), torch.from_numpy(targets)]
        if np.ptp(weights) > 0:
            data.append(torch.from_numpy(weights / weights.mean()))
        held_out = torch.from_numpy(held_out_rows(self.early_stopping, targets, kind, seed))
        frequencies = class_frequencies(targets, weights, len(self.classes_))
        members = self._train(
            partial(self._build, frequencies, kind), data, held_out, self._config(seed, kind)
        )
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
        """Predict logarithms of the intersection probabilities ``(n, K)``."""
        return self.credal_set(X).intersection.log().numpy()

    def predict_interval(self, X: Any) -> Array:
        """Predict lower and upper probabilities ``(n, K, 2)``, which are reachable bounds."""
        prediction = self.credal_set(X)
        return torch.stack((prediction.lower, prediction.upper), -1).numpy()

    def predict_set(
        self, X: Any, rule: Rule = "maximality", coverage: float | None = None, groups: Any = None
    ) -> Array:
        """Predict sets of classes, as a boolean array ``(n, K)``.

        See :meth:`creinn.CredalSet.classes`. With ``coverage`` or ``groups``, the rule is
        ``"conformal"``, which requires :meth:`calibrate`.
        """
        rule = rule if coverage is None and groups is None else "conformal"
        return self.credal_set(X).classes(rule, coverage, groups).numpy()

    def predict_or_abstain(self, X: Any, sentinel: Any = None, groups: Any = None) -> Array:
        """Predict labels ``(n,)``, with ``sentinel`` for the rows that are not accepted.

        It requires ``calibrate(X, y, max_error=...)``. ``groups`` are needed if the calibration was
        by groups. If the sentinel has another type than the labels, the dtype is object.

        Raises:
            ValueError: If the sentinel is one of the labels, or if there is no calibration.
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
        """Calibrate the sets of classes or the abstention on rows that were not trained on.

        The labels ``y`` are in ``classes_``, or they are class distributions ``(n, K)``. The other
        arguments, such as ``max_error``, are those of :meth:`creinn.CreINN.calibrate`.

        Raises:
            ValueError: If there are too few rows, or if a label is not in ``classes_``.
        """
        labels = np.asarray(y)
        if labels.ndim == 1:
            if not (known := np.isin(labels, self.classes_)).all():
                unknown = labels[~known].tolist()[0]
                raise ValueError(f"The label {unknown!r} is not in the training data.")
            order = np.argsort(self.classes_)
            labels = order[np.searchsorted(self.classes_, labels, sorter=order)]
        self.model_.calibrate_predictions(self.credal_set(X), labels, coverage, by, **options)
        return self

    def uncertainty(self, X: Any) -> dict[str, Array]:
        """Compute the uncertainties ``total``, ``aleatoric`` and ``epistemic``, each ``(n,)``."""
        prediction = self.credal_set(X)
        names = ("total", "aleatoric", "epistemic")
        return {name: getattr(prediction, name).numpy() for name in names}

    def credal_set(self, X: Any) -> CredalSet:
        """Predict credal sets on the CPU; ``X`` can only be an interval for interval networks."""
        check_is_fitted(self, "model_")
        rows, _ = validate_rows(self, X, self._preparation.encoder is not None, reset=False)
        first = members_of(self.model_)[0]
        if len(rows) == 2 and not first.is_interval:
            advice = "Use distance=False, or fit the estimator to intervals"
            raise ValueError(f"X is an interval, but the network takes points only. {advice}.")
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
            advice = "the loaded estimator has None"
            warnings.warn(f"A generator as random_state is not saved; {advice}.", stacklevel=2)
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
        """Load an estimator that was saved by :meth:`save`.

        Raises:
            ValueError: If a file is damaged, or if the saved model is not an estimator.
        """
        from creinn.training.history import History

        prepared = read_config(directory)["preprocessing"]
        is_estimator = isinstance(prepared, dict) and prepared.get("kind") == ESTIMATOR
        if not is_estimator or "estimator" not in prepared:
            found = "contains a saved model, but no estimator"
            raise ValueError(f"{directory} {found}. Load the model with creinn.load.")
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
        """Return the rows with a positive weight, their classes or distributions, and weights."""
        check_labels(y)
        shape = np.asarray(y).shape
        is_soft = len(shape) == 2 and shape[1] > 1
        rows, targets = validate_rows(self, X, is_mixed_frame(X), y=y, multi_output=is_soft)
        weights = _check_sample_weight(
            sample_weight, X=targets, dtype=np.float64, ensure_non_negative=True
        )
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
            found = f"the data contain only one class: {self.classes_.tolist()[0]!r}"
            raise ValueError(f"CreINNClassifier needs at least 2 classes, but {found}.")
        if len(targets) == len(self.classes_) and self._distance() is not False:
            found = "There is one row of each class, so distances within a class are not known"
            warnings.warn(f"{found}. Uncertainty is probably too small.", stacklevel=3)
        return [side[used] for side in rows], targets, weights[used] / weights.max()

    def _train(self, build: Any, data: Any, held_out: Any, config: Any) -> list[CreINN]:
        """Train all networks, and set ``histories_`` and ``n_iter_``."""
        from creinn.training.loop import fit_members

        train, val = [part[~held_out] for part in data], None
        if held_out.any():
            val = [part[held_out] for part in data]
            config = replace(config, patience=plain(self.n_iter_no_change), keep="best")
        count = plain(self.n_estimators)
        members, self.histories_ = fit_members(build, count, train, val, config)
        if self.histories_[-1].interrupted:
            raise KeyboardInterrupt
        self.n_iter_ = max(map(len, self.histories_))
        return members

    def _build(self, frequencies: Array, kind: str) -> CreINN:
        """Build a network that predicts the weighted class frequencies."""
        from creinn import models
        from creinn.baselines.registry import build_classifier
        from creinn.classifier.methods import METHODS

        logits = 1 if len(frequencies) == 2 else len(frequencies)
        dropout = DROPOUT[kind] if self.dropout is None else plain(self.dropout)
        features, hidden = self._preparation.missing.num_features, plain(self.hidden_layer_sizes)
        network = partial(models.mlp, features, logits, hidden, dropout=dropout)
        form = {"mode": self.mode, "distance": self._distance()}
        layers = "ordinary" if kind == "point" else "interval"
        model: CreINN = build_classifier(METHODS["creinn"], network, layers=layers, **form)
        start = np.log(np.maximum(frequencies, 1e-6 * frequencies.sum()))
        start -= start.mean()
        shift = start[1:] - start[:1] if logits == 1 else start
        bias = (model.norm if model.logit_norm else model.network.head).get_parameter("bias")
        with torch.no_grad():
            bias[:logits] = torch.from_numpy(shift)
        return model

    def _distance(self) -> bool | float:
        is_flag = isinstance(self.distance, bool | np.bool_)
        return bool(self.distance) if is_flag else float(self.distance)

    def _config(self, seed: int, kind: str) -> Any:
        from creinn.training.config import TrainConfig

        same = ("batch_size", "learning_rate", "device")
        settings = {name: plain(getattr(self, name)) for name in same}
        if kind == "interval":
            settings["batch_size"] = settings["batch_size"] or 64
            settings["learning_rate"] = settings["learning_rate"] or 1e-3
        epochs = EPOCHS[kind] if self.max_iter is None else plain(self.max_iter)
        return TrainConfig(epochs=epochs, seed=seed, progress=bool(self.verbose), **settings)
