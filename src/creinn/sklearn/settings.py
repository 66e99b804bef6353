"""Settings of an estimator, looked at when it is fitted: scikit-learn wants its constructor to take anything."""

from numbers import Integral, Real
from typing import Any, get_args

import numpy as np

from creinn.classifier.creinn import Combine


def check_settings(estimator: Any) -> None:
    """Refuse settings of a :class:`creinn.sklearn.CreINNClassifier` that it would misunderstand.

    Raises:
        TypeError: If a setting is of the wrong type.
        ValueError: If a value is out of range.
    """
    for name, least in (("epochs", 1), ("members", 1), ("batch_size", 2), ("patience", 1)):
        _check_integer(name, getattr(estimator, name), least)
    for name in ("early_stopping", "standardize"):
        if not isinstance(getattr(estimator, name), bool | np.bool_):
            raise TypeError(f"{name} must be True or False, got {getattr(estimator, name)!r}.")
    for name in ("learning_rate", "validation_fraction"):
        if not isinstance(getattr(estimator, name), Real):
            raise TypeError(f"{name} must be a number, got {getattr(estimator, name)!r}.")
    if not isinstance(estimator.distance, bool | np.bool_ | Real):
        raise TypeError(f"distance must be True, False or a number, got {estimator.distance!r}.")
    if estimator.combine not in get_args(Combine):
        raise ValueError(f"combine must be 'average' or 'envelope', got {estimator.combine!r}.")
    if not np.iterable(estimator.hidden) or isinstance(estimator.hidden, str):
        raise TypeError(f"hidden must be a sequence of widths, got {estimator.hidden!r}.")
    for index, width in enumerate(estimator.hidden):
        _check_integer(f"hidden[{index}]", width, 1)
    if not 0 < estimator.validation_fraction < 1:
        raise ValueError(f"validation_fraction must be between 0 and 1, got {estimator.validation_fraction!r}.")


def _check_integer(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")
