"""Fit of a :class:`DistanceRadius` in two passes over the training data.

The memory does not depend on the number of rows.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from creinn.distance.class_statistics import ClassSums, Sample
from creinn.distance.radius import DistanceRadius, Statistics, with_directions
from creinn.distributed import gather
from creinn.interval import Interval
from creinn.numerics import shorten_list

SCALES = tuple(10 ** (exponent / 10) for exponent in range(-30, 1))
"""The candidates for the scale: 0.001 to 1, ten per decade."""
MAX_SCALE_ON_TRAINING_DATA = 0.03
"""The largest scale that is chosen on data that the network was trained on."""
ALLOWED_FALL = (0.001, 0.01)
"""The allowed decrease of the area, absolute and relative to ``1 - area``."""
ALLOWED_LOSS = 1.05
"""The allowed factor of the log loss."""
ALLOWED_GROWTH = (0.1, 1.0)
"""The allowed increase of the number of classes, absolute and relative to the error rate."""
_MIN_ROWS = 30  # with fewer rows, no sixth of the training data is held out


class FeatureBatch(NamedTuple):
    """Features, logits and labels of rows."""

    features: tuple[Interval, ...]
    logits: Interval
    labels: Tensor

    def take(self, rows: Bool[Tensor, " rows"]) -> "FeatureBatch":
        """Return the rows of a mask."""
        features = tuple(part[rows] for part in self.features)
        return FeatureBatch(features, self.logits[rows], self.labels[rows])


class Quality(NamedTuple):
    """Quality of the predictions with a given radius."""

    area: float  # under the accuracy-rejection curve
    loss: float  # log loss of the intersection probability
    classes: float  # mean number of undominated classes
    error_rate: float


Evaluate: TypeAlias = Callable[[FeatureBatch, Tensor], Quality]
"""A function of rows and of their radii ``(N,)``."""


def fit_radius(
    radius: DistanceRadius,
    train: Iterable[FeatureBatch],
    held_out: Iterable[FeatureBatch] | None,
    scale: float | None,
    evaluate: Evaluate,
    on_batch: Callable[[FeatureBatch], None] | None = None,
) -> None:
    """Fit distances to the training data, and scores and a scale to held-out data.

    There are two passes over the training data, and one over the held-out data.

    Args:
        radius: The radius, which is fitted in place.
        train: The training data, which can be iterated twice.
        held_out: Data that the network was not trained on, of which a :class:`Sample` is used. If
            ``None``, a sixth of a sample of the training data is held out for scores and scale.
        scale: The scale, or ``None`` to choose it; see :func:`choose_scale`.
        evaluate: A function that computes the quality of predictions.
        on_batch: A function that is called once with each batch of the training data.

    Raises:
        ValueError: If there are no rows, or if both passes have different numbers of rows.
    """
    sums, sample = _first_pass(radius.num_classes, train, held_out, on_batch)
    statistics: Statistics = [(of_layer, of_layer.second_pass()) for of_layer in sums]
    without_sample: Statistics = []
    if held_out is None and len(sample.labels) >= _MIN_ROWS:
        sample = sample.take(stratified_mask(sample.labels, 6))
        for of_layer, x in zip(sums, with_directions(sample.features), strict=True):
            of_layer = copy.deepcopy(of_layer)
            of_layer.add(x.center, sample.labels, sign=-1)
            without_sample.append((of_layer, of_layer.second_pass()))
    _second_pass(train, [statistics, without_sample] if without_sample else [statistics])
    for (_, products), x in zip(without_sample, with_directions(sample.features), strict=False):
        products.add(x.center, sample.labels, sign=-1)
    radius.set_statistics(without_sample or statistics)
    if scale is None:
        largest = MAX_SCALE_ON_TRAINING_DATA if held_out is None else math.inf
        scale = choose_scale(sample, cross_fitted_excess(radius, sample), evaluate, largest)
    radius.fit_scores(sample.features)
    radius.set_statistics(statistics)
    radius.scale.fill_(scale)
    radius.fitted.fill_(True)


def _first_pass(
    num_classes: int,
    train: Iterable[FeatureBatch],
    held_out: Iterable[FeatureBatch] | None,
    on_batch: Callable[[FeatureBatch], None] | None,
) -> tuple[list[ClassSums], FeatureBatch]:
    """Return the class sums of all processes, and a sample of the held-out data."""
    sums: list[ClassSums] = []
    sample = Sample()
    for batch in train:
        if on_batch is not None:
            on_batch(batch)
        inputs = with_directions(batch.features)
        sums = sums or [ClassSums(num_classes) for _ in inputs]
        for of_layer, x in zip(sums, inputs, strict=True):
            of_layer.add(x.center, batch.labels)
        if held_out is None:
            sample.add(batch)
    for batch in held_out or ():
        sample.add(batch)
    of_processes = gather((len(sums) > 0, len(sample)))
    if not all(has_rows for has_rows, _ in of_processes) or not any(n for _, n in of_processes):
        name = "held-out" if sums else "training"
        raise ValueError(f"The {name} data are empty. The distance needs at least one row.")
    for of_layer in sums:
        of_layer.all_reduce()
    rows: FeatureBatch = sample.rows()
    return sums, rows


def _second_pass(train: Iterable[FeatureBatch], statistics: list[Statistics]) -> None:
    """Add the products of all rows to each of the statistics."""
    for batch in train:
        inputs = with_directions(batch.features)
        for of_layers in statistics:
            for (_, products), x in zip(of_layers, inputs, strict=True):
                products.add(x.center, batch.labels)
    rows = statistics[0][0][0].rows
    for _, products in chain(*statistics):
        products.all_reduce()
        if products.rows != rows:
            raise ValueError(
                f"The training data had {rows} rows in the first pass, but {int(products.rows)} in "
                "the second. Pass data that can be iterated twice."
            )


def cross_fitted_excess(radius: DistanceRadius, batch: FeatureBatch) -> Float[Tensor, " rows"]:
    """Return the excess of each half of the rows, with scores fitted to the other half."""
    if len(batch.labels) < 2:
        radius.fit_scores(batch.features)
        return radius.excess(batch.features)
    first = stratified_mask(batch.labels, 2)
    excess = radius.scale.new_empty(len(first))
    for half in (first, ~first):
        radius.fit_scores(batch.take(~half).features)
        excess[half] = radius.excess(batch.take(half).features)
    return excess


def choose_scale(
    batch: FeatureBatch,
    excess: Float[Tensor, " rows"],
    evaluate: Evaluate,
    largest: float = math.inf,
) -> float:
    """Return the largest scale that hardly changes the quality of predictions.

    The search over :data:`SCALES` ends at the first scale with a quality that differs from that at
    scale 0 by more than :data:`ALLOWED_FALL`, :data:`ALLOWED_LOSS` or :data:`ALLOWED_GROWTH`. The
    smallest scale is always allowed.
    """
    area, loss, classes, error_rate = evaluate(batch, 0 * excess)
    min_area = area - max(ALLOWED_FALL[0], ALLOWED_FALL[1] * (1 - area))
    max_classes = classes + max(ALLOWED_GROWTH[0], ALLOWED_GROWTH[1] * error_rate)
    chosen = SCALES[0]
    for scale in SCALES:
        if scale > largest:
            break
        found = evaluate(batch, scale * excess)
        if found.area < min_area or found.loss > ALLOWED_LOSS * loss or found.classes > max_classes:
            break
        chosen = scale
    return chosen


def stratified_mask(labels: Int[Tensor, " rows"], parts: int) -> Bool[Tensor, " rows"]:
    """Return a mask of one of ``parts`` equal random parts of each class; the seed is fixed."""
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    shuffled = shuffled.to(labels.device)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    return torch.zeros_like(labels, dtype=torch.bool).index_fill_(0, by_class[::parts], True)


class LabelWarning(UserWarning):
    """A class has no row, or the accuracy of the network is not better than chance."""


class Agreement:
    """Counts of the labels, of the predicted classes, and of rows where both agree.

    Example:
        >>> agreement = Agreement(2)
        >>> agreement.add(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 0]))
        >>> agreement.is_chance()
        True
    """

    def __init__(self, num_classes: int) -> None:
        self.counts = torch.zeros(3, num_classes, dtype=torch.long)

    def add(self, labels: Int[Tensor, " rows"], predicted: Int[Tensor, " rows"]) -> None:
        """Count the rows of a batch."""
        self.counts = self.counts.to(labels.device)
        for row, classes in enumerate((labels, predicted, labels[labels == predicted])):
            self.counts[row] += torch.bincount(classes, minlength=self.counts.shape[1])

    def is_chance(self) -> bool:
        r"""Return whether the accuracy is at most one standard error above chance.

        For independent labels and predictions with the shares :math:`p_k` and :math:`q_k` of the
        classes, the expected accuracy is :math:`c = \sum_k p_k q_k` with the variance
        :math:`(c + c^2 - \sum_k p_k q_k (p_k + q_k)) / N` (Fleiss, Cohen and Everitt, 1969). If it
        is 0, because all labels or all predictions are the same, chance is :math:`1 / K`.
        """
        rows = int(self.counts[0].sum())
        labels, predicted, agreeing = (self.counts.double() / rows).unbind()
        accuracy, both = float(agreeing.sum()), labels * predicted
        chance = float(both.sum())
        variance = (chance + chance**2 - float((both * (labels + predicted)).sum())) / rows
        if variance < 1e-12:
            return accuracy <= 1 / len(labels)
        return accuracy < 1 and accuracy - chance <= math.sqrt(variance)

    def warn(self, stacklevel: int) -> None:
        """Warn if a class has no row, and if the accuracy is not better than chance."""
        rows = int(self.counts[0].sum())
        if not rows:
            return
        messages = []
        if missing := [str(k) for k, count in enumerate(self.counts[0].tolist()) if not count]:
            messages.append(
                f"The training data have no row of class {shorten_list(missing)}. Rows of such a "
                "class count as far from the training data."
            )
        if self.is_chance():
            messages.append(
                f"The network predicts the label of {int(self.counts[2].sum())} of {rows} rows, "
                "which is not better than chance. Check that the network is trained, that the "
                "labels have the same class numbers, and that they are in the order of the inputs."
            )
        for message in messages:
            warnings.warn(message, LabelWarning, stacklevel=stacklevel + 1)
