"""The radius by distance in ball arithmetic: real numbers, from the statistics as they are stored.

Written from the formulas of :mod:`creinn.distance.radius` and :mod:`creinn.distance.mahalanobis`; nothing is shared
with them but what was fitted.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from flint import arb

from creinn.nn.affine import IntervalParameters
from reference_exact import Balls, Member, _log_one_plus_exp, _matmul, exact, run, softmax

_greater = np.frompyfunc(lambda a, b: a.max(b), 2, 1)
_less = np.frompyfunc(lambda a, b: a.min(b), 2, 1)


def run_at(
    network: torch.nn.Sequential, x: Balls, member: Member, at: Sequence[str]
) -> tuple[list[Balls], Balls]:
    """What a member gives at places, which are parts of the network or ``<head>``, and its logits."""
    found, last = (
        {},
        [name for name, part in network.named_children() if isinstance(part, IntervalParameters)][
            -1
        ],
    )
    for name, part in network.named_children():
        if name == last:
            found["<head>"] = x
        found[name] = x = run(part, x, member)
    return [found[place] for place in at], x


def radius_of(radius: Any, outputs: Sequence[Balls]) -> Balls:
    """Radii ``(N,)`` of outputs at all places, each ``(N, D)`` or ``(N, C, ...)``."""
    features = [pooled(output) for output in outputs]
    views = [*features, *(directions(one) for one in features[-2:])]
    found = [
        distances(distance, view) for distance, view in zip(radius.distances, views, strict=True)
    ]
    terms = [d for d, _ in found[: len(features)]] + [
        term for pair in found[len(features) :] for term in pair
    ]
    medians, spreads, sums = exact(radius.medians), exact(radius.spreads), exact(radius.sums)
    z = [
        (term - median) / spread
        for term, median, spread in zip(terms, medians, spreads, strict=True)
    ]
    last = 4 if len(z) > 3 else 2
    near, far = sum(z[-last:]), sum(_greater(one, arb(0)) for one in z[:-last])
    both = (near - sums[0, 0]) / sums[0, 1] + arb(7) / 10 * (far - sums[1, 0]) / sums[1, 1]
    both = (both - sums[2, 0]) / sums[2, 1]
    root = np.array([_log_one_plus_exp(one) for one in both], dtype=object)
    return _squared(_squared(root)) * exact(radius.scale).item()


def pooled(output: Balls) -> Balls:
    """Mean and standard deviation of each channel."""
    if output.ndim == 2:
        return output
    maps = output.reshape(*output.shape[:2], -1)
    mean = maps.sum(2) / maps.shape[2]
    variance = _squared(maps - mean[:, :, None]).sum(2) / maps.shape[2]
    return np.concatenate((mean, _roots(variance)), 1)


def directions(features: Balls) -> Balls:
    """Return the rows divided by their norms. Rows of zeros are unchanged."""
    norms = _roots(_squared(features).sum(1))
    is_zero = [all(value == 0 for value in row) for row in features]
    return np.array(
        [
            row if zero else row / norm
            for row, norm, zero in zip(features, norms, is_zero, strict=True)
        ]
    )


def distances(distance: Any, features: Balls) -> tuple[Balls, Balls]:
    """Return the smallest squared distance and the smallest relative distance to a class."""
    names = ("origin", "directions", "deviations", "rest", "means", "axes", "shares", "coordinates")
    origin, along, deviations, rest, means, axes, shares, centres = (
        exact(getattr(distance, name)) for name in names
    )
    centred = features - origin
    inner = _matmul(centred, along)
    white = inner / deviations
    if along.shape[0] != along.shape[1]:
        white = np.concatenate((white, (centred - _matmul(inner, along.T.copy())) / rest.item()), 1)
    u = _matmul(white, axes)
    far = [_squared(white - mean).sum(1) for mean in means]
    near = [_squared(u - centre).sum(1) for centre in centres]
    return _least(far), _least(near) - (shares * _squared(u)).sum(1)


def perturbed(logits: Balls, radius: Balls) -> list[Balls]:
    """Probabilities after adding to each logit, up or down, the radius of its row, one against all others."""
    found, every = [], radius[:, None] + 0 * logits
    for k in range(logits.shape[1]):
        signs = np.full(logits.shape[1], -1)
        signs[k] = 1
        found += [softmax(logits + every * signs), softmax(logits - every * signs)]
    return found


def _squared(values: Balls) -> Balls:
    return values * values  # powers of balls around 0 are NaN


def _least(values: list[Balls]) -> Balls:
    least = values[0]
    for one in values[1:]:
        least = _less(least, one)
    return least


def _roots(squares: Balls) -> Balls:
    return np.frompyfunc(lambda a: a.sqrt() if a > 0 else arb(0).union(a.upper().sqrt()), 1, 1)(
        squares
    )
