"""Standardise columns of numbers; outliers of the training rows neither shift nor scale them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.preprocessing import StandardScaler

Array = npt.NDArray[Any]

OUTLIER = 20  # interquartile ranges from the median beyond which training values are outliers
MARGIN = 3  # standard deviations beyond all others at which a column with outliers is clipped
FAR = 1e6  # standard deviations beyond which new values are clipped
LARGEST = 1e15  # limit without standardisation; larger squares nearly overflow in float32


class Scaling(NamedTuple):
    """Maps ``x`` to ``(x - mean) / scale``, clipped to ``[low, high]``; one entry per column."""

    mean: Array
    scale: Array
    low: Array
    high: Array

    def apply(self, values: Array) -> Array:
        """Scaled columns in double precision; NaN stays NaN."""
        with np.errstate(over="ignore"):
            return np.clip((values - self.mean) / self.scale, self.low, self.high)


def identity(columns: int) -> Scaling:
    """The scaling that changes no value below ``LARGEST``."""
    zeros, ones = np.zeros(columns), np.ones(columns)
    return Scaling(zeros, ones, ones * -LARGEST, ones * LARGEST)


def learn_scaling(rows: Array, weights: Array | None = None) -> tuple[Scaling, Array]:
    """Mean and standard deviation of each column, and its number of outliers.

    Outliers, more than ``OUTLIER`` interquartile ranges away from the median, are left out of mean
    and deviation, and the column is clipped ``MARGIN`` deviations beyond all other training values.
    Missing numbers are NaN.

    Example:
        >>> scaling, outliers = learn_scaling(np.array([[1.0], [2.0], [3.0], [4.0], [1e30]]))
        >>> scaling.mean.tolist(), outliers.tolist()
        ([2.5], [1])
    """
    frame = pd.DataFrame(rows, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        low, center, high = frame.quantile([0.25, 0.5, 0.75]).to_numpy()
        limit = OUTLIER * (high - low)
        for k in np.flatnonzero(limit == 0):  # most values are equal: the others decide
            others = frame[k][frame[k].notna() & (frame[k] != center[k])]
            spread = np.subtract(*others.quantile([0.75, 0.25]))
            limit[k] = OUTLIER * spread if spread > 0 else np.inf
        inside = frame.where(~((frame - center).abs() > limit)).to_numpy()
    outliers = (np.isnan(inside) & frame.notna().to_numpy()).sum(0)
    size = np.nanmax(np.abs(inside), axis=0)
    size[size == 0] = 1
    scaler = StandardScaler().fit(inside / size, sample_weight=weights)  # no square overflows
    mean, scale = scaler.mean_ * size, scaler.scale_ * size
    with np.errstate(over="ignore"):
        within = (inside - mean) / scale
    low = np.where(outliers > 0, np.nanmin(within, axis=0) - MARGIN, -FAR)
    high = np.where(outliers > 0, np.nanmax(within, axis=0) + MARGIN, FAR)
    return Scaling(mean, scale, low, high), outliers
