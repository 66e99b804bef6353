"""Where results live: ``pieces/`` holds one small JSON record per piece, ``work/`` what can be made again.

Records are what a study consists of: they can be copied from machine to machine and kept under version control.
``work/`` holds prepared images, checkpoints, weights and predictions, and may be removed when a study is complete.
Every file is written under another name first, so a name always stands for a whole file.
"""

import contextlib
import io
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from creinn.experiments.plan import Piece
from creinn.tensorfile import write_bytes

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Store:
    """The files of a study below one folder."""

    out: Path

    def record_path(self, piece: Piece) -> Path:
        """Where the record of a piece is."""
        return self.out / "pieces" / f"{piece.name}.json"

    def has_record(self, piece: Piece) -> bool:
        """Whether the piece is done."""
        return self.record_path(piece).is_file()

    def read_record(self, piece: Piece) -> dict[str, Any] | None:
        """The record of a piece, ``None`` if it is not done.

        Raises:
            ValueError: If the file is damaged, or belongs to another piece.
        """
        path = self.record_path(piece)
        return read_json(path) if path.is_file() else None

    def write_record(self, piece: Piece, record: Mapping[str, Any]) -> None:
        """Write the record of a piece."""
        write_json(self.record_path(piece), record)

    def manifest_path(self, experiment: str) -> Path:
        """Where it is written which pieces an experiment consists of."""
        return self.out / "experiments" / f"{experiment}.json"

    def weights_path(self, training: Piece) -> Path:
        """Weights of a trained network."""
        return self.out / "work" / "weights" / f"{training.name}.safetensors"

    def training_folder(self, training: Piece) -> Path:
        """Checkpoints of a training under way."""
        return self.out / "work" / "training" / training.name

    def failure_path(self, piece: Piece) -> Path:
        """Where the traceback of a piece that failed is kept."""
        return self.out / "work" / "failures" / f"{piece.name}.txt"

    def predictions_path(self, evaluation: Piece) -> Path:
        """Predictions of one network, from which ensembles are made."""
        return self.out / "work" / "predictions" / f"{evaluation.name}.npz"

    def write_predictions(self, evaluation: Piece, arrays: Arrays) -> None:
        """Write the predictions of a piece."""
        write_arrays(self.predictions_path(evaluation), arrays)

    def read_predictions(self, evaluation: Piece) -> dict[str, npt.NDArray[Any]]:
        """Read the predictions of a piece."""
        return read_arrays(self.predictions_path(evaluation))

    def forget_training(self, training: Piece) -> None:
        """Remove the checkpoints of a training that has ended."""
        shutil.rmtree(self.training_folder(training), ignore_errors=True)

    @contextlib.contextmanager
    def lock(self, piece: Piece, wait: bool = True) -> Iterator[bool]:
        """Let one process at a time work on a piece; the lock dies with its holder, however that ends.

        Gives whether the lock was had, which without ``wait`` may be false. Where the system has no such locks there
        are none, and two runs must not share a folder.
        """
        path = self.out / "work" / "locks" / f"{piece.name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:
                held = True
            except BlockingIOError:
                held = False
            else:
                held = True
            yield held


def read_json(path: Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        ValueError: If the file is no whole JSON object.
    """
    try:
        record = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no whole record: {error}. Remove it, and its piece will be run again.") from error
    if not isinstance(record, dict):
        raise ValueError(f"{path} is no record: it holds a {type(record).__name__}. Remove it.")
    return record


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record, all or nothing; lists of numbers stand on one line."""
    write_bytes(path, (_layout(record) + "\n").encode())


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read named arrays; nothing in the file is executed."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write named arrays, all or nothing."""
    buffer = io.BytesIO()
    np.savez(buffer, **dict(arrays))  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def _layout(value: Any, indent: str = "") -> str:
    if isinstance(value, Mapping) and value:
        inner = indent + "  "
        entries = [f"{inner}{json.dumps(str(key))}: {_layout(entry, inner)}" for key, entry in value.items()]
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(entry, Mapping) for entry in value):
        inner = indent + "  "
        return "[\n" + ",\n".join(inner + json.dumps(entry, allow_nan=False) for entry in value) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
