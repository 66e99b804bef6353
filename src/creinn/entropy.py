r"""Upper and lower entropy of a credal set: bounds of the classes in, bits out. Exact, and batched over any shape.

Eqs. (CreUncertainty), (uncertainties) of Wang et al. (2025), for
:math:`Q = \{q : \underline q_k \le q_k \le \overline q_k,\ \sum_k q_k = 1\}`. The paper calls a local solver; the lower
entropy is a concave minimisation, where local solvers stop at wrong vertices.

**Upper.** The maximiser is :math:`q_k = \operatorname{clip}(t, \underline q_k, \overline q_k)` with one level t. The
mass at level t is piecewise linear and increasing, so t comes from its sorted breakpoints, in O(K log K).

**Lower.** The minimiser is a vertex: all classes at a bound, but at most one. Let :math:`h(q) = -q \log_2 q`.

* *Relaxation.* Replace h on each interval by its chord. What is left is a fractional knapsack: raise the classes in
  the order of chord slope until the mass is 1. Its value is a lower bound; the true entropy at its vertex is an upper
  bound; they differ by the concavity gap of the single fractional class f.
* *Branching.* Split the interval of f at its value. Each half is a credal set again, with its own reachable bounds.
* *Exchange.* Of two classes with :math:`\underline q_i \le \underline q_j` and :math:`\overline q_i \le \overline q_j`,
  moving mass from i to j until a bound stops it ends at a pair that majorises the pair we came from or its opposite
  extreme. So some minimiser has :math:`q_i = \underline q_i` or :math:`q_j = \overline q_j` for all such pairs at
  once (take the one with most mass on the later classes of a linear extension). Hence in the lower half the
  classes below f stay at their lower bounds, and in the upper half those above f are at their upper bounds. If the
  bounds are ordered alike over the classes, both halves are one point, and the root decides.
* *Neighbours.* The vertices where f goes to one of its bounds and another class takes the rest often have less entropy;
  the best of them is tried as well.
* *Bounds from duality.* At the knapsack's critical slope s, moving class k by d from its bound costs at
  least :math:`|s_k - s| d`. Where that exceeds the gap to the best value known, the interval is cut.

The search treats the nodes of many sets as one batch, depth first, so its memory stays bounded. Sets as they come
from networks need a few nodes. The problem contains subset sum, so the worst case is exponential: hundreds of
concentric intervals of different widths take long.

Float32 bounds are solved in float64 where the device has it. Gradients are those of the attaining distribution as its
active bounds move (envelope theorem).
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from creinn.numerics import entropy, widen
from creinn.probability import reachable

_GAP = {torch.float64: 1e-11, torch.float32: 1e-5}  # bits between bound and attained value that close a node
_SLACK = 64  # machine epsilons by which a sum may miss 1
_CHUNK = 2**17  # entries of one tensor of nodes: large enough to keep torch busy, small enough for the cache


class EntropyBounds(NamedTuple):
    """Certificate of a lower entropy: no member has less than ``bound``, and some member has ``attained``."""

    bound: Tensor
    attained: Tensor


@overload
def upper_entropy(lower: Tensor, upper: Tensor, *, return_distribution: Literal[False] = ...) -> Tensor: ...
@overload
def upper_entropy(lower: Tensor, upper: Tensor, *, return_distribution: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def upper_entropy(lower: Tensor, upper: Tensor, *, return_distribution: bool) -> Tensor | tuple[Tensor, Tensor]: ...
def upper_entropy(
    lower: Float[Tensor, "*batch classes"],
    upper: Float[Tensor, "*batch classes"],
    *,
    return_distribution: bool = False,
) -> Float[Tensor, "*batch"] | tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch classes"]]:
    r"""Largest Shannon entropy in the set, in bits; Eq. (uncertainties).

    Args:
        lower: Lower probabilities of non-empty sets. Not checked; :class:`creinn.CredalSet` does.
        upper: Upper probabilities.
        return_distribution: Also return the member that attains it (there is exactly one).

    Example:
        >>> upper_entropy(torch.tensor([0.5, 0.0, 0.1]), torch.tensor([0.8, 0.1, 0.6]), return_distribution=True)
        (tensor(1.3610), tensor([0.5000, 0.1000, 0.4000]))
    """
    low, high = widen(lower), widen(upper)
    with torch.no_grad():
        level = _water_level(_rows(low), _rows(high)).view(*low.shape[:-1], 1)
    inside = ((low < level) & (level < high)).to(low.dtype)
    fixed = torch.clamp(level, low, high) * (1 - inside)
    level = (1 - fixed.sum(-1, keepdim=True)) / inside.sum(-1, keepdim=True).clamp_min(1)
    member = fixed + inside * level
    return _result(entropy(member), member, lower.dtype, return_distribution)


@overload
def lower_entropy(lower: Tensor, upper: Tensor, *, return_distribution: Literal[False] = ...) -> Tensor: ...
@overload
def lower_entropy(lower: Tensor, upper: Tensor, *, return_distribution: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def lower_entropy(lower: Tensor, upper: Tensor, *, return_distribution: bool) -> Tensor | tuple[Tensor, Tensor]: ...
def lower_entropy(
    lower: Float[Tensor, "*batch classes"],
    upper: Float[Tensor, "*batch classes"],
    *,
    return_distribution: bool = False,
) -> Float[Tensor, "*batch"] | tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch classes"]]:
    r"""Least Shannon entropy in the set, in bits; Eq. (uncertainties) with the minimum.

    Args:
        lower: Lower probabilities of non-empty sets. Not checked; :class:`creinn.CredalSet` does.
        upper: Upper probabilities.
        return_distribution: Also return a member that attains it (of several, any).

    Example:
        >>> lower_entropy(torch.tensor([0.0, 0.4, 0.2]), torch.tensor([0.2, 0.6, 0.4]), return_distribution=True)
        (tensor(0.9710), tensor([0.0000, 0.6000, 0.4000]))
    """
    low, high = reachable(widen(lower), widen(upper), check=False)
    with torch.no_grad():
        member = _search(_rows(low), _rows(high)).member.view(low.shape)
    if torch.is_grad_enabled() and (low.requires_grad or high.requires_grad):
        member = _follow_bounds(member, low, high)
    return _result(entropy(member), member, lower.dtype, return_distribution)


@torch.no_grad()
def lower_entropy_bounds(
    lower: Float[Tensor, "*batch classes"], upper: Float[Tensor, "*batch classes"]
) -> EntropyBounds:
    """Certificate of :func:`lower_entropy`: a proven bound and an attained value, 1e-11 apart at most (float64).

    Example:
        >>> bound, attained = lower_entropy_bounds(torch.tensor([0.0, 0.4, 0.2]), torch.tensor([0.2, 0.6, 0.4]))
        >>> bool(attained - bound <= 1e-11), round(attained.item(), 4)
        (True, 0.971)
    """
    low, high = reachable(widen(lower), widen(upper), check=False)
    found = _search(_rows(low), _rows(high))
    return EntropyBounds(found.bound.view(low.shape[:-1]), found.attained.view(low.shape[:-1]))


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _result(value: Tensor, member: Tensor, dtype: torch.dtype, both: bool) -> Tensor | tuple[Tensor, Tensor]:
    return (value.to(dtype), member.to(dtype)) if both else value.to(dtype)


def _chunks(rows: int, classes: int) -> Iterator[slice]:
    step = max(1, _CHUNK // classes)
    return (slice(start, start + step) for start in range(0, rows, step))


def _water_level(lower: Float[Tensor, "rows classes"], upper: Float[Tensor, "rows classes"]) -> Float[Tensor, "rows 1"]:
    """Level t with sum(clip(t, lower, upper)) = 1, from the sorted breakpoints of the sum."""
    level = lower.new_empty(len(lower), 1)
    for part in _chunks(*lower.shape):
        low, high = lower[part], upper[part]
        points, order = torch.cat([low, high], -1).sort(-1)
        sign = 2 * (order < low.shape[-1]).to(low.dtype) - 1  # 1 where a class starts to rise, -1 where it stops
        rising = sign.cumsum(-1)
        fixed = low.sum(-1, keepdim=True) - (sign * points).cumsum(-1)
        mass = fixed + rising * points
        last = ((mass <= 1).sum(-1, keepdim=True) - 1).clamp_min(0)
        missing = (1 - mass.gather(-1, last)).clamp_min(0)
        level[part] = points.gather(-1, last) + missing / rising.gather(-1, last).clamp_min(1)
    return level


class _Found(NamedTuple):
    bound: Float[Tensor, " rows"]
    attained: Float[Tensor, " rows"]
    member: Float[Tensor, "rows classes"]


class _Nodes(NamedTuple):
    """Boxes still to be searched: their row, their reachable bounds, and the best bound known for each."""

    row: Int[Tensor, " nodes"]
    lower: Float[Tensor, "nodes classes"]
    upper: Float[Tensor, "nodes classes"]
    bound: Float[Tensor, " nodes"]

    def select(self, which: Tensor | slice) -> "_Nodes":
        whole = isinstance(which, Tensor) and len(which) == len(self.row)
        return self if whole else _Nodes(*(x[which] for x in self))

    @staticmethod
    def concatenate(parts: list["_Nodes"]) -> "_Nodes":
        return _Nodes(*(torch.cat(x) for x in zip(*parts, strict=True)))


class _Relaxed(NamedTuple):
    """Solution of the knapsack relaxation: classes at their upper bounds, the fractional one, and both values."""

    filled: Float[Tensor, "nodes classes"]  # 1 or 0: lerp between bounds is exact there, and far quicker than where
    fractional: Int[Tensor, "nodes 1"]
    value: Float[Tensor, "nodes 1"]
    slope: Float[Tensor, "nodes classes"]
    bound: Float[Tensor, " nodes"]
    attained: Float[Tensor, " nodes"]

    def select(self, which: Tensor) -> "_Relaxed":
        return self if len(which) == len(self.bound) else _Relaxed(*(x[which] for x in self))


def _search(lower: Float[Tensor, "rows classes"], upper: Float[Tensor, "rows classes"]) -> _Found:
    """Lower entropy of every row by branch and bound, one chunk of rows at a time."""
    found = _Found(lower.new_full(lower.shape[:1], math.inf), lower.new_full(lower.shape[:1], math.inf), lower.clone())
    for part in _chunks(*lower.shape):
        _search_chunk(lower[part], upper[part], _Found(*(x[part] for x in found)))
    return found


def _search_chunk(lower: Tensor, upper: Tensor, found: _Found) -> None:
    """Fill ``found`` in place; the nodes of all rows form one stack, of which the top chunk is worked on at a time."""
    gap = _GAP[lower.dtype]
    batch = max(1, _CHUNK // lower.shape[-1])
    rows = torch.arange(len(lower), device=lower.device)
    stack = _Nodes(rows, lower, upper, torch.full_like(found.bound, -math.inf))
    while len(stack.row):
        nodes, stack = stack.select(slice(-batch, None)), stack.select(slice(None, -batch))
        nodes = nodes.select(_close(nodes.row, nodes.bound, found, gap))
        solved = _relax(nodes.lower, nodes.upper)
        _record(nodes, solved, found)
        is_open = _close(nodes.row, solved.bound, found, gap)
        if len(is_open):
            nodes, solved = _undecided(nodes.select(is_open), solved.select(is_open))
            _record(nodes, _neighbour(nodes, solved), found)
            children = _branch(nodes, solved, found.attained[nodes.row] + gap)
            stack = _Nodes.concatenate([stack, children])
    torch.minimum(found.bound, found.attained, out=found.bound)


def _relax(lower: Float[Tensor, "nodes classes"], upper: Float[Tensor, "nodes classes"]) -> _Relaxed:
    """Solve the fractional knapsack over the chords."""
    width = upper - lower
    at_lower, at_upper = _bits(lower), _bits(upper)
    change = at_upper - at_lower
    slope = change / width.clamp_min(torch.finfo(width.dtype).tiny)
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
    its_bits = torch.lerp(at_lower, at_upper, filled).gather(-1, fractional)
    rest = at_lower.sum(-1, keepdim=True) + (change * filled).sum(-1, keepdim=True) - its_bits
    chord = at_lower.gather(-1, fractional) + rise * slope.gather(-1, fractional)
    true = _bits(value)
    bound, attained = rest + torch.minimum(chord, true), rest + true
    return _Relaxed(filled, fractional, value, slope, bound.squeeze(-1), attained.squeeze(-1))


def _undecided(nodes: _Nodes, solved: _Relaxed) -> tuple[_Nodes, _Relaxed]:
    """Nodes whose vertex is not the best by exchange alone: some half of theirs has another point."""
    below, above = _ordered(nodes, solved)
    unsettled = (1 - below - above) * (nodes.upper - nodes.lower)
    unsettled = unsettled.scatter_(-1, solved.fractional, 0.0).sum(-1)
    index = (unsettled > _SLACK * torch.finfo(unsettled.dtype).eps).nonzero().squeeze(-1)
    return nodes.select(index), solved.select(index)


def _ordered(nodes: _Nodes, solved: _Relaxed) -> tuple[Tensor, Tensor]:
    """Masks, 1 or 0: classes at their lower bounds that are below the fractional class, filled ones above it."""
    its_low, its_high = (x.gather(-1, solved.fractional) for x in (nodes.lower, nodes.upper))
    below = (nodes.lower <= its_low) & (nodes.upper <= its_high)
    above = (nodes.lower >= its_low) & (nodes.upper >= its_high)
    return below * (1 - solved.filled), above * solved.filled


def _neighbour(nodes: _Nodes, solved: _Relaxed) -> _Relaxed:
    """Best of the vertices next to the relaxation's: the fractional class goes to a bound, another takes the rest."""
    low, high = nodes.lower, nodes.upper
    filled, fractional, value = solved.filled, solved.fractional, solved.value
    its_low, its_high = low.gather(-1, fractional), high.gather(-1, fractional)
    before = torch.lerp(low, high, filled)
    after = before + (value - torch.lerp(its_low, its_high, filled))
    misfit = torch.maximum(low - after, after - high).clamp_min(0)
    its_change = torch.lerp(_bits(its_low), _bits(its_high), filled) - _bits(value)
    change = _bits(after.clamp_min(0)) - _bits(before) + its_change + misfit / torch.finfo(low.dtype).tiny
    change, other = change.scatter(-1, fractional, math.inf).min(-1, keepdim=True)
    return solved._replace(
        filled=filled.scatter(-1, fractional, filled.gather(-1, other)),
        fractional=other,
        value=after.gather(-1, other),
        attained=solved.attained + change.squeeze(-1),
    )


