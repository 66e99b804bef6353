r"""Least entropy of a credal set by looking at all of its vertices: for graphs, which cannot search.

At a vertex all classes are at a bound but one, which takes the rest: :math:`K\,2^{K-1}` points, of which those that fit
are vertices. The same value as :func:`creinn.credal.entropy.lower_entropy`, without a search, without gradients.
"""

import torch
from torch import Tensor

from creinn.credal.entropy_search import _SLACK, _bits
from creinn.credal.probability import PerClass, PerRow, reachable
from creinn.numerics import widen

MOST_CLASSES = 10  # 5120 points for each set


def lower_entropy_by_vertices(lower: PerClass, upper: PerClass) -> PerRow:
    r"""Least Shannon entropy in the set, in bits. Exact, in :math:`O(K\,2^K)` steps for each set.

    Bounds are not checked. Where rounding leaves no distribution between them, points may miss by as much as they do.

    Example:
        >>> lower_entropy_by_vertices(torch.tensor([0.0, 0.4, 0.2]), torch.tensor([0.2, 0.6, 0.4]))
        tensor(0.9710)
    """
    low, high = (x.detach() for x in reachable(widen(lower), widen(upper), check=False))
    classes = low.shape[-1]
    missed = torch.maximum(low.sum(-1, keepdim=True) - 1, 1 - high.sum(-1, keepdim=True)).clamp_min(
        0
    )
    slack = missed + _SLACK * torch.finfo(low.dtype).eps
    corner = torch.arange(2 ** (classes - 1), device=low.device)
    at_upper = torch.stack([corner // 2**place % 2 for place in range(classes - 1)]).to(low.dtype)
    others = torch.tensor(
        [[k for k in range(classes) if k != free] for free in range(classes)], device=low.device
    )
    rest = 1 - _at_corners(
        low[..., others], high[..., others], at_upper
    )  # (..., the free class, corners)
    bits = _at_corners(_bits(low)[..., others], _bits(high)[..., others], at_upper)
    value = torch.minimum(torch.maximum(rest, low.unsqueeze(-1)), high.unsqueeze(-1))
    fits = (rest - value).abs() <= slack.unsqueeze(-1)
    return torch.where(fits, bits + _bits(value), torch.inf).amin((-2, -1)).to(lower.dtype)


def _at_corners(low: Tensor, high: Tensor, at_upper: Tensor) -> Tensor:
    """Sums over the classes, of each at one of its ends."""
    return low.sum(-1, keepdim=True) + (high - low) @ at_upper
