r"""
Aleatoric uncertainty without torch
===================================

An exported graph with more than ten classes has the outputs ``lower``, ``upper`` and ``TU``, but
not ``AU``, because the lowest entropy of a credal set is found by a search. This program computes
``AU`` from the bounds with NumPy; then ``EU = TU - AU``. Copy the functions to the place where the
model runs. Where torch is available, use :meth:`creinn.CredalSet.lower_entropy`, which is faster.

The entropy is concave, so the minimum is attained at a vertex. In a box, each term
:math:`h(q) = -q \log_2 q` is above its chord. The sum of the chords is lowest if the classes are
filled in the order of their slopes. This gives a lower bound, and the entropy of the point is an
upper bound. If the bounds differ, the box is split at the class that is filled in part.
"""

import heapq
import itertools

import numpy as np

TOLERANCE = 1e-9  # bits


def lower_entropy(lower, upper, nodes=10_000):
    """Compute the lowest Shannon entropy of each set ``(..., K)``, in bits, and the gap.

    The gap is 0 if the value is proven. If the search stops after ``nodes`` boxes, the minimum can
    be lower than the value by at most the gap.
    """
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    if low.shape != high.shape or low.ndim == 0:
        raise ValueError(f"The bounds must have one shape (..., K), got {low.shape}, {high.shape}.")
    rows = zip(low.reshape(-1, low.shape[-1]), high.reshape(-1, low.shape[-1]), strict=True)
    found = np.array([search(*row, nodes) for row in rows]).reshape(*low.shape[:-1], 2)
    return found[..., 0], found[..., 1]


def search(low, high, nodes):
    """Search the boxes of one set in the order of their bounds."""
    best, ticket = np.inf, itertools.count()
    boxes = [(-np.inf, next(ticket), low, high)]
    for _ in range(nodes):
        if not boxes or boxes[0][0] >= best - TOLERANCE:
            return best, 0.0
        _, _, low, high = heapq.heappop(boxes)
        low = np.maximum(low, high - max(high.sum() - 1, 0.0))  # reachable bounds
        high = np.maximum(low, np.minimum(high, low + max(1 - low.sum(), 0.0)))
        bound, point, between = relax(low, high)
        best = min(best, float(entropy_terms(point).sum()))
        for end in (0, 1) if bound < best - TOLERANCE else ():
            ends = low.copy(), high.copy()
            ends[end][between] = point[between]
            heapq.heappush(boxes, (bound, next(ticket), *ends))
    gap = best - boxes[0][0] if boxes else 0.0
    return best, gap if gap > TOLERANCE else 0.0


def relax(low, high):
    """Return the lowest sum of chords in a box, its point, and the class filled in part."""
    width = high - low
    slope = (entropy_terms(high) - entropy_terms(low)) / np.where(width > 0, width, 1.0)
    order = np.argsort(slope)
    before = np.cumsum(width[order]) - width[order]
    fill = np.empty_like(low)
    fill[order] = np.clip(1 - low.sum() - before, 0, width[order])
    bound = float(entropy_terms(low).sum() + slope @ fill)
    return bound, low + fill, int(np.argmax(np.minimum(fill, width - fill)))


def entropy_terms(q):
    return -q * np.log2(np.where(q > 0, q, 1.0))


# %%
# A credal set of three classes. The vertices are (0, .6, .4), (.2, .4, .4) and (.2, .6, .2), and the
# first one has the lowest entropy.

bits, gap = lower_entropy([0.0, 0.4, 0.2], [0.2, 0.6, 0.4])
print(f"AU {bits:.4f} bits, gap {gap:g}")
