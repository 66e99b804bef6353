"""Entropies and uncertainties of credal sets and samples, in bits.

The definitions are those of Wang et al. (2025). The lower entropy is a
concave minimization, for which the local solver of the paper returns wrong
vertices. This module uses a global search, in float64 if the device
supports it. The gradient is that of the optimal member as a function of
its active bounds.
"""

import warnings
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from creinn.credal.entropy_search import CHUNK, SUM_SLACK, entropy_terms, lowest_vertex
from creinn.credal.probability import reachable
from creinn.numerics import PerClass, PerRow, entropy, widen

MOST_CLASSES = 10  # of lower_entropy_by_vertices; 5120 points per set


class Uncertainty(NamedTuple):
    """Total, aleatoric and epistemic uncertainty of a prediction."""

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor


class Uncertain:
    """Base class of predictions with uncertainties."""

    @cached_property
    def _uncertainty(self) -> Uncertainty:
        raise NotImplementedError

    @property
    def total(self) -> Tensor:
        """Total uncertainty."""
        return self._uncertainty.total

    @property
    def aleatoric(self) -> Tensor:
        """Aleatoric uncertainty, a property of the data."""
        return self._uncertainty.aleatoric

    @property
    def epistemic(self) -> Tensor:
        """Epistemic uncertainty, which more data can reduce."""
        return self._uncertainty.epistemic


class EntropyGapWarning(UserWarning):
    """Warning if the search for the lower entropy was not completed."""


def upper_entropy(lower: PerClass, upper: PerClass, *, return_distribution: bool = False) -> Any:
    r"""Return the largest Shannon entropy in bits; Eq. (uncertainties).

    The maximizer is
    :math:`q_k = \operatorname{clip}(t, \underline q_k, \overline q_k)` for
    a level t, which is computed exactly in O(K log K). The bounds are not
    checked. With ``return_distribution``, the maximizer is also returned.

    Example:
        >>> bounds = torch.tensor([0.5, 0.0, 0.1]), torch.tensor([0.8, 0.1, 0.6])
        >>> upper_entropy(*bounds, return_distribution=True)
        (tensor(1.3610), tensor([0.5000, 0.1000, 0.4000]))
    """
    low, high = widen(lower), widen(upper)
    with torch.no_grad():
        flat = [x.reshape(-1, x.shape[-1]) for x in (low, high)]
        if torch.compiler.is_compiling():  # for any number of rows
            level = _water_level(*flat)
        else:
            size = max(1, CHUNK // low.shape[-1])  # rows that fit into the cache
            parts = zip(*(x.split(size) for x in flat), strict=True)
            level = torch.cat([_water_level(*part) for part in parts])
        level = level.view(*low.shape[:-1], 1)
        outside = torch.maximum(low - level, level - high)
        # at least one class is inside and takes the remaining mass
        inside = (outside < 0) | (outside == outside.amin(-1, keepdim=True))
        at_lower = level <= low
    fixed = torch.where(inside, 0.0, torch.where(at_lower, low, high))
    level = (1 - fixed.sum(-1, keepdim=True)) / inside.sum(-1, keepdim=True)
    member = _within(torch.where(inside, level, fixed), low, high)
    value = entropy(member).to(lower.dtype)
    return (value, member.to(lower.dtype)) if return_distribution else value


def lower_entropy(
    lower: PerClass, upper: PerClass, *, return_distribution: bool = False, return_gap: bool = False
) -> Any:
    """Return the smallest Shannon entropy in bits; Eq. (uncertainties).

    The minimizer is a vertex, which is found by branch and bound; see
    :mod:`creinn.credal.entropy_search`. The bounds are not checked. The
    budget of the search can be exceeded if many chord slopes are almost
    equal, or for hundreds of concentric intervals.

    With ``return_distribution``, a minimizer is also returned, and with
    ``return_gap``, the gap: the minimum is at most this number of bits
    below the value. If it is 0, the value is exact up to 1e-11 bits, or
    1e-5 without float64. Without ``return_gap``, a positive gap gives an
    :class:`EntropyGapWarning`.

    Example:
        >>> bounds = torch.tensor([0.0, 0.4, 0.2]), torch.tensor([0.2, 0.6, 0.4])
        >>> lower_entropy(*bounds, return_distribution=True, return_gap=True)
        (tensor(0.9710), tensor([0.0000, 0.6000, 0.4000]), tensor(0.))
    """
    low, high = reachable(widen(lower), widen(upper), check=False)
    with torch.no_grad():
        vertex, gap = lowest_vertex(*(x.reshape(-1, x.shape[-1]) for x in (low, high)))
        if not return_gap and bool(gap.any()):
            message = "The search was not completed for all sets. See return_gap=True."
            warnings.warn(message, EntropyGapWarning, stacklevel=2)
    member = vertex.view(low.shape)
    if torch.is_grad_enabled() and (low.requires_grad or high.requires_grad):
        member = _follow_bounds(member, low, high)
    value = entropy(member).to(lower.dtype)
    found = [value]
    if return_distribution:
        found.append(member.to(lower.dtype))
    if return_gap:
        found.append(gap.view(value.shape).to(lower.dtype))
    return tuple(found) if len(found) > 1 else value


def lower_entropy_by_vertices(lower: PerClass, upper: PerClass) -> PerRow:
    r"""Compute :func:`lower_entropy` without a search, for exported graphs.

    At a vertex, all classes except one are equal to a bound. There are
    :math:`K\,2^{K-1}` points of this form. There is no gradient.

    Example:
        >>> lower_entropy_by_vertices(torch.tensor([0.0, 0.4, 0.2]), torch.tensor([0.2, 0.6, 0.4]))
        tensor(0.9710)
    """
    low, high = (x.detach() for x in reachable(widen(lower), widen(upper), check=False))
    classes = low.shape[-1]
    # because of rounding, the set can be empty
    missed = torch.maximum(low.sum(-1, keepdim=True) - 1, 1 - high.sum(-1, keepdim=True))
    slack = missed.clamp_min(0) + SUM_SLACK * torch.finfo(low.dtype).eps
    corner = torch.arange(2 ** (classes - 1), device=low.device)
    at_upper = torch.stack([corner // 2**place % 2 for place in range(classes - 1)]).to(low.dtype)
    others = torch.tensor(
        [[k for k in range(classes) if k != free] for free in range(classes)], device=low.device
    )
    rest = 1 - _at_corners(low[..., others], high[..., others], at_upper)  # (..., free, corners)
    bits = _at_corners(entropy_terms(low)[..., others], entropy_terms(high)[..., others], at_upper)
    value = torch.minimum(torch.maximum(rest, low.unsqueeze(-1)), high.unsqueeze(-1))
    fits = (rest - value).abs() <= slack.unsqueeze(-1)
    return torch.where(fits, bits + entropy_terms(value), torch.inf).amin((-2, -1)).to(lower.dtype)


def _at_corners(low: Tensor, high: Tensor, at_upper: Tensor) -> Tensor:
    return low.sum(-1, keepdim=True) + (high - low) @ at_upper


def entropy_uncertainty(lower: PerClass, upper: PerClass) -> Uncertainty:
    r"""Return the entropy measures of credal sets; Eq. (CreUncertainty).

    .. math:: TU = \overline H(Q), \quad AU = \underline H(Q), \quad EU = TU - AU

    Example:
        >>> entropy_uncertainty(torch.zeros(4), torch.ones(4)).total  # a vacuous set
        tensor(2.)
    """
    total, aleatoric = upper_entropy(lower, upper), lower_entropy(lower, upper)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0))


def interval_uncertainty(lower: PerClass, upper: PerClass) -> Uncertainty:
    r"""Return the binary measures of uncertainty for two classes.

    .. math::
        TU = \min(1 - \underline q, \overline q), \quad
        AU = \min(\underline q, 1 - \overline q), \quad
        EU = \overline q - \underline q

    This is Eq. (uncertaintiesInterval) for the interval of class 1.

    Example:
        >>> interval_uncertainty(torch.tensor([0.4, 0.1]), torch.tensor([0.9, 0.6])).total
        tensor(0.6000)
    """
    if lower.shape[-1] != 2:
        shape = tuple(lower.shape)
        raise ValueError(f"The bounds must have 2 classes, got {shape}. Use 'entropy'.")
    return Uncertainty(upper.amin(-1), lower.amin(-1), upper[..., 1] - lower[..., 1])


def samples_uncertainty(probabilities: Float[Tensor, "..."]) -> Uncertainty:
    r"""Return the entropy measures of samples ``(M, ..., K)``; Eq. (MC_bnn).

    .. math::
        TU = H\left(\frac1M \sum_m q_m\right), \quad
        AU = \frac1M \sum_m H(q_m), \quad
        EU = TU - AU

    AU is Eq. (AU_BNN), and EU is the mutual information of label and
    model.

    Example:
        >>> samples_uncertainty(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).epistemic
        tensor(1.)
    """
    shape = tuple(probabilities.shape)
    if len(shape) < 2 or shape[0] == 0:
        raise ValueError(f"The samples must have shape (M, ..., K), M >= 1, got {shape}.")
    total, aleatoric = entropy(probabilities.mean(0)), entropy(probabilities).mean(0)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0))


