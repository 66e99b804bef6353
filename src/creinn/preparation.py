"""What an estimator does to rows before its network gets them: columns scaled, missing numbers dealt with.

In: points ``(n, features)`` with NaN where a number is missing, or lower and upper bounds. Out: inputs of a network to
train on, and credal sets. What was learnt from the training rows is plain JSON, so that a saved model can say it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.preprocessing import StandardScaler

from creinn.classifier import Inputs
from creinn.credal import CredalSet
from creinn.interval import Interval
from creinn.missing import Missing, predict
from creinn.saving import ESTIMATOR

Array = npt.NDArray[Any]
Bounds = Sequence[Array]
"""Points alone, or lower and upper bounds; NaN in points is a missing number."""


@dataclass(frozen=True, eq=False)
class Preparation:
    """One map for both bounds, and what missing numbers may be.

    Args:
        mean: What is taken from each column.
        scale: What it is then divided by.
        missing: Learnt from the scaled training rows.
    """

    mean: Array
    scale: Array
    missing: Missing

    @classmethod
    def learn(cls, bounds: Bounds, sample_weight: Array | None, standardize: bool, seed: int) -> "Preparation":
        """Learn from training rows.

        Raises:
            ValueError: If a column has no number at all, or numbers too large to be scaled.
        """
        rows = np.concatenate(bounds)
        _refuse(np.isnan(rows).all(0), "has no number in any row. Drop it.")
        mean, scale = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
        if standardize:
            weights = None if sample_weight is None else np.tile(sample_weight, len(bounds))
            with np.errstate(over="ignore", invalid="ignore"):
                scaler = StandardScaler().fit(rows, sample_weight=weights)
            mean, scale = scaler.mean_, scaler.scale_
            _refuse(~np.isfinite(mean + scale), "holds numbers too large to be scaled. Divide them first.")
        return cls(mean, scale, Missing.learn(_scaled(rows, mean, scale, torch.float32), seed=seed))

    def scaled(self, bounds: Bounds, dtype: torch.dtype) -> Inputs:
        """Scaled points or intervals; what is missing is still missing."""
        tensors = [_scaled(bound, self.mean, self.scale, dtype) for bound in bounds]
        return tensors[0] if len(tensors) == 1 else Interval(*tensors)

    def completed(self, bounds: Bounds, seed: int) -> Inputs:
        """Inputs to train on, in single precision."""
        x = self.scaled(bounds, torch.float32)
        return x if isinstance(x, Interval) else self.missing.fill(x, seed)

    def predict(self, model: Any, bounds: Bounds, batch_size: int) -> CredalSet:
        """Credal sets, in the precision of the model; the more is missing in a row, the wider."""
        x = self.scaled(bounds, next(model.parameters()).dtype)
        if isinstance(x, Interval):
            x = self.missing.intervals(x.lower, x.upper)
        prediction: CredalSet = predict(model, x, self.missing, batch_size)
        return prediction

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        scaler = {"mean": self.mean.tolist(), "scale": self.scale.tolist()}
        return {"kind": ESTIMATOR, "scaler": scaler, "missing": self.missing.to_json()}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Preparation":
        """What :meth:`to_json` wrote."""
        mean, scale = (np.array(record["scaler"][name], dtype=np.float64) for name in ("mean", "scale"))
        return cls(mean, scale, Missing.from_json(record["missing"]))


def _scaled(bound: Array, mean: Array, scale: Array, dtype: torch.dtype) -> torch.Tensor:
    scaled = np.array(bound)
    scaled -= mean
    scaled /= scale
    return torch.from_numpy(scaled).to(dtype)


def _refuse(bad: Array, why: str) -> None:
    if bad.any():
        raise ValueError(f"Column {int(np.flatnonzero(bad)[0])} of X {why}")
