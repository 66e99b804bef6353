r"""Interval logits in, probability intervals out; then their reachable form and the point that stands for them.

* :func:`interval_softmax` and :func:`interval_sigmoid`: Eq. (IntSoftMax) of Wang et al. (2025), and its one-logit form;
* :func:`reachable`: Eq. (ULP);
* :func:`intersection_probability`: Eqs. (IntProb), (IntSecAlpha).

All functions act on plain tensors of lower and upper bounds, keep their dtype and device, use O(K) memory, and are
differentiable with finite gradients. Two errata of the paper are corrected here; see :func:`interval_softmax` (mode
``"sound"``) and :func:`interval_sigmoid`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from creinn.numerics import first_index, logsumexp_others


def interval_softmax(
    lower: Float[Tensor, "*batch classes"],
    upper: Float[Tensor, "*batch classes"],
    mode: str = "paper",
) -> tuple[Float[Tensor, "*batch classes"], Float[Tensor, "*batch classes"]]:
    r"""Map interval logits :math:`[\underline a, \overline a]` to probability intervals.

    ``"paper"`` is Eq. (IntSoftMax): the other classes enter by their midpoints :math:`m_j`,

    .. math::
        \underline q_k = \sigma\bigl(\underline a_k - \operatorname{LSE}_{j \ne k} m_j\bigr), \quad
        \overline q_k = \sigma\bigl(\overline a_k - \operatorname{LSE}_{j \ne k} m_j\bigr).

    Erratum: the paper's claim that these contain the softmax of every logit vector in the box (its "set constraint")
    is false. Logits [0, 0], [0, 2] give class 0 the interval [0.2689, 0.2689], and the member (0, 2) has 0.1192.
    ``"sound"`` is the exact range of softmax over the box,

    .. math::
        \underline q_k = \sigma\bigl(\underline a_k - \operatorname{LSE}_{j \ne k} \overline a_j\bigr), \quad
        \overline q_k = \sigma\bigl(\overline a_k - \operatorname{LSE}_{j \ne k} \underline a_j\bigr).

    Both satisfy :math:`\sum \underline q \le 1 \le \sum \overline q` up to rounding. Logits must be finite, with
    ``lower <= upper``; this is not checked here.

    Raises:
        ValueError: If there are fewer than two classes, or the mode is not one of the two.

    Example:
        >>> interval_softmax(torch.tensor([0.0, -1.0, 1.0]), torch.tensor([1.0, 0.0, 3.0]))
        (tensor([0.1112, 0.0391, 0.5465]), tensor([0.2537, 0.0996, 0.8991]))
    """
    if lower.shape[-1] < 2:
        raise ValueError(
            f"interval_softmax needs at least 2 classes, found logits of shape {tuple(lower.shape)}. "
            "A head with one logit is binary: use interval_sigmoid."
        )
    if mode == "paper":
        others_of_lower = others_of_upper = logsumexp_others(lower + (upper - lower) / 2)
    elif mode == "sound":
        others_of_lower, others_of_upper = logsumexp_others(upper), logsumexp_others(lower)
    else:
        raise ValueError(f"mode must be 'paper' or 'sound', found {mode!r}.")
    q_lower = _sigmoid_of_difference(lower, *others_of_lower)
    q_upper = _sigmoid_of_difference(upper, *others_of_upper)
    return q_lower, torch.where(q_upper < q_lower, q_lower, q_upper)


def interval_sigmoid(
    lower: Float[Tensor, "*batch"], upper: Float[Tensor, "*batch"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    r"""Map one interval logit to the probability interval of class 1.

    .. math:: \underline q = \sigma(\underline a), \quad \overline q = \sigma(\overline a)

    Erratum: Eq. (binaryActivation) of the paper reads :math:`1 / (1 + \exp(a))`, which has the wrong sign and swaps
    the bounds.

    Example:
        >>> interval_sigmoid(torch.tensor(-1.0), torch.tensor(1.0))
        (tensor(0.2689), tensor(0.7311))
    """
    q_lower, q_upper = lower.sigmoid(), upper.sigmoid()
    return q_lower, torch.where(q_upper < q_lower, q_lower, q_upper)


def one_logit_softmax(
    lower: Float[Tensor, "*batch"], upper: Float[Tensor, "*batch"]
) -> tuple[Float[Tensor, "*batch 2"], Float[Tensor, "*batch 2"]]:
    r"""Probability intervals of both classes from one interval logit.

    Class 1 is :func:`interval_sigmoid`; class 0 is :math:`[\sigma(-\overline a), \sigma(-\underline a)]`, which keeps
    its digits where :math:`1 - \sigma(a)` would round to 0.

    Example:
        >>> one_logit_softmax(torch.tensor(-1.0), torch.tensor(20.0))
        (tensor([2.0612e-09, 2.6894e-01]), tensor([0.7311, 1.0000]))
    """
    class_one, class_zero = interval_sigmoid(lower, upper), interval_sigmoid(-upper, -lower)
    return torch.stack([class_zero[0], class_one[0]], -1), torch.stack([class_zero[1], class_one[1]], -1)


def reachable(
    lower: Float[Tensor, "*batch classes"], upper: Float[Tensor, "*batch classes"], *, check: bool = True
) -> tuple[Float[Tensor, "*batch classes"], Float[Tensor, "*batch classes"]]:
    r"""Tighten probability intervals until each bound is attained by a member of the credal set.

    .. math::
        \underline q_k \leftarrow \max\bigl(\underline q_k,\ 1 - \textstyle\sum_{j \ne k} \overline q_j\bigr), \quad
        \overline q_k \leftarrow \min\bigl(\overline q_k,\ 1 - \textstyle\sum_{j \ne k} \underline q_j\bigr)

    Both from the bounds as given. The set itself does not change. de Campos, Huete and Moral (1994); Eq. (ULP).
    A bound that would move by no more than the rounding error of the sums (four machine epsilons) stays: the move is
    noise, and its gradient would be noise divided by a tiny probability.

    Args:
        lower: Lower probabilities.
        upper: Upper probabilities.
        check: Look for an empty set first. This reads the data on the host; pass False inside a model.

    Raises:
        ValueError: If no distribution fits, i.e. ``sum(lower) > 1`` or ``sum(upper) < 1`` (beyond rounding).

    Example:
        >>> reachable(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.4, 0.5, 0.9]))
        (tensor([0.1000, 0.2000, 0.3000]), tensor([0.4000, 0.5000, 0.7000]))
    """
    if check:
        check_not_empty(lower, upper)
    noise = 4 * torch.finfo(lower.dtype).eps
    least = upper - (upper.sum(-1, keepdim=True) - 1).clamp_min(0)
    most = lower + (1 - lower.sum(-1, keepdim=True)).clamp_min(0)
    tight_lower = torch.where(least > lower + noise, least, lower)
    tight_upper = torch.where(most < upper - noise, most, upper)
    return tight_lower, torch.where(tight_upper < tight_lower, tight_lower, tight_upper)


def intersection_probability(
    lower: Float[Tensor, "*batch classes"], upper: Float[Tensor, "*batch classes"]
) -> Float[Tensor, "*batch classes"]:
    r"""The distribution at one common fraction of every reachable interval.

    .. math::
        q_k = \underline q_k + \alpha (\overline q_k - \underline q_k), \quad
        \alpha = \Bigl(1 - \sum_k \underline q_k\Bigr) \Big/ \sum_k (\overline q_k - \underline q_k)

    Eqs. (IntProb), (IntSecAlpha). When the widths sum to no more than one machine epsilon the set is one point and
    every :math:`\alpha` gives it; :math:`\alpha = 1/2` is taken, the limit for shrinking logit intervals, so that
    neither value nor gradient is 0/0.

    Example:
        >>> intersection_probability(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.4, 0.5, 0.7]))
        tensor([0.2200, 0.3200, 0.4600])
    """
    width = upper - lower
    total = width.sum(-1, keepdim=True)
    is_point = total <= torch.finfo(lower.dtype).eps
    fraction = (1 - lower.sum(-1, keepdim=True)) / torch.where(is_point, 1.0, total)
    return lower + torch.where(is_point, 0.5, fraction.clamp(0, 1)) * width


def tolerance(dtype: torch.dtype) -> float:
    """How far bounds given by a caller may miss a constraint before they are refused.

    1e-6 in float64, 1e-5 in float32; one machine epsilon in float16 (0.001) and bfloat16 (0.008).
    """
    return 1e-6 if dtype == torch.float64 else max(1e-5, torch.finfo(dtype).eps)


def check_not_empty(
    lower: Float[Tensor, "*batch classes"], upper: Float[Tensor, "*batch classes"], slack: float | None = None
) -> None:
    """Raise a ValueError that names the first set in the batch without a member."""
    slack = tolerance(lower.dtype) if slack is None else slack
    least, most = lower.detach().sum(-1), upper.detach().sum(-1)
    empty = (least > 1 + slack) | (most < 1 - slack)
    if not bool(empty.any()):
        return
    index = first_index(empty)
    where = f" at index {index} of batch {tuple(empty.shape)}" if index else ""
    if least[index] > 1 + slack:
        what = f"lower bounds sum to {least[index].item():.6g} > 1"
    else:
        what = f"upper bounds sum to {most[index].item():.6g} < 1"
    raise ValueError(
        f"Probability intervals are empty: {what}{where}. Were logits passed? Apply interval_softmax first."
    )


def _sigmoid_of_difference(
    logit: Float[Tensor, "*batch classes"],
    pivot: Float[Tensor, "*batch classes"],
    remainder: Float[Tensor, "*batch classes"],
) -> Float[Tensor, "*batch classes"]:
    return ((logit - pivot) - remainder).sigmoid()
