"""Losses for the training of credal classifiers."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from creinn.credal.credal_set import CredalSet
from creinn.credal.probability import check_distributions
from creinn.numerics import first_index, weight_per_row


def cross_entropy(
    credal_set: CredalSet, target: Tensor, weight: Tensor | None = None, *, check: bool = True
) -> Float[Tensor, ""]:
    r"""Compute the mean cross-entropy of the intersection probability.

    The loss of a sample is :math:`-\ln q_{int,y}`, as in the section
    "Training procedure" of Wang et al. (2025). If the target is a
    distribution p, it is :math:`-\sum_k p_k \ln q_{int,k}`. The
    probabilities are clamped to the smallest normal number.

    Args:
        credal_set: Credal sets with any batch shape.
        target: True classes with the shape of the batch, or distributions
            ``(..., K)``.
        weight: Weights of the classes ``(K,)``, or of the samples
            ``(..., 1)``. The loss is the weighted mean, as in torch.
        check: Whether to check the targets, which copies them to the host.

    Raises:
        TypeError: If the targets are not integers or distributions.
        ValueError: If the shapes do not match, the batch is empty, or a
            target is not valid.

    Example:
        >>> s = CredalSet([[0.1, 0.2, 0.3]], [[0.4, 0.5, 0.7]])
        >>> cross_entropy(s, torch.tensor([2]))  # -ln 0.46
        tensor(0.7765)
    """
    target, per_sample = _weigh(credal_set, target, weight, check)
    return _mean(_negative_log(credal_set.intersection, target), per_sample)


def bounds_cross_entropy(
    credal_set: CredalSet,
    target: Tensor,
    weight: Tensor | None = None,
    hardest: float = 0.5,
    *,
    check: bool = True,
) -> Float[Tensor, ""]:
    r"""Compute the sum of the losses of the upper and of the lower bounds.

    The first term is the mean of :math:`-\ln \overline q_y`. The second
    term is the mean of :math:`-\ln \underline q_y` over the share
    ``hardest`` of the samples with the largest loss and a positive weight,
    at least one. This is the loss of Credal Deep Ensembles, Wang et al.
    (2024), on reachable bounds. The other arguments are those of
    :func:`cross_entropy`.

    Example:
        >>> s = CredalSet([[0.25, 0.5], [0.125, 0.5]], [[0.5, 0.75], [0.5, 0.875]])
        >>> bounds_cross_entropy(s, torch.tensor([0, 0]))  # ln 2 + ln 8
        tensor(2.7726)
    """
    if not 0 < hardest <= 1:
        raise ValueError(f"hardest must be in (0, 1], got {hardest!r}.")
    target, per_sample = _weigh(credal_set, target, weight, check)
    upper_loss = _mean(_negative_log(credal_set.upper, target), per_sample)
    lower_loss = _negative_log(credal_set.lower, target).flatten()
    rank, count = lower_loss.detach(), max(1, round(hardest * len(lower_loss)))
    if per_sample is None:
        return upper_loss + lower_loss[rank.topk(count).indices].mean()
    per_sample = per_sample.flatten()
    hard = rank.masked_fill(per_sample == 0, -math.inf).topk(count).indices
    return upper_loss + _mean(lower_loss[hard], per_sample[hard])


def _negative_log(probabilities: Tensor, target: Tensor) -> Tensor:
    tiny = torch.finfo(probabilities.dtype).tiny
    if target.is_floating_point():
        return -(target * probabilities.clamp_min(tiny).log()).sum(-1)
    chosen = probabilities.gather(-1, target.long().unsqueeze(-1)).squeeze(-1)
    return -chosen.clamp_min(tiny).log()


def _mean(loss: Tensor, per_sample: Tensor | None) -> Tensor:
    return loss.mean() if per_sample is None else (per_sample * loss).sum() / per_sample.sum()


def _weigh(
    credal_set: CredalSet, target: Tensor, weight: Tensor | None, check: bool
) -> tuple[Tensor, Tensor | None]:
    batch, classes = tuple(credal_set.shape[:-1]), credal_set.num_classes
    if check:
        _check_target(target, batch, classes)
    if weight is None:
        return target, None
    if weight.shape not in ((classes,), (*batch, 1)):
        expected, found = f"({classes},) or {(*batch, 1)}", tuple(weight.shape)
        raise ValueError(f"weight must have shape {expected}, got {found}.")
    weight = weight.to(credal_set.lower)
    if not target.is_floating_point():
        return target, weight_per_row(weight, target.long())
    weighted = target * weight
    total = weighted.sum(-1, keepdim=True)
    return weighted / total.clamp_min(torch.finfo(total.dtype).tiny), total.squeeze(-1)


def _check_target(target: Tensor, batch: tuple[int, ...], classes: int) -> None:
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"The targets must be integers or distributions, got {target.dtype}.")
    is_soft = target.is_floating_point()
    expected = (*batch, classes) if is_soft else batch
    if target.shape != expected:
        found = tuple(target.shape)
        raise ValueError(f"Targets of {target.dtype} must have shape {expected}, got {found}.")
    if target.numel() == 0:
        raise ValueError("The mean loss of an empty batch is not defined.")
    wrong = (target < 0) | (target >= classes)
    if is_soft:
        check_distributions(target, "target")
    elif bool(wrong.any()):
        at = first_index(wrong)
        raise ValueError(f"Targets must be in [0, {classes}), got {target[at]} at index {at}.")
