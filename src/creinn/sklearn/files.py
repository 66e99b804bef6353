"""A fitted estimator as a directory: a saved model whose configuration also holds all that is around the network.

In: a :class:`creinn.sklearn.CreINNClassifier`. Out: ``config.json`` and ``model.safetensors`` (see
:mod:`creinn.saving`), and from them the same estimator again. Nothing in them is ever executed.
"""

import warnings
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from creinn.saving import ESTIMATOR, load, read_config, save
from creinn.sklearn.preparation import Preparation
from creinn.training import History


def save_estimator(estimator: Any, directory: str | PathLike[str]) -> None:
    """Write a fitted estimator; see :meth:`creinn.sklearn.CreINNClassifier.save`."""
    parameters = estimator.get_params()
    if not isinstance(parameters["random_state"], int | np.integer | None):
        warnings.warn("A generator as random_state is not saved; the loaded estimator has None.", stacklevel=3)
        parameters["random_state"] = None
    names = getattr(estimator, "feature_names_in_", None)
    record = {
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        "classes": _plain(estimator.classes_),
        "dtype": estimator.classes_.dtype.str,
        "features": estimator.n_features_in_,
        "names": None if names is None else names.tolist(),
        "histories": [list(history.rows) for history in estimator.histories_],
    }
    classes = [str(label) for label in estimator.classes_.tolist()]
    save(estimator.model_, directory, classes, {**estimator._preparation.to_json(), "estimator": record})


def load_estimator(estimator: Any, directory: str | PathLike[str]) -> Any:
    """Fill a new estimator with what :func:`save_estimator` wrote."""
    prepared = read_config(directory)["preprocessing"]
    if not isinstance(prepared, dict) or prepared.get("kind") != ESTIMATOR or "estimator" not in prepared:
        raise ValueError(
            f"{directory} holds a saved model, but no estimator: CreINNClassifier.save was not what wrote it. "
            "Read the model with creinn.load."
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The model in .* is the network of a CreINNClassifier")
        estimator.model_ = load(directory)
    try:
        estimator._preparation = Preparation.from_json(prepared)
        return _filled(estimator, prepared["estimator"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{directory} does not describe an estimator that can be built: {error!r}.") from error


def _filled(estimator: Any, record: Mapping[str, Any]) -> Any:
    parameters = record["parameters"]
    parameters["hidden"] = tuple(parameters["hidden"])
    if isinstance(parameters["class_weight"], list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    estimator.set_params(**parameters)
    estimator.classes_ = np.array(record["classes"], dtype=record["dtype"])
    estimator.n_features_in_ = record["features"]
    if record["names"] is not None:
        estimator.feature_names_in_ = np.array(record["names"], dtype=object)
    estimator.histories_ = [History(tuple(rows)) for rows in record["histories"]]
    estimator.n_iter_ = max(len(history) for history in estimator.histories_)
    return estimator


def _plain(value: Any) -> Any:
    """NumPy's values as Python's, sequences as lists, and mappings, whose keys may be other than texts, as pairs."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(entry)] for key, entry in value.items()]
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
