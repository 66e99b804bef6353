"""Batch norm over a batch that is spread over the ranks of a process group: one message forwards, one backwards.

Torch's SyncBatchNorm knows no CPU and no intervals. With one rank nothing here is called.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from creinn.numerics import at_least_single, widen
from creinn.ranks import all_sum


def batch_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance ``(C,)`` of the ``(N, C, ...)`` of all ranks, and how many values each is of.

    The message holds sums, sums of squares and the count, in float64, so that the difference of squares loses nothing.
    """
    variance, mean = torch.var_mean(at_least_single(x), (0, *range(2, x.ndim)), correction=0)
    mean, variance, count = widen(mean), widen(variance), x.numel() // x.shape[1]
    parts = (count * mean, count * (variance + mean.square()), mean.new_full((1,), count))
    *sums, total = all_sum(torch.cat(parts)).split((len(mean), len(mean), 1))
    mean, square = (part / total for part in sums)
    return mean, (square - mean.square()).clamp_min(0), total.detach()


def normalise(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """Batch norm by these statistics, gradients flow through them too: torch's own kernel, which keeps ``x`` alone.

    To that kernel statistics are constants. Their gradients are passed on by a scale of 1 and a shift of 0.
    """
    inverse = torch.rsqrt(variance + eps)
    one, zero = inverse / inverse.detach(), (mean.detach() - mean) * inverse.detach()
    dtype = at_least_single(x).dtype if weight is None else weight.dtype
    scale = one if weight is None else one * weight
    shift = zero * scale.detach() if bias is None else zero * scale.detach() + bias
    mean, variance, scale, shift = (
        t.to(dtype) for t in (mean.detach(), variance.detach(), scale, shift)
    )
    return F.batch_norm(x, mean, variance, scale, shift, eps=eps)


def track(
    running_mean: Tensor, running_var: Tensor, moments: tuple[Tensor, Tensor], share: float
) -> None:
    """Move running statistics by ``share`` towards mean and unbiased variance of a batch."""
    for running, new in zip((running_mean, running_var), moments, strict=True):
        running.lerp_(new.detach().to(running.dtype), share)


def unbiased(variance: Tensor, count: Tensor) -> Tensor:
    """The variance that enters running statistics."""
    return variance * (count / (count - 1))


class OrdinaryNorms(TorchFunctionMode):
    """Inside it ``F.batch_norm`` in training, and so every ``torch.nn.BatchNorm``, takes the batch of all ranks."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Pass everything else on."""
        if func is F.batch_norm and isinstance(args[0], Tensor):
            return _batch_norm(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training:
        return F.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    mean, variance, count = batch_moments(x)
    if running_mean is not None and running_var is not None:
        track(running_mean, running_var, (mean, unbiased(variance, count)), momentum)
    return normalise(x, mean, variance, weight, bias, eps)
