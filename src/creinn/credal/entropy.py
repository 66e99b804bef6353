r"""Entropies, and uncertainty by them: bounds of the classes in (or sampled distributions), bits out.

Sections "Uncertainty estimation" and "Uncertainty estimation in BNNs and DEs" of Wang et al. (2025), whose local solver
stops at wrong vertices: the lower entropy is a concave minimisation. Float32 bounds are solved in float64 where the
device has it; gradients are those of the attaining member as its active bounds move (envelope theorem).
"""

import warnings
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from creinn.credal.entropy_search import CHUNK, lowest_vertex
from creinn.credal.probability import PerClass, reachable
from creinn.numerics import entropy, widen


class Uncertainty(NamedTuple):
    """Three measures of one prediction."""

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor


class Uncertain:
    """A prediction whose uncertainties, by its default measure, are computed once, when the first is asked for."""

    @cached_property
    def _uncertainty(self) -> Uncertainty:
        raise NotImplementedError

    @property
    def total(self) -> Tensor:
        """Total uncertainty."""
        return self._uncertainty.total

    @property
    def aleatoric(self) -> Tensor:
        """Aleatoric uncertainty, which is in the data."""
        return self._uncertainty.aleatoric

    @property
    def epistemic(self) -> Tensor:
        """Epistemic uncertainty, which more knowledge could remove."""
        return self._uncertainty.epistemic


class EntropyGapWarning(UserWarning):
    """Some lower entropies are not proven to be the least: the search used up its budget."""


def upper_entropy(lower: PerClass, upper: PerClass, *, return_distribution: bool = False) -> Any:
    r"""Largest Shannon entropy in the set, in bits; Eq. (uncertainties). Exact.

    The maximiser is :math:`q_k = \operatorname{clip}(t, \underline q_k, \overline q_k)` with one level t. The mass at
    level t is piecewise linear and increasing, so t comes from its sorted breakpoints, in O(K log K). Bounds are not
    checked, :class:`creinn.CredalSet` does. ``return_distribution`` adds the one member that attains it.

    Example:
        >>> upper_entropy(torch.tensor([0.5, 0.0, 0.1]), torch.tensor([0.8, 0.1, 0.6]), return_distribution=True)
        (tensor(1.3610), tensor([0.5000, 0.1000, 0.4000]))
    """
    low, high = widen(lower), widen(upper)
    with torch.no_grad():
        size = max(1, CHUNK // low.shape[-1])  # rows that fit into the cache
        flat = (x.reshape(-1, x.shape[-1]) for x in (low, high))
        # a graph is for any number of rows, so it takes them at once
        parts = ([x] if torch.compiler.is_compiling() else x.split(size) for x in flat)
        level = torch.cat([_water_level(*part) for part in zip(*parts, strict=True)]).view(
            *low.shape[:-1], 1
        )
        outside = torch.maximum(low - level, level - high)
        inside = (outside < 0) | (
            outside == outside.amin(-1, keepdim=True)
        )  # some class always takes up the rest
        at_lower = level <= low
    fixed = torch.where(inside, 0.0, torch.where(at_lower, low, high))
    level = (1 - fixed.sum(-1, keepdim=True)) / inside.sum(-1, keepdim=True)
    member = _within(torch.where(inside, level, fixed), low, high)
    value = entropy(member).to(lower.dtype)
    return (value, member.to(lower.dtype)) if return_distribution else value


def lower_entropy(
    lower: PerClass, upper: PerClass, *, return_distribution: bool = False, return_gap: bool = False
) -> Any:
    r"""Least Shannon entropy in the set, in bits; Eq. (uncertainties) with the minimum.

    The minimiser is a vertex, found by branch and bound; see :mod:`creinn.credal.entropy_search`. Exact up to the gap,
    which is 0 unless the search of a set used up its budget. Sets of trained networks need a few nodes; but the problem
    contains subset sum, so no budget would do for many almost equal chord slopes, or hundreds of concentric intervals.
    Bounds are not checked. ``return_distribution`` adds a member that attains it (of several, any); ``return_gap``
    adds, last, by how many bits at most the minimum lies below the value: 0 means proven, to 1e-11 bits (to 1e-5 on a
    device without float64). A gap that is not 0 and not returned is an :class:`EntropyGapWarning`.

    Example:
        >>> bounds = torch.tensor([0.0, 0.4, 0.2]), torch.tensor([0.2, 0.6, 0.4])
        >>> lower_entropy(*bounds, return_distribution=True, return_gap=True)
        (tensor(0.9710), tensor([0.0000, 0.6000, 0.4000]), tensor(0.))
    """
    low, high = reachable(widen(lower), widen(upper), check=False)
    with torch.no_grad():
        vertex, gap = lowest_vertex(*(x.reshape(-1, x.shape[-1]) for x in (low, high)))
        if not return_gap and bool(gap.any()):
            unproven = "The lower entropy of some credal sets is not proven to be the least; ask for return_gap=True"
            warnings.warn(
                f"{unproven} to see how far it may be off.", EntropyGapWarning, stacklevel=2
            )
    member = vertex.view(low.shape)
    if torch.is_grad_enabled() and (low.requires_grad or high.requires_grad):
        member = _follow_bounds(member, low, high)
    value = entropy(member).to(lower.dtype)
    more = [member] * return_distribution + [gap.view(value.shape)] * return_gap
    return (value, *(x.to(lower.dtype) for x in more)) if more else value


def entropy_uncertainty(lower: PerClass, upper: PerClass) -> Uncertainty:
    r"""Entropy measures of credal sets, in bits.

    .. math:: TU = \overline H(Q), \quad AU = \underline H(Q), \quad EU = \overline H(Q) - \underline H(Q)

    Eqs. (CreUncertainty), (uncertainties). Exact up to a gap that is mostly 0; see :func:`lower_entropy`.

    Example:
        >>> entropy_uncertainty(torch.zeros(4), torch.ones(4)).total  # nothing is known
        tensor(2.)
    """
    total, aleatoric = upper_entropy(lower, upper), lower_entropy(lower, upper)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0))


