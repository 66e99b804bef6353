"""Scaling of features, and missing values.

A missing value is replaced by several training values. The credal set is
the envelope of the credal sets of these fillings, without the widest
quarter if the model has a distance. A sound interval network uses the
range of the values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from creinn.interval import Interval

if TYPE_CHECKING:
    from creinn.credal.credal_set import CredalSet

Array = npt.NDArray[Any]

OUTLIER = 20  # interquartile ranges between the median and an outlier
MARGIN = 3  # standard deviations between the other values and a clipped outlier
FAR = 1e6  # standard deviations, the limit of new values
FILLS = 16  # fillings of a row
PLAUSIBLE = 12  # narrowest fillings, with a distance


class Scaling(NamedTuple):
    """Scaling to ``(x - mean) / scale``, clipped to ``[low, high]``."""

    mean: Any
    scale: Any
    low: Any
    high: Any

    def apply(self, values: Array) -> Array:
        """Scale the columns; NaN stays NaN."""
        with np.errstate(over="ignore"):
            return np.clip((values - self.mean) / self.scale, self.low, self.high)


def fit_scaling(rows: Array, weights: Array | None = None) -> tuple[Scaling, Array]:
    """Fit mean and standard deviation of each column, and count its outliers.

    Outliers are more than ``OUTLIER`` interquartile ranges from the
    median. They are not used for the fit, and are clipped ``MARGIN``
    standard deviations beyond all other values.

    Example:
        >>> scaling, outliers = fit_scaling(np.array([[1], [2], [3], [4], [1e30]]))
        >>> scaling.mean.tolist(), outliers.tolist()
        ([2.5], [1])
    """
    from sklearn.preprocessing import StandardScaler

    rows = np.asarray(rows, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        low, center, high = np.nanquantile(rows, [0.25, 0.5, 0.75], axis=0)
        limit = OUTLIER * (high - low)
        for k in np.flatnonzero(limit == 0):  # half of the values are equal: use the others
            column = rows[:, k]
            others = column[~np.isnan(column) & (column != center[k])]
            spread = np.subtract(*np.quantile(others, [0.75, 0.25])) if len(others) else 0
            limit[k] = OUTLIER * spread if spread > 0 else np.inf
        is_outlier = np.abs(rows - center) > limit
    inside = np.where(is_outlier, np.nan, rows)
    size = np.nanmax(np.abs(inside), axis=0)
    size[size == 0] = 1
    scaler = StandardScaler().fit(inside / size, sample_weight=weights)  # no square overflows
    scaling = Scaling(scaler.mean_ * size, scaler.scale_ * size, -FAR, FAR)
    scaled, outliers = scaling.apply(inside), is_outlier.sum(0)
    low = np.where(outliers > 0, np.nanmin(scaled, axis=0) - MARGIN, -FAR)
    high = np.where(outliers > 0, np.nanmax(scaled, axis=0) + MARGIN, FAR)
    return scaling._replace(low=low, high=high), outliers


@dataclass(frozen=True, eq=False)
class Missing:
    """Values for missing cells.

    Example:
        >>> x = torch.tensor([[0.0, 1.0], [1.0, float("nan")]])
        >>> missing = Missing.fit(x)
        >>> missing.intervals(torch.tensor([[float("nan"), 5.0]]))
        Interval(lower=tensor([[0., 5., 0.]]), upper=tensor([[1., 5., 0.]]))
    """

    low: Tensor  # smallest value of each feature
    high: Tensor  # largest value
    donors: Tensor  # (FILLS, features)
    marked: tuple[int, ...] = ()  # features with a missing indicator

    @classmethod
    def fit(cls, x: Tensor, widths: Sequence[int] | None = None, seed: int = 0) -> "Missing":
        """Fit the values; ``widths`` features are missing together."""
        generator = torch.Generator().manual_seed(seed)
        quantiles = (torch.arange(FILLS) + 0.5) / FILLS
        donors, marked, first = [], [], 0
        for group in x.split(list(widths) if widths is not None else 1, 1):
            known = group[~group[:, 0].isnan()]
            if len(known) < len(group):
                marked.append(first)
            first += group.shape[1]
            known = known if len(known) else torch.zeros_like(group[:1])
            keys = known.double() @ torch.arange(1.0, known.shape[1] + 1, dtype=torch.float64)
            chosen = known[keys.argsort(stable=True)[(quantiles * len(known)).long()]]
            donors.append(chosen[torch.randperm(FILLS, generator=generator)])
        low = x.nan_to_num(nan=torch.inf).amin(0).nan_to_num(posinf=0.0)
        high = x.nan_to_num(nan=-torch.inf).amax(0).nan_to_num(neginf=0.0)
        return cls(low, high, torch.cat(donors, 1), tuple(marked))

    @property
    def num_features(self) -> int:
        """Number of network inputs."""
        return len(self.low) + len(self.marked)

    def intervals(self, lower: Tensor, upper: Tensor | None = None) -> Interval:
        """Replace missing cells by the range of the training values."""
        gaps = lower.isnan()
        high = self._filled(lower if upper is None else upper, gaps, self.high)
        return Interval(self._filled(lower, gaps, self.low), high)

    def fills(self, x: Tensor) -> list[Tensor]:
        """Return all fillings."""
        return [self._filled(x, x.isnan(), donor) for donor in self.donors]

    def fill(self, x: Tensor, seed: int = 0) -> Tensor:
        """Fill rows at random."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(len(self.donors), (len(x),), generator=generator)
        return self._filled(x, x.isnan(), self.donors[drawn])

    def _filled(self, x: Tensor, gaps: Tensor, values: Tensor) -> Tensor:
        filled = torch.where(gaps, values.to(x.device, x.dtype), x)
        return torch.cat((filled, gaps[:, list(self.marked)].to(x.dtype)), 1)

    def predict(self, model: Any, x: Tensor | Interval, batch_size: int = 256) -> Any:
        """Predict rows, and enclose the predictions of their fillings.

        The label is that of the mean over the fillings, which is a member
        of the credal set and the prediction of models without credal sets.
        """
        if isinstance(x, Interval):
            return model.predict(x, batch_size)
        has_gaps = x.isnan().any(1)
        if not has_gaps.any():
            return model.predict(self.fill(x), batch_size)
        members = getattr(model, "members", [model])
        is_sound = all(getattr(m, "is_interval", False) and m.mode == "sound" for m in members)
        has_distance = all(getattr(m, "distance_radius", None) is not None for m in members)
        complete, gapped = torch.where(~has_gaps)[0], torch.where(has_gaps)[0]
        parts = [model.predict(self.fill(x[complete]), batch_size)] if len(complete) else []
        for rows in x[gapped].split(batch_size):
            fills = [model.predict(filled, batch_size) for filled in self.fills(rows)]
            if not hasattr(fills[0], "envelope"):  # no credal sets
                parts.append(type(fills[0]).mixture(fills))
            elif is_sound:
                box = model.predict(self.intervals(rows), batch_size)
                parts.append(box.with_label(_envelope(fills, len(fills)).label))
            else:
                parts.append(_envelope(fills, PLAUSIBLE if has_distance else len(fills)))
        order = torch.cat((complete, gapped)).argsort()
        return model.prediction_type.concatenate(parts)[order.to(parts[0].label.device)]

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON."""
        return {name: torch.as_tensor(value).tolist() for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Missing":
        """Invert :meth:`to_json`."""
        names = ("low", "high", "donors")
        low, high, donors = (torch.tensor(record[n], dtype=torch.float64) for n in names)
        return cls(low, high, donors, tuple(record["marked"]))


def _envelope(fills: "Sequence[CredalSet]", kept: int) -> "CredalSet":
    """Return the envelope of the ``kept`` narrowest sets."""
    every = type(fills[0]).concatenate(fills)
    count = len(fills[0])
    narrowest = every.width.mean(-1).reshape(-1, count).topk(kept, 0, largest=False).indices
    rows = torch.arange(count, device=narrowest.device)
    sets = [every[fill * count + rows] for fill in narrowest]
    mean = torch.stack([s.probabilities for s in sets]).mean(0)
    wide = every.envelope(sets).with_label(mean.argmax(-1))
    return wide.with_conformal(every.conformal).with_abstention(every.abstention)
