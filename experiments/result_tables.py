"""Tables of recorded experiments, with published numbers beside ours."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from creinn.classifier.methods import METHODS, TIMES, base_method, is_ensemble, label
from creinn.evaluation.summary import MEASURES
from creinn.report.tables import Cell, MeanStd, Row
from experiments.predictions import POINTS
from experiments.store import PACKED, Record, packed_files, read_packed

Rows = list[dict[str, Cell]]

SCORES = {
    "log loss": "log_loss",
    "Brier score": "brier",
    "calibration error": "expected_calibration_error",
}

_PAPER: dict[str, Any] = json.loads(
    Path(__file__).with_name("published.json").read_text(encoding="utf-8")
)
COLUMNS: list[str] = _PAPER["columns"]
"""Columns of the tables of the paper; the X-ray table has the first four."""

PUBLISHED: dict[str, dict[str, dict[str, MeanStd]]] = {
    name: {
        method: {column: MeanStd(*found) for column, found in zip(COLUMNS, row, strict=False)}
        for method, row in _PAPER[name].items()
    }
    for name in ("cifar10-svhn", "chest-xray")
}
"""Numbers of the paper, by its experiment, method and column."""

INFERENCE_TIME: dict[str, float] = _PAPER["inference-time"]  # time of one image relative to the SNN


class Entry(NamedTuple):
    """A task with its record and that of its training, if they exist."""

    kind: str
    method: str
    condition: str | None
    record: Record | None
    training: Record | None


@dataclass(frozen=True)
class Study:
    """The recorded part of an experiment."""

    name: str
    methods: list[str]  # in the order of the tables
    conditions: list[str]
    settings: Mapping[str, Any]  # definition of the experiment as plain JSON
    manifest: Mapping[str, Any]  # list of tasks
    entries: list[Entry]

    @property
    def missing(self) -> int:
        """Number of tasks without a record."""
        return sum(entry.record is None for entry in self.entries)

    def records(self, method: str, condition: str | None = None) -> list[Record]:
        """Return the recorded evaluations of a method."""
        return [
            entry.record
            for entry in self._entries_of(method, condition)
            if entry.record is not None
        ]

    def trainings(self, method: str, condition: str | None = None) -> list[Record]:
        """Return the recorded trainings of a method."""
        return [
            entry.training
            for entry in self._entries_of(method, condition)
            if entry.training is not None
        ]

    def label(self, method: str) -> str:
        """Return the name of a method, with the size of an ensemble."""
        sizes = (
            [len(record["members"]) for record in self.records(method)]
            if is_ensemble(method)
            else []
        )
        return label(method, sizes[0] if sizes else None)

    def _entries_of(self, method: str, condition: str | None) -> list[Entry]:
        kind = "ensemble" if is_ensemble(method) else "evaluate"
        return [
            e
            for e in self.entries
            if e.kind == kind and e.method == method and condition in (None, e.condition)
        ]


def read_studies(directory: Path) -> list[Study]:
    """Read all experiments of a directory.

    Raises:
        ValueError: If there is no experiment, or if a record is damaged.
    """
    studies = []
    for manifest, records in map(read_packed, packed_files(directory)):
        entries = [
            Entry(
                p["kind"], p["method"], p["arm"], records.get(p["name"]), records.get(p["training"])
            )
            for p in manifest["pieces"]
        ]
        settings, conditions = (
            manifest["experiment"],
            list(dict.fromkeys(e.condition for e in entries if e.condition is not None)),
        )
        studies.append(
            Study(settings["name"], settings["methods"], conditions, settings, manifest, entries)
        )
    if not studies:
        advice = "Give the directory that was --out of python -m experiments run."
        raise ValueError(
            f"{directory} contains no results, that is, no file that ends with {PACKED}. {advice}"
        )
    return studies


def spread(records: Sequence[Record], *path: str) -> MeanStd | None:
    """Compute mean and standard deviation at ``path``, or ``None``."""
    found = [value for record in records if (value := lookup(record, *path)) is not None]
    return MeanStd.of(found) if found else None


def lookup(record: Any, *path: str) -> Any:
    """Return the value at ``path`` in nested mappings, or ``None``."""
    for name in path:
        record = record.get(name) if isinstance(record, Mapping) else None
    return record


def quality_table(study: Study, ood: str | None = None, beside_paper: bool = True) -> Rows:
    """Build the table of quality and of the detection of a foreign set.

    The cells contain mean and standard deviation over runs. With
    ``beside_paper``, published values are beside ours.
    """
    rows: Rows = [
        {
            "model": study.label(method),
            "runs": len(records),
            **qualities(records, method, "running", ood),
        }
        for method in study.methods
        if (records := study.records(method))
    ]
    published = PUBLISHED.get(study.settings["paper"] or "", {}) if beside_paper else {}
    ours = {name for row in rows for name in row}
    theirs: dict[str, Row] = {
        study.label(method): {
            name: cell for name, cell in published[method].items() if name in ours
        }
        for method in study.methods
        if method in published
    }
    return with_published(rows, theirs) if theirs else rows


def with_published(
    rows: Sequence[Row], published: Mapping[str, Row], suffix: str = " (paper)"
) -> list[dict[str, Cell]]:
    """Add columns with published values beside ours.

    Example:
        >>> with_published([{"model": "A", "acc": 0.8}], {"A": {"acc": 0.84}})
        [{'model': 'A', 'acc': 0.8, 'acc (paper)': 0.84}]
    """
    paired = {name for row in published.values() for name in row}
    joined = []
    for row in rows:
        theirs, both = published.get(str(row["model"]), {}), dict[str, Cell]()
        for name, cell in row.items():
            both[name] = cell
            if name in paired:
                both[name + suffix] = theirs.get(name)
        joined.append(both)
    return joined


def statistics_table(study: Study, ood: str | None) -> Rows:
    """Build the table with running and with batch statistics."""
    shown = ["accuracy %", "AUARC EU", "AUARC TU"] + (
        ["AUROC EU", "AUROC TU", "AUPRC TU"] if ood else []
    )
    rows: Rows = []
    for method in study.methods:
        records = study.records(method)
        if any(lookup(record, "metrics", "batch") for record in records):
            running, batch = (
                qualities(records, method, kind, ood) for kind in ("running", "batch")
            )
            row: dict[str, Cell] = {"model": study.label(method)}
            for name in shown:
                row |= {
                    f"{name}, running": running.get(name),
                    f"{name}, test batch": batch.get(name),
                }
            rows.append(row)
    return rows


def shift_table(study: Study, condition: str) -> Rows:
    """Build the table of interval test sets.

    It contains accuracy, AUARC and the relative increase of each uncertainty
    over the base set.
    """
    rows: Rows = []
    for method in study.methods:
        records = study.records(method, condition)
        for name in sets_of(records):
            at = ("metrics", "running", "sets", name)
            accuracy = _percent(spread(records, *at, "accuracy"))
            row: dict[str, Cell] = {
                "model": study.label(method),
                "test set": name,
                "accuracy %": accuracy,
            }
            for title, what in (("AUARC", "auarc"), ("mean", "means")):
                row |= {
                    f"{title} {short}": spread(records, *at, what, key)
                    for key, short in MEASURES.items()
                }
            increases = {short: (*at, "increase", key) for key, short in MEASURES.items()}
            row |= {
                f"increase {short}": spread(records, *path, "mean")
                for short, path in increases.items()
            }
            for short, path in increases.items():
                row[f"{short} base 0"] = sum(
                    lookup(record, *path, "excluded") or 0 for record in records
                )
            rows.append(row)
    return rows


def budget_table(study: Study) -> Rows:
    """Build the table of parameters, training time and prediction time."""
    rows: Rows = []
    for method in study.methods:
        single, found = base_method(method), study.records(method)
        trainings = study.trainings(single)
        if not trainings or (is_ensemble(method) and not found):
            continue
        members = len(found[0]["members"]) if is_ensemble(method) else 1
        row: dict[str, Cell] = {
            "model": study.label(method),
            "parameters": trainings[0]["parameters"] * members,
        }
        row["training s"] = _of_members(spread(trainings, "seconds"), members)
        epochs = [row["seconds"] for training in trainings for row in training.get("history") or ()]
        row["training s per epoch"] = MeanStd.of(epochs) if epochs and None not in epochs else None
        row["prediction ms per image"] = _of_members(
            spread(study.records(single), "milliseconds_per_image"), members
        )
        rows.append(row)
    return rows


def curve_table(study: Study, measure: str) -> Rows:
    """Build the table of a measure after each epoch, as means over runs."""
    columns = {}
    for method in study.methods:
        curves = [
            [row[measure] for row in training["history"]]
            for training in study.trainings(method)
            if training.get("history")
        ]
        if curves and not any(None in curve for curve in curves):
            columns[study.label(method)] = [fmean(values) for values in zip(*curves, strict=False)]
    longest = max(map(len, columns.values()), default=0)
    return [
        {"epoch": epoch + 1}
        | {name: values[epoch] if epoch < len(values) else None for name, values in columns.items()}
        for epoch in range(longest)
    ]


def time_table(record: Record, methods: Sequence[str]) -> Rows:
    """Build the table of times relative to the SNN, with published factors."""
    times = record["seconds_per_call"]
    rows: Rows = []
    for method in methods:
        row: dict[str, Cell] = {"model": label(method), "parameters": record["parameters"][method]}
        for size, found in times[method].items():
            images = "1 image" if size == "1" else f"{size} images"
            for what in ("label", "uncertainty"):
                row[f"{images}, {what}: ms"] = 1000 * found[what]["median"]
                if "snn" in times:
                    row[f"{images}, {what}: {TIMES} SNN"] = (
                        found[what]["median"] / times["snn"][size][what]["median"]
                    )
        row[f"{TIMES} SNN (paper)"] = INFERENCE_TIME.get(method)
        rows.append(row)
    return rows


def digits(rows: Sequence[Row]) -> dict[str, int]:
    """Return the decimals of columns that do not have three."""
    names = dict.fromkeys(name for row in rows for name in row)
    few = {"accuracy": 2, "increase": 2, "training": 1, "prediction": 2}
    return {
        name: places for name in names for start, places in few.items() if name.startswith(start)
    }


def sets_of(records: Sequence[Record]) -> list[str]:
    """Return the names of the test sets in order."""
    return list(
        dict.fromkeys(name for record in records for name in record["metrics"]["running"]["sets"])
    )


def qualities(
    records: Sequence[Record], method: str, statistics: str, ood: str | None
) -> dict[str, Cell]:
    """Return the means of the measures of a method by column."""
    at = ("metrics", statistics)
    cells: dict[str, Cell] = {
        "accuracy %": _percent(spread(records, *at, "sets", POINTS, "accuracy"))
    }
    for key, short in MEASURES.items():
        cells[f"AUARC {short}"] = spread(records, *at, "sets", POINTS, "auarc", key)
    if ood is not None:
        for measure, column in (("auroc", "AUROC"), ("auprc", "AUPRC")):
            for key in ("epistemic", "total"):
                cells[f"{column} {MEASURES[key]}"] = spread(records, *at, "ood", ood, key, measure)
    if (
        method in METHODS and METHODS[method].kind == "snn"
    ):  # a single distribution has no epistemic uncertainty
        cells |= {name: None for name in cells if name.endswith("EU")}
    scores = {
        name: spread(records, *at, "sets", POINTS, key) for name, key in SCORES.items()
    }  # missing in older records
    return {name: cells[name] for name in COLUMNS if name in cells} | {
        name: s for name, s in scores.items() if s
    }


def _percent(value: MeanStd | None) -> MeanStd | None:
    return value and MeanStd(value.mean * 100, None if value.std is None else value.std * 100)


def _of_members(value: MeanStd | None, members: int) -> MeanStd | None:
    """Multiply a mean cost by the number of members."""
    return value if value is None or members == 1 else MeanStd(value.mean * members)
