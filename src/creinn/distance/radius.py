r"""Distance-aware radii: inputs unlike the training data widen the intervals of the logits (our own extension).

In: features of the training data at several depths of the network, and labels, once; then features of new data. Out:
one radius per row, which CreINN adds to the radius of every logit, after batch norm and before Interval SoftMax.

At each depth :math:`l` there is a distance :math:`d_l` to the nearest class. At the two deepest, features are divided
by their norm as well, and give another one, :math:`\hat d_l`, and a relative one, :math:`\hat d'_l`
(:mod:`creinn.distance.mahalanobis`). Each is counted from its median on held-out data in units of its upper spread,
written :math:`z(\cdot)`, and so is each sum:

.. math::
    r(x) = s \log(1 + e^{z(n + 0.7 f)})^4, \qquad
    n = z\Bigl(\sum_{l\ \text{last two}} z(\hat d_l) + z(\hat d'_l)\Bigr), \qquad
    f = z\Bigl(\sum_l \max(0, z(d_l))\Bigr).

The near term :math:`n` sees classes that were not learnt: their features differ within what the network discriminates,
and norms are noise there. The far term :math:`f` sees other kinds of data, above all at shallow depths, which are noise
for near ones. The fourth power leaves usual data nearly alone, and lets the distance, not the logits, order epistemic
uncertainty. Far away the credal set becomes all of the simplex. The label is that of the logits, which the intersection
probability agrees with up to rounding, whatever the radius. Boxes of features get upper bounds of every term, hence of
the radius of every member.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from creinn.classifier.fitted_on import FittedOn
from creinn.distance.class_statistics import ClassSums, Products
from creinn.distance.mahalanobis import Distance
from creinn.interval import Interval, as_interval
from creinn.numerics import at_least_single

Features: TypeAlias = Sequence[Interval | Tensor]  # (N, D) at each place of the network
Statistics: TypeAlias = list[tuple[ClassSums, Products]]  # of each place

VACUOUS = (
    20.0  # a radius this much larger than the range of the logits makes the set all of the simplex
)
NUM_NEAR_LAYERS = 2  # how many of the deepest places tell near classes
FAR_WEIGHT = 0.7  # more of it finds other kinds of data, less of it unknown classes
POWER = 4
UPPER = 0.84  # quantile of held-out data one spread above their median, as of a normal distribution
LARGEST = 1e6  # spreads: its fourth power is still a number; beyond it radii are as large as can be
_LEAST_SPREAD = 1e-3  # of a term, relative to its size: data that do not vary differ by rounding


def directions(features: Interval | Float[Tensor, "rows features"]) -> Interval:
    r"""Features ``(N, D)`` over their norms; of boxes, intervals that contain those of all members.

    A component :math:`f_i / \|f\|` is bounded by the bounds of :math:`f_i` over those of the norm, and by 1. A vector
    of zeros has no direction, and gets zeros.

    Example:
        >>> directions(torch.tensor([[3.0, 4.0]])).lower
        tensor([[0.6000, 0.8000]])
        >>> directions(Interval(torch.tensor([[3.0, 0.0]]), torch.tensor([[3.0, 4.0]])))
        Interval(lower=tensor([[0.6000, 0.0000]]), upper=tensor([[1., 1.]]))
    """
    features = as_interval(features)
    lower, upper = features.lower, features.upper
    tiny = torch.finfo(lower.dtype).tiny
    if features.is_point:
        return Interval._of_point(
            lower / torch.linalg.vector_norm(lower, dim=1, keepdim=True).clamp_min(tiny)
        )
    largest, least = (
        torch.maximum(lower.abs(), upper.abs()),
        torch.maximum(lower, -upper).clamp_min(0),
    )
    most, least = (
        torch.linalg.vector_norm(t, dim=1, keepdim=True).clamp_min(tiny) for t in (largest, least)
    )
    low = torch.where(lower < 0, lower / least, lower / most).clamp(-1, 1)
    return Interval._of_parts(low, torch.where(upper > 0, upper / least, upper / most).clamp(-1, 1))


def views(features: Features) -> tuple[Interval, ...]:
    """What distances are measured of: the features of every place, then the directions of those of the deepest."""
    return *map(as_interval, features), *map(directions, features[-NUM_NEAR_LAYERS:])


def terms_of(found: Sequence[tuple[Tensor, Tensor]], places: int) -> Float[Tensor, "rows terms"]:
    """Distances at all places; then, of the directions at the deepest, distances and relative ones."""
    far, near = found[:places], found[places:]
    return torch.stack([*(one for one, _ in far), *(term for pair in near for term in pair)], 1)


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
    added = torch.minimum(radius.to(lower.dtype), highest - lowest + VACUOUS + rounding).unsqueeze(
        1
    )
    return Interval._of_parts(lower - added, upper + added)


class DistanceRadius(torch.nn.Module):
    """Features at each of several places in the network in, radii ``(N,)`` out; 0 until it is fitted.

    See :func:`creinn.distance.fitting.fit_radius`.
    """

    distances: Any  # a ModuleList of Distance, one for each of the views
    usual: Tensor  # (terms,): medians on held-out data
    spreads: Tensor  # (terms,): from the median up
    sums: Tensor  # (3, 2): the same of the near sum, the far sum, and both
    scale: Tensor
    fitted: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.distances = torch.nn.ModuleList()
        self.register_buffer("usual", torch.empty(0))
        self.register_buffer("spreads", torch.empty(0))
        self.register_buffer("sums", torch.zeros(3, 2))
        self.register_buffer("scale", torch.zeros(()))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.fitted_on = FittedOn()

    @property
    def has_data(self) -> bool:
        """Whether the distances are fitted; unlike ``fitted``, known without waiting for the device."""
        return len(self.distances) > 0

    def learn(self, statistics: Statistics) -> None:
        """Take what :meth:`Distance.learn` does of each view; scale and units stay."""
        if len(self.distances) != len(statistics):
            self._make_distances(len(statistics))
        for distance, of_view in zip(self.distances, statistics, strict=True):
            distance.learn(*of_view)

    def standardise(self, features: Features) -> None:
        """Take medians and spreads of terms and sums from data that the distances were not fitted to.

        Raises:
            ValueError: If half of these are infinitely far away.
        """
        terms = self._terms(features)
        self.usual, self.spreads = _median_and_spread(terms)
        if not bool((self.usual.isfinite() & self.spreads.isfinite()).all()):
            raise ValueError(
                "Half of the held-out data lie infinitely far away. Look for an overflow in the network."
            )
        near, far = self._near_and_far(terms)
        self.sums = torch.stack(
            [torch.stack(_median_and_spread(part)) for part in (near, far, far)]
        )
        both = self._both(near, far)
        self.sums[2] = torch.stack(_median_and_spread(both))

    def excess(self, features: Features) -> Float[Tensor, " rows"]:
        """The radius before its scale: below 1 for usual rows, huge on overflow."""
        both = self.combined(self._terms(features))
        excess = F.softplus(both.nan_to_num(nan=LARGEST).clamp_max(LARGEST)) ** POWER
        return torch.where(both < LARGEST, excess, torch.finfo(excess.dtype).max)  # NaN too

    def combined(self, terms: Any) -> Any:
        """Terms ``(N, T)`` to :math:`z(n + 0.7 f)`, which none of them lowers."""
        median, spread = self.sums[2]
        return (self._both(*self._near_and_far(terms)) - median) / spread

    def copy_scaling(self, other: "DistanceRadius") -> None:
        """Take units and scale of a radius whose network was not trained on the rows that they were found by."""
        for name in ("usual", "spreads", "sums", "scale"):
            setattr(self, name, getattr(other, name).clone())

    def forward(self, features: Features) -> Tensor:
        """Radii ``(N,)``."""
        if not self.has_data:
            return as_interval(features[0]).lower.new_zeros(len(features[0]))
        return self.scale * self.excess(features)

    def _terms(self, features: Features) -> Float[Tensor, "rows terms"]:
        found = [
            distance(view) for distance, view in zip(self.distances, views(features), strict=True)
        ]
        return at_least_single(terms_of(found, len(features)))

    def _near_and_far(self, terms: Any) -> tuple[Any, Any]:
        z = (terms - self.usual) / self.spreads
        near = (
            2 * NUM_NEAR_LAYERS if terms.shape[1] > 3 else 2
        )  # of a single place there are three terms
        return z[:, -near:].sum(1), z[:, :-near].relu().sum(1)

    def _both(self, near: Any, far: Any) -> Any:
        medians, spreads = self.sums.unbind(1)
        return (near - medians[0]) / spreads[0] + FAR_WEIGHT * (far - medians[1]) / spreads[1]

    def _make_distances(self, count: int) -> None:
        distances = torch.nn.ModuleList(Distance(self.num_classes) for _ in range(count))
        self.distances = distances.to(self.scale).train(self.training)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        own = f"{prefix}distances."
        count = len(
            {
                name.removeprefix(own).partition(".")[0]
                for name in state_dict
                if name.startswith(own)
            }
        )
        if count != len(self.distances):
            self._make_distances(count)
        for name in ("usual", "spreads"):
            if (values := state_dict.get(prefix + name)) is not None and values.ndim == 1:
                setattr(self, name, self.scale.new_empty(len(values)))
        if f"{own}0.median" in state_dict:
            args[-1].append(
                "The distance was fitted by an older version: train the model again, or call fit_distance."
            )
        super()._load_from_state_dict(state_dict, prefix, *args)


def _median_and_spread(values: Tensor) -> tuple[Tensor, Tensor]:
    """Over the first dimension, by sorting, which puts NaN last: ``torch.quantile`` refuses many rows."""
    ordered = values.sort(0).values
    median, upper = ordered[(len(values) - 1) // 2], ordered[math.ceil(UPPER * (len(values) - 1))]
    return median, torch.maximum(upper - median, _LEAST_SPREAD * (1 + median.abs()))


def check_distance(distance: Any) -> None:
    """Refuse what is neither a truth value nor the scale of radii."""
    if distance is None or isinstance(distance, bool):
        return
    if not isinstance(distance, int | float):
        raise TypeError(f"distance must be True, False, None or a number, got {distance!r}.")
    if not (math.isfinite(distance) and distance >= 0):
        raise ValueError(
            f"distance must be a finite number >= 0, the scale of the radii, got {distance}."
        )
