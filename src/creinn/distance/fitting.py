"""Fit of a :class:`DistanceRadius` in two passes over the training data."""

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, takewhile
from typing import NamedTuple, TypeAlias

import torch
import torch.utils._pytree as pytree
from jaxtyping import Bool
from torch import Tensor

from creinn.distance.class_statistics import ClassSums, Labels, Products, Sample
from creinn.distance.radius import DistanceRadius, RowValues, with_directions
from creinn.distributed import gather
from creinn.interval import Interval
from creinn.numerics import shorten_list

SCALES = tuple(10 ** (exponent / 10) for exponent in range(-30, 1))
MAX_SCALE_ON_TRAINING_DATA = 0.03
ALLOWED_FALL = (0.001, 0.01)  # of the area, absolute and relative to 1 - area
ALLOWED_LOSS = 1.05  # factor of the log loss
ALLOWED_GROWTH = (0.1, 1.0)  # of the classes, absolute and relative to the error rate
_MIN_ROWS = 30  # to hold out a sixth


class FeatureBatch(NamedTuple):
    """Features, logits and labels of a batch."""

    features: tuple[Interval, ...]
    logits: Interval
    labels: Tensor

    def take(self, rows: Bool[Tensor, " rows"]) -> "FeatureBatch":
        """Return the rows that a mask selects."""
        return pytree.tree_map(lambda part: part[rows], self)


class Quality(NamedTuple):
    """Quality of predictions."""

    area: float  # under the accuracy-rejection curve
    loss: float  # of the intersection probability
    classes: float  # undominated, on average
    error_rate: float


Batches: TypeAlias = Iterable[FeatureBatch]
OnBatch: TypeAlias = Callable[[FeatureBatch], None]
Evaluate: TypeAlias = Callable[[FeatureBatch, Tensor], Quality]  # of rows and their radii


def fit_radius(
    radius: DistanceRadius,
    train: Batches,
    held_out: Batches | None,
    scale: float | None,
    evaluate: Evaluate,
    on_batch: OnBatch | None = None,
) -> None:
    """Fit distances to training data, and scores and a scale to held-out data.

    The training data are iterated twice; ``on_batch`` is called once with
    each batch. Without held-out data, scores and scale are fitted to a
    sixth of a sample of the training data, which the distances leave out
    meanwhile if there are at least 30 rows. The scale ``None`` is chosen
    by :func:`choose_scale`.
    """
    sums, sample = _first_pass(radius.num_classes, train, held_out, on_batch)
    groups = [sums]
    if held_out is None and len(sample.labels) >= _MIN_ROWS:
        sample = sample.take(stratified_mask(sample.labels, 6))
        groups.append(copy.deepcopy(sums))
        _add(groups[1], sample, sign=-1)
    products = [[of_layer.second_pass() for of_layer in group] for group in groups]
    _second_pass(train, products, sums[0].rows)
    if len(products) > 1:
        _add(products[1], sample, sign=-1)
    radius.set_statistics(groups[-1], products[-1])
    if scale is None:
        largest = MAX_SCALE_ON_TRAINING_DATA if held_out is None else math.inf
        scale = choose_scale(sample, cross_fitted_excess(radius, sample), evaluate, largest)
    radius.fit_scores(sample.features)
    radius.set_statistics(sums, products[0])
    radius.scale.fill_(scale)
    radius.fitted.fill_(True)


def _first_pass(
    num_classes: int, train: Batches, held_out: Batches | None, on_batch: OnBatch | None
) -> tuple[list[ClassSums], FeatureBatch]:
    sums: list[ClassSums] = []
    sample = Sample()
    for batch in train:
        if on_batch is not None:
            on_batch(batch)
        sums = sums or [ClassSums(num_classes) for _ in with_directions(batch.features)]
        _add(sums, batch)
        if held_out is None:
            sample.add(batch)
    for batch in held_out or ():
        sample.add(batch)
    has_rows, counts = zip(*gather((len(sums) > 0, len(sample))), strict=True)
    if not all(has_rows) or not any(counts):
        name = "held-out" if sums else "training"
        raise ValueError(f"The {name} data are empty. Pass at least one row.")
    for of_layer in sums:
        of_layer.all_reduce()
    return sums, sample.rows()


