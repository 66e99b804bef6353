"""Prepare rows for the network of an estimator: encode columns, scale numbers, fill missing ones.

In: points ``(n, features)`` with NaN where a number is missing, lower and upper bounds, or a data
frame with texts, categories or dates, which is encoded as tables on the command line are. Out:
inputs of a network, and credal sets. The state is saved as plain JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from creinn.classifier.base import Inputs
from creinn.credal.credal_set import CredalSet
from creinn.data.columns import Array, Scaling, fit_scaling
from creinn.data.encoder import TableEncoder
from creinn.data.missing import Missing
from creinn.data.table import Reading, Table
from creinn.interval import Interval
from creinn.saving import ESTIMATOR

LARGEST = 1e15


def identity(columns: int) -> Scaling:
    """Return the scaling that does not change numbers up to ``LARGEST``."""
    zeros, ones = np.zeros(columns), np.ones(columns)
    return Scaling(zeros, ones, ones * -LARGEST, ones * LARGEST)


Bounds = Sequence[Array]
"""Points alone, or lower and upper bounds; NaN in points is a missing number."""
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "boolean", "empty")


@dataclass(frozen=True, eq=False)
class Preparation:
    """One scaling for both bounds, and the values that missing numbers may have."""

    scaling: Scaling
    missing: Missing  # learnt from the scaled training rows

    @classmethod
    def learn(
        cls,
        bounds: Bounds,
        weights: Array,
        standardize: bool,
        seed: int,
        widths: Sequence[int] | None = None,
    ) -> "Preparation":
        """Learn from training rows; ``widths`` are those of encoded columns, scaled already.

        Raises:
            ValueError: If a column has no number, or numbers too large without standardisation.
        """
        rows = np.concatenate(bounds)
        _check(~np.isnan(rows).all(0), "has no number in any row. Drop it.")
        scaling = identity(rows.shape[1])
        if standardize and widths is None:
            scaling, _ = fit_scaling(rows, np.tile(weights, len(bounds)))
        elif widths is None:
            small = ~(np.abs(rows) > LARGEST).any(0)
            _check(small, f"holds numbers beyond {LARGEST:g}. Set standardize=True.")
        scaled = torch.from_numpy(scaling.apply(rows)).float()
        return cls(scaling, Missing.fit(scaled, widths, seed=seed))

    def scaled(self, bounds: Bounds, dtype: torch.dtype) -> Inputs:
        """Scaled points or intervals, NaN where missing."""
        sides = [torch.from_numpy(self.scaling.apply(bound)).to(dtype) for bound in bounds]
        return sides[0] if len(sides) == 1 else Interval(*sides)

    def completed(self, bounds: Bounds, seed: int) -> Inputs:
        """Training inputs in single precision, without missing numbers."""
        x = self.scaled(bounds, torch.float32)
        return x if isinstance(x, Interval) else self.missing.fill(x, seed)

    def predict(self, model: Any, bounds: Bounds) -> CredalSet:
        """Credal sets in the precision of the model; missing numbers widen them."""
        x = self.scaled(bounds, next(model.parameters()).dtype)
        if isinstance(x, Interval):
            x = self.missing.intervals(x.lower, x.upper)
        prediction = self.missing.predict(model, x, batch_size=4096)
        assert isinstance(prediction, CredalSet)
        return prediction

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for a saved model."""
        scaler = {name: part.tolist() for name, part in self.scaling._asdict().items()}
        return {"kind": ESTIMATOR, "scaler": scaler, "missing": self.missing.to_json()}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Preparation":
        """Preparation that :meth:`to_json` wrote."""
        scaler = {name: np.array(part, dtype=float) for name, part in record["scaler"].items()}
        return cls(Scaling(**scaler), Missing.from_json(record["missing"]))


def is_mixed_frame(table: Any) -> bool:
    """Whether a table is a data frame in which some column holds no numbers."""
    if not isinstance(table, pd.DataFrame):
        return False
    return not all(_is_numeric(column) for _, column in table.items())


def learn_frame(frame: pd.DataFrame, standardize: bool) -> tuple[TableEncoder, list[str]]:
    """Learn the columns of a data frame; also returns notes on what was detected.

    Raises:
        ValueError: If a column is ambiguous, or its type cannot be encoded.
    """
    for name, dtype in frame.dtypes.items():
        if dtype.kind == "m":
            advice = "Convert it to a number, for example with .dt.total_seconds()"
            raise ValueError(f"Column {name!r} of X is of type {dtype}. {advice}.")
    categories = [name for name, dtype in frame.dtypes.items() if str(dtype) == "category"]
    if not standardize:
        advice = "Set standardize=True, or encode these columns first"
        raise ValueError(f"standardize=False is for tables of numbers only. {advice}.")
    return TableEncoder.fit([_table(frame)], None, categorical=categories)


def encode_frame(encoder: TableEncoder, frame: Any) -> Array:
    """Features of a data frame, NaN where a cell is missing."""
    if not isinstance(frame, pd.DataFrame):
        raise TypeError("X must be a data frame with named columns, as in fit.")
    (features,), _ = encoder.encode([_table(frame)])
    return features.astype(np.float64)


def _table(frame: pd.DataFrame) -> Table:
    """Cells as a table; only NaN, ``None`` and NaT are missing."""
    cells = {
        name: column.map(str, na_action="ignore").astype(object) if _is_text(column) else column
        for name, column in frame.reset_index(drop=True).items()
    }
    return Table("X", pd.DataFrame(cells), Reading(missing=(), separator=","))


def _is_text(column: pd.Series) -> bool:
    return pd.api.types.is_string_dtype(column.dtype) or column.dtype == object


def _is_numeric(column: pd.Series) -> bool:
    if column.dtype == object:
        return pd.api.types.infer_dtype(column, skipna=True) in _NUMBERS
    return pd.api.types.is_numeric_dtype(column.dtype)


def as_numbers(table: Any) -> Any:
    """A masked array with NaN for masked entries; other tables are unchanged."""
    if isinstance(table, np.ma.MaskedArray):
        return np.ma.filled(table.astype(np.result_type(table.dtype, np.float32)), np.nan)
    return table


def check_no_missing_labels(y: Any) -> None:
    """Raise a ``ValueError`` with the number of labels that are NaN, ``None`` or ``pandas.NA``."""
    missing = np.asarray(pd.isna(y))
    if y is not None and missing.any():
        first = int(np.flatnonzero(missing)[0])
        raise ValueError(
            f"Input y contains missing values: {missing.sum()} of {missing.size} labels, the first "
            f"in row {first}. Drop these rows from X and y."
        )


def _check(is_good: Array, why: str) -> None:
    if not is_good.all():
        raise ValueError(f"Column {int((~is_good).argmax())} of X {why}")
