r"""Temperature scaling of logits (Guo et al., 2017).

The logits, or both bounds of their intervals, are divided by the
temperature :math:`T` that minimizes the log loss on held-out data plus the
prior

.. math:: (\ln T)^2 / (2 s^2), \qquad s = 1/2.

The prior avoids :math:`T \to 0` for a few rows that are all classified
correctly.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.network import logits_cross_entropy
from creinn.distance.class_statistics import Sample
from creinn.interval import Interval, as_interval

DEVIATION = 0.5  # s of the prior
MAX_TEMPERATURE = 100.0  # smallest: its inverse
Probabilities = Callable[[Any], Tensor]
_SAMPLE_SIZE = 5_000  # rows
_STEPS = 24  # of the coarse search
_TINY = torch.finfo(torch.float64).tiny


class Temperature(torch.nn.Module):
    """Division of logits by a temperature in eval mode, if ``is_on``."""

    value: Tensor

    def __init__(self, is_on: bool = True) -> None:
        super().__init__()
        self.is_on = is_on
        self.register_buffer("value", torch.ones(()))

    def forward(self, logits: Any) -> Any:
        """Divide a tensor or an interval by the temperature."""
        if self.training or not self.is_on:
            return logits
        if isinstance(logits, Interval):
            return logits.map_monotone(lambda bound: bound / self.value)
        return logits / self.value

    def reset(self) -> None:
        """Set the temperature to 1."""
        self.value = torch.ones_like(self.value)

    def fit(
        self, batches: Iterable[tuple[Any, Tensor]], probabilities: Probabilities | None = None
    ) -> None:
        """Fit the temperature; see :func:`fit_temperature`."""
        sample = Sample(_SAMPLE_SIZE)
        for batch in batches:
            sample.add(batch)
        if (rows := sample.rows()) is not None:
            logits, labels = rows
            self.value = torch.full_like(self.value, fit_temperature(logits, labels, probabilities))


@torch.no_grad()
def fit_temperature(
    logits: Any, labels: Tensor, probabilities: Probabilities | None = None
) -> float:
    """Return the temperature that minimizes the log loss plus the prior.

    Args:
        logits: A tensor or an interval ``(N, ...)``. Rows that are not
            finite are ignored.
        labels: Classes ``(N,)`` or label distributions ``(N, K)``.
        probabilities: A function from logits in float64 to probabilities
            ``(N, K)``. The default, also for points, is the softmax, or
            the sigmoid of a single logit.

    Example:
        >>> logits = torch.tensor([[-4.0], [4.0], [4.0], [4.0]])
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> for n in (1, 1000):  # without the prior, it is 4 / ln 3 = 3.64
        ...     print(round(fit_temperature(logits.repeat(n, 1), labels.repeat(n)), 2))
        1.57
        3.62
    """
    bounds = as_interval(logits)
    finite = (bounds.lower.isfinite() & bounds.upper.isfinite()).flatten(1).all(1)
    if not bool(finite.any()):
        return 1.0
    if isinstance(logits, Interval) and logits.is_point:
        logits, probabilities = logits.lower, None
    logits, labels = logits[finite].to("cpu", torch.float64), labels[finite].cpu()

    def loss(log_temperature: float) -> float:
        scaled = logits * math.exp(-log_temperature)
        if probabilities is not None:
            scaled = probabilities(scaled).clamp_min(_TINY).log()
        total = len(labels) * float(logits_cross_entropy(scaled, labels))
        return total + (log_temperature / DEVIATION) ** 2 / 2

    from scipy.optimize import minimize_scalar  # slow import

    end = math.log(MAX_TEMPERATURE)
    step = 2 * end / _STEPS  # there is one minimum near the best step
    start = min((step * index - end for index in range(_STEPS + 1)), key=loss)
    bracket = max(-end, start - step), min(end, start + step)
    found = minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-4})
    return math.exp(found.x)
