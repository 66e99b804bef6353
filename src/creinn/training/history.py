"""What happened in a training run, epoch by epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

Row = dict[str, float | None]


@dataclass(frozen=True)
class History:
    """One row per finished epoch; ``history["loss"]`` is a column.

    A row has ``epoch`` (from 1), ``loss``, ``accuracy`` and ``width`` of the training batches as they were met, their
    ``val_`` counterparts of the validation data after the epoch, ``learning_rate`` and ``seconds``. ``width`` is the
    mean width of the probability intervals. What does not apply, or is not finite, is ``None``.

    Args:
        rows: The rows.
        interrupted: Whether Ctrl-C ended the run.

    Example:
        >>> history = History(({"epoch": 1, "val_loss": 0.7}, {"epoch": 2, "val_loss": 0.9}))
        >>> history["val_loss"], history.best_epoch
        ([0.7, 0.9], 1)
    """

    rows: tuple[Row, ...]
    interrupted: bool = False

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
    """Index of the row of least validation loss, or ``None`` if there is no such loss."""
    losses = [(loss, index) for index, row in enumerate(rows) if (loss := row["val_loss"]) is not None]
    return min(losses)[1] if losses else None


def is_out_of_patience(rows: Sequence[Row], patience: int | None) -> bool:
    """Whether the last ``patience`` epochs brought no better validation loss than those before them."""
    best = best_index(rows)
    return patience is not None and best is not None and len(rows) - 1 - best >= patience
