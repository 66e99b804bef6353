"""Fitting a :class:`DistanceRadius` to data: passes over the training data, units and scale from those held out.

In: batches of features, logits and classes, as a network gives them. Out: the radius, fitted in place; memory does not
grow with the rows.
"""

import copy
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from creinn.classifier.label_check import Agreement
from creinn.credal.credal_set import CredalSet
from creinn.credal.loss import cross_entropy
from creinn.distance.class_statistics import ClassSums
from creinn.distance.mahalanobis import second_pass
from creinn.distance.radius import DistanceRadius, Statistics, add_radius, views
from creinn.distance.sample import Sample
from creinn.distributed import gather
from creinn.evaluation.uncertainty import auarc
from creinn.interval import Interval

Head: TypeAlias = Callable[[Interval], CredalSet]

SCALES = tuple(
    10 ** (exponent / 10) for exponent in range(-30, 1)
)  # tried: 0.001 to 1, ten in each decade
ALLOWED_FALL = (
    0.001,
    0.01,
)  # what the scale may cost in area under the accuracy-rejection curve; or of what lies above
ALLOWED_LOSS = 1.05  # what it may multiply the log loss of the intersection probability by
ALLOWED_GROWTH = (
    0.1,
    1.0,
)  # classes that it may add to the mean undominated set; or per error of the network
_FEWEST = 30  # rows of which a sixth stands in for held-out data; of fewer, all do
LARGEST_SCALE_SEEN = (
    0.03  # that is chosen on data the network was trained on: it knows them too well to judge by
)


class Observed(NamedTuple):
    """What a network makes of rows whose classes are known."""

    features: tuple[Interval, ...]
    logits: Interval
    labels: Tensor

    def take(self, rows: Tensor) -> "Observed":
        """The rows of a mask."""
        return Observed(
            tuple(part[rows] for part in self.features), self.logits[rows], self.labels[rows]
        )


def fit_radius(
    radius: DistanceRadius,
    train: Iterable[Observed],
    held_out: Iterable[Observed] | None,
    scale: float | None,
    head: Head,
    agreement: Agreement | None = None,
) -> None:
    """Fit ``radius`` in place: its distances by ``train``; its units, and its scale unless given, by ``held_out`` data.

    Batches of the training data are gone over twice, those held out once, of which a :class:`Sample` is kept. Without
    these it is of the training data, and a sixth of it stands in, with the distances fitted to all others.
    If ``agreement`` is given, the labels and the predictions of the training data are counted in it.

    Raises:
        ValueError: If there are no rows, or the second pass gives more or fewer than the first.
    """
    sums: list[ClassSums] = []
    sample = Sample()
    for batch in train:
        if agreement is not None:
            agreement.add(batch.labels, head(batch.logits).label)
        measured = views(batch.features)
        sums = sums or [ClassSums(radius.num_classes) for _ in measured]
        for of_view, view in zip(sums, measured, strict=True):
            of_view.add(view.center, batch.labels)
        if held_out is None:
            sample.add(batch)
    for batch in held_out or ():
        sample.add(batch)
    of_ranks = gather((len(sums) > 0, len(sample)))
    if not all(has_rows for has_rows, _ in of_ranks) or not any(count for _, count in of_ranks):
        empty = "held-out" if sums else "training"
        raise ValueError(f"The {empty} data are empty: there is nothing to fit a distance to.")
    for of_view in sums:
        of_view.all_reduce()
    new: Observed = sample.rows()
    of_all: Statistics = [(of_view, second_pass(of_view)) for of_view in sums]
    of_rest: Statistics = []
    if held_out is None and len(new.labels) >= _FEWEST:
        new = new.take(share(new.labels, 6))
        for of_view, view in zip(sums, views(new.features), strict=True):
            of_view = copy.deepcopy(of_view)
            of_view.add(view.center, new.labels, sign=-1)
            of_rest.append((of_view, second_pass(of_view)))
    for batch in train:
        measured = views(batch.features)
        for (_, products), view in zip(
            of_all + of_rest, measured * (2 if of_rest else 1), strict=True
        ):
            products.add(view.center, batch.labels)
    rows = of_all[0][0].rows
    for _, products in of_all + of_rest:
        products.all_reduce()
        if products.rows != rows:
            found = f"{rows} rows in the first pass, but {int(products.rows)} in the second"
            raise ValueError(
                f"The training data gave {found}. Give data that can be gone over twice, or tensors."
            )
    for (_, products), view in zip(of_rest, views(new.features), strict=False):
        products.add(view.center, new.labels, sign=-1)
    radius.learn(of_rest or of_all)
    if scale is None:
        largest = LARGEST_SCALE_SEEN if held_out is None else math.inf
        scale = choose_scale(new, unseen_excess(radius, new), head, largest)
    radius.standardise(new.features)
    if of_rest:
        radius.learn(of_all)
    radius.scale.fill_(scale)
    radius.fitted.fill_(True)


