"""What a run leaves, epoch by epoch: its history, its last and its best checkpoint, from which it can go on.

A checkpoint is one safetensors file with all that a run needs to go on as if it had never stopped: whole, or not there.
A run goes on only where model, data and settings are those of the checkpoint, which its fingerprint tells.
"""

import dataclasses
import json
import re
import warnings
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from creinn.distributed import check_equal, world_size
from creinn.files import read_tensors, write_bytes, write_tensors
from creinn.training.config import TrainConfig
from creinn.training.data import Augment, Rows
from creinn.training.history import Row, best_index

LAST, BEST, HISTORY = "last.safetensors", "best.safetensors", "history.jsonl"
FORMAT = 1
_WHAT = "training checkpoint"
# Settings that may change when a run goes on: they do not alter what an epoch computes.
_FREE = {"epochs", "patience", "keep", "device", "deterministic", "workers"}
_FREE |= {"directory", "checkpoint_every", "progress"}


@dataclass(frozen=True)
class Checkpoint:
    """State of a run after ``len(rows)`` epochs; tensors are copies on the CPU."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    scaler: dict[str, Any]
    rows: tuple[Row, ...]
    fingerprint: dict[str, Any]

    def write(self, path: Path) -> None:
        """Write to a file, all or nothing."""
        tensors = {f"model/{name}": value for name, value in self.weights.items()}
        tensors |= {f"optimizer/{name}": value for name, value in self.optimizer.items()}
        header = {name: getattr(self, name) for name in ("rows", "scaler", "fingerprint")}
        write_tensors(path, tensors, {"what": _WHAT, "format": FORMAT, **header})


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file back; refuses one that is truncated, something else, or written by a newer version."""
    tensors, header = read_tensors(path)
    if header.get("what") != _WHAT:
        raise ValueError(f"{path} holds no training checkpoint, but a {header.get('what')}.")
    if header["format"] > FORMAT:
        raise ValueError(
            f"{path} has format {header['format']}, newer than {FORMAT}. Update creinn to read it."
        )
    weights, optimizer = (
        {key.removeprefix(part): value for key, value in tensors.items() if key.startswith(part)}
        for part in ("model/", "optimizer/")
    )
    return Checkpoint(
        weights, optimizer, header["scaler"], tuple(header["rows"]), header["fingerprint"]
    )


class Checkpoints:
    """Keeps the state of a run at the end of its last epoch, in memory and in ``config.directory``, if there is one."""

    def __init__(
        self,
        config: TrainConfig,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
        data: tuple[Rows, Rows | None, Augment | None],
    ) -> None:
        self._config, self._model, self._optimizer, self._scaler = config, model, optimizer, scaler
        self._folder = None if config.directory is None else Path(config.directory)
        self._fingerprint = (
            {} if self._folder is None and world_size() == 1 else _fingerprint(model, config, *data)
        )
        check_equal(self._fingerprint)
        self._best: Checkpoint | None = None
        self._unwritten: dict[str, Checkpoint] = {}

    def resume(self) -> list[Row]:
        """Go on from the last checkpoint, which must be of this run, or write the first one; the history so far."""
        if self._folder is None:
            return []
        path, rows = self._folder / LAST, list[Row]()
        if not path.is_file():
            self._capture(rows).write(path)
        else:
            checkpoint = read_checkpoint(path)
            _check_fingerprint(checkpoint.fingerprint, self._fingerprint, path)
            rows = list(checkpoint.rows)
            if len(rows) > self._config.epochs:
                raise ValueError(
                    f"{path} is {len(rows)} epochs old, but only {self._config.epochs} are asked for. "
                    f"Use another directory, or ask for more epochs."
                )
            self._restore(checkpoint)
            best = best_index(rows)
            if best is not None and (self._folder / BEST).is_file():
                found = read_checkpoint(self._folder / BEST)
                # a kill may have come between writing best and last: then it is not that of these rows
                self._best = found if len(found.rows) == best + 1 else None
        write_bytes(
            self._folder / HISTORY, "".join(json.dumps(row) + "\n" for row in rows).encode()
        )
        return rows

    def epoch_ended(self, rows: list[Row]) -> None:
        """Keep the state after an epoch, and write it if a checkpoint is due."""
        improved = best_index(rows) == len(rows) - 1
        if self._folder is None and not (improved and self._config.keep == "best"):
            return
        self._unwritten[LAST] = self._capture(rows)
        if improved:
            self._best = self._unwritten[BEST] = dataclasses.replace(
                self._unwritten[LAST], optimizer={}
            )
        if self._folder is not None:
            _append(self._folder / HISTORY, json.dumps(rows[-1]) + "\n")
            if len(rows) % self._config.checkpoint_every == 0:
                self._write(self._folder)

    def ended(self, interrupted: bool) -> None:
        """Write what is not yet written, and give the model the weights to keep."""
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
        for name in (BEST, LAST):
            if name in self._unwritten:
                self._unwritten[name].write(folder / name)
                del self._unwritten[name]  # only now: Ctrl-C may have come before

    def _capture(self, rows: list[Row]) -> Checkpoint:
        state = self._optimizer.state_dict()["state"]
        moments = {
            f"{index}/{name}": value
            for index, values in state.items()
            for name, value in values.items()
        }
        weights, moments = (
            {name: value.detach().to("cpu", copy=True) for name, value in part.items()}
            for part in (self._model.state_dict(), moments)
        )
        return Checkpoint(
            weights, moments, self._scaler.state_dict(), tuple(rows), self._fingerprint
        )

    def _restore(self, checkpoint: Checkpoint) -> None:
        self._model.load_state_dict(checkpoint.weights)
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in checkpoint.optimizer.items():
            index, name = key.split("/")
            state.setdefault(int(index), {})[name] = value
        self._optimizer.load_state_dict(self._optimizer.state_dict() | {"state": state})
        if checkpoint.scaler and self._scaler.is_enabled():
            self._scaler.load_state_dict(checkpoint.scaler)


