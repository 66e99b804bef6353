r"""Margins around probability intervals that should contain a distribution.

The score of a calibration row with a distribution q, such as the votes of
annotators, is the smallest margin, in units of u, for which its intervals
contain q:

.. math:: \max_k \max\left(\frac{\underline q_k - q_k}{u(\underline q_k)},
    \frac{q_k - \overline q_k}{u(\overline q_k)}\right)

The margin of new rows is a conformal quantile m of the scores. The bounds
become :math:`\underline q_k - m\, u(\underline q_k)` and
:math:`\overline q_k + m\, u(\overline q_k)`, clipped to [0, 1] and made
reachable. If a new row is exchangeable, its intervals contain its
distribution with the probability of the calibration.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from creinn.credal.probability import Bounds, reachable
from creinn.numerics import PerClass

LEAST_DEVIATION = 0.02
"""Unit of ``"deviation"`` at the probabilities 0 and 1."""


def deviation_unit(probability: PerClass) -> PerClass:
    r"""Return the standard deviation of a vote plus a constant.

    .. math:: u(p) = \sqrt{p (1 - p)} + 0.02

    Example:
        >>> deviation_unit(torch.tensor([0.0, 0.5, 1.0]))
        tensor([0.0200, 0.5200, 0.0200])
    """
    return (probability * (1 - probability)).clamp_min(0).sqrt() + LEAST_DEVIATION


UNITS: dict[str, Callable[[Tensor], Tensor]] = {
    "deviation": deviation_unit,
    "additive": torch.ones_like,
}
"""Units of the margin."""


def margin_score(
    lower: PerClass, upper: PerClass, distribution: PerClass, margin: str = "deviation"
) -> Float[Tensor, "*batch"]:
    """Return the smallest margin for which the intervals contain q.

    It is negative if the distribution is inside the intervals.

    Example:
        >>> lower, upper = torch.tensor([0.5, 0.1]), torch.tensor([0.9, 0.5])
        >>> margin_score(lower, upper, torch.tensor([1.0, 0.0]), "additive")
        tensor(0.1000)
    """
    unit = UNITS[margin]
    below = (lower - distribution) / unit(lower)
    above = (distribution - upper) / unit(upper)
    return torch.maximum(below, above).amax(-1)


def add_margin(lower: PerClass, upper: PerClass, size: Tensor, margin: str = "deviation") -> Bounds:
    """Return reachable bounds, moved outwards by ``max(size, 0)`` units.

    Example:
        >>> lower, upper = torch.tensor([0.5, 0.0]), torch.tensor([1.0, 0.5])
        >>> add_margin(lower, upper, torch.tensor([0.5]))
        (tensor([0.2400, 0.0000]), tensor([1.0000, 0.7600]))
    """
    size, unit = size.clamp_min(0).to(lower), UNITS[margin]
    wider_lower = (lower - size * unit(lower)).clamp_min(0)
    wider_upper = (upper + size * unit(upper)).clamp_max(1)
    return reachable(wider_lower, wider_upper, check=False)
