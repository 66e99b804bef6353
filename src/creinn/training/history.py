"""History of a training run, with the metrics of each epoch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.inputs import most_probable
from creinn.credal.credal_set import CredalSet
from creinn.distributed import all_sum
from creinn.numerics import weight_per_row

Row = dict[str, float | None]
_PENDING = 64  # number of batches after which the sums are updated


@dataclass(frozen=True)
class History:
    """The metrics of each finished epoch, where ``history["loss"]`` is a column.

    The columns are ``epoch`` (from 1), ``loss``, ``accuracy`` and
    ``width`` (mean width of the probability intervals) of the training
    batches, the same with the prefix ``val_`` for the validation data,
    ``learning_rate`` and ``seconds``. A value that is not finite is
    ``None``.

    Example:
        >>> history = History(({"epoch": 1, "val_loss": 0.7}, {"epoch": 2, "val_loss": 0.9}))
        >>> history["val_loss"], history.best_epoch
        ([0.7, 0.9], 1)
    """

    rows: tuple[Row, ...]
    interrupted: bool = False  # whether the training was interrupted by Ctrl-C

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> list[float | None]:
        if self.rows and name not in self.rows[0]:
            raise KeyError(f"No column {name!r} in the history; it has {', '.join(self.rows[0])}.")
        return [row[name] for row in self.rows]

    @property
    def best_epoch(self) -> int | None:
        """The first epoch with the lowest validation loss, or ``None`` if there is none."""
        best = best_index(self.rows)
        return None if best is None else best + 1


def best_index(rows: Sequence[Row]) -> int | None:
    """Return the index of the first row with the lowest validation loss."""
    losses = {i: loss for i, row in enumerate(rows) if (loss := row["val_loss"]) is not None}
    return min(losses, key=losses.__getitem__, default=None)


def is_out_of_patience(rows: Sequence[Row], patience: int | None) -> bool:
    """Return whether the validation loss has not improved for ``patience`` epochs."""
    if patience is None or (best := best_index(rows)) is None:
        return False
    return len(rows) - 1 - best >= patience


class EpochSums:
    """Sums of loss, accuracy and mean width over an epoch, on the device."""

    def __init__(self, device: torch.device) -> None:
        self._dtype = torch.float32 if device.type == "mps" else torch.float64
        self._sums = torch.zeros(5, dtype=self._dtype, device=device)
        self._pending: list[tuple[Any, ...]] = []

    @torch.no_grad()
    def add(self, y: Tensor, weight: Tensor | None, prediction: Any, loss: Tensor) -> Tensor | int:
        """Add a batch with its prediction or logits, and return the total weight of its rows."""
        mass = len(y) if weight is None else weight_per_row(weight, y).sum()
        labels = prediction.detach() if isinstance(prediction, Tensor) else prediction.label
        width = prediction.width.mean() if isinstance(prediction, CredalSet) else math.nan
        self._pending.append((loss.detach(), labels, y, mass, width))
        if len(self._pending) == _PENDING:
            self._flush()
        return mass

    def means(self, prefix: str = "") -> Row:
        """Return the means over all processes, ``None`` if they are not finite."""
        self._flush()
        mass, loss, correct, width, rows = all_sum(self._sums).tolist()
        values = {"loss": loss / mass, "accuracy": correct / rows, "width": width / rows}
        return {prefix + name: x if math.isfinite(x) else None for name, x in values.items()}

    def _flush(self) -> None:
        if not self._pending:
            return
        loss, labels, targets, mass, width = zip(*self._pending, strict=True)
        self._pending = []
        rows = self._stack([len(y) for y in targets])
        masses, losses, widths = self._stack(mass), self._stack(loss), self._stack(width)
        hits = _labels(torch.cat(labels)) == most_probable(torch.cat(targets))
        parts = (masses, masses * losses, hits, rows * widths, rows)
        self._sums += torch.stack([part.sum(dtype=self._dtype) for part in parts])

    def _stack(self, numbers: Sequence[Any]) -> Tensor:
        if isinstance(numbers[0], Tensor):
            return torch.stack(numbers).to(self._dtype)  # type: ignore[arg-type]
        return torch.tensor(numbers, dtype=self._dtype, device=self._sums.device)


def _labels(prediction: Tensor) -> Tensor:
    """Return the classes of logits ``(N, K)`` or ``(N, 1)``, or labels ``(N,)``."""
    if prediction.ndim == 1:
        return prediction
    return prediction[:, 0] > 0 if prediction.shape[1] == 1 else prediction.argmax(1)
