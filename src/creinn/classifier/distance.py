r"""Distance-aware radii: features far from the training data widen the intervals of the logits (our own extension).

In: features of the training data at one or several places of the network, and labels, once; then features of new data.
Out: one radius per row, which CreINN adds to the radius of every logit, after batch norm and before Interval SoftMax:

.. math::
    d_l(x) = \min_k\, (f_l(x) - \mu_{lk})^\top \Sigma_l^{-1} (f_l(x) - \mu_{lk}), \quad
    e(x) = \max\bigl(0,\ \operatorname{mean}_l d_l(x) / \operatorname{median} d_l - 1\bigr), \quad r(x) = s\, e(x).

:math:`\mu_{lk}` are class means and :math:`\Sigma_l` is one covariance within all classes, shrunk towards a multiple of
the identity (Ledoit and Wolf, 2004), so that few samples and constant features give finite distances. Of many features,
the directions of the largest variances are kept, and all others have the mean of their variances. An interval of
features gets an upper bound of :math:`d_l` over the box: the radius is then at least that of every member. Near the
data nothing changes; far away the credal set becomes all of the simplex. The label is that of the logits, which the
intersection probability agrees with up to rounding, whatever the radius.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from creinn.classifier.moments import ClassSums, Products, products_of_means
from creinn.classifier.sample import Sample
from creinn.credal.credal_set import CredalSet
from creinn.interval import Interval, as_interval
from creinn.numerics import widen
from creinn.ranks import gather

Features: TypeAlias = Sequence[Interval | Tensor]  # (N, D) at each place of the network
Head: TypeAlias = Callable[[Interval], CredalSet]

VACUOUS = 20.0  # a radius this much larger than the range of the logits makes the set all of the simplex
LARGEST_RANK = 256  # most directions of the features that have a variance of their own
SCALES = tuple(10 ** (exponent / 10) for exponent in range(-20, 11))  # tried: 0.01 to 10, ten in each decade
ALLOWED_FALL = 0.002  # what the scale may cost in area under the accuracy-rejection curve
ALLOWED_GROWTH = 0.1  # what it may add to the mean number of undominated classes: without errors the curve allows all
LARGEST_SCALE_SEEN = 0.3  # that is chosen on data the network was trained on: it knows them too well to judge by
_LEAST_SHRINKAGE = 1e-6


class Distance(torch.nn.Module):
    """Features ``(N, D)`` in, squared distances ``(N,)`` over their median out; empty until :meth:`fit`.

    The covariance has variances along at most ``rank`` directions, and one across all of them.

    Example:
        >>> distance = Distance(num_classes=2)  # means 0 and 8, variance 1
        >>> distance.fit(torch.tensor([[-1.0], [1.0], [7.0], [9.0]]), torch.tensor([0, 0, 1, 1]))
        >>> distance.squared(torch.tensor([[1.0], [11.0]]))
        tensor([1., 9.])
        >>> distance.squared(Interval(torch.tensor([[0.5]]), torch.tensor([[1.5]])))
        tensor([2.2500])
    """

    origin: Tensor  # (D,), mean of all features
    directions: Tensor  # (D, R), orthonormal columns
    deviations: Tensor  # (R,), standard deviations along the directions
    rest: Tensor  # (), standard deviation in every direction that is orthogonal to these; without use if R = D
    means: Tensor  # (K, W), class means, whitened; a class without samples has the mean of another one
    median: Tensor  # (), of the squared distances

    def __init__(self, num_classes: int, rank: int = LARGEST_RANK) -> None:
        super().__init__()
        self.num_classes, self.rank = num_classes, rank
        for name in ("origin", "directions", "deviations", "rest", "means", "median"):
            self.register_buffer(name, torch.empty(0))

    def forward(self, features: Interval | Tensor) -> Tensor:
        """Squared distance over its median."""
        return self.squared(features) / self.median

    def squared(self, features: Interval | Float[Tensor, "rows features"]) -> Float[Tensor, " rows"]:
        r"""Squared Mahalanobis distance to the nearest class mean; of an interval, an upper bound over the box.

        With whitened centre :math:`c` and radius :math:`r`, and the mean :math:`m` that is nearest to :math:`c`, the
        bound is :math:`\sum_i (|c_i - m_i| + r_i)^2`. It bounds the distance to one mean, hence to the nearest one.
        """
        features = as_interval(features)
        center = self._whiten(features.center - self.origin)
        wide = widen(self.means)  # the squares cancel: of classes 1e4 deviations apart, float32 would take a wrong one
        nearest = (widen(center) @ wide.mT - wide.square().sum(1) / 2).argmax(1)
        apart = (center - self.means[nearest]).abs()
        if not features.is_point:
            apart = apart + self._spread(features.radius)
        return apart.square().sum(1)

    def _whiten(self, centred: Tensor) -> Tensor:
        """Features less the origin ``(N, D)`` to coordinates ``(N, W)`` in which the covariance is the identity.

        ``W = R`` for ``R = D``; otherwise ``R + D``: the part outside the directions keeps its ``D`` coordinates.
        """
        along = centred @ self.directions
        if self.directions.shape[0] == self.directions.shape[1]:
            return along / self.deviations
        across = centred - along @ self.directions.mT
        return torch.cat((along / self.deviations, across / self.rest), 1)

    def _spread(self, radius: Tensor) -> Tensor:
        """How far members of a box of this radius ``(N, D)`` are from its centre at most, in whitened coordinates."""
        sizes = self.directions.abs()
        along = radius @ sizes
        if sizes.shape[0] == sizes.shape[1]:
            return along / self.deviations
        return torch.cat((along / self.deviations, (radius + along @ sizes.mT) / self.rest), 1)

    @torch.no_grad()
    def fit(self, features: Interval | Tensor, labels: Tensor) -> None:
        """Take means and covariance from the centres of training features, and the median from the features.

        Raises:
            ValueError: If there are no rows, or a feature is NaN, infinite, or too large to be squared.
        """
        features, sums = as_interval(features), ClassSums(self.num_classes)
        if len(features) == 0:
            raise ValueError("The distance needs training data, but there are no rows.")
        sums.add(features.center, labels)
        products = second_pass(sums)
        products.add(features.center, labels)
        self.learn(sums, products)
        self.set_median(features)

    def learn(self, sums: ClassSums, products: Products) -> None:
        """Take class means and the shrunk covariance within classes from both passes over the training features."""
        noise, means, like = sums.mean_square * sums.resolution**2, sums.means(), self.median
        for found in (products, products_of_means(sums)):  # within classes; over all, where nothing varies within
            covariance, shrinkage = found.ledoit_wolf()
            variance = covariance.diagonal().mean()
            if variance > noise:
                break
        else:  # nothing varies at all
            covariance, shrinkage, variance = torch.eye(means.shape[1]).to(means), 0.0, torch.ones_like(variance)
        shrinkage = max(shrinkage, _LEAST_SHRINKAGE)
        eigenvalues, vectors = torch.linalg.eigh(covariance.cpu())  # not every device has it; the largest come last
        eigenvalues = ((1 - shrinkage) * eigenvalues.clamp_min(0) + shrinkage * variance.cpu()).to(means)
        kept = min(self.rank, means.shape[1])
        self.origin, self.deviations = sums.origin, eigenvalues[-kept:].sqrt()
        self.directions = vectors.to(means)[:, -kept:].contiguous()  # as they are saved: products depend on the layout
        self.rest = (eigenvalues[:-kept].mean() if kept < means.shape[1] else variance).sqrt()
        self.means = self._whiten(means)
        for name, buffer in self.named_buffers():
            setattr(self, name, buffer.to(like))

    def set_median(self, features: Interval | Tensor) -> None:
        """Take the median distance of features: of new data if possible, for those of training lie closer.

        Raises:
            ValueError: If half of them are infinitely far away.
        """
        median = self.squared(features).median()
        if not bool(median.isfinite()):
            raise ValueError("Half of the held-out data lie infinitely far away. Look for an overflow in the network.")
        # Where at least half of the rows are their class's mean, the expected distance of whitened features stands in.
        is_zero = median <= torch.finfo(median.dtype).eps * features.shape[1]
        self.median = torch.where(is_zero, float(features.shape[1]), median)

    def make_room(self, state: Mapping[str, Tensor], prefix: str = "") -> None:
        """Before loading, take the shapes that the tensors have in ``state``, if they fit; fitting decides on them."""
        shapes = [tuple(state[prefix + name].shape) for name in self._buffers if prefix + name in state]
        features, rank = next((shape for shape in shapes if len(shape) == 2), (0, 0))  # of the directions
        width = rank if rank == features else rank + features
        fitted = [(features,), (features, rank), (rank,), (), (self.num_classes, width), ()]
        if shapes in (fitted, [(0,)] * len(fitted)):
            for name, shape in zip(list(self._buffers), shapes, strict=True):
                setattr(self, name, self.median.new_empty(shape))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self.make_room(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


def second_pass(sums: ClassSums) -> Products:
    """Where to add the products of all rows, after their sums; refuses features that fourth powers would overflow."""
    if not bool(sums.mean_square.square().isfinite()):
        raise ValueError(
            "The features of the training data are not finite, or so large that their squares overflow. "
            "Look for an overflow in the network."
        )
    return Products(sums.origin, sums.means())


def add_radius(logits: Interval, radius: Float[Tensor, " rows"]) -> Interval:
    """Logits ``(N, K)`` with the radius of its row added to each.

    At most the range of the row's logits (one stands against 0), :data:`VACUOUS`, and what rounding may take away: more
    could not be seen in the probabilities, and lower ones that are not yet 0 still tell classes apart.
    """
    lower, upper = logits.lower, logits.upper
    highest, lowest = upper.detach().amax(1), lower.detach().amin(1)
    if logits.shape[1] == 1:
        highest, lowest = highest.clamp_min(0), lowest.clamp_max(0)
    rounding = 16 * torch.finfo(lower.dtype).eps * torch.maximum(highest.abs(), lowest.abs())
    added = torch.minimum(radius, highest - lowest + VACUOUS + rounding).unsqueeze(1)
    return Interval._of_parts(lower - added, upper + added)


class DistanceRadius(torch.nn.Module):
    """Features at each of several places in the network in, radii ``(N,)`` out; 0 until :meth:`fit` is called."""

    distances: Any  # a ModuleList of Distance
    scale: Tensor
    fitted: Tensor

    def __init__(self, places: int, num_classes: int) -> None:
        super().__init__()
        self.distances = torch.nn.ModuleList(Distance(num_classes) for _ in range(places))
        self.register_buffer("scale", torch.zeros(()))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    @property
    def has_data(self) -> bool:
        """Whether the distances are fitted; unlike ``fitted``, known without waiting for the device."""
        return self.distances[0].median.numel() > 0

    def learn(self, statistics: Sequence[tuple[ClassSums, Products]], features: Features) -> None:
        """Take what :meth:`Distance.learn` does at each place, and the medians of ``features``; the scale stays."""
        for distance, of_place, part in zip(self.distances, statistics, features, strict=True):
            distance.learn(*of_place)
            distance.set_median(part)
        self.fitted.fill_(True)

    def excess(self, features: Features) -> Tensor:
        """How much farther than usual: 0 up to the median distance, 1 at twice that, huge on overflow."""
        relative = [distance(part) for distance, part in zip(self.distances, features, strict=True)]
        excess = (torch.stack(relative).mean(0) - 1).clamp_min(0)
        return excess.nan_to_num(nan=torch.finfo(excess.dtype).max)

    def forward(self, features: Features) -> Tensor:
        """Radii ``(N,)``."""
        if not self.has_data:
            return as_interval(features[0]).lower.new_zeros(len(features[0]))
        return self.scale * self.excess(features)


class Observed(NamedTuple):
    """What a network makes of rows whose classes are known."""

    features: tuple[Interval, ...]
    logits: Interval
    labels: Tensor

    def take(self, rows: Tensor) -> "Observed":
        """The rows of a mask."""
        return Observed(tuple(part[rows] for part in self.features), self.logits[rows], self.labels[rows])


def fit_radius(
    radius: DistanceRadius,
    train: Iterable[Observed],
    held_out: Iterable[Observed] | None,
    scale: float | None,
    head: Head,
) -> None:
    """Fit ``radius`` in place: its medians, and its scale unless that is given, by ``held_out`` data.

    Batches of the training data are gone over twice, those held out once, of which a :class:`Sample` is kept. Without
    these it is of the training data, and the scale is chosen on a sixth of it, with the distance fitted to all others.

    Raises:
        ValueError: If there are no rows, or the second pass gives more or fewer than the first.
    """
    sums = [ClassSums(distance.num_classes) for distance in radius.distances]
    sample = Sample()
    for batch in train:
        for of_place, part in zip(sums, batch.features, strict=True):
            of_place.add(part.center, batch.labels)
        if held_out is None:
            sample.add(batch)
    for batch in held_out or ():
        sample.add(batch)
    of_ranks = gather((sums[0].counts.numel() > 0, len(sample)))
    if not all(has_rows for has_rows, _ in of_ranks) or not any(count for _, count in of_ranks):
        empty = "held-out" if sums[0].counts.numel() else "training"
        raise ValueError(f"The {empty} data are empty: there is nothing to fit a distance to.")
    for of_place in sums:
        of_place.join_ranks()
    new: Observed = sample.rows()
    of_all = [(of_place, second_pass(of_place)) for of_place in sums]
    of_rest: list[tuple[ClassSums, Products]] = []
    if scale is None and held_out is None and len(new.labels) > 1:
        apart = one_sixth(new.labels)
        judged, rest = new.take(apart), new.take(~apart)
        for of_place, part in zip(sums, judged.features, strict=True):
            of_place = copy.deepcopy(of_place)
            of_place.add(part.center, judged.labels, sign=-1)
            of_rest.append((of_place, second_pass(of_place)))
    for batch in train:
        for (_, products), part in zip(of_all + of_rest, batch.features * (2 if of_rest else 1), strict=True):
            products.add(part.center, batch.labels)
    rows = of_all[0][0].rows
    for _, products in of_all + of_rest:
        products.join_ranks()
        if products.rows != rows:
            found = f"{rows} rows in the first pass, but {int(products.rows)} in the second"
            raise ValueError(f"The training data gave {found}. Give data that can be gone over twice, or tensors.")
    radius.learn(of_all, new.features)
    if scale is None and held_out is not None:
        scale = choose_scale(new, radius.excess(new.features), head)
    elif scale is None and not of_rest:
        scale = choose_scale(new, radius.excess(new.features), head, LARGEST_SCALE_SEEN)
    elif scale is None:
        trial = copy.deepcopy(radius)
        for (_, products), part in zip(of_rest, judged.features, strict=True):
            products.add(part.center, judged.labels, sign=-1)
        trial.learn(of_rest, rest.features)
        scale = choose_scale(judged, trial.excess(judged.features), head, LARGEST_SCALE_SEEN)
    radius.scale.fill_(scale)


def choose_scale(observed: Observed, excess: Float[Tensor, " rows"], head: Head, largest: float = math.inf) -> float:
    """The largest of :data:`SCALES` up to which predictions on data of the training distribution hardly suffer.

    Against scale 0 each may lower the area under the accuracy-rejection curve by :data:`ALLOWED_FALL`, and add
    :data:`ALLOWED_GROWTH` to the mean number of undominated classes; the last one before the first that does more is
    chosen. If even the smallest does, it is chosen all the same: it orders inputs by distance.
    """

    def judge(scale: float) -> tuple[float, float]:
        prediction = head(add_radius(observed.logits, scale * excess))
        # of more than two classes, total uncertainty alone: the lower entropy that goes with it takes longer
        total = prediction.total if prediction.num_classes == 2 else prediction.upper_entropy()
        assert isinstance(total, Tensor)
        undominated = prediction.classes("dominance").sum(-1).double().mean()
        return area_under_rejection(total, correct), float(undominated)

    correct = head(observed.logits).label == observed.labels  # whatever the scale
    area, classes = judge(0.0)
    chosen = SCALES[0]
    for scale in (scale for scale in SCALES if scale <= largest):
        new_area, new_classes = judge(scale)
        if new_area < area - ALLOWED_FALL or new_classes > classes + ALLOWED_GROWTH:
            break
        chosen = scale
    return chosen


def area_under_rejection(score: Float[Tensor, " rows"], correct: Bool[Tensor, " rows"]) -> float:
    """:func:`creinn.evaluation.auarc`, on tensors and unchecked: evaluation knows no model, and models not evaluation.

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