def _second_pass(train: Batches, products: Sequence[Sequence[Products]], rows: int) -> None:
    for batch in train:
        for group in products:
            _add(group, batch)
    for of_layer in chain(*products):
        of_layer.all_reduce()
        if of_layer.rows != rows:
            raise ValueError(
                f"The training data have {rows} rows, then {int(of_layer.rows)} in a second pass. "
                "Use data that can be iterated twice."
            )


def _add(group: Sequence[ClassSums | Products], batch: FeatureBatch, sign: int = 1) -> None:
    for of_layer, x in zip(group, with_directions(batch.features), strict=True):
        of_layer.add(x.center, batch.labels, sign)


def cross_fitted_excess(radius: DistanceRadius, batch: FeatureBatch) -> RowValues:
    """Return the excess of each half of the rows, fitted to the other half."""
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
    batch: FeatureBatch, excess: RowValues, evaluate: Evaluate, largest: float = math.inf
) -> float:
    """Return the largest of :data:`SCALES` that hardly changes the predictions.

    The search ends before the first scale whose quality differs from that
    of scale 0 by more than :data:`ALLOWED_FALL`, :data:`ALLOWED_LOSS` or
    :data:`ALLOWED_GROWTH`. At least the first scale is returned.
    """
    area, loss, classes, error_rate = evaluate(batch, 0 * excess)
    min_area = area - max(ALLOWED_FALL[0], ALLOWED_FALL[1] * (1 - area))
    max_classes = classes + max(ALLOWED_GROWTH[0], ALLOWED_GROWTH[1] * error_rate)

    def is_allowed(scale: float) -> bool:
        found = evaluate(batch, scale * excess)
        is_good = found.area >= min_area and found.loss <= ALLOWED_LOSS * loss
        return is_good and found.classes <= max_classes

    candidates = [scale for scale in SCALES if scale <= largest]
    return [SCALES[0], *takewhile(is_allowed, candidates)][-1]


def stratified_mask(labels: Labels, parts: int) -> Bool[Tensor, " rows"]:
    """Return a mask of one of ``parts`` random parts of each class."""
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    shuffled = shuffled.to(labels.device)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    return torch.zeros_like(labels, dtype=torch.bool).index_fill_(0, by_class[::parts], True)


class LabelWarning(UserWarning):
    """A class has no row, or the accuracy is not better than chance."""


class Agreement:
    """Counts of labels, of predicted classes, and of rows where both agree.

    Example:
        >>> agreement = Agreement(2)
        >>> agreement.add(torch.tensor([0, 1]), torch.tensor([1, 0]))
        >>> agreement.is_chance()
        True
    """

    def __init__(self, num_classes: int) -> None:
        self.counts = torch.zeros(3, num_classes, dtype=torch.long)

    def add(self, labels: Labels, predicted: Labels) -> None:
        """Count the rows of a batch."""
        self.counts = self.counts.to(labels.device)
        for row, classes in enumerate((labels, predicted, labels[labels == predicted])):
            self.counts[row] += torch.bincount(classes, minlength=self.counts.shape[1])

    def is_chance(self) -> bool:
        r"""Return whether the accuracy is not better than chance.

        It is then at most one standard error above chance. For independent
        labels and predictions with shares :math:`p_k` and :math:`q_k` of
        the classes, the expected accuracy is :math:`c = \sum_k p_k q_k`
        with the variance
        :math:`(c + c^2 - \sum_k p_k q_k (p_k + q_k)) / N` (Fleiss, Cohen
        and Everitt, 1969). If it is 0, chance is :math:`1 / K`.
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
        """Warn if a class has no row, or if the accuracy is that of chance."""
        labels, _, agreeing = self.counts.tolist()
        messages = []
        if missing := [str(k) for k, count in enumerate(labels) if not count]:
            messages.append(
                f"The training data have no row of class {shorten_list(missing)}. Its new rows "
                "will be far from the training data."
            )
        if self.is_chance():
            messages.append(
                f"The network predicts the label of {sum(agreeing)} of {sum(labels)} rows, not "
                "better than chance. Check its training and the order of the labels."
            )
        for message in messages:
            warnings.warn(message, LabelWarning, stacklevel=stacklevel + 1)
