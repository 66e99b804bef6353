"""Recorded experiments: a folder of results in, records by arm and method out; knows no model and loads no data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from creinn.classifier.methods import is_ensemble, label
from creinn.experiments.store import PACKED, Record, packed_files, read_packed
from creinn.report.tables import Spread


@dataclass(frozen=True)
class Entry:
    """A piece of an experiment and its record; ``None`` if it is not done yet."""

    kind: str
    method: str
    arm: str | None
    record: Record | None
    training: Record | None


@dataclass(frozen=True)
class Study:
    """One experiment as far as it is recorded.

    Args:
        manifest: What it consists of.
        entries: Its pieces.
    """

    manifest: Mapping[str, Any]
    entries: tuple[Entry, ...]

    @property
    def settings(self) -> Mapping[str, Any]:
        """The experiment's definition, as plain JSON."""
        return self.manifest["experiment"]

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.settings["name"]

    @property
    def methods(self) -> list[str]:
        """Its methods, in the order of the tables."""
        return list(self.settings["methods"])

    @property
    def arms(self) -> list[str]:
        """Names of its arms."""
        return list(dict.fromkeys(entry.arm for entry in self.entries if entry.arm is not None))

    @property
    def missing(self) -> int:
        """Number of pieces that are not recorded yet."""
        return sum(entry.record is None for entry in self.entries)

    def records(self, method: str, arm: str | None = None) -> list[Record]:
        """Evaluations of a method, or ensembles, that are recorded."""
        return [entry.record for entry in self._entries_of(method, arm) if entry.record is not None]

    def trainings(self, method: str, arm: str | None = None) -> list[Record]:
        """Trainings of a single method that are recorded."""
        return [entry.training for entry in self._entries_of(method, arm) if entry.training is not None]

    def timing(self) -> Record | None:
        """The record of inference times, if there is one."""
        return next((entry.record for entry in self.entries if entry.kind == "time"), None)

    def label(self, method: str) -> str:
        """The method as tables name it, an ensemble with its size."""
        sizes = [len(record["members"]) for record in self.records(method)] if is_ensemble(method) else []
        return label(method, sizes[0] if sizes else None)

    def _entries_of(self, method: str, arm: str | None) -> list[Entry]:
        kind = "ensemble" if is_ensemble(method) else "evaluate"
        return [e for e in self.entries if e.kind == kind and e.method == method and arm in (None, e.arm)]


def read_studies(directory: Path) -> list[Study]:
    """All experiments that were run into a folder.

    Raises:
        ValueError: If there is none, or a record is damaged.
    """
    files = packed_files(directory)
    if not files:
        raise ValueError(
            f"{directory} holds no results: there is no file in it that ends with {PACKED}. Give the folder that was "
            f"--out of creinn experiment run."
        )
    return [_study(*read_packed(path)) for path in files]


def spread(records: Sequence[Record], *path: str) -> Spread | None:
    """Mean and standard deviation over records of the number at ``path``; ``None`` where none has it."""
    found = [value for record in records if (value := lookup(record, *path)) is not None]
    return Spread.of(found) if found else None


def lookup(record: Any, *path: str) -> Any:
    """What lies at ``path`` in nested mappings, ``None`` if there is nothing."""
    for name in path:
        if not isinstance(record, Mapping):
            return None
        record = record.get(name)
    return record


def _study(manifest: Record, records: Mapping[str, Record]) -> Study:
    entries = [
        Entry(
            *(piece["kind"], piece["method"], piece["arm"]),
            record=records.get(piece["name"]),
            training=records.get(piece["training"]),
        )
        for piece in manifest["pieces"]
    ]
    return Study(manifest, tuple(entries))
