r"""Radii of the logits that grow with the distance from the training data.

CreINN adds the radius of a row to the radius of its logits, after batch
norm and before Interval SoftMax. At the feature layer :math:`l`,
:math:`d_l` is the squared distance to the nearest class. At the two
deepest layers, :math:`\hat d_l` and :math:`\hat d'_l` are the squared and
the relative distance of the features divided by their norm
(:mod:`creinn.distance.mahalanobis`). The score :math:`z(\cdot)` is the
difference from the median of held-out data, divided by their spread. Then

.. math::
    r(x) = s \log(1 + e^{z(n + 0.7 f)})^4, \qquad
    n = z\Bigl(\sum_{l\ \text{last two}} z(\hat d_l) + z(\hat d'_l)\Bigr), \qquad
    f = z\Bigl(\sum_l \max(0, z(d_l))\Bigr).

The near term :math:`n` detects unknown classes, and the far term :math:`f`
other kinds of data. Because of the fourth power, the radius is small for
usual data. Far from the data, the credal set is the whole simplex. If the
features are intervals, the radius is an upper bound.
"""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from creinn import native
from creinn.distance.class_statistics import ClassSums, Products
from creinn.distance.mahalanobis import Distance
from creinn.interval import Interval, as_interval
from creinn.numerics import at_least_single

Features: TypeAlias = Sequence[Interval | Tensor]  # ``(N, D)`` of each layer
RowValues = Float[Tensor, " rows"]
Terms = Float[Tensor, "rows terms"]

VACUOUS = 20.0  # for radii this much above the range of the logits, the set is vacuous
NUM_NEAR_LAYERS = 2
FAR_WEIGHT = 0.7  # larger: better for other kinds of data, worse for unknown classes
POWER = 4
MAX_SCORE = 1e6  # at a larger score, the radius has its maximum
_UPPER_QUANTILE = 0.84  # one normal standard deviation
_MIN_SPREAD = 1e-3  # relative to the median
_MAX_NATIVE_SIZE = 2**22  # products; for more, matrix products of torch are faster


def unit_directions(features: Interval | Float[Tensor, "rows features"]) -> Interval:
    r"""Divide the features of each row by their norm, if it is not zero.

    The result of an interval contains those of all members:
    :math:`f_i / \|f\|` is bounded by the bounds of :math:`f_i` divided by
    those of the norm, and by 1.

    Example:
        >>> unit_directions(Interval(torch.tensor([[3.0, 0.0]]), torch.tensor([[3.0, 4.0]])))
        Interval(lower=tensor([[0.6000, 0.0000]]), upper=tensor([[1., 1.]]))
    """
    features = as_interval(features)
    lower, upper = features.lower, features.upper
    if features.is_point:
        return Interval._of_point(lower / _norm(lower))
    most = _norm(torch.maximum(lower.abs(), upper.abs()))
    least = _norm(torch.maximum(lower, -upper).clamp_min(0))
    low = torch.where(lower < 0, lower / least, lower / most).clamp(-1, 1)
    return Interval._of_parts(low, torch.where(upper > 0, upper / least, upper / most).clamp(-1, 1))


def with_directions(features: Features) -> tuple[Interval, ...]:
    """Return the features, and the directions of the deepest ones."""
    return *map(as_interval, features), *map(unit_directions, features[-NUM_NEAR_LAYERS:])


def stack_terms(distances: Sequence[tuple[Tensor, Tensor]], layers: int) -> Terms:
    """Stack the squared distances, and both distances of the directions."""
    squared = [squared for squared, _ in distances[:layers]]
    return torch.stack([*squared, *chain(*distances[layers:])], 1)


