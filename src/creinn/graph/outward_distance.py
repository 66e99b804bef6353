"""Upper bounds of the radius by distance that are valid in floating point.

The inputs are the outputs of a network at the places of a fitted distance, as intervals in float64.
The result for each row is an upper bound of the real radius of all members.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from creinn.distance.mahalanobis import Distance, nearest_of
from creinn.distance.radius import FAR_WEIGHT, LARGEST, NUM_NEAR_LAYERS, DistanceRadius, terms_of
from creinn.graph.outward import (
    FLOOR,
    FUNCTION,
    Bounds,
    above,
    center_radius,
    growth,
    magnitude_of,
    outward,
    total,
)
from creinn.interval import Interval, as_interval, cat


def radius_bound(
    radius: DistanceRadius, outputs: Sequence[Interval | Tensor], tokens: Sequence[bool]
) -> Tensor:
    """Return upper bounds ``(N,)`` of the real radii of all members.

    If there is no bound, the result is infinite. The real radius is a non-decreasing function
    of each of its terms. It is unbounded for 10⁶ spreads or more.

    Args:
        radius: A fitted radius in float64. The spreads and deviations are ``> 0``, and the shares
            are ``<= 1``.
        outputs: The outputs ``(N, D)`` or ``(N, C, ...)`` at each of the places, in float64.
        tokens: Whether the output at each place has the shape ``(N, tokens, C)``.
    """
    features = [_pooled(as_interval(x), of) for x, of in zip(outputs, tokens, strict=True)]
    boxes = *features, *map(_directions, features[-NUM_NEAR_LAYERS:])
    found = [_distances(one, box) for one, box in zip(radius.distances, boxes, strict=True)]
    z = above(above(terms_of(found, len(features)) - radius.usual) / radius.spreads)
    last = 2 * NUM_NEAR_LAYERS if z.shape[1] > 3 else 2
    near, far = (
        above(part.sum(1), part.abs().sum(1), z.shape[1])
        for part in (z[:, -last:], z[:, :-last].relu())
    )
    near, far = (
        above(above(part - median) / spread)
        for part, (median, spread) in zip((near, far), radius.sums, strict=False)
    )
    median, spread = radius.sums[2]
    z = above(above(above(near + above(FAR_WEIGHT * far)) - median) / spread)
    tail = above(above((-z.abs()).exp(), terms=FUNCTION).log1p(), terms=FUNCTION)
    root = above(tail + z.relu())
    bound = above(above(above(root.square()).square()) * radius.scale)
    return torch.where((z < LARGEST) | (radius.scale == 0), bound, math.inf)  # false for NaN


def _pooled(maps: Interval, tokens: bool) -> Interval:
    r"""Return intervals of the mean and the standard deviation of each channel.

    For any :math:`a`, the deviation of the centers :math:`c` is at most the root mean square of
    :math:`c - a`, and it is smaller by at most :math:`|\bar c - a|`. The deviation of a member
    differs from it by at most the deviation of the radii.
    """
    if maps.ndim == 2:
        return maps
    maps = maps.transpose(1, 2) if tokens else maps.flatten(2)
    count, (center, radius) = maps.shape[2], center_radius(maps)
    mean = center.mean(2)
    off = above(growth(count) * center.abs().mean(2), terms=count)
    residuals = outward(Interval._of_point(center) - mean.unsqueeze(2))
    deviation, slack = (
        outward(_norm(x) / math.sqrt(count)) for x in (residuals, Interval._of_point(radius))
    )
    lower = outward(outward(deviation - slack.upper) - off).lower.clamp_min(0)
    deviations = Interval._of_parts(lower, outward(deviation + slack.upper).upper)
    means = outward(maps.mean(2), magnitude_of(maps).mean(2), count)
    return cat((means, deviations), 1)


def _directions(features: Interval) -> Interval:
    """Return intervals of the features divided by the norms, which can underflow."""
    norm = _norm(features)
    lower, upper = features.lower, features.upper
    least, most = norm.lower.unsqueeze(1), norm.upper.unsqueeze(1)
    low = torch.where(lower < 0, lower / least, lower / most)  # the bound is 1 for a division by 0
    high = torch.where(upper > 0, upper / least, upper / most)
    found = outward(Interval._of_parts(low, high))
    return Interval._of_parts(found.lower.clamp(-1, 1), found.upper.clamp(-1, 1))


def _distances(distance: Distance, features: Interval) -> Bounds:
    """Return bounds of the squared distance and of the relative distance.

    The bound of any class is a bound of the nearest class.
    """
    centred = outward(features - distance.origin)
    along = _matrix_product(centred, distance.directions)
    whitened = outward(along / distance.deviations)
    if distance.directions.shape[0] != distance.directions.shape[1]:
        across = outward(centred - _matrix_product(along, distance.directions.mT))
        whitened = cat((whitened, outward(across / distance.rest)), 1)
    means = Interval._of_point(distance.means)
    u, of_means = (_matrix_product(x, distance.axes) for x in (whitened, means))
    nearest = nearest_of(of_means.center, u.center)
    relative = [  # the maximum of a convex function is at one of the ends
        outward(
            _square(outward(end - of_means[nearest])) - outward(_square(end) * distance.shares)
        ).upper
        for end in (Interval._of_point(u.lower), Interval._of_point(u.upper))
    ]
    squared = total(_square(outward(whitened - means[nearest])), 1)
    return squared.upper, total(Interval._of_point(torch.maximum(*relative)), 1).upper


def _matrix_product(x: Interval, matrix: Tensor) -> Interval:
    """Return an interval that contains the product of ``x`` and an exact matrix."""
    (center, radius), size = center_radius(x), matrix.abs() + FLOOR
    mid, reach = center @ matrix, radius @ size
    magnitude = (center.abs() + radius) @ size
    return outward(Interval._of_parts(mid - reach, mid + reach), magnitude, len(matrix))


def _square(x: Interval) -> Interval:
    least = torch.maximum(x.lower, -x.upper).clamp_min(0)
    return outward(Interval._of_parts(least.square(), magnitude_of(x).square(), nonnegative=True))


def _norm(x: Interval) -> Interval:
    """Return an interval that contains the norm over the last dimension."""
    squares = total(_square(x), x.ndim - 1)
    return outward(Interval._of_parts(squares.lower.sqrt(), squares.upper.sqrt(), True))
