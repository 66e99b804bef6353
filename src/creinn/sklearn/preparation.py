"""Preparation of the rows for an estimator: encoding, scaling and missing values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_array, check_consistent_length, column_or_1d, compute_class_weight
from sklearn.utils.validation import validate_data
from torch import Tensor

from creinn.credal.credal_set import CredalSet
from creinn.data.encoder import TableEncoder
from creinn.data.features import Array, Missing, Scaling, fit_scaling
from creinn.data.table import Reading, Table, as_cells
from creinn.interval import Interval
from creinn.numerics import pluralize
from creinn.saving import ESTIMATOR

Rows = Sequence[Any]
"""Points with NaN for missing numbers, lower and upper bounds, or a mixed data frame."""
MIN_ROWS = 60
"""Smallest number of rows for ``early_stopping="auto"``."""
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "boolean", "empty")


@dataclass(frozen=True, eq=False)
class Preparation:
    """Encoder of a data frame or scaling of numbers, and values for missing cells."""

    encoder: TableEncoder | None
    scaling: Any  # a Scaling if there is no encoder
    missing: Missing

    @classmethod
    def fit(cls, rows: Rows, weights: Array, seed: int) -> tuple["Preparation", list[str]]:
        """Fit the preparation and return notes about the columns."""
        if is_mixed_frame(rows[0]):
            encoder, notes = _fit_encoder(rows[0])
            return cls(encoder, None, encoder.missing), notes
        both = np.concatenate(rows)
        if (is_empty := np.isnan(both).all(0)).any():
            raise ValueError(f"Column {is_empty.argmax()} of X has no number. Drop this column.")
        scaling, outliers = fit_scaling(both, np.tile(weights, len(rows)))
        counts = {k: pluralize(int(n), "outlier") for k, n in enumerate(outliers) if n}
        notes = [f"X, column {k}: {count}, clipped" for k, count in counts.items()]
        scaled = torch.from_numpy(scaling.apply(both)).float()
        return cls(None, scaling, Missing.fit(scaled, seed=seed)), notes

    def apply(self, rows: Rows, dtype: torch.dtype) -> Tensor | Interval:
        """Return the encoded or scaled inputs, with NaN for missing values."""
        if self.encoder is not None:
            return self.encoder.encode([_table(rows[0])])[0].to(dtype)
        sides = [torch.from_numpy(self.scaling.apply(side)).to(dtype) for side in rows]
        return sides[0] if len(sides) == 1 else Interval(*sides)

    def apply_for_training(self, rows: Rows, seed: int) -> Tensor | Interval:
        """Return the inputs of the training without missing values."""
        x = self.apply(rows, torch.float32)
        return x if isinstance(x, Interval) else self.missing.fill(x, seed)

    def predict(self, model: Any, rows: Rows) -> CredalSet:
        """Predict credal sets in the precision of the model."""
        x = self.apply(rows, next(model.parameters()).dtype)
        if isinstance(x, Interval):
            x = self.missing.intervals(x.lower, x.upper)
        return self.missing.predict(model, x, batch_size=4096)

    def to_json(self) -> dict[str, Any]:
        """Return the preparation as plain JSON."""
        if self.encoder is not None:
            return {"kind": ESTIMATOR, "table": self.encoder.to_json()}
        scaling = {name: plain(part) for name, part in self.scaling._asdict().items()}
        return {"kind": ESTIMATOR, "scaler": scaling, "missing": self.missing.to_json()}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Preparation":
        """Return the preparation of a :meth:`to_json` record."""
        if "table" in record:
            encoder = TableEncoder.from_json(record["table"])
            return cls(encoder, None, encoder.missing)
        scaling = Scaling(**{name: np.array(part) for name, part in record["scaler"].items()})
        return cls(None, scaling, Missing.from_json(record["missing"]))


def is_mixed_frame(table: Any) -> bool:
    """Return whether a table is a data frame with a column that is not numeric."""
    if not isinstance(table, pd.DataFrame):
        return False
    columns = table.select_dtypes(exclude=["number", "bool"])
    kinds = (pd.api.types.infer_dtype(column, skipna=True) for _, column in columns.items())
    return any(kind not in _NUMBERS for kind in kinds)


def _fit_encoder(frame: pd.DataFrame) -> tuple[TableEncoder, list[str]]:
    if spans := list(frame.select_dtypes("timedelta")):
        raise ValueError(f"X has time differences in {spans}. Use .dt.total_seconds().")
    try:
        categories = list(frame.select_dtypes("category"))
        return TableEncoder.fit([_table(frame)], None, categorical=categories)
    except ValueError as error:
        advice = "pandas.to_datetime(column, dayfirst=True), to_numeric or .astype('category')"
        raise ValueError(f"{error} Convert the column with {advice}.") from error


def _table(frame: Any) -> Table:
    """Convert a data frame to a table where texts are never missing values."""
    if not isinstance(frame, pd.DataFrame):
        raise TypeError("X must be a data frame, as in fit.")
    cells = frame.reset_index(drop=True).apply(as_cells)
    return Table("X", cells, Reading(missing=(), separator=","))


def check_labels(y: Any) -> None:
    """Check that no label is missing, such as NaN, ``None`` or ``pandas.NA``."""
    missing = np.asarray(pd.isna(y))
    if y is not None and missing.any():
        found = f"{missing.sum()} of {missing.size} labels, the first in row {missing.argmax()}"
        raise ValueError(f"Input y contains missing values: {found}. Drop these rows.")


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
    first = X.lower.detach().cpu().numpy() if isinstance(X, Interval) else X
    if isinstance(first, np.ma.MaskedArray):
        first = np.ma.filled(first.astype(np.result_type(first.dtype, np.float32)), np.nan)
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
    """Multiply the weights of the rows by the weights of the classes."""
    if isinstance(class_weight, str):  # "balanced", for weighted rows
        counts = class_frequencies(targets, weights, len(classes))
        by_class = counts.sum() / (len(counts) * np.maximum(counts, 1e-12))
    else:
        by_class = compute_class_weight(class_weight, classes=classes, y=classes)
    if not (np.isfinite(by_class) & (by_class > 0)).all():
        found = dict(zip(classes.tolist(), by_class.tolist(), strict=True))
        raise ValueError(f"class_weight must be positive and finite, got {found}.")
    if targets.ndim == 1:
        return targets, by_class[targets] * weights
    weighted = targets * by_class
    by_row = weighted.sum(1)
    return weighted / by_row[:, None], by_row * weights


def held_out_rows(early_stopping: Any, targets: Array, kind: str, seed: int) -> Array:
    """Return a mask of the held-out rows, stratified by class.

    If ``"auto"``, the mask is empty for interval networks and if there are
    few rows.
    """
    labels = targets if targets.ndim == 1 else targets.argmax(1)
    fraction = 1 / 6 if early_stopping in ("auto", True, False) else float(early_stopping)
    rows, held_out = np.arange(len(labels)), np.zeros(len(labels), bool)
    if early_stopping == "auto":
        rows = rows[np.bincount(labels)[labels] * fraction >= 1]  # not of small classes
        early_stopping = kind == "point" and len(rows) >= MIN_ROWS
    if early_stopping:
        from sklearn.model_selection import train_test_split

        options = {"test_size": fraction, "random_state": seed, "stratify": labels[rows]}
        held_out[train_test_split(rows, **options)[1]] = True
    return held_out


def plain(value: Any) -> Any:
    """Convert a value to plain Python; a mapping is a list of pairs."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return [plain(pair) for pair in value.items()]
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value
