"""Functions for probability intervals.

The equations are those of Wang et al. (2025), with two errata.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from creinn.numerics import PerClass, PerRow, at_least_single, first_index, logsumexp_others

Bounds = tuple[PerClass, PerClass]
SUM_TOLERANCE = 1e-3  # because shares of votes are rounded
_ADVICE = "If they are logits, use interval_softmax first."


def interval_softmax(lower: PerClass, upper: PerClass, mode: str = "paper") -> Bounds:
    r"""Map interval logits to probability intervals.

    The mode ``"paper"`` is Eq. (IntSoftMax) with the midpoints :math:`m_j`
    of the other classes:

    .. math::
        \underline q_k = \sigma(\underline a_k - \operatorname{LSE}_{j \ne k} m_j), \quad
        \overline q_k = \sigma(\overline a_k - \operatorname{LSE}_{j \ne k} m_j).

    Erratum: these intervals need not contain the softmax of all logits in
    the box, unlike the "set constraint" of the paper. For the logits
    ``[0, 0], [0, 2]``, the interval of class 0 is ``[0.2689, 0.2689]``,
    but its softmax for ``(0, 2)`` is 0.1192.

    The mode ``"sound"`` is the exact range of the softmax over the box,
    with :math:`\overline a_j` for :math:`m_j` in :math:`\underline q_k`
    and :math:`\underline a_j` in :math:`\overline q_k`. In both modes,
    :math:`\sum \underline q \le 1 \le \sum \overline q` up to rounding.

    Raises:
        ValueError: If there are fewer than two classes, or if the mode is
            unknown.

    Example:
        >>> interval_softmax(torch.tensor([0.0, -1.0, 1.0]), torch.tensor([1.0, 0.0, 3.0]))
        (tensor([0.1112, 0.0391, 0.5465]), tensor([0.2537, 0.0996, 0.8991]))
    """
    if lower.shape[-1] < 2:
        raise ValueError(
            f"The logits must have at least 2 classes, got {tuple(lower.shape)}. Use "
            "interval_sigmoid for one logit."
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
    r"""Map an interval logit to the interval of the probability of class 1.

    .. math:: \underline q = \sigma(\underline a), \quad \overline q = \sigma(\overline a)

    Erratum: Eq. (binaryActivation), :math:`1 / (1 + \exp(a))`, has the
    wrong sign, which swaps the bounds.

    Example:
        >>> interval_sigmoid(torch.tensor(-1.0), torch.tensor(1.0))
        (tensor(0.2689), tensor(0.7311))
    """
    q_lower, q_upper = lower.sigmoid(), upper.sigmoid()
    return q_lower, torch.where(q_upper < q_lower, q_lower, q_upper)


def one_logit_softmax(
    lower: PerRow, upper: PerRow
) -> tuple[Float[Tensor, "*batch 2"], Float[Tensor, "*batch 2"]]:
    r"""Return the probability intervals of both classes for one logit.

    The interval of class 0 is
    :math:`[\sigma(-\overline a), \sigma(-\underline a)]`, which is more
    accurate than :math:`1 - \sigma(a)`.

    Example:
        >>> one_logit_softmax(torch.tensor(-1.0), torch.tensor(20.0))
        (tensor([2.0612e-09, 2.6894e-01]), tensor([0.7311, 1.0000]))
    """
    lower_0, upper_0 = interval_sigmoid(-upper, -lower)
    lower_1, upper_1 = interval_sigmoid(lower, upper)
    return torch.stack([lower_0, lower_1], -1), torch.stack([upper_0, upper_1], -1)


def reachable(lower: PerClass, upper: PerClass, *, check: bool = True) -> Bounds:
    r"""Tighten the bounds until each of them is attained in the credal set.

    .. math::
        \underline q_k &\leftarrow \max(\underline q_k,\ 1 - \sum_{j \ne k} \overline q_j) \\
        \overline q_k &\leftarrow \min(\overline q_k,\ 1 - \sum_{j \ne k} \underline q_j)

    The set does not change; see de Campos, Huete and Moral (1994) and Eq.
    (ULP). Changes of at most four machine epsilons are left out, because
    their gradients would be rounding errors. The check copies data to the
    host.

    Raises:
        ValueError: If a set is empty, i.e. ``sum(lower) > 1`` or
            ``sum(upper) < 1``.

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
    r"""Return the distribution at the same fraction of all reachable intervals.

    .. math::
        q_k = \underline q_k + \alpha (\overline q_k - \underline q_k), \quad
        \alpha = \frac{1 - \sum_k \underline q_k}{\sum_k (\overline q_k - \underline q_k)}

    These are Eqs. (IntProb) and (IntSecAlpha). If the widths sum to at
    most one machine epsilon, :math:`\alpha = 1/2`, the limit for small
    logit intervals.

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
    count = len(free)
    if count > 16:
        raise ValueError(f"At most 16 intervals can have a positive width, got {count}.")
    if count == 0:
        return lower.unsqueeze(0)
    low, high = lower[free], upper[free]
    mass = 1 - (lower.sum() - low.sum())
    ends = torch.tensor([False, True], device=lower.device)
    is_high = torch.cartesian_prod(*[ends] * count).reshape(-1, count)
    corners, parts = torch.where(is_high, high, low), []
    for k, (least, most) in enumerate(zip(low, high, strict=True)):  # k takes the remaining mass
        corner = corners[~is_high[:, k]]
        rest = mass - (corner.sum(-1) - least)
        for bound in (least, most):
            rest = torch.where((rest - bound).abs() <= noise, bound, rest)
        corner[:, k] = rest
        parts.append(corner[(rest >= least) & (rest <= most)])
    found = torch.cat(parts)
    points = lower.repeat(len(found), 1)
    points[:, free] = found
    return torch.unique(points, dim=0)


def tolerance(dtype: torch.dtype) -> float:
    """Return the tolerance for bounds: 1e-6 for float64, 1e-5 for float32."""
    return 1e-6 if dtype == torch.float64 else max(1e-5, torch.finfo(dtype).eps)


def probability_intervals(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Check the bounds, and correct rounding errors."""
    if lower.dtype != upper.dtype or not lower.is_floating_point():
        found = f"{lower.dtype} and {upper.dtype}"
        raise TypeError(f"The bounds must have the same floating dtype, got {found}.")
    one, two = ((tuple(x.shape), x.device) for x in (lower, upper))
    if one != two:
        raise ValueError(f"The bounds must have the same shape and device, got {one} and {two}.")
    if lower.ndim == 0 or lower.shape[-1] < 2:
        raise ValueError(
            f"The bounds must have shape (..., K) with K >= 2, got {tuple(lower.shape)}. Use "
            "CredalSet.binary for the probability of class 1."
        )
    slack = tolerance(lower.dtype)
    lower, upper = at_least_single(lower), at_least_single(upper)
    valid = (lower >= -slack) & (upper <= 1 + slack) & (lower <= upper + slack)  # False for NaN
    if not bool(valid.all()):
        at = first_index(~valid)
        raise ValueError(
            "The bounds must be finite with 0 <= lower <= upper <= 1, got "
            f"[{lower[at].item():.6g}, {upper[at].item():.6g}] at index {at}. {_ADVICE}"
        )
    _check_not_empty(lower, upper, slack)
    lower, upper = lower.clamp(0, 1), upper.clamp(0, 1)
    lower = lower / lower.sum(-1, keepdim=True).clamp_min(1)
    upper = torch.where(upper < lower, lower, upper)
    return lower, (upper / upper.sum(-1, keepdim=True).clamp_max(1)).clamp_max(1)


def _check_not_empty(lower: Tensor, upper: Tensor, slack: float) -> None:
    least, most = lower.detach().sum(-1), upper.detach().sum(-1)
    empty = (least > 1 + slack) | (most < 1 - slack)
    if bool(empty.any()):
        at = first_index(empty)
        raise ValueError(
            f"The credal set at index {at} is empty: the lower bounds sum to {least[at].item():.6g}"
            f" (at most 1), the upper bounds to {most[at].item():.6g} (at least 1). {_ADVICE}"
        )


def check_distributions(values: PerClass, name: str) -> None:
    """Raise a ``ValueError`` if a row is not a distribution, up to rounding."""
    valid = (values >= 0).all(-1) & ((values.sum(-1) - 1).abs() <= SUM_TOLERANCE)  # False for NaN
    if not bool(valid.all()):
        at = first_index(~valid)
        raise ValueError(
            f"The {name} at index {at} is not a distribution: {values[at].tolist()}. Divide "
            "votes by their sum."
        )
