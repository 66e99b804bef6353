r"""Probability intervals: softmax, reachable bounds and intersection probability.

The functions work on lower and upper bounds, use O(K) memory and have finite gradients. The
equations are those of Wang et al. (2025), with two errata.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from creinn.numerics import at_least_single, first_index, logsumexp_others

PerClass = Float[Tensor, "*batch classes"]
PerRow = Float[Tensor, "*batch"]
SUM_TOLERANCE = 1e-3  # of label distributions, because shares of votes are rounded
_ADVICE = "If these are logits, use interval_softmax first."


def interval_softmax(
    lower: PerClass, upper: PerClass, mode: str = "paper"
) -> tuple[PerClass, PerClass]:
    r"""Map interval logits to probability intervals.

    For the logits :math:`[\underline a, \overline a]`, the mode ``"paper"`` is Eq. (IntSoftMax)
    with the midpoints :math:`m_j` of the other classes:

    .. math::
        \underline q_k = \sigma\bigl(\underline a_k - \operatorname{LSE}_{j \ne k} m_j\bigr), \quad
        \overline q_k = \sigma\bigl(\overline a_k - \operatorname{LSE}_{j \ne k} m_j\bigr).

    Erratum: the paper states that these intervals contain the softmax of all logits in the box (the
    "set constraint"). This is false. The interval of class 0 for the logits [0, 0], [0, 2] is
    [0.2689, 0.2689], but the softmax of (0, 2) is 0.1192.

    The mode ``"sound"`` is the exact range of the softmax over the box: :math:`m_j` is replaced by
    :math:`\overline a_j` in :math:`\underline q_k`, and by :math:`\underline a_j` in
    :math:`\overline q_k`. In both modes, :math:`\sum \underline q \le 1 \le \sum \overline q` up
    to rounding. The logits are not checked.

    Raises:
        ValueError: If there are fewer than two classes, or if the mode is unknown.

    Example:
        >>> interval_softmax(torch.tensor([0.0, -1.0, 1.0]), torch.tensor([1.0, 0.0, 3.0]))
        (tensor([0.1112, 0.0391, 0.5465]), tensor([0.2537, 0.0996, 0.8991]))
    """
    if lower.shape[-1] < 2:
        raise ValueError(
            f"interval_softmax needs at least 2 classes, got logits of shape {tuple(lower.shape)}. "
            "Use interval_sigmoid for one logit."
        )
    if mode == "paper":
        pivot, rest = upper_pivot, upper_rest = logsumexp_others(lower + (upper - lower) / 2)
    elif mode == "sound":
        pivot, rest = logsumexp_others(upper)
        upper_pivot, upper_rest = logsumexp_others(lower)
    else:
        raise ValueError(f"mode must be 'paper' or 'sound', got {mode!r}.")
    return interval_sigmoid(lower - pivot - rest, upper - upper_pivot - upper_rest)


def interval_sigmoid(lower: PerRow, upper: PerRow) -> tuple[PerRow, PerRow]:
    r"""Map one interval logit to the probability interval of class 1.

    .. math:: \underline q = \sigma(\underline a), \quad \overline q = \sigma(\overline a)

    Erratum: Eq. (binaryActivation) of the paper is :math:`1 / (1 + \exp(a))`. This has the wrong
    sign, which swaps the bounds.

    Example:
        >>> interval_sigmoid(torch.tensor(-1.0), torch.tensor(1.0))
        (tensor(0.2689), tensor(0.7311))
    """
    q_lower, q_upper = lower.sigmoid(), upper.sigmoid()
    return q_lower, torch.where(q_upper < q_lower, q_lower, q_upper)


def one_logit_softmax(
    lower: PerRow, upper: PerRow
) -> tuple[Float[Tensor, "*batch 2"], Float[Tensor, "*batch 2"]]:
    r"""Return the probability intervals of both classes for one interval logit.

    The interval of class 1 is :func:`interval_sigmoid`. The interval of class 0 is
    :math:`[\sigma(-\overline a), \sigma(-\underline a)]`, which is more accurate than
    :math:`1 - \sigma(a)` for large logits.

    Example:
        >>> one_logit_softmax(torch.tensor(-1.0), torch.tensor(20.0))
        (tensor([2.0612e-09, 2.6894e-01]), tensor([0.7311, 1.0000]))
    """
    pairs = zip(interval_sigmoid(-upper, -lower), interval_sigmoid(lower, upper), strict=True)
    low, high = (torch.stack(pair, -1) for pair in pairs)
    return low, high


def reachable(lower: PerClass, upper: PerClass, *, check: bool = True) -> tuple[PerClass, PerClass]:
    r"""Tighten probability intervals until each bound is attained in the credal set.

    .. math::
        \underline q_k \leftarrow
            \max\bigl(\underline q_k,\ 1 - \textstyle\sum_{j \ne k} \overline q_j\bigr), \quad
        \overline q_k \leftarrow
            \min\bigl(\overline q_k,\ 1 - \textstyle\sum_{j \ne k} \underline q_j\bigr)

    The set does not change; see de Campos, Huete and Moral (1994) and Eq. (ULP). A bound is not
    changed if the difference is at most four machine epsilons, because its gradient would be a
    rounding error divided by a small probability.

    Args:
        lower: Lower probabilities.
        upper: Upper probabilities.
        check: If True, raise an error if a set is empty. This copies data to the host.

    Raises:
        ValueError: If a set is empty, i.e. ``sum(lower) > 1`` or ``sum(upper) < 1``.

    Example:
        >>> reachable(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.4, 0.5, 0.9]))
        (tensor([0.1000, 0.2000, 0.3000]), tensor([0.4000, 0.5000, 0.7000]))
    """
    if check:
        _check_not_empty(lower, upper, tolerance(lower.dtype))
    noise = 4 * torch.finfo(lower.dtype).eps
    least = upper - (upper.sum(-1, keepdim=True) - 1).clamp_min(0)
    most = lower + (1 - lower.sum(-1, keepdim=True)).clamp_min(0)
    tight_lower = torch.where(least > lower + noise, least, lower)
    tight_upper = torch.where(most < upper - noise, most, upper)
    return tight_lower, torch.where(tight_upper < tight_lower, tight_lower, tight_upper)


def intersection_probability(lower: PerClass, upper: PerClass) -> PerClass:
    r"""Return the distribution that is at the same fraction of all reachable intervals.

    .. math::
        q_k = \underline q_k + \alpha (\overline q_k - \underline q_k), \quad
        \alpha = \Bigl(1 - \sum_k \underline q_k\Bigr) \Big/ \sum_k (\overline q_k - \underline q_k)

    These are Eqs. (IntProb) and (IntSecAlpha). If the sum of the widths is at most one machine
    epsilon, :math:`\alpha = 1/2`, which is the limit for small logit intervals. This avoids 0/0 in
    the value and in the gradient.

    Example:
        >>> intersection_probability(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.4, 0.5, 0.7]))
        tensor([0.2200, 0.3200, 0.4600])
    """
    width = upper - lower
    total = width.sum(-1, keepdim=True)
    is_point = total <= torch.finfo(lower.dtype).eps
    fraction = (1 - lower.sum(-1, keepdim=True)) / torch.where(is_point, 1.0, total)
    return lower + torch.where(is_point, 0.5, fraction.clamp(0, 1)) * width


def vertices(
    lower: Float[Tensor, " classes"], upper: Float[Tensor, " classes"]
) -> Float[Tensor, "vertices classes"]:
    """Return the vertices of a credal set in lexicographic order."""
    noise = 16 * torch.finfo(lower.dtype).eps
    free = (upper - lower > noise).nonzero().squeeze(-1)
    if len(free) > 16:
        raise ValueError(
            f"vertices() supports at most 16 intervals of positive width, got {len(free)}."
        )
    if len(free) == 0:
        return lower.unsqueeze(0)
    low, high = lower[free], upper[free]
    mass = 1 - (lower.sum() - low.sum())
    ends = torch.tensor([False, True], device=lower.device)
    is_high = torch.cartesian_prod(*[ends] * len(free)).reshape(-1, len(free))
    corners, parts = torch.where(is_high, high, low), []
    for k, (least, most) in enumerate(zip(low, high, strict=True)):  # k takes the remaining mass
        corner = corners[~is_high[:, k]]
        left = mass - (corner.sum(-1) - least)
        for bound in (least, most):
            left = torch.where((left - bound).abs() <= noise, bound, left)
        corner[:, k] = left
        parts.append(corner[(left >= least) & (left <= most)])
    points = lower.repeat(sum(map(len, parts)), 1)
    points[:, free] = torch.cat(parts)
    return torch.unique(points, dim=0)


def tolerance(dtype: torch.dtype) -> float:
    """Return the tolerance for the bounds of a user.

    It is 1e-6 for float64, 1e-5 for float32 and one machine epsilon for half precision.
    """
    return 1e-6 if dtype == torch.float64 else max(1e-5, torch.finfo(dtype).eps)


def probability_intervals(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Check the bounds of a :class:`creinn.CredalSet` and correct rounding errors."""
    one, two = ((tuple(x.shape), x.device) for x in (lower, upper))
    if one != two:
        raise ValueError(f"lower and upper must have the same shape and device: {one}, {two}.")
    if lower.dtype != upper.dtype or not lower.is_floating_point():
        raise TypeError(
            f"The bounds must have the same floating dtype, got {lower.dtype} and {upper.dtype}."
        )
    if lower.ndim == 0 or lower.shape[-1] < 2:
        raise ValueError(
            f"The bounds must have shape (..., K) with K >= 2, got {tuple(lower.shape)}. Use "
            "CredalSet.binary for the probability interval of class 1."
        )
    slack = tolerance(lower.dtype)
    lower, upper = at_least_single(lower), at_least_single(upper)
    valid = (lower >= -slack) & (upper <= 1 + slack) & (lower <= upper + slack)  # False for NaN
    if not bool(valid.all()):
        index = first_index(~valid)
        low, high = lower[index].item(), upper[index].item()
        found = f"got [{low:.6g}, {high:.6g}] at index {index} of shape {tuple(lower.shape)}"
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(
                f"The bounds must be finite, {found}. Check the inputs for an overflow."
            )
        if low < -slack or high > 1 + slack:
            raise ValueError(f"The bounds must be in [0, 1], {found}. {_ADVICE}")
        raise ValueError(f"The lower bounds must not be larger than the upper bounds, {found}.")
    _check_not_empty(lower, upper, slack)
    lower, upper = lower.clamp(0, 1), upper.clamp(0, 1)
    lower = lower / lower.sum(-1, keepdim=True).clamp_min(1)
    upper = torch.where(upper < lower, lower, upper)
    return lower, (upper / upper.sum(-1, keepdim=True).clamp_max(1)).clamp_max(1)


def _check_not_empty(lower: Tensor, upper: Tensor, slack: float) -> None:
    least, most = lower.detach().sum(-1), upper.detach().sum(-1)
    empty = (least > 1 + slack) | (most < 1 - slack)
    if not bool(empty.any()):
        return
    index = first_index(empty)
    where = f" at index {index} of batch {tuple(empty.shape)}" if index else ""
    found = f"upper bounds sum to {most[index].item():.6g} < 1"
    if least[index] > 1 + slack:
        found = f"lower bounds sum to {least[index].item():.6g} > 1"
    raise ValueError(f"The credal set is empty: the {found}{where}. {_ADVICE}")


def check_distributions(values: PerClass, name: str) -> None:
    """Raise a ``ValueError`` if a row is not a distribution, up to rounding of its shares."""
    sums = values.sum(-1)
    valid = (values >= 0).all(-1) & ((sums - 1).abs() <= SUM_TOLERANCE)  # False for NaN
    if not bool(valid.all()):
        at = first_index(~valid)
        raise ValueError(
            f"The {name} at index {at} is not a distribution: {values[at].tolist()}. Divide votes "
            "by their sum."
        )
