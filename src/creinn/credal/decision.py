r"""Set-valued decisions: reachable bounds in, a mask of the classes that are not ruled out. Beyond the paper.

The rules of Troffaes (2007), in closed form. Each keeps a class at least, and they are nested: E-admissible
:math:`\subseteq` maximal :math:`\subseteq` undominated. A class is ruled out only by a margin of more than 16 machine
epsilons: ties keep all their classes, and a bound's last digits decide nothing.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool
from torch import Tensor

from creinn.credal.probability import PerClass
from creinn.numerics import widen


def interval_dominance(lower: PerClass, upper: PerClass) -> Bool[Tensor, "*batch classes"]:
    r"""Keep j unless some lower probability exceeds the upper one of j, :math:`\overline q_j < \max_i \underline q_i`.

    Example:
        >>> interval_dominance(torch.tensor([0.4, 0.1, 0.0]), torch.tensor([0.8, 0.5, 0.2]))
        tensor([ True,  True, False])
    """
    return lower.amax(-1, keepdim=True) - upper <= _margin(lower)


def maximality(lower: PerClass, upper: PerClass) -> Bool[Tensor, "*batch classes"]:
    r"""Keep j unless one class i is more probable than j under every member: :math:`\min_{q \in Q} (q_i - q_j) > 0`.

    The minimum wants :math:`\underline q_i`, :math:`\overline q_j`, and grows by the mass they leave over or lack:

    .. math::
        \min_{q \in Q} (q_i - q_j) = \max\bigl\{\underline q_i - \overline q_j,\
        \overline q_i - \overline q_j - (\textstyle\sum_k \overline q_k - 1),\
        \underline q_i - \underline q_j - (1 - \sum_k \underline q_k)\bigr\}.

    Each term separates into i and j, so the largest i decides for every j at once: O(K), no pairs. On reachable bounds
    the first term is the largest, so maximality *is* interval dominance; on other bounds the two rules differ.

    Example:
        >>> maximality(torch.tensor([0.6, 0.0, 0.0]), torch.tensor([1.0, 1.0, 0.2]))  # not reachable: q_1 <= 0.4
        tensor([ True, False, False])
    """
    excess = (widen(upper).sum(-1, keepdim=True) - 1).clamp_min(0)
    room = (1 - widen(lower).sum(-1, keepdim=True)).clamp_min(0)
    margin = _margin(lower)
    beaten_at_upper = upper.amax(-1, keepdim=True) - upper > excess + margin
    beaten_at_lower = lower.amax(-1, keepdim=True) - lower > room + margin
    return interval_dominance(lower, upper) & ~beaten_at_upper & ~beaten_at_lower


def e_admissibility(lower: PerClass, upper: PerClass) -> Bool[Tensor, "*batch classes"]:
    r"""Keep i iff it is a most probable class of some member.

    .. math::
        \overline q_i \ge \max_{j \ne i} \underline q_j \quad\text{and}\quad
        \overline q_i + \sum_{j \ne i} \min(\overline q_j, \overline q_i) \ge 1

    Raising :math:`q_i` to its upper bound never hurts, and the others must then fit below it. The sums come from the
    sorted upper bounds, in O(K log K).

    Example:
        >>> e_admissibility(torch.tensor([0.2, 0.2, 0.2]), torch.tensor([0.6, 0.6, 0.31]))
        tensor([ True,  True, False])
    """
    ordered, order = widen(upper).sort(-1)
    larger = torch.arange(upper.shape[-1] - 1, -1, -1, device=upper.device)
    capped = (ordered.cumsum(-1) + larger * ordered).gather(-1, order.argsort(-1))
    return maximality(lower, upper) & (1 - capped <= _margin(lower))


RULES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dominance": interval_dominance,
    "maximality": maximality,
    "e-admissibility": e_admissibility,
}


def _margin(bounds: Tensor) -> float:
    return 16 * torch.finfo(bounds.dtype).eps
