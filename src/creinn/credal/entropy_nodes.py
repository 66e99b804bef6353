r"""One step of the search for the least entropy: boxes in, what they attain and their halves out.

A concave function is least at a vertex: all classes at a bound, but at most one. Let :math:`h(q) = -q \log_2 q`.

* *Relaxation.* Replace h on each interval by its chord. What is left is a fractional knapsack: raise the classes in
  the order of chord slope until the mass is 1. Its value is a lower bound; the true entropy at its vertex is an upper
  bound; they differ by the concavity gap of the single fractional class f.
* *Branching.* Split the interval of f at its value. Each half is a credal set again, with its own reachable bounds.
* *Exchange.* Of two classes with :math:`\underline q_i \le \underline q_j` and :math:`\overline q_i \le \overline q_j`,
  moving mass from i to j until a bound stops it ends at a pair that majorises the pair we came from or its opposite
  extreme. So some minimiser has :math:`q_i = \underline q_i` or :math:`q_j = \overline q_j` for all such pairs at
  once (take the one with most mass on the later classes of a linear extension). Hence in the lower half the
  classes below f stay at their lower bounds, and in the upper half those above f are at their upper bounds. If the
  bounds are ordered alike over the classes, both halves are one point, and the root decides. Equal intervals are
  ordered alike: of their permutations one is searched.
* *Neighbours.* The vertices where f goes to one of its bounds and another class takes the rest often have less entropy;
  the best of them is tried as well.
* *Bounds from duality.* At the knapsack's critical slope s, moving class k by d from its bound costs at
  least :math:`|s_k - s| d`. Where that exceeds the gap to the best value known, the interval is cut.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5}  # bits between bound and attained value that count as none
_SLACK = 64  # machine epsilons by which a sum may miss 1


class Best(NamedTuple):
    """Least entropy known of each row, the member that has it, and what a search that stopped early left unproven."""

    attained: Float[Tensor, " rows"]
    member: Float[Tensor, "rows classes"]
    gap: Float[Tensor, " rows"]

    @classmethod
    def start(cls, lower: Float[Tensor, "rows classes"]) -> "Best":
        """Nothing is known."""
        none = lower.new_zeros(len(lower))
        return cls(none + math.inf, lower.clone(), none)

    def part(self, which: slice) -> "Best":
        """Some rows, as views."""
        return Best(*(x[which] for x in self))


class Nodes(NamedTuple):
    """Boxes still to be searched: their row, their reachable bounds, and the best bound known for each."""

    row: Int[Tensor, " nodes"]
    lower: Float[Tensor, "nodes classes"]
    upper: Float[Tensor, "nodes classes"]
    bound: Float[Tensor, " nodes"]

    @classmethod
    def start(cls, lower: Tensor, upper: Tensor) -> "Nodes":
        """One box per row."""
        rows = torch.arange(len(lower), device=lower.device)
        return cls(rows, lower, upper, lower.new_full(lower.shape[:1], -math.inf))

    def select(self, which: Int[Tensor, " some"]) -> "Nodes":
        """Some nodes, in the order of their positions; all of them as they are."""
        return self if len(which) == len(self.row) else Nodes(*(x[which] for x in self))

    def pieces(self, size: int) -> Iterator["Nodes"]:
        """Parts of at most this size; one empty part if there is no node."""
        return (Nodes(*parts) for parts in zip(*(x.split(size) for x in self), strict=True))


class Relaxed(NamedTuple):
    """Solution of the knapsack relaxation: classes at their upper bounds, the fractional one, and both values."""

    filled: Float[Tensor, "nodes classes"]  # 1 or 0: lerp between bounds is exact there, and far quicker than where
    fractional: Int[Tensor, "nodes 1"]
    value: Float[Tensor, "nodes 1"]
    slope: Float[Tensor, "nodes classes"]
    bits: Float[Tensor, "nodes classes"]  # of the filled and the unfilled; of the fractional class at its lower bound
    bound: Float[Tensor, " nodes"]
    attained: Float[Tensor, " nodes"]

    def select(self, which: Int[Tensor, " some"]) -> "Relaxed":
        """As of :class:`Nodes`."""
        return self if len(which) == len(self.bound) else Relaxed(*(x[which] for x in self))


def step(nodes: Nodes, best: Best) -> tuple[Nodes, Relaxed]:
    """Solve nodes and keep the best vertices seen; return those that may hold a better one."""
    nodes = nodes.select(_open(nodes.row, nodes.bound, best))
    solved = relax(nodes.lower, nodes.upper)
    _record(nodes, solved, best)
    is_open = _open(nodes.row, solved.bound, best)
    nodes, solved = _undecided(nodes.select(is_open), solved.select(is_open))
    _record(nodes, _neighbour(nodes, solved), best)
    return nodes, solved


def _open(row: Int[Tensor, " nodes"], bound: Float[Tensor, " nodes"], best: Best) -> Int[Tensor, " open"]:
    return (bound < best.attained[row] - TOLERANCE[bound.dtype]).nonzero().squeeze(-1)


def relax(lower: Float[Tensor, "nodes classes"], upper: Float[Tensor, "nodes classes"]) -> Relaxed:
    """Solve the fractional knapsack over the chords."""
    width = upper - lower
    at_lower, at_upper = bits_of(lower), bits_of(upper)
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
    true = bits_of(value)
    bound = rest + torch.minimum(its_bits + rise * slope.gather(-1, fractional), true)
    return Relaxed(filled, fractional, value, slope, bits, bound.squeeze(-1), (rest + true).squeeze(-1))


def _undecided(nodes: Nodes, solved: Relaxed) -> tuple[Nodes, Relaxed]:
    """Nodes whose vertex is not the best by exchange alone: some half of theirs has another point."""
    below, above = _ordered(nodes, solved)
    unsettled = (1 - below - above) * (nodes.upper - nodes.lower)
    unsettled = unsettled.scatter_(-1, solved.fractional, 0.0).sum(-1)
    index = (unsettled > _SLACK * torch.finfo(unsettled.dtype).eps).nonzero().squeeze(-1)
    return nodes.select(index), solved.select(index)


def _ordered(nodes: Nodes, solved: Relaxed) -> tuple[Tensor, Tensor]:
    """Masks, 1 or 0: classes at their lower bounds that are below the fractional class, filled ones above it."""
    its_low, its_high = (x.gather(-1, solved.fractional) for x in (nodes.lower, nodes.upper))
    below = (nodes.lower <= its_low) & (nodes.upper <= its_high)
    above = (nodes.lower >= its_low) & (nodes.upper >= its_high)
    return below * (1 - solved.filled), above * solved.filled


def _neighbour(nodes: Nodes, solved: Relaxed) -> Relaxed:
    """Best of the vertices next to the relaxation's: the fractional class goes to a bound, another takes the rest."""
    low, high = nodes.lower, nodes.upper
    filled, fractional, value = solved.filled, solved.fractional, solved.value
    its_low, its_high = low.gather(-1, fractional), high.gather(-1, fractional)
    before = torch.lerp(low, high, filled)
    after = before + (value - torch.lerp(its_low, its_high, filled))
    misfit = torch.maximum(low - after, after - high).clamp_min(0)
    its_change = torch.lerp(bits_of(its_low), bits_of(its_high), filled) - bits_of(value)
    change = bits_of(after.clamp_min(0)) - solved.bits + its_change + misfit / torch.finfo(low.dtype).tiny
    change, other = change.scatter(-1, fractional, math.inf).min(-1, keepdim=True)
    return solved._replace(
        filled=filled.scatter(-1, fractional, filled.gather(-1, other)),
        fractional=other,
        value=after.gather(-1, other),
        attained=solved.attained + change.squeeze(-1),
    )


