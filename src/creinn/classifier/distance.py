r"""Distance-aware radii: features far from the training data widen the intervals of the logits (our own extension).

In: features of the training data at one or several places of the network, and labels, once; then features of new data.
Out: one radius per row, which CreINN adds to the radius of every logit, after batch norm and before Interval SoftMax:

.. math::
    d_l(x) = \min_k\, (f_l(x) - \mu_{lk})^\top \Sigma_l^{-1} (f_l(x) - \mu_{lk}), \quad
    e(x) = \max\bigl(0,\ \operatorname{mean}_l d_l(x) / \operatorname{median} d_l - 1\bigr), \quad r(x) = s\, e(x).

:math:`\mu_{lk}` are class means and :math:`\Sigma_l` is one covariance within all classes: a closed form, one pass over
the data. Near them nothing changes; far away the credal set becomes all of the simplex, which is what ignorance looks
like. Up to rounding, the intersection probability orders the classes as the logits do, whatever the radius; the label
is taken from the logits themselves, so that it is the network's to the last row.

:math:`\Sigma_l` is shrunk towards a multiple of the identity (Ledoit and Wolf, 2004), so that few samples, more
features than samples and constant features give finite distances. Of many features, the directions of the largest
variances are kept as they are, and all others have the mean of their variances. Sums are taken in float64. An interval
of features gets an upper bound of :math:`d_l` over the box: the radius is then at least that of every member.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from creinn.interval import Interval, as_interval
from creinn.numerics import widen

Features: TypeAlias = Sequence[Interval | Tensor]
"""Features ``(N, D)`` at each place of the network."""

VACUOUS = 20.0
"""A radius this much larger than the range of the logits makes the set all of the simplex; it is not made larger."""
LARGEST_RANK = 256
"""Most directions of the features that have a variance of their own."""
_LEAST_SHRINKAGE = 1e-6
_BLOCK = 4096  # rows that are widened at once


class Statistics(NamedTuple):
    """What distances are measured with: the covariance has variances along directions, and one across all of them."""

    origin: Tensor
    """Mean of all features, ``(D,)``."""
    directions: Tensor
    """Orthonormal columns ``(D, R)``."""
    deviations: Tensor
    """Standard deviations ``(R,)`` along the directions."""
    rest: Tensor
    """Standard deviation ``()`` in every direction that is orthogonal to these; without use if ``R = D``."""
    means: Tensor
    """Class means, whitened, ``(K, W)``. A class without samples has the mean of another one."""

    def whiten(self, centred: Tensor) -> Tensor:
        """Features less the origin ``(N, D)`` to coordinates ``(N, W)`` in which the covariance is the identity.

        ``W = R`` for ``R = D``; otherwise ``R + D``: the part outside the directions keeps its ``D`` coordinates.
        """
        along = centred @ self.directions
        if self.directions.shape[0] == self.directions.shape[1]:
            return along / self.deviations
        across = centred - along @ self.directions.mT
        return torch.cat((along / self.deviations, across / self.rest), 1)

    def spread(self, radius: Tensor) -> Tensor:
        """How far members of a box of this radius ``(N, D)`` are from its centre at most, in whitened coordinates."""
        sizes = self.directions.abs()
        along = radius @ sizes
        if sizes.shape[0] == sizes.shape[1]:
            return along / self.deviations
        return torch.cat((along / self.deviations, (radius + along @ sizes.mT) / self.rest), 1)


def fit_statistics(
    features: Float[Tensor, "rows features"],
    labels: Int[Tensor, " rows"],
    num_classes: int,
    rank: int = LARGEST_RANK,
) -> Statistics:
    """Class means and the shrunk covariance within classes; tensors are float64 where the device has it.

    Where features do not vary within classes (one sample each, say), their covariance over all classes stands in;
    where they do not vary at all, the identity.

    Args:
        features: Of the training data.
        labels: Their classes.
        num_classes: Number of classes.
        rank: Most directions with a variance of their own.

    Raises:
        ValueError: If there are no rows, or a feature is NaN, infinite, or too large to be squared.
    """
    if len(features) == 0:
        raise ValueError("The distance needs training data, but there are no rows.")
    square = torch.stack([widen(block).square().sum() for block in features.split(_BLOCK)]).sum() / features.numel()
    if not bool(square.square().isfinite()):  # fourth powers enter the shrinkage
        raise ValueError(
            "The features of the training data are not finite, or so large that their squares overflow. "
            "Look for an overflow in the network."
        )
    origin = torch.stack([widen(block).sum(0) for block in features.split(_BLOCK)]).sum(0) / len(features)
    counts = torch.bincount(labels, minlength=num_classes)
    means = origin.new_zeros(num_classes, features.shape[1])
    for block, label in zip(features.split(_BLOCK), labels.split(_BLOCK), strict=True):
        means.index_add_(0, label, widen(block) - origin)
    means /= counts.clamp_min(1).unsqueeze(1)
    means[counts == 0] = means[counts.argmax()].clone()

    def residuals(within: bool) -> Iterable[Tensor]:
        for block, label in zip(features.split(_BLOCK), labels.split(_BLOCK), strict=True):
            yield widen(block) - origin - (means[label] if within else 0)

    noise = float(square) * torch.finfo(features.dtype).eps ** 2
    for within in (True, False):
        covariance, shrinkage = ledoit_wolf(residuals(within))
        variance = covariance.diagonal().mean()
        if variance > noise:
            break
    else:
        covariance, shrinkage, variance = torch.eye(len(origin)).to(means), 0.0, torch.ones_like(variance)
    shrinkage = max(shrinkage, _LEAST_SHRINKAGE)
    eigenvalues, vectors = torch.linalg.eigh(covariance.cpu())  # not every device has it; the largest come last
    eigenvalues = ((1 - shrinkage) * eigenvalues.clamp_min(0) + shrinkage * variance.cpu()).to(means)
    kept = min(rank, len(origin))
    rest = eigenvalues[:-kept].mean() if kept < len(origin) else variance
    directions = vectors.to(means)[:, -kept:].contiguous()  # as they are saved: products depend on the layout
    found = Statistics(origin, directions, eigenvalues[-kept:].sqrt(), rest.sqrt(), means)
    return found._replace(means=found.whiten(means))


def ledoit_wolf(
    residuals: Iterable[Float[Tensor, "_ features"]],
) -> tuple[Float[Tensor, "features features"], float]:
    r"""Covariance of centred rows, given in blocks, and the share by which to shrink it towards its mean variance.

    The estimate is :math:`(1 - \rho) S + \rho\, \bar\sigma^2 I`, with the :math:`\rho` that has the least expected
    squared error (Ledoit and Wolf, 2004, in closed form).

    Returns:
        :math:`S`, not shrunk, and :math:`\rho`.

    Example:
        >>> covariance, share = ledoit_wolf([torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])])
        >>> covariance.diagonal(), share  # round already: whatever the share, the estimate is the same
        (tensor([0.5000, 0.5000]), 0.0)
    """
    blocks = iter(residuals)
    first = next(blocks)
    products, fourth, rows = first.mT @ first, first.square().sum(1).square().sum(), len(first)
    for block in blocks:
        products += block.mT @ block
        fourth += block.square().sum(1).square().sum()
        rows += len(block)
    covariance = products / rows
    squares = covariance.square().sum()
    spread = squares - covariance.diagonal().mean() * covariance.diagonal().sum()  # squared distance to the target
    error = (fourth / rows - squares) / rows
    if not bool(spread > torch.finfo(spread.dtype).eps * squares):
        return covariance, 0.0
    return covariance, float((error / spread).clamp(0, 1))


def squared_distance(
    features: Interval | Float[Tensor, "rows features"], statistics: Statistics
) -> Float[Tensor, " rows"]:
    r"""Squared Mahalanobis distance to the nearest class mean; of an interval, an upper bound over the box.

    With whitened centre :math:`c` and radius :math:`r`, and the mean :math:`m` that is nearest to :math:`c`, the bound
    is :math:`\sum_i (|c_i - m_i| + r_i)^2`. It bounds the distance to one mean, hence to the nearest one.

    Example:
        >>> statistics = Statistics(*map(torch.tensor, ([0.0], [[1.0]], [1.0], 1.0, [[0.0], [4.0]])))
        >>> squared_distance(torch.tensor([[1.0], [7.0]]), statistics)
        tensor([1., 9.])
        >>> squared_distance(Interval(torch.tensor([[0.5]]), torch.tensor([[1.5]])), statistics)
        tensor([2.2500])
    """
    features = as_interval(features)
    center, means = statistics.whiten(features.center - statistics.origin), statistics.means
    wide = widen(means)  # the squares cancel: of classes 1e4 deviations apart, float32 would take a wrong one
    nearest = (widen(center) @ wide.mT - wide.square().sum(1) / 2).argmax(1)
    apart = (center - means[nearest]).abs()
    if not features.is_point:
        apart = apart + statistics.spread(features.radius)
    return apart.square().sum(1)


def add_radius(logits: Interval, radius: Float[Tensor, " rows"]) -> Interval:
    """Logits ``(N, K)`` with the radius of its row added to each.

    Added is at most the range of the row's logits (one logit stands against 0), :data:`VACUOUS`, and what rounding may
    take away. More could not be seen in the probabilities, and lower ones that are not yet 0 still tell the classes
    apart.
    """
    lower, upper = logits.lower, logits.upper
    highest, lowest = upper.detach().amax(1), lower.detach().amin(1)
    if logits.shape[1] == 1:
        highest, lowest = highest.clamp_min(0), lowest.clamp_max(0)
    rounding = 16 * torch.finfo(lower.dtype).eps * torch.maximum(highest.abs(), lowest.abs())
    added = torch.minimum(radius, highest - lowest + VACUOUS + rounding).unsqueeze(1)
    return Interval._of_parts(lower - added, upper + added)


class Distance(torch.nn.Module):
    """Features ``(N, D)`` in, squared distances ``(N,)`` relative to the usual one out.

    Its tensors are empty until :meth:`fit`, or until they are loaded.

    Args:
        num_classes: Number of classes.
    """

    origin: Tensor
    directions: Tensor
    deviations: Tensor
    rest: Tensor
    means: Tensor
    median: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        for name in (*Statistics._fields, "median"):
            self.register_buffer(name, torch.empty(0))

    def reset(self) -> None:
        """Forget the data."""
        for name, tensor in self.named_buffers():
            setattr(self, name, tensor.new_empty(0))

    @torch.no_grad()
    def fit(self, features: Interval | Tensor, labels: Tensor, new: Interval | Tensor | None = None) -> None:
        """Take statistics from the centres of training features, and the median distance.

        Args:
            features: Of the training data.
            labels: Their classes.
            new: Features of data of the same distribution that the network was not trained on. The median is then over
                these, since features of training data lie closer to their means than those of new data.
        """
        features = as_interval(features)
        for name, value in fit_statistics(features.center, labels, self.num_classes)._asdict().items():
            setattr(self, name, value.to(self.median))
        median = squared_distance(features if new is None else new, self.statistics).median()
        if not bool(median.isfinite()):
            raise ValueError("Half of the held-out data lie infinitely far away. Look for an overflow in the network.")
        # Where at least half of the rows are their class's mean, the expected distance of whitened features stands in.
        is_zero = median <= torch.finfo(median.dtype).eps * features.shape[1]
        self.median = torch.where(is_zero, float(features.shape[1]), median)

    @property
    def statistics(self) -> Statistics:
        """What distances are measured with."""
        return Statistics(self.origin, self.directions, self.deviations, self.rest, self.means)

    def forward(self, features: Interval | Tensor) -> Tensor:
        """Squared distance over its median."""
        return squared_distance(features, self.statistics) / self.median

    def make_room(self, state: Mapping[str, Tensor], prefix: str = "") -> None:
        """Give the tensors the shapes that they have in ``state``, where these fit each other; others stay as they are.

        Loading does this first, since the number of features is only known when the distance is fitted.
        """
        shapes = [tuple(state[prefix + name].shape) for name in self._buffers if prefix + name in state]
        if len(shapes) < len(self._buffers):
            return
        features, rank = shapes[1] if len(shapes[1]) == 2 else (0, 0)
        width = rank if rank == features else rank + features
        fitted = [(features,), (features, rank), (rank,), (), (self.num_classes, width), ()]
        if shapes in (fitted, [(0,)] * len(shapes)):
            for name, shape in zip(list(self._buffers), shapes, strict=True):
                setattr(self, name, self.median.new_empty(shape))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self.make_room(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


class DistanceRadius(torch.nn.Module):
    """Features at each place in, radii ``(N,)`` out; 0 until :meth:`fit` is called.

    Args:
        places: Number of places in the network.
        num_classes: Number of classes.
    """

    distances: Any  # a ModuleList of Distance
    scale: Tensor
    fitted: Tensor

    def __init__(self, places: int, num_classes: int) -> None:
        super().__init__()
        self.distances = torch.nn.ModuleList(Distance(num_classes) for _ in range(places))
        self.register_buffer("scale", torch.zeros(()))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    def reset(self) -> None:
        """Forget the data: radii are 0 again."""
        for distance in self.distances:
            distance.reset()
        self.scale.zero_()
        self.fitted.zero_()

    @torch.no_grad()
    def fit(self, features: Features, labels: Tensor, new: Features | None = None) -> None:
        """Fit the distance at each place, see :meth:`Distance.fit`; the scale stays."""
        for place, distance in enumerate(self.distances):
            distance.fit(features[place], labels, None if new is None else new[place])
        self.fitted.fill_(True)

    def excess(self, features: Features) -> Tensor:
        """How much farther than usual, ``(N,)``: 0 up to the median distance, 1 at twice that.

        Where features or their distance overflow, the largest number: nothing is known about such a row.
        """
        relative = [distance(part) for distance, part in zip(self.distances, features, strict=True)]
        excess = (torch.stack(relative).mean(0) - 1).clamp_min(0)
        return excess.nan_to_num(nan=torch.finfo(excess.dtype).max)

    def forward(self, features: Features) -> Tensor:
        """Radii ``(N,)``."""
        if self.distances[0].median.numel() == 0:
            return as_interval(features[0]).lower.new_zeros(len(features[0]))
        return self.scale * self.excess(features)