def interval_uncertainty(lower: PerClass, upper: PerClass) -> Uncertainty:
    r"""Binary measures from the probability interval :math:`[\underline q, \overline q]` of class 1.

    .. math::
        TU = \min(1 - \underline q, \overline q), \quad AU = \min(\underline q, 1 - \overline q), \quad
        EU = \overline q - \underline q

    Eq. (uncertaintiesInterval). Dimensionless, at most 1, the same when the classes are swapped; of reachable bounds.
    Another number of classes is a ``ValueError``.

    Example:
        >>> interval_uncertainty(torch.tensor([0.4, 0.1]), torch.tensor([0.9, 0.6]))
        Uncertainty(total=tensor(0.6000), aleatoric=tensor(0.1000), epistemic=tensor(0.5000))
    """
    if lower.shape[-1] != 2:
        found = f"{lower.shape[-1]} (bounds of shape {tuple(lower.shape)})"
        raise ValueError(
            f"The interval measures are defined for 2 classes, found {found}. Use the entropy measures."
        )
    return Uncertainty(upper.amin(-1), lower.amin(-1), upper[..., 1] - lower[..., 1])


def samples_uncertainty(probabilities: Float[Tensor, "..."]) -> Uncertainty:
    r"""Entropy measures of sampled distributions (deep ensembles, Bayesian networks), in bits; sample axis first.

    .. math:: TU = H\Bigl(\tfrac1M \sum_m q_m\Bigr), \quad AU = \tfrac1M \sum_m H(q_m), \quad EU = TU - AU

    Eqs. (MC_bnn), (AU_BNN). EU is the mutual information of label and model. Refuses no samples, or no sample axis.

    Example:
        >>> samples_uncertainty(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).epistemic
        tensor(1.)
    """
    shape = tuple(probabilities.shape)
    if len(shape) < 2 or shape[0] == 0:
        raise ValueError(
            f"Samples are (samples, ..., classes) with at least one sample, found shape {shape}."
        )
    total, aleatoric = entropy(probabilities.mean(0)), entropy(probabilities).mean(0)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0))


def _water_level(
    lower: Float[Tensor, "rows classes"], upper: Float[Tensor, "rows classes"]
) -> Float[Tensor, "rows 1"]:
    """Level t with sum(clip(t, lower, upper)) = 1, from the sorted breakpoints of the sum."""
    points, order = torch.cat([lower, upper], -1).sort(-1)
    sign = (
        2 * (order < lower.shape[-1]).to(lower.dtype) - 1
    )  # 1 where a class starts to rise, -1 where it stops
    rising = sign.cumsum(-1)
    fixed = lower.sum(-1, keepdim=True) - (sign * points).cumsum(-1)
    mass = fixed + rising * points
    last = ((mass <= 1).sum(-1, keepdim=True) - 1).clamp_min(0)
    missing = (1 - mass.gather(-1, last)).clamp_min(0)
    return points.gather(-1, last) + missing / rising.gather(-1, last).clamp_min(1)


def _follow_bounds(member: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """A vertex as a function of the bounds it sits on, to rounding; the most interior class takes up the rest."""
    with torch.no_grad():
        noise = 64 * torch.finfo(member.dtype).eps
        above, below = member - lower, upper - member
        interior = torch.minimum(above, below)
        index = (interior.clamp_min(noise) + noise * (above + below)).argmax(
            -1, keepdim=True
        )  # or else the widest
    moved = torch.where(interior > noise, member, torch.where(above <= below, lower, upper))
    rest = 1 - (moved.sum(-1, keepdim=True) - moved.gather(-1, index))
    return _within(moved.scatter(-1, index, rest), lower, upper)


def _within(member: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Undo the rounding of sums that puts a class outside its bounds, and keep the gradient."""
    return member + (member.clamp(lower, upper) - member).detach()
