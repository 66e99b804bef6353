r"""Vertex of least entropy of each credal set: reachable bounds in, the vertex and what is left unproven out.

Entropy, the sum of :math:`h(q) = -q \log_2 q`, is concave, so it is least at a vertex: all classes at a bound, but at
most one. Branch and bound over boxes: :func:`lowest_vertex` searches, :func:`_step` solves boxes by :func:`_relax`,
:func:`_branch` halves them.
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
Column = Float[Tensor, "nodes 1"]
Vector = Float[Tensor, " nodes"]
Indices = Int[Tensor, "_"]

TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 1e-5,
}  # bits between bound and attained value that count as none
BUDGET = (
    3 * 2**15
)  # entries (nodes times classes) that the search of one set may look at, beyond its first few nodes
_ROUND = 2**12  # entries that take as long as starting one round of the search
_FEW = 32  # open nodes of a set that is searched side by side with others
_DEEP = 12  # rounds after which every set is searched alone
_PIECE = 2**13  # entries of the nodes of such a set that are looked at together
CHUNK = (
    2**17
)  # entries of one tensor of nodes: large enough to keep torch busy, small enough for the cache
_SLACK = 64  # machine epsilons by which a sum may miss 1


class Best(NamedTuple):
    """Least entropy known of each row, the member that has it, and what a search that stopped early left unproven."""

    attained: Vector
    member: Matrix
    gap: Vector


class Nodes(NamedTuple):
    """Boxes still to be searched: their row, their reachable bounds, and the best bound known for each."""

    row: Indices
    lower: Matrix
    upper: Matrix
    bound: Vector

    def pieces(self, entries: int) -> Iterator["Nodes"]:
        """Parts of at most so many entries; one empty part if there is no node."""
        size = max(1, entries // self.lower.shape[-1])
        return (Nodes(*parts) for parts in zip(*(x.split(size) for x in self), strict=True))


class Relaxed(NamedTuple):
    """Solution of the knapsack relaxation: classes at their upper bounds, the fractional one, and both values."""

    filled: Matrix  # 1 or 0: lerp between bounds is exact there, and far quicker than where
    fractional: Int[Tensor, "nodes 1"]
    value: Column
    slope: Matrix
    bits: Matrix  # of the filled and the unfilled; of the fractional class at its lower bound
    bound: Vector
    attained: Vector


def lowest_vertex(lower: Matrix, upper: Matrix) -> tuple[Matrix, Vector]:
    """Member of least entropy of every row, and by how many bits another may be below it: 0 where the search ended."""
    everything, best = _start(lower, upper)
    cores = []
    for part in everything.pieces(CHUNK):
        nodes, solved = _step(part, best)
        reach = _reach(nodes, solved, best)
        is_small = ((reach == nodes.upper - nodes.lower) & (reach > 0)).sum(
            -1
        ) * 2 + _FEW < lower.shape[-1]
        small, large = _where(is_small), _where(~is_small)
        _search(_branch(_select(nodes, large), _select(solved, large), best), best)
        nodes, solved = _select(nodes, small), _select(solved, small)
        vertex = torch.lerp(nodes.lower, nodes.upper, solved.filled)
        cores.append((nodes.row, _core(nodes, solved, reach[small]), vertex))
    row, core, vertex = map(torch.cat, zip(*cores, strict=True))
    for some in _alike(core.sum(-1)):
        _search_core(row[some], core[some], vertex[some], lower, upper, best)
    return best.member, best.gap


def _start(lower: Matrix, upper: Matrix) -> tuple[Nodes, Best]:
    """One box per row, of which nothing is known."""
    rows, zero = torch.arange(len(lower), device=lower.device), lower.new_zeros(len(lower))
    return Nodes(rows, lower, upper, zero - math.inf), Best(zero + math.inf, lower.clone(), zero)


def _search(nodes: Nodes, best: Best) -> None:
    """Search rows side by side while their open nodes are few, then alone."""
    for depth in itertools.count():
        if not len(nodes.row):
            return
        is_open = nodes.row.bincount(minlength=len(best.gap))
        alone = _where(is_open > (_FEW if depth < _DEEP else 0))
        for row in alone:
            best.gap[row] = _search_alone(_select(nodes, _where(nodes.row == row)), best)
        if len(alone):
            nodes = _select(nodes, _where(is_open.index_fill(0, alone, 0)[nodes.row] > 0))
        children = [_branch(*_step(piece, best), best) for piece in nodes.pieces(CHUNK)]
        nodes = Nodes(*map(torch.cat, zip(*children, strict=True)))


def _search_alone(nodes: Nodes, best: Best) -> Tensor:
    """Gap of one row: its nodes in pieces, that with the least bound first, until the budget is spent."""
    row, spent, ticket = nodes.row[0], 0, itertools.count()
    heap: list[tuple[float, int, Nodes]] = [(nodes.bound.min().item(), next(ticket), nodes)]
    while heap and spent < BUDGET:
        nodes = heapq.heappop(heap)[-1]
        spent += nodes.lower.numel() + _ROUND
        nodes = _branch(*_step(nodes, best), best)
        order = nodes.bound.argsort()
        for piece in Nodes(*(x[order] for x in nodes)).pieces(_PIECE):
            if len(piece.row):
                heapq.heappush(heap, (piece.bound[0].item(), next(ticket), piece))
    gap = best.attained[row] - (heap[0][0] if heap else best.attained[row])
    return gap * (gap > TOLERANCE[gap.dtype])


def _search_core(
    row: Tensor, core: Tensor, vertex: Tensor, lower: Tensor, upper: Tensor, best: Best
) -> None:
    """Search rows among the classes of their cores; the others stay at ``vertex``, together they are one class."""
    order = core.to(torch.int8).argsort(-1, descending=True)[:, : int(core.sum(-1).max())]
    inner = core.gather(-1, order).to(lower.dtype)
    fixed = (vertex * ~core).sum(-1, keepdim=True)
    nodes, found = _start(
        *(torch.cat([x[row].gather(-1, order) * inner, fixed], -1) for x in (lower, upper))
    )
    _search(nodes, found)
    member = vertex.scatter(
        -1, order, torch.lerp(vertex.gather(-1, order), found.member[:, :-1], inner)
    )
    excess = _bits(member).sum(-1) - best.attained[row]
    better = excess < 0
    best.member[row[better]] = member[better]
    best.gap[row] = (found.gap - excess.clamp_min(0)).clamp_min(0)


def _prices(nodes: Nodes, solved: Relaxed, best: Best) -> tuple[Column, Matrix]:
    """Bits left to gain, and by duality what moving a class by d costs at least, ``abs(off_slope) * d``."""
    gap = best.attained[nodes.row] + TOLERANCE[best.gap.dtype] - solved.bound
    return gap.unsqueeze(-1), solved.slope - solved.slope.gather(-1, solved.fractional)


def _reach(nodes: Nodes, solved: Relaxed, best: Best) -> Matrix:
    """How far each class may leave the relaxation's bound in a better vertex: by its width, or less."""
    gap, off_slope = _prices(nodes, solved, best)
    return torch.minimum(
        nodes.upper - nodes.lower, gap / off_slope.abs().clamp_min(torch.finfo(gap.dtype).tiny)
    )


