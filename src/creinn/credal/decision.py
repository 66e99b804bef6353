"""Set-valued decisions: the classes that a credal set does not rule out.

These are two rules of Troffaes (2007) in closed form, for reachable
bounds. Both return a boolean mask of at least one class, and every
E-admissible class is maximal. A class is ruled out only by a margin of
more than 16 machine epsilons.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool
from torch import Tensor

from creinn.numerics import PerClass, widen


def maximality(lower: PerClass, upper: PerClass) -> Bool[Tensor, "*batch classes"]:
    r"""Keep class j if no other class is more probable for all members.

    .. math:: \min_{q \in Q} (q_i - q_j) = \underline q_i - \overline q_j,

    The class is kept if :math:`\overline q_j \ge \max_i \underline q_i`,
    as in interval dominance.

    Example:
        >>> maximality(torch.tensor([0.4, 0.1, 0.0]), torch.tensor([0.8, 0.5, 0.2]))
        tensor([ True,  True, False])
    """
    return lower.amax(-1, keepdim=True) - upper <= _margin(lower)


def e_admissibility(lower: PerClass, upper: PerClass) -> Bool[Tensor, "*batch classes"]:
    r"""Keep class i if it is a most probable class of some member.

    .. math::
        \overline q_i \ge \max_{j \ne i} \underline q_j \quad\text{and}\quad
        \overline q_i + \sum_{j \ne i} \min(\overline q_j, \overline q_i) \ge 1

    The sums are computed in O(K log K) by sorting the upper bounds.

    Example:
        >>> e_admissibility(torch.tensor([0.2, 0.2, 0.2]), torch.tensor([0.6, 0.6, 0.31]))
        tensor([ True,  True, False])
    """
    ordered, order = widen(upper).sort(-1)
    larger = torch.arange(upper.shape[-1] - 1, -1, -1, device=upper.device)
    capped = (ordered.cumsum(-1) + larger * ordered).gather(-1, order.argsort(-1))
    return maximality(lower, upper) & (1 - capped <= _margin(lower))


RULES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "maximality": maximality,
    "dominance": maximality,  # the same for probability intervals
    "e-admissibility": e_admissibility,
}


def _margin(bounds: Tensor) -> float:
    return 16 * torch.finfo(bounds.dtype).eps
