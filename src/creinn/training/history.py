"""The history of a training run: one row of numbers per epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

Row = dict[str, float | None]


@dataclass(frozen=True)
class History:
    """One row per finished epoch; ``history["loss"]`` is a column.

    The columns are ``epoch`` (from 1), ``loss``, ``accuracy`` and ``width`` (mean width of the
    probability intervals) of the training batches, the same of the validation data with the prefix
    ``val_``, ``learning_rate`` and ``seconds``. Values that are not finite or do not apply are
    ``None``.

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
            known = ", ".join(self.rows[0])
            raise KeyError(f"The history has no column {name!r}; its columns are {known}.")
        return [row[name] for row in self.rows]

    @property
    def best_epoch(self) -> int | None:
        """First epoch with the lowest validation loss; ``None`` without validation data."""
        best = best_index(self.rows)
        return None if best is None else best + 1


def best_index(rows: Sequence[Row]) -> int | None:
    """Index of the first row with the lowest validation loss; ``None`` if no row has one."""
    losses = [(loss, i) for i, row in enumerate(rows) if (loss := row["val_loss"]) is not None]
    return min(losses)[1] if losses else None


def is_out_of_patience(rows: Sequence[Row], patience: int | None) -> bool:
    """Whether the validation loss did not improve in the last ``patience`` epochs."""
    best = best_index(rows)
    return patience is not None and best is not None and len(rows) - 1 - best >= patience