def _core(nodes: Nodes, solved: Relaxed, reach: Matrix) -> Bool[Tensor, "nodes classes"]:
    r"""Classes that may be elsewhere in a better vertex; every other one cannot, or another one replaces it.

    One that cannot move by its whole width can only be the one between its bounds. Of those below their upper bounds,
    that of greatest :math:`\underline q_k` takes a given mass at least cost; of others, of least :math:`\overline q_k`.
    """
    width = nodes.upper - nodes.lower
    core = ((reach == width) & (width > 0)).scatter(-1, solved.fractional, True)
    outside, is_filled = ~core & (width > 0), solved.filled.bool()
    for mask, rank in ((outside & ~is_filled, -nodes.lower), (outside & is_filled, nodes.upper)):
        order = torch.where(mask, rank, math.inf).argsort(-1)
        room = (
            torch.where(mask, width, 0.0).gather(-1, order).cummax(-1).values
        )  # of those that come no later
        needs = torch.where(mask, reach, 0.0).gather(-1, order)
        needs[:, 1:] *= needs[:, 1:] > room[:, :-1]
        core |= torch.zeros_like(core).scatter(-1, order, needs > 0)
    return core


def _alike(size: Indices) -> Iterator[Indices]:
    """Groups of rows with cores of about the same size, no more than fit into the cache."""
    size, order = size.sort(descending=True)
    while len(size):
        count = min(int((size * 2 > size[0]).sum()), max(1, CHUNK // int(size[0])))
        yield order[:count]
        size, order = size[count:], order[count:]


def _step(nodes: Nodes, best: Best) -> tuple[Nodes, Relaxed]:
    """Solve nodes and keep the best vertices seen; return those that may hold a better one."""
    nodes = _select(nodes, _open(nodes.row, nodes.bound, best))
    solved = _relax(nodes.lower, nodes.upper)
    _record(nodes, solved, best)
    is_open = _open(nodes.row, solved.bound, best)
    nodes, solved = _select(nodes, is_open), _select(solved, is_open)
    below, above = _ordered(nodes, solved)
    unsettled = (
        ((1 - below - above) * (nodes.upper - nodes.lower))
        .scatter_(-1, solved.fractional, 0.0)
        .sum(-1)
    )
    undecided = _where(
        unsettled > _SLACK * torch.finfo(unsettled.dtype).eps
    )  # some half of theirs has another point
    nodes, solved = _select(nodes, undecided), _select(solved, undecided)
    _record(nodes, _neighbour(nodes, solved), best)
    return nodes, solved


def _open(row: Indices, bound: Vector, best: Best) -> Indices:
    return _where(bound < best.attained[row] - TOLERANCE[bound.dtype])


def _relax(lower: Matrix, upper: Matrix) -> Relaxed:
    """Replace h on each interval by its chord: a fractional knapsack is left.

    Raise the classes in the order of chord slope until the mass is 1. The value is a lower bound, the entropy at this
    vertex an upper one; they differ by the concavity gap of the single fractional class.
    """
    width = upper - lower
    at_lower, at_upper = _bits(lower), _bits(upper)
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
    true = _bits(value)
    bound = rest + torch.minimum(its_bits + rise * slope.gather(-1, fractional), true)
    return Relaxed(
        filled, fractional, value, slope, bits, bound.squeeze(-1), (rest + true).squeeze(-1)
    )


def _record(nodes: Nodes, solved: Relaxed, best: Best) -> None:
    before = best.attained[nodes.row]
    best.attained.scatter_reduce_(0, nodes.row, solved.attained, "amin")
    better = _where((solved.attained < before) & (solved.attained == best.attained[nodes.row]))
    vertex = torch.lerp(nodes.lower[better], nodes.upper[better], solved.filled[better])
    best.member[nodes.row[better]] = vertex.scatter(
        -1, solved.fractional[better], solved.value[better]
    )


def _ordered(nodes: Nodes, solved: Relaxed) -> tuple[Tensor, Tensor]:
    r"""Masks, 1 or 0: classes at their lower bounds that are below the fractional class, filled ones above it.

    Let i be below j, :math:`\underline q_i \le \underline q_j` and :math:`\overline q_i \le \overline q_j`. Moving mass
    from i to j until a bound stops it ends at a pair that majorises the pair we came from or its opposite extreme. So
    some minimiser has :math:`q_i = \underline q_i` or :math:`q_j = \overline q_j` for all such pairs at once (take the
    one with most mass on the later classes of a linear extension). Hence in the lower half the classes below the
    fractional one stay at their lower bounds, and in the upper half those above it are at their upper bounds. Where
    all bounds are ordered alike, as equal ones are, both halves are one point.
    """
    its_low, its_high = (x.gather(-1, solved.fractional) for x in (nodes.lower, nodes.upper))
    below = (nodes.lower <= its_low) & (nodes.upper <= its_high)
    above = (nodes.lower >= its_low) & (nodes.upper >= its_high)
    return below * (1 - solved.filled), above * solved.filled


def _neighbour(nodes: Nodes, solved: Relaxed) -> Relaxed:
    """Best of the vertices next to the relaxation's: the fractional class goes to a bound, another takes the rest."""
    low, high, filled, fractional, value = (
        nodes.lower,
        nodes.upper,
        solved.filled,
        solved.fractional,
        solved.value,
    )
    its_low, its_high = low.gather(-1, fractional), high.gather(-1, fractional)
    before = torch.lerp(low, high, filled)
    after = before + (value - torch.lerp(its_low, its_high, filled))
    misfit = torch.maximum(low - after, after - high).clamp_min(0)
    its_change = torch.lerp(_bits(its_low), _bits(its_high), filled) - _bits(value)
    change = (
        _bits(after.clamp_min(0)) - solved.bits + its_change + misfit / torch.finfo(low.dtype).tiny
    )
    change, other = change.scatter(-1, fractional, math.inf).min(-1, keepdim=True)
    filled, attained = (
        filled.scatter(-1, fractional, filled.gather(-1, other)),
        solved.attained + change.squeeze(-1),
    )
    return solved._replace(
        filled=filled, fractional=other, value=after.gather(-1, other), attained=attained
    )


def _branch(nodes: Nodes, solved: Relaxed, best: Best) -> Nodes:
    """Split each node at its fractional class; drop halves that are the parent's vertex alone."""
    low, high, fractional, value = nodes.lower, nodes.upper, solved.fractional, solved.value
    below, above = _ordered(nodes, solved)
    tiny, slack = torch.finfo(low.dtype).tiny, _SLACK * torch.finfo(low.dtype).eps
    gap, off_slope = _prices(nodes, solved, best)  # the slope is negative for filled classes
    least = torch.maximum(
        low, high - gap / (-off_slope).clamp_min(tiny)
    )  # beyond it, moving costs more than the gap
    low, high = least, torch.minimum(high, low + gap / off_slope.clamp_min(tiny))
    lower_half = torch.lerp(high, low, below).scatter(-1, fractional, value)  # upper bounds of it
    upper_half = torch.lerp(low, high, above).scatter(-1, fractional, value)  # lower bounds of it
    first, second = _where(lower_half.sum(-1) > 1 + slack), _where(upper_half.sum(-1) < 1 - slack)
    halves = torch.cat([first, second])
    low, high = (
        torch.cat([low[first], upper_half[second]]),
        torch.cat([lower_half[first], high[second]]),
    )
    excess, room = high.sum(-1, keepdim=True) - 1, 1 - low.sum(-1, keepdim=True)
    low, high = (
        torch.maximum(low, high - excess),
        torch.minimum(high, low + room),
    )  # reachable bounds
    return Nodes(nodes.row[halves], low, torch.maximum(low, high), solved.bound[halves])


def _bits(x: Tensor) -> Tensor:
    """Entropy summand -x log2 x, without gradient."""
    return (x * x.clamp_min(torch.finfo(x.dtype).tiny).log2()).neg_()


def _where(mask: Bool[Tensor, " rows"]) -> Indices:
    return mask.nonzero().squeeze(-1)


def _select(batch: Any, which: Indices) -> Any:
    """Some rows of nodes or of their solutions, in the order of their positions; all of them as they are."""
    return batch if len(which) == len(batch.bound) else type(batch)(*(x[which] for x in batch))
