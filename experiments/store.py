"""Where results live: ``NAME.jsonl.gz`` holds all records of an experiment, ``work/`` what can be made again.

The first line of such a file says which tasks the experiment consists of, each further line is the record of one.
``work/`` may be removed when the experiment is complete. A name always stands for a whole file.
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
    "records": ".json",  # of a run under way
    "weights": ".safetensors",
    "training": "",  # folder of checkpoints
    "predictions": ".npz",  # from which ensembles are made
    "failures": ".txt",
    "locks": ".lock",
}
"""Folders in ``work/``, and how the names of their files end."""


@dataclass(frozen=True)
class Store:
    """The files of a study below one folder."""

    out: Path

    def path(self, what: str, task: Task) -> Path:
        """Where something of a task is kept; the folders of ``work/`` say what there is."""
        return self.out / "work" / what / f"{task.name}{_WORK[what]}"

    def has(self, what: str, task: Task) -> bool:
        """Whether there is such a file; a record may also be packed."""
        return self.path(what, task).is_file() or (
            what == "records" and task.name in self._packed()
        )

    def read_record(self, task: Task) -> Record | None:
        """The record of a task, ``None`` if it is not done; refuses a damaged file."""
        path = self.path("records", task)
        return read_json(path) if path.is_file() else self._packed().get(task.name)

    def pack(self, manifest: Record, tasks: Iterable[Task]) -> None:
        """Write one file with the manifest of an experiment and all records that there are of its tasks."""
        records = {
            task.name: record for task in tasks if (record := self.read_record(task)) is not None
        }
        write_packed(self.out / f"{manifest['experiment']['name']}{PACKED}", manifest, records)

    def lock(self, task: Task) -> FileLock:
        """Lets one process at a time work on a task; the lock dies with its holder, however that ends."""
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
    """The files of records in a folder of results, one per experiment."""
    return sorted(directory.glob(f"*{PACKED}"))


def write_packed(path: Path, manifest: Record, records: Mapping[str, Record]) -> None:
    """Write the manifest of an experiment and its records by the names of their tasks, all or nothing."""
    lines = [manifest, *({"name": name, **record} for name, record in records.items())]
    text = "\n".join(json.dumps(line, allow_nan=False) for line in lines)
    write_bytes(path, gzip.compress(text.encode(), mtime=0))


def read_packed(path: Path) -> tuple[Record, dict[str, Record]]:
    """Manifest of an experiment, and its records by the names of their tasks; refuses a damaged file."""
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
    """Read a record; refuses what is no whole JSON object."""
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