def _fingerprint(
    model: torch.nn.Module,
    config: TrainConfig,
    train: Rows,
    val: Rows | None,
    augment: Augment | None,
) -> dict[str, Any]:
    """What must be the same for a run to go on: architecture, settings that matter, data; all plain JSON.

    Of ``batch_size`` that is what all ranks take together. Their number, also there, may be another.
    """
    settings = {
        name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE
    }
    settings["batch_size"] *= world_size()
    return {
        "architecture": _text(model).splitlines(),
        "weights": [
            f"{name} {value.dtype} {list(value.shape)}"
            for name, value in model.state_dict().items()
        ],
        "settings": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings.items()
        },
        "train_data": train.digest(),
        "val_data": None if val is None else val.digest(),
        "augment": None
        if augment is None
        else getattr(augment, "__qualname__", None) or _text(augment),
        "ranks": world_size(),
    }


def _check_fingerprint(found: dict[str, Any], expected: dict[str, Any], path: Path) -> None:
    """Refuse a checkpoint of another run; the message says what differs."""
    advice = "Use another directory, or remove the old checkpoint."
    for part in ("architecture", "weights"):
        if found[part] != expected[part]:
            changed = next(
                (line for line in ndiff(found[part], expected[part]) if line[0] in "-+"), ""
            )
            where = (
                "is only in the checkpoint"
                if changed.startswith("-")
                else "is not in the checkpoint"
            )
            raise ValueError(
                f"{path} belongs to another {part}: {changed[2:].strip()!r} {where}. {advice}"
            )
    ranks = found.get("ranks", 1), expected["ranks"]
    defaults = dataclasses.asdict(
        TrainConfig()
    )  # of settings that did not exist when the checkpoint was written
    data = ("train_data", "val_data", "augment")
    before = defaults | found["settings"] | {name: found[name] for name in data}
    now = expected["settings"] | {name: expected[name] for name in data}
    for name in {**found["settings"], **now}:
        old, new = before.get(name), now.get(name)
        if old != new:
            of = (
                " in the batches of all ranks together"
                if name == "batch_size" and ranks != (1, 1)
                else ""
            )
            raise ValueError(
                f"{path} was written with {name}={old}, but now {name}={new}{of}. {advice}"
            )
    if ranks[0] != ranks[1]:
        found_, now_ = (f"{count} rank{'s' * (count > 1)}" for count in ranks)
        warnings.warn(
            f"{path} was written on {found_} and goes on on {now_}: equal up to rounding only.",
            stacklevel=2,
        )


def _text(value: Any) -> str:
    """``repr`` without addresses in memory, which differ from process to process."""
    return re.sub(r"0x[0-9a-fA-F]+", "", repr(value))


def _append(path: Path, line: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise OSError(
            f"Cannot write {path}: {error.strerror or error}. The last checkpoint is intact."
        ) from error
