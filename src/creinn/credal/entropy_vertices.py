r"""Lowest entropy of a credal set by vertex enumeration, for exported graphs.

At a vertex, all classes except one are equal to a bound. There are :math:`K\,2^{K-1}` points of
this form, and the points that fit into the bounds are the vertices. An exported graph cannot
contain the search of :func:`creinn.credal.entropy.lower_entropy`; this function returns the same
value without gradients.
"""

import torch
from torch import Tensor

from creinn.credal.entropy_search import SUM_SLACK, entropy_terms
from creinn.credal.probability import PerClass, PerRow, reachable
from creinn.numerics import widen

MOST_CLASSES = 10  # 5120 points per set


def lower_entropy_by_vertices(lower: PerClass, upper: PerClass) -> PerRow:
    r"""Compute the lowest Shannon entropy in the set, in bits.

    The value is exact. The cost is :math:`O(K\,2^K)` for each set. The bounds are not checked.

    Args:
        lower: Lower probabilities.
        upper: Upper probabilities.

    Example:
        >>> lower_entropy_by_vertices(torch.tensor([0.0, 0.4, 0.2]), torch.tensor([0.2, 0.6, 0.4]))
        tensor(0.9710)
    """
    low, high = (x.detach() for x in reachable(widen(lower), widen(upper), check=False))
    classes = low.shape[-1]
    # If the set is empty because of rounding, the sums of the points can differ from 1.
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
    """Return the sums of the bounds that are selected by each corner."""
    return low.sum(-1, keepdim=True) + (high - low) @ at_upper
