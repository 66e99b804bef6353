"""Loss, accuracy and mean width of one epoch, from sums over its batches.

The sums stay on the device, so no step waits for a number.
"""

import math

import torch
from torch import Tensor

from creinn.classifier.base import Prediction
from creinn.credal.credal_set import CredalSet
from creinn.numerics import weight_per_row
from creinn.training.data import Batch
from creinn.training.history import Row

MASS, LOSS = 0, 1  # entries of the sums


def zero_sums(device: torch.device) -> Tensor:
    """Return the sums over no batch."""
    dtype = torch.float32 if device.type == "mps" else torch.float64
    return torch.zeros(5, dtype=dtype, device=device)


@torch.no_grad()
def batch_sums(batch: Batch, prediction: Prediction, loss: Tensor) -> Tensor:
    """Return the sums of weights, weighted losses, correct labels, widths and rows of a batch."""
    like = zero_sums(loss.device)[0]
    rows = torch.full_like(like, len(batch.y))
    mass = rows if batch.weight is None else weight_per_row(batch.weight, batch.y).sum()
    correct = (prediction.label == batch.y).sum()
    width = torch.full_like(like, math.nan)
    if isinstance(prediction, CredalSet):
        width = rows * prediction.width.mean()
    return torch.stack([x.to(like) for x in (mass, loss * mass, correct, width, rows)])


def means(sums: Tensor, prefix: str = "") -> Row:
    """Return means by name; ``None`` if not finite or not defined. Waits for the device."""
    mass, loss, correct, width, rows = sums.tolist()
    values = {"loss": loss / mass, "accuracy": correct / rows, "width": width / rows}
    return {prefix + name: x if math.isfinite(x) else None for name, x in values.items()}
