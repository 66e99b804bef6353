"""The files of one run: last and best checkpoint and the history, written as epochs end and read when a run goes on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from creinn.files import write_bytes
from creinn.training.checkpoint import (
    BEST,
    LAST,
    Checkpoint,
    capture,
    check_fingerprint,
    read_checkpoint,
    restore,
    write_checkpoint,
)
from creinn.training.config import TrainConfig
from creinn.training.history import Row, best_index

HISTORY = "history.jsonl"


class RunFiles:
    """Keeps the state of a run at the end of its last epoch, in memory and in ``config.directory``.

    Without a directory there are no files; the best weights are then kept in memory, if they are asked for.
    """

    def __init__(
        self,
        config: TrainConfig,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
        fingerprint: dict[str, Any],
    ) -> None:
        self._config = config
        self._folder = None if config.directory is None else Path(config.directory)
        self._model, self._optimizer, self._scaler, self._fingerprint = model, optimizer, scaler, fingerprint
        self._last: Checkpoint | None = None  # what is not yet on disk
        self._best: Checkpoint | None = None
        self._best_is_new = False

    def resume(self) -> list[Row]:
        """Go on from the last checkpoint, or write the first one; returns the history so far.

        Raises:
            ValueError: If the checkpoint is damaged, belongs to another run, or is beyond the epochs asked for.
            OSError: If the directory cannot be written to.
        """
        if self._folder is None:
            return []
        path, rows = self._folder / LAST, []
        if path.is_file():
            checkpoint = read_checkpoint(path)
            check_fingerprint(checkpoint.fingerprint, self._fingerprint, path)
            if len(checkpoint.rows) > self._config.epochs:
                raise ValueError(
                    f"{path} is {len(checkpoint.rows)} epochs old, but only {self._config.epochs} are asked for. "
                    f"Use another directory, or ask for more epochs."
                )
            rows = restore(checkpoint, self._model, self._optimizer, self._scaler)
            self._best = self._read_best(rows)
        else:
            write_checkpoint(path, self._capture(rows))
        write_bytes(self._folder / HISTORY, "".join(_line(row) for row in rows).encode())
        return rows

    def epoch_ended(self, rows: list[Row]) -> None:
        """Keep the state after an epoch, and write it if a checkpoint is due.

        Raises:
            OSError: If a file cannot be written; the checkpoint before is intact.
        """
        improved = best_index(rows) == len(rows) - 1
        if self._folder is None and not (improved and self._config.keep == "best"):
            return
        self._last = self._capture(rows)
        if improved:
            self._best, self._best_is_new = replace(self._last, optimizer={}), True
        if self._folder is not None:
            _append(self._folder / HISTORY, _line(rows[-1]))
            if len(rows) % self._config.checkpoint_every == 0:
                self._write(self._folder)

    def ended(self, interrupted: bool) -> None:
        """Write what is not yet written, and give the model the weights to keep.

        Raises:
            OSError: If a file cannot be written; the checkpoint before is intact.
            ValueError: If the best weights are asked for, but their file is gone.
        """
        if self._folder is not None:
            self._write(self._folder)
        if self._config.keep == "best" and not interrupted:
            if self._best is None:
                raise ValueError(
                    f"The best weights cannot be kept: {self._config.directory} holds no {BEST} that belongs to the "
                    f"history, or no validation loss was finite. Use keep='last'."
                )
            self._model.load_state_dict(self._best.weights)

    def _write(self, folder: Path) -> None:
        if self._best is not None and self._best_is_new:
            write_checkpoint(folder / BEST, self._best)
            self._best_is_new = False
        if self._last is not None:
            write_checkpoint(folder / LAST, self._last)
            self._last = None

    def _read_best(self, rows: list[Row]) -> Checkpoint | None:
        """The best checkpoint, if it is that of these rows: a kill may have come between writing best and last."""
        assert self._folder is not None
        best = best_index(rows)
        if best is None or not (self._folder / BEST).is_file():
            return None
        checkpoint = read_checkpoint(self._folder / BEST)
        return checkpoint if len(checkpoint.rows) == best + 1 else None

    def _capture(self, rows: list[Row]) -> Checkpoint:
        return capture(self._model, self._optimizer, self._scaler, rows, self._fingerprint)


def _line(row: Row) -> str:
    return json.dumps(row) + "\n"


def _append(path: Path, line: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise OSError(f"Cannot write {path}: {error.strerror or error}. The last checkpoint is intact.") from error
