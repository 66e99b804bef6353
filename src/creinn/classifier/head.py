"""The head of a CreINN: interval logits in, credal sets out."""

import math
from typing import Literal

import torch
from torch import Tensor

from creinn.credal.credal_set import CredalSet
from creinn.credal.probability import interval_softmax, one_logit_softmax
from creinn.distance.radius import add_radius
from creinn.interval import Interval
from creinn.numerics import at_least_single

Mode = Literal["paper", "scaled", "sound"]


def credal_set(
    logits: Interval, mode: Mode, radius: Tensor | None = None, training: bool = False
) -> CredalSet:
    """The head: interval logits ``(N, K)`` to credal sets; ``K = 1`` is a binary classifier.

    Points give sets of one distribution, by the ordinary softmax. A ``radius`` ``(N,)`` of the distance is added to
    that of every logit; the label stays that of the logits. A row with a logit that is NaN or infinite gets the vacuous
    set, but in ``training`` stays NaN, for training to stop at. Logits in half precision are made float32.
    """
    if radius is not None:
        wide = credal_set(add_radius(logits, radius), mode)
        return CredalSet._wrap(wide.lower, wide.upper, credal_set(logits, mode).label)
    lower, upper = at_least_single(logits.lower), at_least_single(logits.upper)
    if logits.is_point:
        scores = torch.cat((-lower, lower), 1) if logits.shape[1] == 1 else lower
        q = scores.sigmoid() if logits.shape[1] == 1 else scores.softmax(1)
        bounds, label = (q, q), scores.argmax(1)
    elif logits.shape[1] == 1:
        bounds, label = one_logit_softmax(lower[:, 0], upper[:, 0]), None
    else:
        bounds, label = interval_softmax(lower, upper, "paper" if mode == "scaled" else mode), None
    if not training:
        finite = (upper - lower < math.inf).all(1, keepdim=True)
        bounds = torch.where(finite, bounds[0], 0.0), torch.where(finite, bounds[1], 1.0)
    return CredalSet._wrap(*bounds, label) if label is not None else CredalSet._trusted(*bounds)
