"""What happened in a training run, epoch by epoch, and the sums over batches that its numbers come from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from creinn.classifier.base import Prediction
from creinn.credal.credal_set import CredalSet
from creinn.numerics import weight_per_row

Row = dict[str, float | None]


@dataclass(frozen=True)
class History:
    """One row per finished epoch; ``history["loss"]`` is a column.

    A row has ``epoch`` (from 1), ``loss``, ``accuracy`` and ``width`` of the training batches as they were met, their
    ``val_`` counterparts of the validation data after the epoch, ``learning_rate`` and ``seconds``. ``width`` is the
    mean width of the probability intervals. What does not apply, or is not finite, is ``None``.

    Example:
        >>> history = History(({"epoch": 1, "val_loss": 0.7}, {"epoch": 2, "val_loss": 0.9}))
        >>> history["val_loss"], history.best_epoch
        ([0.7, 0.9], 1)
    """

    rows: tuple[Row, ...]
    interrupted: bool = False  # by Ctrl-C

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> list[float | None]:
        if self.rows and name not in self.rows[0]:
            raise KeyError(f"The history has no column {name!r}; its columns are {', '.join(self.rows[0])}.")
        return [row[name] for row in self.rows]

    @property
    def best_epoch(self) -> int | None:
        """Epoch of the least validation loss, the earliest of equals; ``None`` without validation data."""
        best = best_index(self.rows)
        return None if best is None else best + 1


def best_index(rows: Sequence[Row]) -> int | None:
    """Index of the row of least validation loss, if there is any."""
    losses = [(loss, index) for index, row in enumerate(rows) if (loss := row["val_loss"]) is not None]
    return min(losses)[1] if losses else None


def is_out_of_patience(rows: Sequence[Row], patience: int | None) -> bool:
    """Whether the last ``patience`` epochs brought no better validation loss than those before them."""
    best = best_index(rows)
    return patience is not None and best is not None and len(rows) - 1 - best >= patience


class Running:
    """Loss, accuracy and mean width over batches, summed on the device so that no step waits for a number."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(4, dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)
        self._rows = 0

    @torch.no_grad()
    def add(self, prediction: Prediction, loss: Tensor, target: Tensor, weight: Tensor | None) -> None:
        """Add a batch; ``weight`` is that of the loss, whose mean is weighted by it."""
        rows = len(target)
        mass = torch.full_like(self._sums[0], rows) if weight is None else weight_per_row(weight, target).sum()
        correct = (prediction.label == target).sum()
        width = rows * prediction.width.mean() if isinstance(prediction, CredalSet) else torch.full_like(mass, math.nan)
        self._sums += torch.stack([x.to(self._sums.dtype) for x in (mass, loss * mass, correct, width)])
        self._rows += rows

    def means(self, prefix: str = "") -> Row:
        """Means over all rows so far; waits for the device. What is not finite or does not apply is ``None``."""
        mass, loss, correct, width = self._sums.tolist()
        values = {"loss": loss / mass, "accuracy": correct / self._rows, "width": width / self._rows}
        return {prefix + name: value if math.isfinite(value) else None for name, value in values.items()}
