"""What an estimator does to rows before its network gets them: columns scaled, missing numbers dealt with.

In: points ``(n, features)`` with NaN where a number is missing, or lower and upper bounds. Out: inputs of a network,
and credal sets. What was learnt from the training rows can be written as plain JSON, for a saved model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.preprocessing import StandardScaler

from creinn.classifier.base import Inputs
from creinn.credal.credal_set import CredalSet
from creinn.data.missing import Missing, predict
from creinn.interval import Interval
from creinn.saving import ESTIMATOR

Array = npt.NDArray[Any]
Bounds = Sequence[Array]
"""Points alone, or lower and upper bounds; NaN in points is a missing number."""
FAR = 1e6  # widths of the training range beyond which it does not matter how far away a number is
LARGEST = 1e15  # larger numbers have squares that single precision hardly holds


@dataclass(frozen=True, eq=False)
class Preparation:
    """One map for both bounds, and what missing numbers may be."""

    mean: Array  # is taken from each column
    scale: Array  # by which it is then divided
    missing: Missing  # learnt from the scaled training rows

    @classmethod
    def learn(cls, bounds: Bounds, weights: Array, standardize: bool, seed: int) -> "Preparation":
        """Learn from training rows; refuses columns without a number, or of numbers too large to be scaled."""
        rows = np.concatenate(bounds)
        _refuse(np.isnan(rows).all(0), "has no number in any row. Drop it.")
        if standardize:
            mean, scale = _moments(rows, np.tile(weights, len(bounds)))
            _refuse(~np.isfinite(mean + scale), "spans more than numbers can. Divide it first.")
        else:
            mean, scale = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
            _refuse(
                (np.abs(rows) > LARGEST).any(0),
                f"holds numbers beyond {LARGEST:g}. Set standardize=True.",
            )
        return cls(
            mean,
            scale,
            Missing.learn(torch.from_numpy(_scaled(rows, mean, scale)).float(), seed=seed),
        )

    def scaled(self, bounds: Bounds, dtype: torch.dtype) -> Inputs:
        """Scaled points or intervals, NaN where missing; what is farther away than ``FAR`` is taken as that far."""
        low, high = self.missing.low.double(), self.missing.high.double()
        far = FAR * (high - low).clamp_min(1)
        sides = [torch.from_numpy(_scaled(bound, self.mean, self.scale)) for bound in bounds]
        sides = [
            side.clamp((low - far).to(side.dtype), (high + far).to(side.dtype)).to(dtype)
            for side in sides
        ]
        return sides[0] if len(sides) == 1 else Interval(*sides)

    def completed(self, bounds: Bounds, seed: int) -> Inputs:
        """Inputs to train on, in single precision."""
        x = self.scaled(bounds, torch.float32)
        return x if isinstance(x, Interval) else self.missing.fill(x, seed)

    def predict(self, model: Any, bounds: Bounds) -> CredalSet:
        """Credal sets, in the precision of the model; the more is missing in a row, the wider."""
        x = self.scaled(bounds, next(model.parameters()).dtype)
        if isinstance(x, Interval):
            x = self.missing.intervals(x.lower, x.upper)
        prediction = predict(model, x, self.missing, batch_size=4096)
        assert isinstance(prediction, CredalSet)
        return prediction

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for a saved model."""
        scaler = {"mean": self.mean.tolist(), "scale": self.scale.tolist()}
        return {"kind": ESTIMATOR, "scaler": scaler, "missing": self.missing.to_json()}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Preparation":
        """What :meth:`to_json` wrote."""
        mean, scale = (
            np.array(record["scaler"][name], dtype=np.float64) for name in ("mean", "scale")
        )
        return cls(mean, scale, Missing.from_json(record["missing"]))


def as_numbers(table: Any) -> Any:
    """A table whose masked entries are NaN; refuses columns that are categories, texts or times, if pandas says so."""
    if isinstance(table, np.ma.MaskedArray):
        return np.ma.filled(table.astype(np.result_type(table.dtype, np.float32)), np.nan)
    for name, dtype in (
        table.dtypes.items() if hasattr(table, "iloc") and hasattr(table, "columns") else ()
    ):
        if str(dtype) in ("category", "str", "string") or dtype.kind in "mM":
            raise ValueError(
                f"Column {name!r} of X is of type {dtype}, not numbers. Encode it first."
            )
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


def _moments(rows: Array, weights: Array) -> tuple[Array, Array]:
    """Mean and deviation of what is known, by way of the range, so that no square overflows; 1 if it is constant."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = (end(rows, axis=0).astype(np.float64) for end in (np.nanmin, np.nanmax))
        span = np.where(high > low, high - low, 1)
        parts = StandardScaler().fit((rows - low) / span, sample_weight=weights)
        scale = span * np.sqrt(parts.var_)
        noise = np.finfo(rows.dtype).eps * np.maximum(abs(low), abs(high))
        return low + span * parts.mean_, np.where(scale > noise, scale, 1)


def _scaled(bound: Array, mean: Array, scale: Array) -> Array:
    scaled = np.array(bound)
    with np.errstate(over="ignore"):
        scaled -= mean
        scaled /= scale
    return scaled


def _refuse(bad: Array, why: str) -> None:
    if bad.any():
        raise ValueError(f"Column {int(np.flatnonzero(bad)[0])} of X {why}")
