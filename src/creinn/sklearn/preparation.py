"""Preparation of the rows for an estimator: encoding, scaling and missing values.

The rows are points ``(n, features)`` with NaN for missing numbers, lower and upper bounds, or a
data frame with texts, categories, booleans or dates, which is encoded as on the command line.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)
from torch import Tensor

from creinn.credal.credal_set import CredalSet
from creinn.data.features import Array, Missing, Scaling, fit_scaling
from creinn.interval import Interval
from creinn.numerics import pluralize
from creinn.saving import ESTIMATOR

if TYPE_CHECKING:  # pandas is imported for data frames only
    from creinn.data.encoder import TableEncoder
    from creinn.data.table import Table

Rows = Sequence[Any]
"""Points or a data frame, or lower and upper bounds."""
MIN_ROWS = 60
"""The number of rows from which ``early_stopping="auto"`` holds out a part of them."""
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "boolean", "empty")


@dataclass(frozen=True, eq=False)
class Preparation:
    """Encoder of a data frame or scaling of numbers, and values for missing cells."""

    encoder: "TableEncoder | None"
    scaling: Scaling | None
    missing: Missing  # fitted to the encoded or scaled rows

    @classmethod
    def fit(cls, rows: Rows, weights: Array, seed: int) -> tuple["Preparation", list[str]]:
        """Fit the preparation to the training rows, and return notes on the columns."""
        if is_mixed_frame(rows[0]):
            encoder, notes = _fit_encoder(rows[0])
            (features,), _ = encoder.encode([_table(rows[0])])
            values = Missing.fit(features, encoder.widths, seed)
            return cls(encoder, None, values), notes
        both = np.concatenate(rows)
        is_empty = np.isnan(both).all(0)
        if is_empty.any():
            found = f"Column {int(is_empty.argmax())} of X has no number in any row"
            raise ValueError(f"{found}. Drop this column.")
        scaling, outliers = fit_scaling(both, np.tile(weights, len(rows)))
        notes = [
            f"X, column {column}: {pluralize(int(outliers[column]), 'outlier')}, not used for mean "
            "and standard deviation, and clipped"
            for column in np.flatnonzero(outliers)
        ]
        scaled = torch.from_numpy(scaling.apply(both)).float()
        return cls(None, scaling, Missing.fit(scaled, seed=seed)), notes

    def apply(self, rows: Rows, dtype: torch.dtype) -> Tensor | Interval:
        """Return the encoded or scaled points or intervals, with NaN for missing values."""
        if self.encoder is not None:
            (features,), _ = self.encoder.encode([_table(rows[0])])
            return features.to(dtype)
        assert self.scaling is not None
        sides = [torch.from_numpy(self.scaling.apply(side)).to(dtype) for side in rows]
        return sides[0] if len(sides) == 1 else Interval(*sides)

    def apply_for_training(self, rows: Rows, seed: int) -> Tensor | Interval:
        """Return the inputs of the training, in which missing values are filled."""
        x = self.apply(rows, torch.float32)
        return x if isinstance(x, Interval) else self.missing.fill(x, seed)

    def predict(self, model: Any, rows: Rows) -> CredalSet:
        """Predict credal sets in the precision of the model."""
        x = self.apply(rows, next(model.parameters()).dtype)
        if isinstance(x, Interval):
            x = self.missing.intervals(x.lower, x.upper)
        return self.missing.predict(model, x, batch_size=4096)

    def to_json(self) -> dict[str, Any]:
        """Return the preparation as plain JSON, for a saved model."""
        scaling = self.scaling and {k: part.tolist() for k, part in self.scaling._asdict().items()}
        columns = self.encoder and self.encoder.to_json()
        missing = self.missing.to_json()
        return {"kind": ESTIMATOR, "scaler": scaling, "columns": columns, "missing": missing}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Preparation":
        """Return the preparation of a record of :meth:`to_json`."""
        encoder, scaling = None, None
        if record["columns"] is not None:
            from creinn.data.encoder import TableEncoder

            encoder = TableEncoder.from_json(record["columns"])
        else:
            parts = {name: np.array(part, dtype=float) for name, part in record["scaler"].items()}
            scaling = Scaling(**parts)
        return cls(encoder, scaling, Missing.from_json(record["missing"]))


def is_frame(table: Any) -> bool:
    """Return whether a table is a data frame of pandas."""
    return "pandas" in sys.modules and isinstance(table, sys.modules["pandas"].DataFrame)


def is_mixed_frame(table: Any) -> bool:
    """Return whether a table is a data frame with a column that is not numeric."""
    if not is_frame(table):
        return False
    import pandas as pd

    return not all(
        pd.api.types.infer_dtype(column, skipna=True) in _NUMBERS
        if column.dtype == object
        else pd.api.types.is_numeric_dtype(column.dtype)
        for _, column in table.items()
    )


def _fit_encoder(frame: Any) -> tuple["TableEncoder", list[str]]:
    from creinn.data.encoder import TableEncoder

    for name, dtype in frame.dtypes.items():
        if dtype.kind == "m":
            advice = "Convert it to a number, for example with .dt.total_seconds()"
            raise ValueError(f"Column {name!r} of X is of type {dtype}. {advice}.")
    categories = [name for name, dtype in frame.dtypes.items() if str(dtype) == "category"]
    try:
        return TableEncoder.fit([_table(frame)], None, categorical=categories)
    except ValueError as error:
        advice = "pandas.to_datetime(column, dayfirst=True), to_numeric or .astype('category')"
        raise ValueError(f"{error} In a data frame, convert the column with {advice}.") from error


def _table(frame: Any) -> "Table":
    """Convert a data frame to a table, in which texts are not marks of missing values."""
    if not is_frame(frame):
        raise TypeError("X must be a data frame with named columns, as in fit.")
    from creinn.data.table import Reading, Table, as_cells

    cells = frame.reset_index(drop=True).apply(as_cells)
    return Table("X", cells, Reading(missing=(), separator=","))


def _fill_masked(table: Any) -> Any:
    """Return a masked array with NaN for masked entries. Other tables are unchanged."""
    if isinstance(table, np.ma.MaskedArray):
        return np.ma.filled(table.astype(np.result_type(table.dtype, np.float32)), np.nan)
    return table


def check_labels(y: Any) -> None:
    """Check that there are no missing labels, such as NaN, ``None`` or ``pandas.NA``."""
    if y is None or (isinstance(y, np.ndarray) and y.dtype.kind in "iubU"):
        return
    import pandas as pd

    missing = np.asarray(pd.isna(y))
    if missing.any():
        found = f"{missing.sum()} of {missing.size} labels, the first in row {missing.argmax()}"
        raise ValueError(f"Input y contains missing values: {found}. Drop these rows from X and y.")


def validate_rows(estimator: Any, X: Any, is_mixed: bool, **options: Any) -> tuple[Rows, Any]:
    """Validate the rows, and the labels if ``y`` is given."""
    has_labels = "y" in options
    if is_mixed:
        checked = validate_data(estimator, X, skip_check_array=True, **options)
        labels = checked[1] if has_labels else None
        if has_labels and not options["multi_output"]:
            labels = column_or_1d(labels, warn=True)
        check_consistent_length(X, labels)
        return [X], labels
    first = X.lower.detach().cpu().numpy() if isinstance(X, Interval) else _fill_masked(X)
    options |= {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
    checked = validate_data(estimator, first, **options)
    side, labels = checked if has_labels else (checked, None)
    if isinstance(X, Interval):
        return [side, check_array(X.upper.detach().cpu().numpy(), dtype=side.dtype)], labels
    return [side], labels


def class_frequencies(targets: Array, weights: Array, classes: int) -> Array:
    """Sum the weights of each class, for classes ``(n,)`` or distributions ``(n, K)``."""
    if targets.ndim == 2:
        return weights @ targets
    return np.bincount(targets, weights, minlength=classes)


def weigh_classes(
    class_weight: Any, classes: Array, targets: Array, weights: Array
) -> tuple[Array, Array]:
    """Return the targets and the weights of the rows, times the weights of the classes."""
    if isinstance(class_weight, str):  # "balanced", for weighted rows
        counts = class_frequencies(targets, weights, len(classes))
        by_class = counts.sum() / (len(counts) * np.maximum(counts, 1e-12))
    else:
        by_class = compute_class_weight(class_weight, classes=classes, y=classes)
    for label, weight in zip(classes.tolist(), by_class.tolist(), strict=True):
        if not 0 < weight < np.inf:
            found = f"the weight of class {label!r} must be positive, got {weight}"
            raise ValueError(f"class_weight: {found}.")
    if targets.ndim == 1:
        return targets, by_class[targets] * weights
    weighted = targets * by_class
    by_row = weighted.sum(1)
    return weighted / by_row[:, None], by_row * weights


def held_out_rows(early_stopping: Any, targets: Array, kind: str, seed: int) -> Array:
    """Return a mask of the held-out rows, which are stratified by class.

    ``"auto"`` holds out no rows for an interval network, of few rows, or of small classes.
    """
    labels = targets if targets.ndim == 1 else targets.argmax(1)
    is_number = not isinstance(early_stopping, bool | np.bool_ | str)
    fraction = float(early_stopping) if is_number else 1 / 6
    rows, held_out = np.arange(len(labels)), np.zeros(len(labels), bool)
    if early_stopping == "auto":
        rows = rows[np.bincount(labels)[labels] * fraction >= 1]
    is_few = early_stopping == "auto" and (kind == "interval" or len(rows) < MIN_ROWS)
    if early_stopping and not is_few:
        from sklearn.model_selection import train_test_split

        options = {"test_size": fraction, "random_state": seed, "stratify": labels[rows]}
        held_out[train_test_split(rows, **options)[1]] = True
    return held_out


def plain(value: Any) -> Any:
    """Convert a value to a Python value, in which a mapping is a list of pairs."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return [[plain(key), plain(entry)] for key, entry in value.items()]
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value