def unseen_excess(radius: DistanceRadius, observed: Observed) -> Float[Tensor, " rows"]:
    """The excess of each row in units of others: those of half of the rows for the other half, and the reverse.

    Few rows do not know the units well: in their own all of them look usual, and new ones do not.
    """
    if len(observed.labels) < 2:
        radius.standardise(observed.features)
        return radius.excess(observed.features)
    one = share(observed.labels, 2)
    excess = radius.scale.new_empty(len(one))
    for half in (one, ~one):
        radius.standardise(observed.take(~half).features)
        excess[half] = radius.excess(observed.take(half).features)
    return excess


def choose_scale(
    observed: Observed, excess: Float[Tensor, " rows"], head: Head, largest: float = math.inf
) -> float:
    """The largest of :data:`SCALES` up to which predictions on data of the training distribution hardly suffer.

    Against scale 0 each may lower the area under the accuracy-rejection curve by :data:`ALLOWED_FALL`, multiply the log
    loss of the intersection probability by :data:`ALLOWED_LOSS`, and add :data:`ALLOWED_GROWTH` to the mean number of
    undominated classes; a network that errs more often is allowed more. The last one before the first that does more is
    chosen. If even the smallest does, it is chosen all the same: it orders inputs by distance.
    """

    def judge(radius: Tensor) -> tuple[float, float, float]:
        prediction = head(add_radius(observed.logits, radius))
        # of more than two classes, total uncertainty alone: the lower entropy that goes with it takes longer
        total = prediction.total if prediction.num_classes == 2 else prediction.upper_entropy()
        assert isinstance(total, Tensor)
        undominated = prediction.classes().sum(-1).double().mean()
        loss = cross_entropy(prediction, observed.labels, check=False)
        return auarc(total, correct), float(loss), float(undominated)

    correct = head(observed.logits).label == observed.labels  # whatever the scale
    area, loss, classes = judge(0 * excess)
    least_area = area - max(ALLOWED_FALL[0], ALLOWED_FALL[1] * (1 - area))
    most_classes = classes + max(
        ALLOWED_GROWTH[0], ALLOWED_GROWTH[1] * float(1 - correct.double().mean())
    )
    chosen = SCALES[0]
    for scale in (scale for scale in SCALES if scale <= largest):
        new_area, new_loss, new_classes = judge(scale * excess)
        if new_area < least_area or new_loss > ALLOWED_LOSS * loss or new_classes > most_classes:
            break
        chosen = scale
    return chosen


def share(labels: Int[Tensor, " rows"], parts: int) -> Bool[Tensor, " rows"]:
    """A mask that takes one of so many parts of each class at random, the same whenever it is called."""
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).to(
        labels.device
    )
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    return torch.zeros_like(labels, dtype=torch.bool).index_fill_(0, by_class[::parts], True)
