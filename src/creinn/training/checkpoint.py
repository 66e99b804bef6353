"""Checkpoints of training runs, which can be resumed from them.

A checkpoint is a safetensors file of the model, the optimizer and the
history. A run can be resumed only if the fingerprint of its model,
settings and data is the same.
"""

import dataclasses
import json
import re
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from creinn.distributed import check_equal, world_size
from creinn.files import read_tensors, write_bytes, write_tensors
from creinn.training.config import TrainConfig
from creinn.training.data import Augment, Rows
from creinn.training.history import Row, best_index

if TYPE_CHECKING:
    from creinn.training.step import TrainStep

LAST, BEST, HISTORY = "last.safetensors", "best.safetensors", "history.jsonl"
CHECKPOINT_FORMAT = 1
_KIND = "training checkpoint"

Data = tuple[Rows, Rows | None, Augment | None]
Fingerprint = dict[str, Any]
# Settings that can be changed when a run is resumed.
_FREE = {"epochs", "patience", "keep", "device", "deterministic", "workers"}
_FREE |= {"directory", "checkpoint_every", "progress"}


@dataclass(frozen=True)
class Checkpoint:
    """State of a run after ``len(rows)`` epochs, as copies on the CPU."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    scaler: dict[str, Any]
    rows: tuple[Row, ...]
    fingerprint: Fingerprint

    def write(self, path: Path) -> None:
        """Write to a file, completely or not at all."""
        tensors = {f"model/{name}": value for name, value in self.weights.items()}
        tensors |= {f"optimizer/{name}": value for name, value in self.optimizer.items()}
        header = {name: getattr(self, name) for name in ("rows", "scaler", "fingerprint")}
        write_tensors(path, tensors, {"what": _KIND, "format": CHECKPOINT_FORMAT, **header})


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        ValueError: If the file is not a valid checkpoint of this format.
    """
    tensors, header = read_tensors(path)
    if header.get("what") != _KIND:
        raise ValueError(f"{path} holds a {header.get('what')}, not a {_KIND}.")
    if (found := header["format"]) != CHECKPOINT_FORMAT:
        raise ValueError(f"{path} has format {found}, but creinn needs format {CHECKPOINT_FORMAT}.")
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}}
    for key, value in tensors.items():
        part, name = key.split("/", 1)
        parts[part][name] = value
    return Checkpoint(
        weights=parts["model"],
        optimizer=parts["optimizer"],
        scaler=header["scaler"],
        rows=tuple(header["rows"]),
        fingerprint=header["fingerprint"],
    )


class Checkpoints:
    """The last and the best state of a run, in memory and in ``config.directory``."""

    def __init__(
        self, config: TrainConfig, model: torch.nn.Module, step: "TrainStep", data: Data
    ) -> None:
        self._config, self._model = config, model
        self._optimizer, self._scaler = step.optimizer, step.scaler
        self._folder = None if config.directory is None else Path(config.directory)
        has_reader = self._folder is not None or world_size() > 1
        self._fingerprint = fingerprint(model, config, data) if has_reader else {}
        check_equal(self._fingerprint)
        self.last = self._capture([])
        self._best: Checkpoint | None = None
        self._unwritten: dict[str, Checkpoint] = {}

    def resume(self) -> list[Row]:
        """Restore the last checkpoint, or write the first one, and return the history."""
        if self._folder is None:
            return []
        path = self._folder / LAST
        if path.is_file():
            checkpoint, epochs = read_checkpoint(path), self._config.epochs
            check_fingerprint(checkpoint.fingerprint, self._fingerprint, path)
            if (found := len(checkpoint.rows)) > epochs:
                advice = "Use another directory or more epochs"
                raise ValueError(f"{path} has {found} epochs, more than epochs={epochs}. {advice}.")
            self.last = checkpoint
            self.restore()
            self._best = _read_best(self._folder / BEST, checkpoint.rows)
        else:
            self.last.write(path)
        rows = list(self.last.rows)
        _write_history(self._folder, rows)
        return rows

    def epoch_ended(self, rows: list[Row]) -> None:
        """Store the state after an epoch, and write it if a checkpoint is due."""
        self.last = self._unwritten[LAST] = self._capture(rows)
        if best_index(rows) == len(rows) - 1:
            self._best = self._unwritten[BEST] = dataclasses.replace(self.last, optimizer={})
        if self._folder is not None:
            _write_history(self._folder, rows)
            if len(rows) % self._config.checkpoint_every == 0:
                self._write(self._folder)

    def ended(self, interrupted: bool) -> None:
        """Write the last state and give the model the weights of ``config.keep``."""
        if self._folder is not None:
            self._write(self._folder)
        if self._config.keep == "best" and not interrupted:
            if self._best is None:
                found = f"No validation loss is finite, or {BEST} of this history is missing"
                raise ValueError(f"{found} in {self._config.directory}. Use keep='last'.")
            self._model.load_state_dict(self._best.weights)

    def _write(self, folder: Path) -> None:
        for name in (BEST, LAST):
            if name in self._unwritten:
                self._unwritten[name].write(folder / name)
                del self._unwritten[name]  # only after the write, because it can be interrupted

    def _capture(self, rows: list[Row]) -> Checkpoint:
        states = self._optimizer.state_dict()["state"].items()
        moments = {f"{i}/{name}": t for i, state in states for name, t in state.items()}
        weights, moments = _copy_to_cpu(self._model.state_dict()), _copy_to_cpu(moments)
        scaler = self._scaler.state_dict()
        return Checkpoint(weights, moments, scaler, tuple(rows), self._fingerprint)

    def restore(self) -> None:
        """Restore the state after the last finished epoch."""
        self._model.load_state_dict(self.last.weights)
        trained = self._optimizer.param_groups[0]["params"]
        state: dict[int, dict[str, Tensor]] = defaultdict(dict)
        for key, value in self.last.optimizer.items():
            number, name = key.split("/")
            parameter = trained[int(number)]
            if value.shape == parameter.shape:  # fused Adam assumes the same strides
                value = torch.empty_like(parameter, dtype=value.dtype, device="cpu").copy_(value)
            state[int(number)][name] = value
        self._optimizer.load_state_dict(self._optimizer.state_dict() | {"state": state})
        if self.last.scaler and self._scaler.is_enabled():
            self._scaler.load_state_dict(self.last.scaler)


