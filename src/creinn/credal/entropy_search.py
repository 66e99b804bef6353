r"""Vertex of least entropy of each credal set: reachable bounds in, the vertex and what is left unproven out.

Branch and bound over the boxes of :mod:`creinn.credal.entropy_nodes`.

* *Core.* After the root, a class that cannot move by its whole width can only be the one between its bounds. Of those
  below their upper bounds, the one of greatest :math:`\underline q_k` takes a given mass at least cost; of the others,
  the one of least :math:`\overline q_k`. All classes that another one replaces so are fixed. Where few remain, the
  search goes on among them.
* *Order.* The open nodes of all sets are searched side by side while they are few. A set with many is searched alone,
  best bound first, until its budget is spent.

The problem contains subset sum, so some sets stay unproven whatever the budget.
"""

import heapq
import itertools
import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from creinn.credal.entropy_nodes import TOLERANCE, Best, Nodes, Relaxed, bits_of, branch, step

BUDGET = 3 * 2**15  # entries (nodes times classes) that the search of one set may look at, beyond its first few nodes
_ROUND = 2**12  # entries that take as long as starting one round of the search
_FEW = 32  # open nodes of a set that is searched side by side with others
_DEEP = 12  # rounds after which every set is searched alone
_PIECE = 2**13  # entries of the nodes of such a set that are looked at together
_CHUNK = 2**17  # entries of one tensor of nodes: large enough to keep torch busy, small enough for the cache


def lowest_vertex(
    lower: Float[Tensor, "rows classes"], upper: Float[Tensor, "rows classes"]
) -> tuple[Float[Tensor, "rows classes"], Float[Tensor, " rows"]]:
    """Member of least entropy of every row, and by how many bits at most another one may be below it.

    Returns:
        ``(member, gap)``. The gap is 0 where the search ended: nothing is lower by more than ``TOLERANCE``.
    """
    best, cores = Best.start(lower), []
    for part in chunks(*lower.shape):
        mine = best.part(part)
        nodes, solved = step(Nodes.start(lower[part], upper[part]), mine)
        reach = _reach(nodes, solved, mine)
        is_small = ((reach == nodes.upper - nodes.lower) & (reach > 0)).sum(-1) * 2 + _FEW < lower.shape[-1]
        small, large = is_small.nonzero().squeeze(-1), (~is_small).nonzero().squeeze(-1)
        _search(branch(nodes.select(large), solved.select(large), mine), mine)
        nodes, solved = nodes.select(small), solved.select(small)
        vertex = torch.lerp(nodes.lower, nodes.upper, solved.filled)
        cores.append((nodes.row + part.start, _core(nodes, solved, reach[small]), vertex))
    if cores:
        row, core, vertex = map(torch.cat, zip(*cores, strict=True))
        for some in _alike(core.sum(-1)):
            _search_core(row[some], core[some], vertex[some], lower[row[some]], upper[row[some]], best)
    return best.member, best.gap


