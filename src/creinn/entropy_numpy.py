r"""Least entropy of credal sets by numpy alone: for models exported with many classes, where no torch is.

In: the outputs ``lower`` and ``upper`` of an exported graph. Out: AU, in bits; EU is TU - AU. The same quantity as
:func:`creinn.credal.entropy.lower_entropy`, by a plainer search of one set at a time. This file needs nothing else of
the library: it may be copied to where it is wanted.

Entropy is concave, so it is least at a vertex. In a box, the chord of each class's :math:`h(q) = -q \log_2 q` lies
below it; the sum of chords is least where classes are filled in the order of their slopes, all but one entirely. That
bounds the entropy from below, and the point itself from above. Where both differ, the box is halved at the class that
is filled in part.
"""

import heapq
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
TOLERANCE = 1e-9  # bits between both bounds that count as none


def lower_entropy(lower: Any, upper: Any, nodes: int = 10_000) -> tuple[Array, Array]:
    """Least Shannon entropy of each set, in bits, and by how much a member may be below it: 0 where it is proven.

    Sets of trained networks need a few boxes. Where ``nodes`` of them do not do, the value is that of the best member
    found, and the gap says what is left.

    Args:
        lower: Lower probabilities (..., K).
        upper: Upper probabilities, of the same shape.
        nodes: Boxes that may be looked at for one set.

    Example:
        >>> bits, gap = lower_entropy([[0.0, 0.4, 0.2]], [[0.2, 0.6, 0.4]])  # at (0, .6, .4)
        >>> bits.round(4), gap
        (array([0.971]), array([0.]))
    """
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    if low.shape != high.shape or low.ndim == 0:
        raise ValueError(
            f"Bounds must have one shape (..., K), found {low.shape} and {high.shape}."
        )
    rows = zip(low.reshape(-1, low.shape[-1]), high.reshape(-1, low.shape[-1]), strict=True)
    found = np.array([_search(*row, nodes) for row in rows]).reshape(*low.shape[:-1], 2)
    return found[..., 0], found[..., 1]


def _search(low: Array, high: Array, nodes: int) -> tuple[float, float]:
    """Least entropy of one set, and the gap: boxes in the order of their bounds."""
    best, ticket = np.inf, itertools.count()
    boxes = [(-np.inf, next(ticket), low, high)]
    for _ in range(nodes):
        if not boxes or boxes[0][0] >= best - TOLERANCE:
            return best, 0.0
        _, _, low, high = heapq.heappop(boxes)
        low, high = _reachable(low, high)
        bound, point, between = _relax(low, high)
        best = min(best, float(_bits(point).sum()))
        for end in (0, 1) if bound < best - TOLERANCE else ():
            ends = low.copy(), high.copy()
            ends[end][between] = point[between]
            heapq.heappush(boxes, (bound, next(ticket), *ends))
    gap = best - boxes[0][0] if boxes else 0.0
    return best, gap if gap > TOLERANCE else 0.0


def _relax(low: Array, high: Array) -> tuple[float, Array, int]:
    """Least sum of chords over the distributions in a box, the point that has it, and the class that is at no bound."""
    width = high - low
    slope = (_bits(high) - _bits(low)) / np.where(width > 0, width, 1.0)
    order = np.argsort(slope)
    before = np.cumsum(width[order]) - width[order]
    fill = np.empty_like(low)
    fill[order] = np.clip(1 - low.sum() - before, 0, width[order])
    return (
        float(_bits(low).sum() + slope @ fill),
        low + fill,
        int(np.argmax(np.minimum(fill, width - fill))),
    )


def _reachable(low: Array, high: Array) -> tuple[Array, Array]:
    """Bounds that some distribution in the box attains."""
    low = np.maximum(low, high - max(high.sum() - 1, 0.0))
    return low, np.maximum(low, np.minimum(high, low + max(1 - low.sum(), 0.0)))


def _bits(q: Array) -> Array:
    return -q * np.log2(np.where(q > 0, q, 1.0))
