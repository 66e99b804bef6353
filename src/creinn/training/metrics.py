"""Loss, accuracy and mean width over batches, summed on the device so that no step waits for a number."""

import torch
from torch import Tensor

from creinn.classifier.base import Prediction
from creinn.credal.credal_set import CredalSet
from creinn.numerics import weight_per_row


class Running:
    """Sums over the batches seen so far."""

    def __init__(self, device: torch.device) -> None:
        precise = torch.float32 if device.type == "mps" else torch.float64
        self._sums = torch.zeros(4, dtype=precise, device=device)
        self._rows = 0
        self._has_width = False

    @torch.no_grad()
    def add(self, prediction: Prediction, loss: Tensor, target: Tensor, weight: Tensor | None) -> None:
        """Add a batch; ``weight`` is that of the loss, whose mean is weighted by it."""
        rows = len(target)
        mass = torch.full_like(self._sums[0], rows) if weight is None else weight_per_row(weight, target).sum()
        correct = (prediction.label == target).sum()
        width = mass
        if isinstance(prediction, CredalSet):
            self._has_width = True
            width = rows * prediction.width.mean()
        self._sums += torch.stack([x.to(self._sums.dtype) for x in (mass, loss * mass, correct, width)])
        self._rows += rows

    def means(self, prefix: str = "") -> dict[str, float | None]:
        """Means over all rows so far; waits for the device. What is not finite or does not apply is ``None``."""
        mass, loss, correct, width = self._sums.tolist()
        values = {"loss": loss / mass, "accuracy": correct / self._rows}
        values["width"] = width / self._rows if self._has_width else float("nan")
        return {prefix + name: value if abs(value) < float("inf") else None for name, value in values.items()}
