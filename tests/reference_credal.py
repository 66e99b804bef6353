"""Slow oracles for credal sets, each obviously right: enumeration, linear programs, plain search, ball arithmetic."""

import heapq
import itertools
import math
from fractions import Fraction

import flint
import numpy as np
import torch
from scipy.optimize import linprog

BITS = 200  # of ball arithmetic


def vertices(lower: np.ndarray, upper: np.ndarray, slack: float = 1e-13) -> np.ndarray:
    """Return the points in which all classes except one are at a bound. Points can be repeated."""
    classes = len(lower)
    corners = np.array(list(itertools.product([False, True], repeat=classes - 1)))
    found = []
    for free in range(classes):
        others = [k for k in range(classes) if k != free]
        point = np.empty((len(corners), classes))
        point[:, others] = np.where(corners, upper[others], lower[others])
        point[:, free] = 1 - point[:, others].sum(1)
        fits = (point[:, free] >= lower[free] - slack) & (point[:, free] <= upper[free] + slack)
        found.append(np.clip(point[fits], lower, upper))
    return np.concatenate(found)


def entropy(q: np.ndarray) -> np.ndarray:
    """Shannon entropy in bits over the last axis."""
    return -(q * np.log2(np.where(q > 0, q, 1.0))).sum(-1)


def lower_entropy(lower: np.ndarray, upper: np.ndarray) -> float:
    """Least entropy over the vertices."""
    return float(entropy(vertices(lower, upper)).min())


def upper_entropy(lower: np.ndarray, upper: np.ndarray) -> float:
    """Compute the upper entropy. The common level is found by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        level = (low + high) / 2
        low, high = (level, high) if np.clip(level, lower, upper).sum() < 1 else (low, level)
    return float(entropy(np.clip(high, lower, upper)))


def lower_entropy_by_search(lower: np.ndarray, upper: np.ndarray, gap: float = 1e-10) -> float:
    """Compute the lower entropy of one set by best-first search over boxes with chord bounds."""
    ticket = itertools.count()
    best = math.inf
    heap = [(-math.inf, next(ticket), lower, upper)]
    while heap and heap[0][0] < best - gap:
        _, _, low, high = heapq.heappop(heap)
        if low.sum() > 1 + 1e-14 or high.sum() < 1 - 1e-14:
            continue
        width = high - low
        h_low, h_high = (-x * np.log2(np.where(x > 0, x, 1.0)) for x in (low, high))
        slope = np.where(width > 0, (h_high - h_low) / np.where(width > 0, width, 1.0), np.inf)
        left, q, fractional = 1 - low.sum(), low.copy(), None
        for k in np.argsort(slope):
            step = min(max(left, 0.0), width[k])
            q[k], left = low[k] + step, left - step
            if 0 < step < width[k]:
                fractional = k
        value = entropy(q)
        best = min(best, value)
        if fractional is None:
            continue
        k = fractional
        share = (q[k] - low[k]) / width[k]
        bound = value - (entropy(q[k : k + 1]) - (1 - share) * h_low[k] - share * h_high[k])
        for half in ("low", "high"):
            child_low, child_high = low.copy(), high.copy()
            (child_high if half == "low" else child_low)[k] = q[k]
            heapq.heappush(heap, (bound, next(ticket), child_low, child_high))
    return float(best)


def minimum(objective: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    """Minimum of a linear function over the credal set."""
    found = linprog(
        objective,
        A_eq=np.ones((1, len(lower))),
        b_eq=[1.0],
        bounds=np.stack([lower, upper], 1),
        method="highs",
    )
    assert found.status == 0, found.message
    return float(found.fun)


def difference(lower: np.ndarray, upper: np.ndarray, i: int, j: int) -> float:
    """Minimum of ``q_i - q_j`` over the credal set."""
    unit = np.eye(len(lower))
    return minimum(unit[i] - unit[j], lower, upper)


def admissibility(lower: np.ndarray, upper: np.ndarray, i: int) -> float:
    """Largest margin ``min_j (q_i - q_j)`` over the members; i is E-admissible iff it is not negative."""
    classes = len(lower)
    rows = [
        np.append(np.eye(classes)[j] - np.eye(classes)[i], 1.0) for j in range(classes) if j != i
    ]
    found = linprog(
        np.append(np.zeros(classes), -1.0),
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        A_eq=np.append(np.ones(classes), 0.0)[None],
        b_eq=[1.0],
        bounds=[*zip(lower, upper, strict=True), (None, None)],
        method="highs",
    )
    assert found.status == 0, found.message
    return -float(found.fun)


def members(lower: torch.Tensor, upper: torch.Tensor, count: int, seed: int) -> torch.Tensor:
    """Return members of a set, which are random vertices and random mixtures of them."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(count, len(lower), generator=generator).argsort(-1)
    width = (upper - lower)[order]
    before = width.cumsum(-1) - width
    fill = torch.minimum((1 - lower.sum() - before).clamp_min(0), width)
    corners = lower + torch.zeros_like(fill).scatter(-1, order, fill)
    share = torch.rand(count, 1, generator=generator, dtype=lower.dtype)
    return torch.cat([corners, share * corners + (1 - share) * corners.flip(0)])


@flint.ctx.workprec(BITS)
def exact_softmax_intervals(
    lower: list[float], upper: list[float], mode: str
) -> tuple[list[float], list[float]]:
    """(IntSoftMax), or the range of softmax over the box, in 200-bit ball arithmetic from the same floats."""

    def ball(x: Fraction) -> flint.arb:
        return flint.arb(flint.fmpq(x.numerator, x.denominator))

    low, high = [Fraction(x) for x in lower], [Fraction(x) for x in upper]
    middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    of_low, of_high = (middle, middle) if mode == "paper" else (high, low)

    def bound(own: list[Fraction], others: list[Fraction], k: int) -> float:
        rest = sum(
            ((ball(others[j] - own[k])).exp() for j in range(len(own)) if j != k), flint.arb(0)
        )
        return float((1 / (1 + rest)).mid())

    classes = range(len(low))
    return [bound(low, of_low, k) for k in classes], [bound(high, of_high, k) for k in classes]


@flint.ctx.workprec(BITS)
def exact_xlogx(x: float) -> float:
    """``x ln x`` in ball arithmetic."""
    return float((flint.arb(x) * flint.arb(x).log()).mid()) if x > 0 else 0.0
