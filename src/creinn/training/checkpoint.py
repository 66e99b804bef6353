"""Checkpoints: all that a run needs to go on as if it had never stopped, in one safetensors file.

In: model, optimiser and history at the end of an epoch. Out: a file that is either whole or not there, and the same
state again. No state of random generators is kept: each epoch starts from a seed of its own. A run goes on only where
model, data and settings are those of the checkpoint (see :func:`fingerprint`).
"""

import dataclasses
import re
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from creinn.files import read_tensors, write_tensors
from creinn.training.config import TrainConfig
from creinn.training.history import Row

LAST, BEST = "last.safetensors", "best.safetensors"
FORMAT = 1
_WHAT = "training checkpoint"
# Settings that may change when a run goes on: they do not alter what an epoch computes.
_FREE = {
    "epochs",
    "device",
    "deterministic",
    "directory",
    "checkpoint_every",
    "patience",
    "keep",
    "workers",
    "progress",
}


@dataclass(frozen=True)
class Checkpoint:
    """State of a run after ``len(rows)`` epochs; tensors are copies on the CPU."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    scaler: dict[str, Any]
    rows: tuple[Row, ...]
    fingerprint: dict[str, Any]


def capture(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    rows: list[Row],
    fingerprint: dict[str, Any],
) -> Checkpoint:
    """Copy the state of a run."""
    state = optimizer.state_dict()["state"]
    moments = {f"{index}/{name}": _copy(value) for index, values in state.items() for name, value in values.items()}
    weights = {name: _copy(value) for name, value in model.state_dict().items()}
    return Checkpoint(weights, moments, scaler.state_dict(), tuple(rows), fingerprint)


def restore(
    checkpoint: Checkpoint, model: torch.nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> list[Row]:
    """Put the state of a run back, and return its history."""
    model.load_state_dict(checkpoint.weights)
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in checkpoint.optimizer.items():
        index, name = key.split("/")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    if checkpoint.scaler and scaler.is_enabled():
        scaler.load_state_dict(checkpoint.scaler)
    return list(checkpoint.rows)


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write to a file, all or nothing.

    Raises:
        OSError: If it cannot be written; the checkpoint that was there before is intact.
    """
    tensors = {f"model/{name}": value for name, value in checkpoint.weights.items()}
    tensors |= {f"optimizer/{name}": value for name, value in checkpoint.optimizer.items()}
    header = {
        "what": _WHAT,
        "format": FORMAT,
        "rows": list(checkpoint.rows),
        "scaler": checkpoint.scaler,
        "fingerprint": checkpoint.fingerprint,
    }
    write_tensors(path, tensors, header)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file back.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is truncated, is something else, or was written by a newer version.
    """
    tensors, header = read_tensors(path)
    if header.get("what") != _WHAT:
        raise ValueError(f"{path} holds no training checkpoint, but a {header.get('what')}.")
    if header["format"] > FORMAT:
        raise ValueError(f"{path} has format {header['format']}, newer than {FORMAT}. Update creinn to read it.")
    return Checkpoint(
        weights={name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")},
        optimizer={name.removeprefix("optimizer/"): t for name, t in tensors.items() if name.startswith("optimizer/")},
        scaler=header["scaler"],
        rows=tuple(header["rows"]),
        fingerprint=header["fingerprint"],
    )


def fingerprint(
    model: torch.nn.Module, config: TrainConfig, train_data: str, val_data: str | None, augment: Any
) -> dict[str, Any]:
    """What must be the same for a run to go on: architecture, settings that matter, data; all plain JSON."""
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE}
    return {
        "architecture": _text(model).splitlines(),
        "weights": [f"{name} {value.dtype} {list(value.shape)}" for name, value in model.state_dict().items()],
        "settings": {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()},
        "train_data": train_data,
        "val_data": val_data,
        "augment": None if augment is None else getattr(augment, "__qualname__", None) or _text(augment),
    }


def check_fingerprint(found: dict[str, Any], expected: dict[str, Any], path: Path) -> None:
    """Refuse a checkpoint of another run.

    Raises:
        ValueError: If anything differs; the message says what.
    """
    advice = "Use another directory, or remove the old checkpoint."
    for part in ("architecture", "weights"):
        if found[part] != expected[part]:
            lines = ndiff(found[part], expected[part])
            changed = next((line for line in lines if line[0] in "-+"), "")
            where = "is only in the checkpoint" if changed.startswith("-") else "is not in the checkpoint"
            raise ValueError(f"{path} belongs to another {part}: {changed[2:].strip()!r} {where}. {advice}")
    defaults = dataclasses.asdict(TrainConfig())  # of settings that did not exist when the checkpoint was written
    for name in found["settings"].keys() | expected["settings"].keys():
        before, now = found["settings"].get(name, defaults.get(name)), expected["settings"].get(name)
        if before != now:
            raise ValueError(f"{path} was written with {name}={before}, but now {name}={now}. {advice}")
    for name in ("train_data", "val_data", "augment"):
        if found[name] != expected[name]:
            raise ValueError(f"{path} was written with {name} {found[name]}, but now it is {expected[name]}. {advice}")


def _text(value: Any) -> str:
    """``repr`` without addresses in memory, which differ from process to process."""
    return re.sub(r"0x[0-9a-fA-F]+", "", repr(value))


def _copy(value: Tensor) -> Tensor:
    return value.detach().to("cpu", copy=True)