def _water_level(lower: PerClass, upper: PerClass) -> Float[Tensor, "*batch 1"]:
    """Return the level t for which ``sum(clip(t, lower, upper))`` is 1."""
    points, order = torch.cat([lower, upper], -1).sort(-1)
    # 1 at the lower bound of a class, where it starts to increase, else -1
    sign = 2 * (order < lower.shape[-1]).to(lower.dtype) - 1
    rising = sign.cumsum(-1)
    fixed = lower.sum(-1, keepdim=True) - (sign * points).cumsum(-1)
    mass = fixed + rising * points
    last = ((mass <= 1).sum(-1, keepdim=True) - 1).clamp_min(0)
    missing = (1 - mass.gather(-1, last)).clamp_min(0)
    return points.gather(-1, last) + missing / rising.gather(-1, last).clamp_min(1)


def _follow_bounds(member: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    with torch.no_grad():
        noise = 64 * torch.finfo(member.dtype).eps
        above, below = member - lower, upper - member
        interior = torch.minimum(above, below)
        # the class farthest from its bounds, or the widest if all are at one
        index = (interior.clamp_min(noise) + noise * (above + below)).argmax(-1, keepdim=True)
    moved = torch.where(interior > noise, member, torch.where(above <= below, lower, upper))
    rest = 1 - (moved.sum(-1, keepdim=True) - moved.gather(-1, index))
    return _within(moved.scatter(-1, index, rest), lower, upper)


def _within(member: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Clamp rounding errors without a change of the gradient."""
    return member + (member.clamp(lower, upper) - member).detach()
