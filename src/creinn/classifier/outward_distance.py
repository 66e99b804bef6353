r"""The radius by distance in floating point: an upper bound that holds for real numbers; mode ``"rigorous"``.

In: what a network gives at the places of a fitted :class:`creinn.classifier.radius.DistanceRadius`, inside of
:func:`creinn.rounding.outwards`. Out: for each row a number that the real radius of no member exceeds, or infinity.

The real radius :math:`R` is that of :mod:`creinn.classifier.radius` in real numbers: means and standard deviations over
positions, features over their norm (of zeros: zeros), the least distance and the least relative distance over the
classes by :mod:`creinn.classifier.distance`, then medians, spreads, softplus, power and scale. Stored statistics are
exact, spreads and deviations :math:`> 0`, shares :math:`\le 1`. From 10⁶ spreads on :math:`R` may be anything.

It does not decrease with any of its terms, so upper bounds of these will do. Everything is computed in float64 with
intervals, each of whose operations is rounded outwards; two steps are more than these:

- **Standard deviations.** For any number :math:`a` the deviation of :math:`c` is at most the root mean square of
  :math:`c - a`, and less than that by :math:`|\bar c - a|` at most, as the root mean square is a norm. So a rounded
  mean does, and members move it by the root mean square of :math:`r`, as in :func:`creinn.classifier.network.pooled`.
- **The nearest class** need not be the nearest: the distance to any class bounds the least one.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from creinn.classifier.distance import Distance, nearest_of
from creinn.classifier.radius import LARGEST, NEAR_PLACES, DistanceRadius, terms_of
from creinn.interval import Interval, as_interval, cat
from creinn.nn._operations import Matrix
from creinn.nn._product import relative_affine
from creinn.rounding import apart, image


def radius_bound(
    radius: DistanceRadius, outputs: Sequence[Interval | Tensor], tokens: Sequence[bool]
) -> Float[Tensor, " rows"]:
    """Upper bounds ``(N,)``, in float64, of the radii of all members; infinite where there is none.

    Args:
        radius: A fitted one.
        outputs: Of each of its places, ``(N, D)`` or ``(N, C, ...)``.
        tokens: Of each place, whether its output is ``(N, tokens, C)``.

    Example:
        >>> from creinn.classifier.fitting import Observed, fit_radius
        >>> from creinn.rounding import outwards
        >>> _ = torch.manual_seed(0)
        >>> x, y, radius = torch.randn(90, 2).double(), torch.arange(90) % 2, DistanceRadius(2).double()
        >>> box = Interval.point(x)
        >>> fit_radius(radius, [Observed((box,), box, y)], None, 0.01, lambda logits: logits)
        >>> with outwards():
        ...     bound = radius_bound(radius, (x,), (False,))
        >>> bool((bound > radius((x,))).all()), bool((bound < (1 + 1e-8) * radius((x,)) + 1e-99).all())
        (True, True)
    """
    features = [
        pooled_box(output, of_tokens) for output, of_tokens in zip(outputs, tokens, strict=True)
    ]
    boxes = *features, *map(direction_box, features[-NEAR_PLACES:])
    found = [
        distance_bounds(distance, box)
        for distance, box in zip(radius.distances, boxes, strict=True)
    ]
    z = radius.combined(Interval._of_point(terms_of(found, len(features)))).upper
    bound = (_square(_square(_softplus(z))) * radius.scale).upper
    return torch.where((z < LARGEST) | (radius.scale == 0), bound, math.inf)  # NaN is not below


def pooled_box(output: Interval | Tensor, tokens: bool = False) -> Interval:
    """As :func:`creinn.classifier.network.pooled`, in float64 and rounded outwards.

    Example:
        >>> from creinn.rounding import outwards
        >>> with outwards():
        ...     found = pooled_box(torch.tensor([[[1.0, 3.0]]]))
        >>> found.lower < torch.tensor([[2.0, 1.0]]), found.upper - found.lower < 1e-12
        (tensor([[True, True]]), tensor([[True, True]]))
    """
    maps = as_interval(output).each(Tensor.double)
    if maps.ndim == 2:
        return maps
    maps = maps.transpose(1, 2) if tokens else maps.flatten(2)
    center, root = Interval._of_point(maps.center), math.sqrt(maps.shape[2])
    middle = center.lower.mean(2)
    off = center.mean(2) - middle
    deviation = _norm(center - middle.unsqueeze(2), 2) / root
    slack = _norm(Interval._of_point(maps.radius), 2) / root
    least = deviation - slack - torch.maximum(off.lower.abs(), off.upper.abs())
    lower, upper = least.lower.clamp_min(0), (deviation + slack).upper
    return cat((maps.mean(2), Interval._of_parts(lower, upper)), 1)


def direction_box(features: Interval) -> Interval:
    """As :func:`creinn.classifier.radius.directions` of a box, rounded outwards; also for norms that underflow.

    Example:
        >>> from creinn.rounding import outwards
        >>> with outwards():
        ...     found = direction_box(Interval.point(torch.tensor([[3.0, 4.0]], dtype=torch.float64)))
        >>> found.lower < torch.tensor([[0.6, 0.8]]), found.upper - found.lower < 1e-12
        (tensor([[True, True]]), tensor([[True, True]]))
    """
    lower, upper, norm = features.lower, features.upper, _norm(features, 1)
    least, most = norm.lower.unsqueeze(1), norm.upper.unsqueeze(1)
    low = torch.where(lower < 0, lower / least, lower / most)  # by 0 there is no bound but 1
    low, high = apart(low, torch.where(upper > 0, upper / least, upper / most), False)
    return Interval._of_parts(low.clamp(-1, 1), high.clamp(-1, 1))


def distance_bounds(
    distance: Distance, features: Interval
) -> tuple[Float[Tensor, " rows"], Float[Tensor, " rows"]]:
    """As :meth:`Distance.forward` of a box, rounded outwards.

    Example:
        >>> from creinn.rounding import outwards
        >>> distance = Distance(num_classes=2)  # means 0 and 8, variance 1
        >>> distance.fit(torch.tensor([[-1.0], [1.0], [7.0], [9.0]]), torch.tensor([0, 0, 1, 1]))
        >>> with outwards():
        ...     found = distance_bounds(distance, Interval.point(torch.tensor([[11.0]], dtype=torch.float64)))
        >>> [round(bound.item(), 4) for bound in found]  # 9 and 9 - 49 / 17
        [9.0, 6.1176]
    """
    whitened = distance.whiten(features - distance.origin, _product)
    means = Interval._of_point(distance.means.double())
    u, along = _product(whitened, distance.axes), _product(means, distance.axes)
    nearest = nearest_of(along.center, u.center)
    mean, found = along[nearest], []
    for end in (
        Interval._of_point(u.lower),
        Interval._of_point(u.upper),
    ):  # where a convex function is largest
        found.append((_square(end - mean) - _square(end) * distance.shares).upper)
    relative = Interval._of_point(torch.maximum(*found)).sum(1)
    return _square(whitened - means[nearest]).sum(1).upper, relative.upper


def _product(x: Interval, weight: Float[Tensor, "features outputs"]) -> Interval:
    """The image of ``x`` under a matrix that is exact: of relative radii 0."""
    return relative_affine(Matrix(), x, weight.double().mT, torch.zeros((), dtype=torch.float64))


def _square(x: Interval) -> Interval:
    least, most = (
        torch.maximum(x.lower, -x.upper).clamp_min(0),
        torch.maximum(x.lower.abs(), x.upper.abs()),
    )
    return Interval._of_parts(*apart(least.square(), most.square(), True), nonnegative=True)


def _norm(x: Interval, dim: int) -> Interval:
    squares = _square(x).sum(dim)
    return Interval._of_parts(
        *apart(squares.lower.sqrt(), squares.upper.sqrt(), True), nonnegative=True
    )


def _softplus(z: Tensor) -> Interval:
    """Bounds of ``ln(1 + e^z)``, without torch's threshold, beyond which it takes ``z`` itself."""
    least, most = image(torch.exp, -z.abs())
    tail = Interval._of_parts(image(torch.log1p, least)[0], image(torch.log1p, most)[1])
    return tail + z.clamp_min(0)
