"""The scale of distance-aware radii, chosen on data of the training distribution; no foreign data are used.

In: a :class:`~creinn.classifier.distance.DistanceRadius`, and what the network makes of training and held-out data.
Out: the radius, fitted, with the largest scale up to which predictions on such data hardly suffer: neither the
accuracy-rejection curve by total uncertainty, nor the number of classes that cannot be ruled out.
"""

import copy
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from creinn.classifier.distance import DistanceRadius, add_radius
from creinn.credal.credal_set import CredalSet
from creinn.interval import Interval, cat
from creinn.numerics import widen

SCALES = tuple(10 ** (exponent / 10) for exponent in range(-20, 11))
"""Values of the scale that are tried: 0.01 to 10, ten in each decade."""
ALLOWED_FALL = 0.002
"""What the scale may cost in area under the accuracy-rejection curve."""
ALLOWED_GROWTH = 0.1
"""What it may add to the mean number of undominated classes; where there are no errors, the curve allows any scale."""
LARGEST_SCALE_SEEN = 0.3
"""Largest scale that is chosen on data the network was trained on: it knows them too well to judge by."""

Head = Callable[[Interval], CredalSet]


class Observed(NamedTuple):
    """What a network makes of rows whose classes are known."""

    features: tuple[Interval, ...]
    logits: Interval
    labels: Tensor

    @classmethod
    def concatenate(cls, parts: Iterable["Observed"]) -> "Observed":
        """All rows of several batches."""
        features, logits, labels = zip(*parts, strict=True)
        return cls(tuple(map(cat, zip(*features, strict=True))), cat(logits), torch.cat(labels))

    def take(self, rows: Tensor) -> "Observed":
        """The rows of a mask."""
        return Observed(tuple(part[rows] for part in self.features), self.logits[rows], self.labels[rows])


def fit_radius(
    radius: DistanceRadius, train: Observed, held_out: Observed | None, scale: float | None, head: Head
) -> None:
    """Fit statistics, median and scale of ``radius``, in place.

    Args:
        radius: To be fitted.
        train: Training data.
        held_out: Data that the network was not trained on, for the median and the scale. Without them the scale is
            chosen on a sixth of the training data, with the distance fitted to the rest of them.
        scale: The scale, if it is not to be chosen.
        head: From logits to credal sets.
    """
    radius.fit(train.features, train.labels, None if held_out is None else held_out.features)
    if scale is None and held_out is not None:
        scale = choose_scale(held_out, radius.excess(held_out.features), head)
    elif scale is None:
        apart = one_sixth(train.labels)
        judged, rest = train.take(apart), train.take(~apart)
        trial = copy.deepcopy(radius)
        if len(rest.labels) > 0:
            trial.fit(rest.features, rest.labels)
        scale = choose_scale(judged, trial.excess(judged.features), head, LARGEST_SCALE_SEEN)
    radius.scale.fill_(scale)


def choose_scale(observed: Observed, excess: Float[Tensor, " rows"], head: Head, largest: float = math.inf) -> float:
    """The largest of :data:`SCALES` up to which predictions on data of the training distribution hardly suffer.

    From the smallest scale on, each may lower the area under the accuracy-rejection curve by at most
    :data:`ALLOWED_FALL` against scale 0, and add at most :data:`ALLOWED_GROWTH` to the mean number of undominated
    classes; the last one before the first that does more is chosen. If even the smallest does, it is chosen all the
    same: it orders inputs by distance and leaves their sets small.

    Args:
        observed: Data of the training distribution.
        excess: Of their distance.
        head: From logits to credal sets.
        largest: Larger scales are not tried.
    """

    def judge(scale: float) -> tuple[float, float]:
        """Area under the curve, and mean number of undominated classes."""
        prediction = head(add_radius(observed.logits, scale * excess))
        # of more than two classes, total uncertainty alone: the lower entropy that goes with it takes longer
        total = prediction.total if prediction.num_classes == 2 else prediction.upper_entropy()
        assert isinstance(total, Tensor)
        undominated = prediction.classes("dominance").sum(-1).double().mean()
        return area_under_rejection(total, correct), float(undominated)

    correct = head(observed.logits).label == observed.labels  # whatever the scale
    area, classes = judge(0.0)
    chosen = SCALES[0]
    for scale in SCALES:
        if scale > largest:
            break
        new_area, new_classes = judge(scale)
        if new_area < area - ALLOWED_FALL or new_classes > classes + ALLOWED_GROWTH:
            break
        chosen = scale
    return chosen


def area_under_rejection(score: Float[Tensor, " rows"], correct: Bool[Tensor, " rows"]) -> float:
    """Mean accuracy of the ``k`` least uncertain rows over all ``k``, ties by their expectation.

    :func:`creinn.evaluation.auarc`, on tensors and unchecked: evaluation knows no model, and models not evaluation.

    Example:
        >>> area_under_rejection(torch.tensor([0.1, 0.9]), torch.tensor([True, False]))
        0.75
    """
    _, tie, size = score.unique(return_inverse=True, return_counts=True)
    hits = torch.bincount(tie, weights=widen(correct.float())) / size
    kept = torch.arange(1, len(score) + 1, device=score.device)
    return float((hits.repeat_interleave(size).cumsum(0) / kept).mean())


def one_sixth(labels: Int[Tensor, " rows"]) -> Bool[Tensor, " rows"]:
    """A mask that takes a sixth of each class at random, the same whenever it is called."""
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).to(labels.device)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    return torch.zeros_like(labels, dtype=torch.bool).index_fill_(0, by_class[::6], True)
