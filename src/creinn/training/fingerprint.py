"""Fingerprint of a training run: model, settings and data in plain values.

A run resumes only from a checkpoint with the same fingerprint.
"""

import dataclasses
import re
import warnings
from difflib import ndiff
from pathlib import Path
from typing import Any

import torch

from creinn.distributed import world_size
from creinn.training.config import TrainConfig
from creinn.training.data import Augment, Rows

Fingerprint = dict[str, Any]
# Settings that may change between a checkpoint and the rest of the run.
_FREE = {"epochs", "patience", "keep", "device", "deterministic", "workers"}
_FREE |= {"directory", "checkpoint_every", "progress"}
_ADVICE = "Use another directory, or remove the old checkpoint."


def fingerprint(
    model: torch.nn.Module,
    config: TrainConfig,
    train: Rows,
    val: Rows | None,
    augment: Augment | None,
) -> Fingerprint:
    """Return a description of a run in JSON types; ``batch_size`` is that of all processes."""
    settings = {k: v for k, v in dataclasses.asdict(config).items() if k not in _FREE}
    settings["batch_size"] *= world_size()
    shapes = ((name, t.dtype, list(t.shape)) for name, t in model.state_dict().items())
    name = None if augment is None else getattr(augment, "__qualname__", None) or _text(augment)
    return {
        "architecture": _text(model).splitlines(),
        "weights": [f"{name} {dtype} {shape}" for name, dtype, shape in shapes],
        "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()},
        "train_data": train.digest(),
        "val_data": None if val is None else val.digest(),
        "augment": name,
        "processes": world_size(),
    }


def check_fingerprint(found: Fingerprint, expected: Fingerprint, path: Path) -> None:
    """Check that the checkpoint in ``path`` belongs to this run.

    Raises:
        ValueError: If it does not; the message names the first difference.
    """
    for part in ("architecture", "weights"):
        if found[part] != expected[part]:
            lines = ndiff(found[part], expected[part])
            changed = next((line for line in lines if line[0] in "-+"), "")
            where = "only in the checkpoint" if changed[:1] == "-" else "not in the checkpoint"
            raise ValueError(
                f"{path} belongs to another {part}: {changed[2:].strip()!r} is {where}. {_ADVICE}"
            )
    old, new = found["processes"], expected["processes"]
    data = ("train_data", "val_data", "augment")
    before, now = (x["settings"] | {name: x[name] for name in data} for x in (found, expected))
    for name in before | now:
        if before.get(name) != now.get(name):
            note = (
                " in all processes together" if name == "batch_size" and max(old, new) > 1 else ""
            )
            raise ValueError(
                f"{path} was written with {name}={before.get(name)}, but now "
                f"{name}={now.get(name)}{note}. {_ADVICE}"
            )
    if old != new:
        warnings.warn(
            f"{path} was written by a run with {old} processes; now there are {new}. The result is "
            "the same up to rounding, for a network without batch norm.",
            stacklevel=2,
        )


def _text(value: Any) -> str:
    """Return ``repr(value)`` without memory addresses."""
    return re.sub(r"0x[0-9a-fA-F]+", "", repr(value))