def _record(nodes: _Nodes, solved: _Relaxed, found: _Found) -> None:
    """Keep the best vertex of each row."""
    before = found.attained[nodes.row]
    found.attained.scatter_reduce_(0, nodes.row, solved.attained, "amin")
    better = ((solved.attained < before) & (solved.attained == found.attained[nodes.row])).nonzero().squeeze(-1)
    vertex = torch.lerp(nodes.lower[better], nodes.upper[better], solved.filled[better])
    found.member[nodes.row[better]] = vertex.scatter(-1, solved.fractional[better], solved.value[better])


def _close(row: Tensor, bound: Tensor, found: _Found, gap: float) -> Int[Tensor, " open"]:
    """Enter the bounds of nodes that cannot hold a better vertex; return the positions of the others."""
    is_open = bound < found.attained[row] - gap
    found.bound.scatter_reduce_(0, row[~is_open], bound[~is_open], "amin")
    return is_open.nonzero().squeeze(-1)


def _branch(nodes: _Nodes, solved: _Relaxed, ceiling: Float[Tensor, " nodes"]) -> _Nodes:
    """Split each node at its fractional class; drop halves that are the parent's vertex alone."""
    low, high = nodes.lower, nodes.upper
    fractional, value = solved.fractional, solved.value
    below, above = _ordered(nodes, solved)
    gap, tiny = (ceiling - solved.bound).unsqueeze(-1), torch.finfo(low.dtype).tiny
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
    return _Nodes(nodes.row[halves], low, torch.maximum(low, high), solved.bound[halves])


def _follow_bounds(member: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The same distribution as a function of the bounds it sits on; the most interior class takes up the rest."""
    inside = torch.minimum(member - lower, upper - member).detach()
    at_lower, at_upper = member == lower, member == upper
    moved = torch.where(at_lower, lower, torch.where(at_upper, upper, member))
    interior, index = inside.max(-1, keepdim=True)
    rest = 1 - (moved.sum(-1, keepdim=True) - moved.gather(-1, index))
    return moved.scatter(-1, index, torch.where(interior > 0, rest, moved.gather(-1, index)))


def _bits(x: Tensor) -> Tensor:
    """Entropy summand -x log2 x, without gradient."""
    return (x * x.clamp_min(torch.finfo(x.dtype).tiny).log2()).neg_()