def _copy_to_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.clone() if t.is_cpu else t.cpu() for name, t in tensors.items()}


def _read_best(path: Path, rows: Sequence[Row]) -> Checkpoint | None:
    """Read the best checkpoint, if it belongs to this history."""
    best = best_index(rows)
    if best is None or not path.is_file():
        return None
    found = read_checkpoint(path)
    return found if len(found.rows) == best + 1 else None


def _write_history(folder: Path, rows: list[Row]) -> None:
    lines = (json.dumps(row) + "\n" for row in rows)
    write_bytes(folder / HISTORY, "".join(lines).encode())


def fingerprint(model: torch.nn.Module, config: TrainConfig, data: Data) -> Fingerprint:
    """Return a description of a run as JSON; ``batch_size`` is the sum of all processes."""
    train, val, augment = data
    settings = {k: v for k, v in dataclasses.asdict(config).items() if k not in _FREE}
    settings["batch_size"] *= world_size()
    weights = model.state_dict().items()
    name = None if augment is None else getattr(augment, "__qualname__", None) or _text(augment)
    return {
        "architecture": _text(model).splitlines(),
        "weights": [f"{name} {t.dtype} {list(t.shape)}" for name, t in weights],
        **{k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()},
        "train_data": train.digest(),
        "val_data": None if val is None else val.digest(),
        "augment": name,
        "processes": world_size(),
    }


def check_fingerprint(found: Fingerprint, expected: Fingerprint, path: Path) -> None:
    """Raise a ``ValueError`` with the first difference from another run."""
    old, new = found["processes"], expected["processes"]
    for name, now in expected.items():
        before: Any = found.get(name)
        if before == now or name == "processes":
            continue
        if name in ("architecture", "weights"):
            line = next(line for line in ndiff(before, now) if line[0] in "-+")
            where = "only" if line[0] == "-" else "not"
            difference = f"has another {name}: {line[2:].strip()!r} is {where} in the checkpoint"
        else:
            is_total = name == "batch_size" and max(old, new) > 1
            note = " in all processes together" if is_total else ""
            difference = f"was written with {name}={before}, but now {name}={now}{note}"
        raise ValueError(f"{path} {difference}. Use another directory, or remove the checkpoint.")
    if old != new:
        change = f"{path} was written by {old} processes; now there are {new}"
        effect = "Without batch norm, the result is the same up to rounding"
        warnings.warn(f"{change}. {effect}.", stacklevel=2)


def _text(value: Any) -> str:
    """Return ``repr(value)`` without memory addresses."""
    return re.sub(r"0x[0-9a-fA-F]+", "", repr(value))
