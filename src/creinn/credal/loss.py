"""Training losses: credal sets and true classes in, one number out. Beside the paper's loss, one on both bounds."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from creinn.credal.credal_set import CredalSet
from creinn.numerics import first_index, weight_per_row


def cross_entropy(
    credal_set: CredalSet, target: Tensor, weight: Tensor | None = None, *, check: bool = True
) -> Float[Tensor, ""]:
    r"""Batch mean of the cross-entropy of the intersection probability, :math:`-\ln q_{int,y}`.

    Section "Training procedure" of Wang et al. (2025), with the natural logarithm. A probability below the smallest
    normal number counts as that number: the loss is at most 87 per sample (708 in float64), and the gradient is finite.

    Args:
        credal_set: Sets of any batch shape.
        target: True classes, integers in [0, K), of the batch's shape.
        weight: Of each class ``(K,)``, or of each sample in a column ``(..., 1)``; weights the mean, as in torch.
        check: Look at the targets first. This reads them on the host; training loops check them once and pass False.

    Raises:
        TypeError: If the targets are not integers.
        ValueError: If shapes do not fit, the batch is empty, or a target is not a class.

    Example:
        >>> s = CredalSet(torch.tensor([[0.1, 0.2, 0.3]]), torch.tensor([[0.4, 0.5, 0.7]]))
        >>> s.intersection, cross_entropy(s, torch.tensor([2]))
        (tensor([[0.2200, 0.3200, 0.4600]]), tensor(0.7765))
    """
    per_sample = _weight_per_sample(credal_set, target, weight, check)
    return _mean(_negative_log(credal_set.intersection, target), per_sample)


def bounds_cross_entropy(
    credal_set: CredalSet,
    target: Tensor,
    weight: Tensor | None = None,
    hardest: float = 0.5,
    *,
    check: bool = True,
) -> Float[Tensor, ""]:
    r"""Loss on both bounds: :math:`-\ln \overline q_y` on all samples, :math:`-\ln \underline q_y` on some.

    The sum of two batch means, the second over the share ``hardest``, in (0, 1], of the samples with the largest
    :math:`-\ln \underline q_y` (their number rounded, at least one; none of weight 0): it prepares the lower bound for
    harder data. The loss of Credal Deep Ensembles, Wang et al. (2024), on reachable bounds; with the other arguments
    and errors of :func:`cross_entropy`.

    Example:
        >>> s = CredalSet([[0.25, 0.5], [0.125, 0.5]], [[0.5, 0.75], [0.5, 0.875]])
        >>> bounds_cross_entropy(s, torch.tensor([0, 0]))  # ln 2 for both upper bounds, ln 8 for the harder lower one
        tensor(2.7726)
    """
    if not 0 < hardest <= 1:
        raise ValueError(f"hardest is a share of the batch, in (0, 1], found {hardest!r}.")
    per_sample = _weight_per_sample(credal_set, target, weight, check)
    lower_loss = _negative_log(credal_set.lower, target).flatten()
    rank = lower_loss.detach()
    if per_sample is not None:
        rank = rank.masked_fill(per_sample.flatten() == 0, -math.inf)
    hard = rank.topk(max(1, round(hardest * len(rank)))).indices
    hard_weight = None if per_sample is None else per_sample.flatten()[hard]
    return _mean(_negative_log(credal_set.upper, target), per_sample) + _mean(
        lower_loss[hard], hard_weight
    )


def _negative_log(probabilities: Tensor, target: Tensor) -> Tensor:
    chosen = probabilities.gather(-1, target.long().unsqueeze(-1)).squeeze(-1)
    return -chosen.clamp_min(torch.finfo(chosen.dtype).tiny).log()


def _mean(loss: Tensor, per_sample: Tensor | None) -> Tensor:
    return loss.mean() if per_sample is None else (per_sample * loss).sum() / per_sample.sum()


def _weight_per_sample(
    credal_set: CredalSet, target: Tensor, weight: Tensor | None, check: bool
) -> Tensor | None:
    """Weight of each sample, if weights are given; refuses targets (on ``check``) and weights that do not fit."""
    batch, classes = tuple(credal_set.shape[:-1]), credal_set.num_classes
    if check:
        if target.is_floating_point() or target.dtype == torch.bool:
            raise TypeError(f"Targets must be class indices (integers), found {target.dtype}.")
        if target.shape != batch:
            raise ValueError(
                f"Targets must have the batch's shape {batch}, found {tuple(target.shape)}."
            )
        if target.numel() == 0:
            raise ValueError("The batch is empty: the mean loss of no sample is undefined.")
        wrong = (target < 0) | (target >= classes)
        if bool(wrong.any()):
            at = first_index(wrong)
            raise ValueError(
                f"Target {target[at]} at index {at} is not a class: there are {classes}, counted from 0."
            )
    if weight is None:
        return None
    if weight.shape not in ((classes,), (*target.shape, 1)):
        found = f"shape {tuple(weight.shape)}; weights of samples need {(*target.shape, 1)}"
        raise ValueError(f"weight needs one entry per class ({classes}), found {found}.")
    return weight_per_row(weight.to(credal_set.lower), target.long())
