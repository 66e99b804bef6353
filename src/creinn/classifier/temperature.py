r"""One number that logits are divided by, so that probabilities say how often a class is right (Guo et al., 2017).

In: logits and classes of held-out data, once; then logits of new data. Out: logits :math:`a / T`. Intervals are scaled
as a whole, centre and radius alike, so what they contain they still contain. :math:`T` has the least log loss, plus

.. math:: (\ln T)^2 / (2 s^2), \qquad s = 1/2,

as if :math:`\ln T` were known to be about 0 beforehand. On many rows that says nothing; on a few that are all predicted
right, where :math:`T \to 0` would have the least loss, it keeps them from making the model certain of everything.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from scipy.optimize import minimize_scalar
from torch import Tensor

from creinn.distance.sample import Sample
from creinn.interval import Interval, as_interval

DEVIATION = 0.5  # of ln T, beforehand
LARGEST = 100.0  # and 1 / LARGEST is the smallest T
LARGEST_SAMPLE = 5_000  # rows: T is then known to a few percent
_STEPS = 24  # of the first, coarse search
_TINY = torch.finfo(torch.float64).tiny


class Temperature(torch.nn.Module):
    """Logits in, logits over :math:`T` out, in eval mode; 1 until :meth:`fit`. Unless it ``is_on``, nothing happens.

    Example:
        >>> temperature = Temperature().eval()
        >>> temperature.fit([(torch.tensor([[8.0, 0.0]] * 400), torch.tensor([0, 0, 0, 1] * 100))])
        >>> temperature(torch.tensor([8.0, 0.0])).softmax(0)  # one in four is wrong
        tensor([0.7661, 0.2339])
    """

    value: Tensor

    def __init__(self, is_on: bool = True) -> None:
        super().__init__()
        self.is_on = is_on
        self.register_buffer("value", torch.ones(()))

    def forward(self, logits: Any) -> Any:
        """Logits, tensors or intervals, over the temperature."""
        if self.training or not self.is_on:
            return logits
        return (
            logits.map_monotone(self._scaled)
            if isinstance(logits, Interval)
            else self._scaled(logits)
        )

    def _scaled(self, logits: Tensor) -> Tensor:
        return logits / self.value

    def reset(self) -> None:
        """Be 1 again: the weights are about to change."""
        self.value = torch.ones_like(self.value)

    def fit(
        self,
        batches: Iterable[tuple[Any, Tensor]],
        probabilities: Callable[[Any], Tensor] | None = None,
    ) -> None:
        """Take :func:`fit_temperature` of batches of logits and classes; without rows it stays as it is."""
        sample = Sample(LARGEST_SAMPLE)
        for batch in batches:
            sample.add(batch)
        if (rows := sample.rows()) is not None:
            logits, labels = rows
            found = fit_temperature(logits, labels, probabilities)
            self.value = torch.full_like(self.value, found)


@torch.no_grad()
def fit_temperature(
    logits: Any, labels: Int[Tensor, " rows"], probabilities: Callable[[Any], Tensor] | None = None
) -> float:
    """The temperature of least log loss, with the prior of this module, between 1 / :data:`LARGEST` and that.

    Args:
        logits: Of held-out rows: a tensor or interval ``(N, ...)``. Rows that are not finite are left out.
        labels: Their classes.
        probabilities: From logits, in double precision, to distributions ``(N, K)``; by default, and for intervals that
            are points, the softmax of logits ``(N, K)``, one being that of class 1 of two.

    Example:
        >>> logits, labels = torch.tensor([[-4.0], [4.0], [4.0], [4.0]]), torch.tensor([0, 0, 1, 1])
        >>> [round(fit_temperature(logits.repeat(n, 1), labels.repeat(n)), 2) for n in (1, 10, 1000)]  # 4 / ln 3 = 3.64
        [1.57, 2.68, 3.62]
    """
    bounds = as_interval(logits)
    kept = (bounds.lower.isfinite() & bounds.upper.isfinite()).flatten(1).all(1)
    if not bool(kept.any()):
        return 1.0
    if isinstance(logits, Interval) and logits.is_point:
        logits, probabilities = logits.lower, None
    logits, labels = logits[kept].to("cpu", torch.float64), labels[kept].cpu().unsqueeze(1)

    def loss(log_temperature: float) -> float:
        scaled = logits * math.exp(-log_temperature)
        logs = (
            _log_softmax(scaled)
            if probabilities is None
            else probabilities(scaled).clamp_min(_TINY).log()
        )
        return float(-logs.gather(1, labels).sum()) + (log_temperature / DEVIATION) ** 2 / 2

    end = math.log(LARGEST)
    step = 2 * end / _STEPS  # a search within one step has one minimum in sight
    start = min((step * index - end for index in range(_STEPS + 1)), key=loss)
    bracket = max(-end, start - step), min(end, start + step)
    return math.exp(
        minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-4}).x
    )


def _log_softmax(logits: Tensor) -> Tensor:
    return (
        F.logsigmoid(torch.cat((-logits, logits), 1))
        if logits.shape[1] == 1
        else logits.log_softmax(1)
    )
