r"""Branch-and-bound search for the vertex with the lowest entropy.

The entropy is a sum of concave terms :math:`h(q) = -q \log_2 q`, so the
minimum is attained at a vertex, where all classes except at most one are
equal to a bound. For each box, :func:`_step` solves a relaxation, and
:func:`_branch` splits it.
"""

import heapq
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Matrix = Float[Tensor, "nodes classes"]
NodeColumn = Float[Tensor, "nodes 1"]
Vector = Float[Tensor, " nodes"]
Indices = Int[Tensor, "_"]

TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5}  # gaps in bits that count as 0
BUDGET = 3 * 2**15  # of nodes times classes
_ROUND = 2**12  # overhead of one round of the search
_FEW = 32  # a row with more open nodes is searched alone
_DEEP = 12  # number of rounds before every row is searched alone
_PIECE = 2**13  # size of the steps if a row is searched alone
CHUNK = 2**17  # size of a tensor that fits into the cache
SUM_SLACK = 64  # error of a sum in machine epsilons


class Best(NamedTuple):
    """Best known solution of each row: entropy, member and gap in bits."""

    attained: Vector
    member: Matrix
    gap: Vector


class Nodes(NamedTuple):
    """Boxes: row, reachable bounds, and a lower bound of the entropy."""

    row: Indices
    lower: Matrix
    upper: Matrix
    bound: Vector

    def pieces(self, entries: int) -> Iterator["Nodes"]:
        """Split the nodes into pieces of at most this size."""
        size = max(1, entries // self.lower.shape[-1])
        return (Nodes(*parts) for parts in zip(*(x.split(size) for x in self), strict=True))


class Relaxed(NamedTuple):
    """Nodes with their knapsack relaxation, and the entropy of its vertex."""

    row: Indices
    lower: Matrix
    upper: Matrix
    filled: Matrix  # 1 for the upper bound, 0 for the lower bound
    fractional: Int[Tensor, "nodes 1"]
    value: NodeColumn
    slope: Matrix
    bits: Matrix  # with the fractional class at its lower bound
    bound: Vector
    attained: Vector


def lowest_vertex(lower: Matrix, upper: Matrix) -> tuple[Matrix, Vector]:
    """Return the member with the lowest entropy for each row, and the gap.

    The gap in bits is 0 if the search was completed.
    """
    nodes, best = _start(lower, upper)
    cores = []
    for part in nodes.pieces(CHUNK):
        solved = _step(part, best)
        reach = _reach(solved, best)
        free = ((reach == solved.upper - solved.lower) & (reach > 0)).sum(-1)
        is_small = free * 2 + _FEW < lower.shape[-1]
        _search(_branch(_select(solved, _where(~is_small)), best), best)
        small = _where(is_small)
        solved = _select(solved, small)
        vertex = torch.lerp(solved.lower, solved.upper, solved.filled)
        cores.append((solved.row, _core(solved, reach[small]), vertex))
    row, core, vertex = map(torch.cat, zip(*cores, strict=True))
    for some in _alike(core.sum(-1)):
        _search_core(row[some], core[some], vertex[some], lower, upper, best)
    return best.member, best.gap


def _start(lower: Matrix, upper: Matrix) -> tuple[Nodes, Best]:
    rows, zero = torch.arange(len(lower), device=lower.device), lower.new_zeros(len(lower))
    return Nodes(rows, lower, upper, zero - math.inf), Best(zero + math.inf, lower.clone(), zero)


def _search(nodes: Nodes, best: Best) -> None:
    for depth in itertools.count():
        if not len(nodes.row):
            return
        is_open = nodes.row.bincount(minlength=len(best.gap))
        alone = _where(is_open > (_FEW if depth < _DEEP else 0))
        for row in alone:
            best.gap[row] = _search_alone(_select(nodes, _where(nodes.row == row)), best)
        if len(alone):
            nodes = _select(nodes, _where(is_open.index_fill(0, alone, 0)[nodes.row] > 0))
        children = [_branch(_step(piece, best), best) for piece in nodes.pieces(CHUNK)]
        nodes = Nodes(*map(torch.cat, zip(*children, strict=True)))


def _search_alone(nodes: Nodes, best: Best) -> Tensor:
    """Search one row until the budget is used, and return the gap."""
    row, spent, ticket = nodes.row[0], 0, itertools.count()
    heap: list[tuple[float, int, Nodes]] = [(nodes.bound.min().item(), next(ticket), nodes)]
    while heap and spent < BUDGET:
        nodes = heapq.heappop(heap)[-1]
        spent += nodes.lower.numel() + _ROUND
        nodes = _branch(_step(nodes, best), best)
        order = nodes.bound.argsort()
        for piece in Nodes(*(x[order] for x in nodes)).pieces(_PIECE):
            if len(piece.row):
                heapq.heappush(heap, (piece.bound[0].item(), next(ticket), piece))
    gap = best.attained[row] - (heap[0][0] if heap else best.attained[row])
    return gap * (gap > TOLERANCE[gap.dtype])


def _search_core(
    row: Tensor, core: Tensor, vertex: Tensor, lower: Tensor, upper: Tensor, best: Best
) -> None:
    size = int(core.sum(-1).max())
    order = core.to(torch.int8).argsort(-1, descending=True)[:, :size]
    inner = core.gather(-1, order).to(lower.dtype)
    fixed = (vertex * ~core).sum(-1, keepdim=True)
    low, high = (torch.cat([x[row].gather(-1, order) * inner, fixed], -1) for x in (lower, upper))
    nodes, found = _start(low, high)
    _search(nodes, found)
    moved = torch.lerp(vertex.gather(-1, order), found.member[:, :-1], inner)
    member = vertex.scatter(-1, order, moved)
    excess = entropy_terms(member).sum(-1) - best.attained[row]
    better = excess < 0
    best.member[row[better]] = member[better]
    best.gap[row] = (found.gap - excess.clamp_min(0)).clamp_min(0)


def _prices(solved: Relaxed, best: Best) -> tuple[NodeColumn, Matrix]:
    """Return the gap in bits, and the slopes relative to the fractional class.

    By duality, moving a class by d increases the entropy by at least
    ``abs(off_slope) * d``.
    """
    gap = best.attained[solved.row] + TOLERANCE[best.gap.dtype] - solved.bound
    return gap.unsqueeze(-1), solved.slope - solved.slope.gather(-1, solved.fractional)


def _reach(solved: Relaxed, best: Best) -> Matrix:
    """Return how far each class can move in a better vertex."""
    gap, off_slope = _prices(solved, best)
    cost = off_slope.abs().clamp_min(torch.finfo(gap.dtype).tiny)
    return torch.minimum(solved.upper - solved.lower, gap / cost)


def _core(solved: Relaxed, reach: Matrix) -> Bool[Tensor, "nodes classes"]:
    r"""Return the classes that can have another value in a better vertex.

    A class that cannot move by its whole width can only be the fractional
    class. The cost is lowest for the largest :math:`\underline q_k` of the
    classes at their lower bounds, or the smallest :math:`\overline q_k` of
    the others.
    """
    width = solved.upper - solved.lower
    core = ((reach == width) & (width > 0)).scatter(-1, solved.fractional, True)
    outside, is_filled = ~core & (width > 0), solved.filled.bool()
    for mask, rank in ((outside & ~is_filled, -solved.lower), (outside & is_filled, solved.upper)):
        order = torch.where(mask, rank, math.inf).argsort(-1)
        room = torch.where(mask, width, 0.0).gather(-1, order).cummax(-1).values
        needs = torch.where(mask, reach, 0.0).gather(-1, order)
        needs[:, 1:] *= needs[:, 1:] > room[:, :-1]
        core |= torch.zeros_like(core).scatter(-1, order, needs > 0)
    return core


def _alike(size: Indices) -> Iterator[Indices]:
    size, order = size.sort(descending=True)
    while len(size):
        count = min(int((size * 2 > size[0]).sum()), max(1, CHUNK // int(size[0])))
        yield order[:count]
        size, order = size[count:], order[count:]


def _step(nodes: Nodes, best: Best) -> Relaxed:
    """Solve the nodes, and return those that can contain a better vertex."""
    solved = _relax(_prune(nodes, best))
    _record(solved, best)
    solved = _prune(solved, best)
    below, above = _ordered(solved)
    free = (1 - below - above) * (solved.upper - solved.lower)
    free = free.scatter_(-1, solved.fractional, 0.0).sum(-1)
    solved = _select(solved, _where(free > SUM_SLACK * torch.finfo(free.dtype).eps))
    _record(_neighbour(solved), best)
    return solved


def _prune(batch: Any, best: Best) -> Any:
    limit = best.attained[batch.row] - TOLERANCE[best.gap.dtype]
    return _select(batch, _where(batch.bound < limit))


def _relax(nodes: Nodes) -> Relaxed:
    """Replace h by its chords, and solve the fractional knapsack problem.

    The classes are raised in the order of their slopes until the mass is
    1. The value is a lower bound, and the entropy at this vertex is an
    upper bound.
    """
    row, lower, upper, _ = nodes
    width = upper - lower
    at_lower, at_upper = entropy_terms(lower), entropy_terms(upper)
    slope = (at_upper - at_lower) / width.clamp_min(torch.finfo(width.dtype).tiny)
    order = slope.argsort(-1)
    mass = width.gather(-1, order).cumsum(-1)
    room = (1 - lower.sum(-1, keepdim=True)).clamp_min(0)
    position = (mass <= room).sum(-1, keepdim=True).clamp_max(lower.shape[-1] - 1)
    places = torch.arange(lower.shape[-1], device=lower.device)
    filled = torch.empty_like(lower).scatter_(-1, order, (places < position).to(lower.dtype))

    fractional = order.gather(-1, position)
    span = width.gather(-1, fractional)
    rise = torch.minimum((room - (mass.gather(-1, position) - span)).clamp_min(0), span)
    value = lower.gather(-1, fractional) + rise
    bits = torch.lerp(at_lower, at_upper, filled)
    its_bits = bits.gather(-1, fractional)
    rest = bits.sum(-1, keepdim=True) - its_bits
    true = entropy_terms(value)
    bound = rest + torch.minimum(its_bits + rise * slope.gather(-1, fractional), true)
    bound, attained = bound.squeeze(-1), (rest + true).squeeze(-1)
    return Relaxed(row, lower, upper, filled, fractional, value, slope, bits, bound, attained)


def _record(solved: Relaxed, best: Best) -> None:
    before = best.attained[solved.row]
    best.attained.scatter_reduce_(0, solved.row, solved.attained, "amin")
    after = best.attained[solved.row]
    better = _where((solved.attained < before) & (solved.attained == after))
    vertex = torch.lerp(solved.lower[better], solved.upper[better], solved.filled[better])
    vertex = vertex.scatter(-1, solved.fractional[better], solved.value[better])
    best.member[solved.row[better]] = vertex


def _ordered(solved: Relaxed) -> tuple[Tensor, Tensor]:
    r"""Return masks for the classes below and above the fractional class.

    A class i is below a class j if
    :math:`\underline q_i \le \underline q_j` and
    :math:`\overline q_i \le \overline q_j`. If mass is moved from i to j
    until a bound is reached, the new pair majorises either the old pair or
    its opposite extreme. Therefore some minimiser has
    :math:`q_i = \underline q_i` or :math:`q_j = \overline q_j` for all of
    these pairs: the one with the most mass on the later classes of a
    linear extension. This fixes the classes below in the lower half of a
    node, and those above in the upper half.
    """
    low, high = solved.lower, solved.upper
    its_low, its_high = (x.gather(-1, solved.fractional) for x in (low, high))
    below = (low <= its_low) & (high <= its_high)
    above = (low >= its_low) & (high >= its_high)
    return below * (1 - solved.filled), above * solved.filled


def _neighbour(solved: Relaxed) -> Relaxed:
    low, high = solved.lower, solved.upper
    filled, fractional, value = solved.filled, solved.fractional, solved.value
    its_low, its_high = low.gather(-1, fractional), high.gather(-1, fractional)
    before = torch.lerp(low, high, filled)
    after = before + (value - torch.lerp(its_low, its_high, filled))
    misfit = torch.maximum(low - after, after - high).clamp_min(0)
    its_bits = torch.lerp(entropy_terms(its_low), entropy_terms(its_high), filled)
    change = entropy_terms(after.clamp_min(0)) - solved.bits + (its_bits - entropy_terms(value))
    change = change + misfit / torch.finfo(low.dtype).tiny
    change, other = change.scatter(-1, fractional, math.inf).min(-1, keepdim=True)
    filled = filled.scatter(-1, fractional, filled.gather(-1, other))
    value, attained = after.gather(-1, other), solved.attained + change.squeeze(-1)
    return solved._replace(filled=filled, fractional=other, value=value, attained=attained)


def _branch(solved: Relaxed, best: Best) -> Nodes:
    """Split the nodes at the fractional class, without halves of one vertex."""
    low, high, fractional, value = solved.lower, solved.upper, solved.fractional, solved.value
    below, above = _ordered(solved)
    tiny, slack = torch.finfo(low.dtype).tiny, SUM_SLACK * torch.finfo(low.dtype).eps
    # The gap limits the moves; the slope is negative for filled classes.
    gap, off_slope = _prices(solved, best)
    least = torch.maximum(low, high - gap / (-off_slope).clamp_min(tiny))
    low, high = least, torch.minimum(high, low + gap / off_slope.clamp_min(tiny))
    lower_half = torch.lerp(high, low, below).scatter(-1, fractional, value)  # its upper bounds
    upper_half = torch.lerp(low, high, above).scatter(-1, fractional, value)  # its lower bounds
    first, second = _where(lower_half.sum(-1) > 1 + slack), _where(upper_half.sum(-1) < 1 - slack)
    halves = torch.cat([first, second])
    low = torch.cat([low[first], upper_half[second]])
    high = torch.cat([lower_half[first], high[second]])
    excess, room = high.sum(-1, keepdim=True) - 1, 1 - low.sum(-1, keepdim=True)
    low, high = torch.maximum(low, high - excess), torch.minimum(high, low + room)  # reachable
    return Nodes(solved.row[halves], low, torch.maximum(low, high), solved.bound[halves])


def entropy_terms(x: Tensor) -> Tensor:
    """Compute ``-x log2 x`` without a gradient."""
    return (x * x.clamp_min(torch.finfo(x.dtype).tiny).log2()).neg_()


def _where(mask: Bool[Tensor, " rows"]) -> Indices:
    return mask.nonzero().squeeze(-1)


def _select(batch: Any, which: Indices) -> Any:
    return batch if len(which) == len(batch.bound) else type(batch)(*(x[which] for x in batch))
