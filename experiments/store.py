"""Storage of records in ``NAME.jsonl.gz`` and of other files in ``work/``.

The first line of a file of records is the list of tasks. Each following line is
a record. ``work/`` can be removed when the experiment is complete. Files are
written under a temporary name first.
"""

import functools
import gzip
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from creinn.files import write_bytes
from experiments.plan import Task

Arrays = Mapping[str, npt.NDArray[Any]]
Record = Mapping[str, Any]

PACKED = ".jsonl.gz"

_WORK = {
    "records": ".json",  # records of a run in progress
    "weights": ".safetensors",
    "training": "",  # directory of checkpoints
    "predictions": ".npz",  # predictions for ensembles
    "failures": ".txt",
    "locks": ".lock",
}
"""Folders in ``work/``, and how the names of their files end."""


@dataclass(frozen=True)
class Store:
    """The files of a study in a directory."""

    out: Path

    def path(self, what: str, task: Task) -> Path:
        """Return the path of a file of a task."""
        return self.out / "work" / what / f"{task.name}{_WORK[what]}"

    def has(self, what: str, task: Task) -> bool:
        """Return whether a file or a packed record exists."""
        return self.path(what, task).is_file() or (
            what == "records" and task.name in self._packed()
        )

    def read_record(self, task: Task) -> Record | None:
        """Read the record of a task, or ``None`` if it is not done."""
        path = self.path("records", task)
        return read_json(path) if path.is_file() else self._packed().get(task.name)

    def pack(self, manifest: Record, tasks: Iterable[Task]) -> None:
        """Write one file with the list of tasks and all records."""
        records = {
            task.name: record for task in tasks if (record := self.read_record(task)) is not None
        }
        write_packed(self.out / f"{manifest['experiment']['name']}{PACKED}", manifest, records)

    def lock(self, task: Task) -> FileLock:
        """Lock a task until the context or the process ends."""
        path = self.path("locks", task)
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(path)

    def _packed(self) -> dict[str, Record]:
        return {
            name: record
            for path in packed_files(self.out)
            for name, record in read_packed(path)[1].items()
        }


def packed_files(directory: Path) -> list[Path]:
    """Return the files of records in a directory."""
    return sorted(directory.glob(f"*{PACKED}"))


def write_packed(path: Path, manifest: Record, records: Mapping[str, Record]) -> None:
    """Write the list of tasks and the records of an experiment."""
    lines = [manifest, *({"name": name, **record} for name, record in records.items())]
    text = "\n".join(json.dumps(line, allow_nan=False) for line in lines)
    write_bytes(path, gzip.compress(text.encode(), mtime=0))


def read_packed(path: Path) -> tuple[Record, dict[str, Record]]:
    """Read the list of tasks and the records of an experiment.

    Raises:
        ValueError: If the file is damaged.
    """
    return _read_packed(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _read_packed(path: Path, changed: int) -> tuple[Record, dict[str, Record]]:
    try:
        manifest, *records = map(
            json.loads, gzip.decompress(path.read_bytes()).decode().split("\n")
        )
        return manifest, {record.pop("name"): record for record in records}
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is no whole file of records: {error!r}. Remove it, or copy it again."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        ValueError: If the file does not contain a JSON object.
    """
    try:
        record = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{path} is no whole record: {error}. Remove it, and its task will be run again."
        ) from error
    if not isinstance(record, dict):
        raise ValueError(f"{path} is no record: it holds a {type(record).__name__}. Remove it.")
    return record


def write_json(path: Path, record: Record) -> None:
    """Write a record with lists of numbers on one line."""
    write_bytes(path, (_layout(record) + "\n").encode())


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read named arrays without executing code."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write named arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **dict(arrays))  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def _layout(value: Any, indent: str = "") -> str:
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        entries = [
            f"{inner}{json.dumps(str(key))}: {_layout(entry, inner)}"
            for key, entry in value.items()
        ]
        return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(entry, Mapping) for entry in value):
        return (
            "[\n"
            + ",\n".join(inner + json.dumps(entry, allow_nan=False) for entry in value)
            + f"\n{indent}]"
        )
    return json.dumps(value, allow_nan=False)