def _record(nodes: Nodes, solved: Relaxed, best: Best) -> None:
    """Keep the best vertex of each row."""
    before = best.attained[nodes.row]
    best.attained.scatter_reduce_(0, nodes.row, solved.attained, "amin")
    better = ((solved.attained < before) & (solved.attained == best.attained[nodes.row])).nonzero().squeeze(-1)
    vertex = torch.lerp(nodes.lower[better], nodes.upper[better], solved.filled[better])
    best.member[nodes.row[better]] = vertex.scatter(-1, solved.fractional[better], solved.value[better])


def branch(nodes: Nodes, solved: Relaxed, best: Best) -> Nodes:
    """Split each node at its fractional class; drop halves that are the parent's vertex alone."""
    low, high = nodes.lower, nodes.upper
    fractional, value = solved.fractional, solved.value
    below, above = _ordered(nodes, solved)
    gap = (best.attained[nodes.row] + TOLERANCE[low.dtype] - solved.bound).unsqueeze(-1)
    tiny = torch.finfo(low.dtype).tiny
    off_slope = solved.slope - solved.slope.gather(-1, fractional)  # negative for filled classes
    low, high = (
        torch.maximum(low, high - gap / (-off_slope).clamp_min(tiny)),
        torch.minimum(high, low + gap / off_slope.clamp_min(tiny)),
    )
    lower_half = torch.lerp(high, low, below).scatter(-1, fractional, value)  # upper bounds of it
    upper_half = torch.lerp(low, high, above).scatter(-1, fractional, value)  # lower bounds of it
    slack = _SLACK * torch.finfo(low.dtype).eps
    first = (lower_half.sum(-1) > 1 + slack).nonzero().squeeze(-1)
    second = (upper_half.sum(-1) < 1 - slack).nonzero().squeeze(-1)
    halves = torch.cat([first, second])
    low, high = torch.cat([low[first], upper_half[second]]), torch.cat([lower_half[first], high[second]])
    excess, room = high.sum(-1, keepdim=True) - 1, 1 - low.sum(-1, keepdim=True)
    low, high = torch.maximum(low, high - excess), torch.minimum(high, low + room)  # reachable bounds
    return Nodes(nodes.row[halves], low, torch.maximum(low, high), solved.bound[halves])


def bits_of(x: Tensor) -> Tensor:
    """Entropy summand -x log2 x, without gradient."""
    return (x * x.clamp_min(torch.finfo(x.dtype).tiny).log2()).neg_()
