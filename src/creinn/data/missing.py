"""Missing numbers (NaN), taken for all the values they might have: predictions grow wider with what is missing.

A cell is filled in turn with values of the training rows, and the credal set of the row is the envelope of the sets of
all fillings; where sets grow with the distance from the training data, without the quarter that is farthest. A sound
interval network takes the training range instead; others make narrow sets around the wrong class of such wide inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.base import Inputs, Prediction
from creinn.credal.credal_set import CredalSet
from creinn.interval import Interval

FILLS = 16
PLAUSIBLE = (
    12  # of them; the others fit the rest of the row least, by the distance from the training data
)


@dataclass(frozen=True, eq=False)
class Missing:
    """What training rows say about cells that are missing in other rows.

    Example:
        >>> x = torch.tensor([[0.0, 1.0], [1.0, float("nan")]])
        >>> missing = Missing.learn(x)
        >>> missing.intervals(torch.tensor([[float("nan"), 5.0]]))
        Interval(lower=tensor([[0., 5., 0.]]), upper=tensor([[1., 5., 0.]]))
    """

    low: Tensor  # least value of each feature
    high: Tensor  # greatest value of each feature
    donors: (
        Tensor  # to fill in, (FILLS, features); each column's are spread over its training values
    )
    marked: tuple[
        int, ...
    ] = ()  # missing in training; each adds a feature that is 1 where the cell is missing

    @classmethod
    def learn(cls, x: Tensor, widths: Sequence[int] | None = None, seed: int = 0) -> "Missing":
        """Learn from training rows; ``widths`` successive features, by default one, are missing together."""
        generator = torch.Generator().manual_seed(seed)
        donors, marked, at = [], [], 0
        for group in x.split(list(widths) if widths is not None else 1, 1):
            known = group[~group[:, 0].isnan()]
            if len(known) < len(group):
                marked.append(at)
            at += group.shape[1]
            known = known if len(known) else torch.zeros_like(group[:1])
            keys = known.double() @ torch.arange(1.0, known.shape[1] + 1, dtype=torch.float64)
            spread = ((torch.arange(FILLS) + 0.5) / FILLS * len(known)).long()
            donors.append(
                known[keys.argsort(stable=True)[spread]][torch.randperm(FILLS, generator=generator)]
            )
        low = x.nan_to_num(nan=torch.inf).amin(0).nan_to_num(posinf=0.0)
        high = x.nan_to_num(nan=-torch.inf).amax(0).nan_to_num(neginf=0.0)
        return cls(low, high, torch.cat(donors, 1), tuple(marked))

    @property
    def num_features(self) -> int:
        """Number of features that a network gets."""
        return len(self.low) + len(self.marked)

    def intervals(self, lower: Tensor, upper: Tensor | None = None) -> Interval:
        """Rows, or bounds that lack the same cells, with the training range where a cell is missing."""
        gaps = lower.isnan()
        high = self._filled(lower if upper is None else upper, gaps, self.high)
        return Interval(self._filled(lower, gaps, self.low), high)

    def fills(self, x: Tensor) -> list[Tensor]:
        """Complete copies of rows, one for each donor."""
        gaps = x.isnan()
        return [self._filled(x, gaps, donor) for donor in self.donors]

    def fill(self, x: Tensor, seed: int = 0) -> Tensor:
        """Rows to train on, each completed by a donor at random; complete rows as they are."""
        drawn = torch.randint(
            len(self.donors), (len(x),), generator=torch.Generator().manual_seed(seed)
        )
        return self._filled(x, x.isnan(), self.donors[drawn])

    def _filled(self, x: Tensor, gaps: Tensor, values: Tensor) -> Tensor:
        filled = torch.where(gaps, values.to(x.device, x.dtype), x)
        return (
            torch.cat((filled, gaps[:, list(self.marked)].to(x.dtype)), 1)
            if self.marked
            else filled
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for a saved model."""
        tensors = {name: getattr(self, name).tolist() for name in ("low", "high", "donors")}
        return {**tensors, "marked": list(self.marked)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Missing":
        """What :meth:`to_json` wrote; a record of another form is refused."""
        try:
            low, high, donors = (
                torch.tensor(record[name], dtype=torch.float64)
                for name in ("low", "high", "donors")
            )
            return cls(low, high, donors, tuple(map(int, record["marked"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"What missing values may be cannot be read from the saved model: {error!r}."
            ) from error


def predict(model: Any, x: Inputs, missing: Missing, batch_size: int = 256) -> Prediction:
    """Predict rows of which some cells may be missing (NaN); complete rows get their usual prediction.

    An interval, which :meth:`Missing.intervals` gives, is predicted as it is. The label is the most probable class of
    the mean over fillings, which lies in the set; models that give no credal sets give that mean.
    """
    if isinstance(x, Interval):
        return model.predict(x, batch_size)
    has_gaps = x.isnan().any(1)
    if not has_gaps.any():
        return model.predict(missing.fill(x), batch_size)
    members = getattr(model, "members", [model])
    is_sound = all(
        getattr(member, "is_interval", False) and member.mode == "sound" for member in members
    )
    has_distance = all(getattr(member, "distance_radius", None) is not None for member in members)
    complete, gapped = (x[rows] for rows in (~has_gaps, has_gaps))
    parts = [model.predict(missing.fill(complete), batch_size)] if len(complete) else []
    for rows in gapped.split(batch_size):
        fills = [model.predict(filled, batch_size) for filled in missing.fills(rows)]
        if not isinstance(fills[0], CredalSet):
            parts.append(type(fills[0]).mixture(fills))
        elif is_sound:
            box = model.predict(missing.intervals(rows), batch_size)
            parts.append(box.with_label(_envelope(fills, len(fills)).label))
        else:
            parts.append(_envelope(fills, PLAUSIBLE if has_distance else len(fills)))
    order = torch.cat(((~has_gaps).nonzero(), has_gaps.nonzero())).flatten().argsort()
    return model.prediction_type.concatenate(parts)[order.to(parts[0].label.device)]


def _envelope(fills: Sequence[CredalSet], kept: int) -> CredalSet:
    """The envelope of the narrowest ``kept`` sets of each row; the label is that of their mean."""
    every, rows = (
        CredalSet.concatenate(fills),
        torch.arange(len(fills[0]), device=fills[0].lower.device),
    )
    narrowest = every.width.mean(-1).reshape(len(fills), -1).topk(kept, 0, largest=False).indices
    sets = [every[fill * len(rows) + rows] for fill in narrowest]
    mean = torch.stack([s.probabilities for s in sets]).mean(0)
    return CredalSet.envelope(sets).with_label(mean.argmax(-1)).with_conformal(every.conformal)