def chunks(rows: int, classes: int) -> Iterator[slice]:
    """Slices of the rows whose tensors fit into the cache."""
    step = max(1, _CHUNK // classes)
    return (slice(start, start + step) for start in range(0, rows, step))


def _reach(nodes: Nodes, solved: Relaxed, best: Best) -> Float[Tensor, "nodes classes"]:
    """How far each class may leave the relaxation's bound in a better vertex: by its width, or less."""
    gap = (best.attained[nodes.row] + TOLERANCE[best.gap.dtype] - solved.bound).unsqueeze(-1)
    off_slope = (solved.slope - solved.slope.gather(-1, solved.fractional)).abs()
    return torch.minimum(nodes.upper - nodes.lower, gap / off_slope.clamp_min(torch.finfo(gap.dtype).tiny))


def _core(nodes: Nodes, solved: Relaxed, reach: Float[Tensor, "nodes classes"]) -> Bool[Tensor, "nodes classes"]:
    """Classes that may be elsewhere in a better vertex; every other one cannot, or another one replaces it."""
    width = nodes.upper - nodes.lower
    core = ((reach == width) & (width > 0)).scatter(-1, solved.fractional, True)
    outside, is_filled = ~core & (width > 0), solved.filled.bool()
    for mask, rank in ((outside & ~is_filled, -nodes.lower), (outside & is_filled, nodes.upper)):
        order = torch.where(mask, rank, math.inf).argsort(-1)
        room = torch.where(mask, width, 0.0).gather(-1, order).cummax(-1).values  # of those that come no later
        needs = torch.where(mask, reach, 0.0).gather(-1, order)
        needs[:, 1:] *= needs[:, 1:] > room[:, :-1]
        core |= torch.zeros_like(core).scatter(-1, order, needs > 0)
    return core


def _alike(size: Int[Tensor, " rows"]) -> Iterator[Int[Tensor, " some"]]:
    """Groups of rows with cores of about the same size, no more than fit into the cache."""
    size, order = size.sort(descending=True)
    start = 0
    while start < len(size):
        largest = int(size[start])
        count = min(int((size[start:] * 2 > largest).sum()), max(1, _CHUNK // largest))
        yield order[start : start + count]
        start += count


def _search_core(row: Tensor, core: Tensor, vertex: Tensor, lower: Tensor, upper: Tensor, best: Best) -> None:
    """Search rows among the classes of their cores; the others stay at ``vertex``, together they are one class."""
    order = core.to(torch.int8).argsort(-1, descending=True)[:, : int(core.sum(-1).max())]
    inner = core.gather(-1, order).to(lower.dtype)
    fixed = (vertex * ~core).sum(-1, keepdim=True)
    low, high = (torch.cat([x.gather(-1, order) * inner, fixed], -1) for x in (lower, upper))
    found = Best.start(low)
    _search(Nodes.start(low, high), found)
    member = vertex.scatter(-1, order, torch.lerp(vertex.gather(-1, order), found.member[:, :-1], inner))
    excess = bits_of(member).sum(-1) - best.attained[row]
    better = excess < 0
    best.member[row[better]] = member[better]
    best.gap[row] = (found.gap - excess.clamp_min(0)).clamp_min(0)


def _search(nodes: Nodes, best: Best) -> None:
    """Search rows side by side while their open nodes are few, then alone."""
    size = max(1, _CHUNK // nodes.lower.shape[-1])
    for depth in itertools.count():
        if not len(nodes.row):
            return
        is_open = nodes.row.bincount(minlength=len(best.gap))
        alone = (is_open > (_FEW if depth < _DEEP else 0)).nonzero().squeeze(-1)
        for row in alone:
            best.gap[row] = _search_alone(nodes.select((nodes.row == row).nonzero().squeeze(-1)), best)
        if len(alone):
            nodes = nodes.select((is_open.index_fill(0, alone, 0)[nodes.row] > 0).nonzero().squeeze(-1))
        children = [branch(*step(piece, best), best) for piece in nodes.pieces(size)]
        nodes = Nodes(*map(torch.cat, zip(*children, strict=True)))


def _search_alone(nodes: Nodes, best: Best) -> Tensor:
    """Gap of one row: its nodes in pieces, that with the least bound first, until the budget is spent."""
    row, classes, spent, ticket = nodes.row[0], nodes.lower.shape[-1], 0, itertools.count()
    heap: list[tuple[float, int, Nodes]] = [(nodes.bound.min().item(), next(ticket), nodes)]
    while heap and spent < BUDGET:
        nodes = heapq.heappop(heap)[-1]
        spent += nodes.lower.numel() + _ROUND
        nodes = branch(*step(nodes, best), best)
        order = nodes.bound.argsort()
        for piece in Nodes(*(x[order] for x in nodes)).pieces(max(1, _PIECE // classes)):
            if len(piece.row):
                heapq.heappush(heap, (piece.bound[0].item(), next(ticket), piece))
    gap = best.attained[row] - (heap[0][0] if heap else best.attained[row])
    return gap * (gap > TOLERANCE[gap.dtype])