def add_radius(logits: Interval, radius: RowValues) -> Interval:
    """Add a radius per row to logits ``(N, K)``.

    The radius is limited to the range of the logits, plus :data:`VACUOUS`
    and a bound of the rounding error. Larger radii do not change the
    probabilities. The range of a single logit includes 0.
    """
    lower, upper = logits.lower, logits.upper
    highest, lowest = upper.detach().amax(1), lower.detach().amin(1)
    if logits.shape[1] == 1:
        highest, lowest = highest.clamp_min(0), lowest.clamp_max(0)
    rounding = 16 * torch.finfo(lower.dtype).eps * torch.maximum(highest, -lowest)
    largest = highest - lowest + VACUOUS + rounding
    added = torch.minimum(radius.to(lower.dtype), largest).unsqueeze(1)
    return Interval._of_parts(lower - added, upper + added)


class DistanceRadius(torch.nn.Module):
    """Radius per row from the features of several layers."""

    distances: Any  # for each result of with_directions
    medians: Tensor  # of the terms of held-out data
    spreads: Tensor  # upper quantile minus median
    sums: Tensor  # (3, 2), of the near term, the far term and their sum
    scale: Tensor
    fitted: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.distances = torch.nn.ModuleList()
        for name in ("medians", "spreads"):
            self.register_buffer(name, torch.empty(0))
        self.register_buffer("sums", torch.zeros(3, 2))
        self.register_buffer("scale", torch.zeros(()))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    @property
    def has_data(self) -> bool:
        """Whether the distances are fitted; it does not wait for a device."""
        return len(self.distances) > 0

    def set_statistics(self, sums: Sequence[ClassSums], products: Sequence[Products]) -> None:
        """Set the statistics of all distances."""
        self._make_distances(len(sums))
        for distance, *statistics in zip(self.distances, sums, products, strict=True):
            distance.set_statistics(*statistics)

    def fit_scores(self, features: Features) -> None:
        """Compute the medians and the spreads from held-out data."""
        terms = self._terms(features)
        self.medians, self.spreads = _median_and_spread(terms)
        if not bool((self.medians.isfinite() & self.spreads.isfinite()).all()):
            raise ValueError("The distances overflow. Check the network.")
        near, far = self._near_and_far(terms)
        self.sums[0] = torch.stack(_median_and_spread(near))
        self.sums[1] = torch.stack(_median_and_spread(far))
        self.sums[2] = torch.stack(_median_and_spread(self._weighted_sum(near, far)))

    def excess(self, features: Features) -> RowValues:
        """Return the radius divided by the scale; it is finite on overflow."""
        median, spread = self.sums[2]
        weighted = self._weighted_sum(*self._near_and_far(self._terms(features)))
        score = (weighted - median) / spread
        excess = F.softplus(score.nan_to_num(nan=MAX_SCORE).clamp_max(MAX_SCORE)) ** POWER
        return torch.where(score < MAX_SCORE, excess, torch.finfo(excess.dtype).max)

    def forward(self, features: Features) -> Tensor:
        """Return radii ``(N,)``."""
        return self.scale * self.excess(features)

    def _terms(self, features: Features) -> Terms:
        pairs = zip(self.distances, with_directions(features), strict=True)
        distances = [distance(x) for distance, x in pairs]
        return at_least_single(stack_terms(distances, len(features)))

    def _near_and_far(self, terms: Any) -> tuple[Any, Any]:
        z = (terms - self.medians) / self.spreads
        near = 2 * NUM_NEAR_LAYERS if terms.shape[1] > 3 else 2  # a single layer has three terms
        return z[:, -near:].sum(1), z[:, :-near].relu().sum(1)

    def _weighted_sum(self, near: Any, far: Any) -> Any:
        medians, spreads = self.sums.unbind(1)
        return (near - medians[0]) / spreads[0] + FAR_WEIGHT * (far - medians[1]) / spreads[1]

    def _make_distances(self, count: int) -> None:
        if count != len(self.distances):
            distances = torch.nn.ModuleList(Distance(self.num_classes) for _ in range(count))
            self.distances = distances.to(self.scale).train(self.training)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        own = f"{prefix}distances."
        origins = [key for key in state_dict if key.startswith(own) and key.endswith(".origin")]
        self._make_distances(len(origins))
        for name in ("medians", "spreads"):
            if (values := state_dict.get(prefix + name)) is not None:
                setattr(self, name, self.scale.new_empty(values.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


class NativeRadius(torch.nn.Module):
    """A fitted radius that uses the C++ library for a few rows of points."""

    values: Tensor
    has_data = True

    def __init__(self, radius: DistanceRadius) -> None:
        super().__init__()
        self.general, distances = radius, list(radius.distances)
        sizes = [(*distance.directions.shape, distance.axes.shape[1]) for distance in distances]
        self._widths = [size[0] for size in sizes][: max(1, len(sizes) - NUM_NEAR_LAYERS)]
        counts = (len(self._widths), len(sizes), radius.num_classes, *chain(*sizes))
        self._sizes = torch.tensor(counts, device="cpu")
        options = (radius.scale, FAR_WEIGHT, POWER, MAX_SCORE)
        parts = [*map(_packed, distances), radius.medians, radius.spreads, radius.sums.flatten()]
        self.register_buffer("values", torch.cat((*parts, radius.scale.new_tensor(options))))

    def forward(self, features: Features) -> Tensor:
        """Return radii ``(N,)``."""
        points = [x._any for x in map(as_interval, features) if x.is_point]
        if not (points and native.is_supported(self.values, *points)):
            return self.general(features)
        rows = points[0].shape[0]
        fits = [x.shape for x in points] == [(rows, width) for width in self._widths]
        if not fits or rows * self.values.numel() > _MAX_NATIVE_SIZE:
            return self.general(features)
        return native.radius(self._sizes, self.values, [x.contiguous() for x in points])


def check_distance(distance: Any) -> None:
    """Raise an error if ``distance`` is not a boolean, ``None`` or a scale."""
    if not isinstance(distance, int | float | None):
        raise TypeError(f"distance must be True, False, None or a number, got {distance!r}.")
    if distance is not None and not 0 <= distance < math.inf:
        raise ValueError(f"distance must be a finite number >= 0, got {distance}.")


def _packed(distance: Distance) -> Tensor:
    """Return the arrays of a distance in the order of ``prediction.cpp``."""
    (size, rank), rest = distance.directions.shape, distance.rest
    deviations = torch.cat((distance.deviations, rest.expand(size if rank < size else 0)))
    parts = [
        _padded(distance.origin, size),
        _grouped(_padded(distance.directions.mT, size)),
        _padded(deviations, rank, 1.0),
        _padded(distance.means, rank),
        _grouped(_padded(distance.axes.mT, rank)),
        *(distance.shares, distance.coordinates),
    ]
    return torch.cat([part.flatten() for part in parts])


def _padded(rows: Tensor, rank: int, value: float = 0.0) -> Tensor:
    """Pad the first ``rank`` columns and the others to multiples of 16."""
    parts = rows.tensor_split([rank], -1)
    return torch.cat([F.pad(x, (0, -x.shape[-1] % 16), value=value) for x in parts], -1)


def _grouped(rows: Tensor) -> Tensor:
    """Let blocks of 16 numbers of eight rows alternate."""
    rows = F.pad(rows, (0, 0, 0, -len(rows) % 8))
    return rows.unflatten(1, (-1, 16)).unflatten(0, (-1, 8)).transpose(1, 2)


def _norm(x: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return norm.clamp_min(torch.finfo(x.dtype).tiny)


def _median_and_spread(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the median and the spread of any number of rows."""
    ordered, last = values.sort(0).values, len(values) - 1  # NaN is last
    median, upper = ordered[last // 2], ordered[math.ceil(_UPPER_QUANTILE * last)]
    return median, torch.maximum(upper - median, _MIN_SPREAD * (1 + median.abs()))
