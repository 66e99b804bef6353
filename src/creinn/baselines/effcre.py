r"""Efficient credal prediction by decalibration (EffCre, Hofman et al. 2026).

The logit of one class of a trained network is shifted by a constant. A
shift is plausible if its relative likelihood on the training data is at
least :math:`\alpha`:

.. math::
    \exp\Bigl(\tfrac1n \sum_i \log p_{y_i}(z_i + c\, e_k) - \log p_{y_i}(z_i)\Bigr) \ge \alpha

The plausible shifts are an interval, because the log-likelihood is concave
in :math:`c`. A credal set contains the predictions for all plausible
shifts.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from creinn.baselines.snn import SNN, predict_logits
from creinn.classifier.base import Labelled, evaluating
from creinn.credal.credal_set import CredalSet
from creinn.distributed import all_sum
from creinn.numerics import logsumexp_others

LARGEST_SHIFT = 1e4
"""Bound of shifts that the likelihood does not limit."""

STEPS = 64  # of the bisection


class EffCre(SNN):
    """Credal sets of one trained network, from plausible shifts of its logits.

    An untrained model predicts the distribution of the network.

    Args:
        network: A module that returns logits ``(N, K)``.
        alpha: Smallest relative likelihood of a shift, in (0, 1].
        num_logits, logit_norm: See :class:`creinn.baselines.SNN`.
    """

    prediction_type = CredalSet
    shifts: Tensor

    def __init__(
        self,
        network: nn.Module,
        alpha: float = 0.95,
        num_logits: int | None = None,
        logit_norm: bool = False,
    ) -> None:
        super().__init__(network, num_logits, logit_norm)
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha must be in (0, 1], got {alpha}.")
        self.alpha = alpha
        like = next(network.parameters())
        self.register_buffer("shifts", like.new_zeros(2, self.num_classes))

    def forward(self, x: Tensor) -> Any:
        """Return the credal sets, or predictions of an SNN in training mode."""
        if self.training:
            return super().forward(x)
        return CredalSet._wrap(*shifted_bounds(self._log_probabilities(x), *self.shifts))

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Reset the shifts."""
        super().before_training(data, epochs)
        self.shifts.zero_()

    @torch.no_grad()
    def after_training(self, data: Labelled, held_out: Labelled | None = None) -> None:
        """Compute the plausible shifts from the training data."""
        with evaluating(self):
            rows = [(self._log_probabilities(x.to(self.shifts)).cpu(), y.cpu()) for x, y in data]
        logs, target = (torch.cat(parts) for parts in zip(*rows, strict=True))
        self.shifts.copy_(plausible_shifts(logs, target, self.alpha))

    def _log_probabilities(self, x: Tensor) -> Tensor:
        return predict_logits(self.normed_logits(x)).log_samples[0]


def plausible_shifts(logs: Tensor, target: Tensor, alpha: float) -> Tensor:
    """Return the smallest and the largest plausible shift of each class.

    The log-probabilities ``(N, K)`` and classes are those of this process.
    """
    logs = logs.double()
    others = torch.stack(logsumexp_others(logs)).sum(0)
    counts = all_sum(torch.bincount(target, minlength=logs.shape[1]).double())

    def gain(shift: Tensor) -> Tensor:
        normalizers = all_sum(torch.logaddexp(others, logs + shift).sum(0))  # 0 without shift
        return (counts * shift - normalizers) / counts.sum()

    inside = logs.new_zeros(2, logs.shape[1])
    outside = LARGEST_SHIFT * logs.new_tensor([[-1.0], [1.0]]).expand_as(inside)
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        plausible = torch.stack([gain(shift) for shift in middle]) >= math.log(alpha)
        inside = torch.where(plausible, middle, inside)
        outside = torch.where(plausible, outside, middle)
    return inside


def shifted_bounds(logs: Tensor, smallest: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest probability of each class.

    A probability is monotone in each shift, so the extremes are at the
    ends.

    Args:
        logs: Log-probabilities ``(N, K)``.
        smallest: Smallest shifts, at most 0.
        largest: Largest shifts, at least 0.
    """
    others = torch.stack(logsumexp_others(logs)).sum(0)
    reduced, raised = logs + smallest, logs + largest
    least, most = torch.logaddexp(others, reduced), torch.logaddexp(others, raised)
    lower = torch.minimum(reduced - least, logs - _max_of_others(most))
    upper = torch.maximum(raised - most, logs + _max_of_others(-least))
    return lower.exp(), upper.exp().clamp_max(1)


def _max_of_others(x: Tensor) -> Tensor:
    largest, index = x.topk(2, dim=-1)
    classes = torch.arange(x.shape[-1], device=x.device)
    return torch.where(classes == index[:, :1], largest[:, 1:], largest[:, :1])
