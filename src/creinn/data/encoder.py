"""Encoder of tables and of target columns.

The functions return notes on what they detected or omitted.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from creinn.data.columns import Category, Column, Date, Number, fit_column
from creinn.data.features import Array, Missing
from creinn.data.table import (
    MARKS,
    Table,
    Tables,
    check_cells,
    detect_decimal,
    list_counts,
    parse_numbers,
)
from creinn.interval import Interval
from creinn.numerics import list_names, pluralize

Names = Collection[str]
Notes = list[str]
Counts = dict[tuple[str, str], tuple[int, str]]
"""Number and first cell by column and kind."""

_KINDS: dict[str, Any] = {kind.__name__.lower(): kind for kind in (Number, Category, Date)}
_EFFECTS = {
    "missing value": "replaced by all plausible values",
    "distant number": "far from training rows and clipped",
    "unknown value": "not seen in training and treated as no known category",
}
_MOST_CLASSES, _MOST_NUMBERS = 1000, 50  # of a target
_FEW_ROWS = 5  # below which a number is probably not a class


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Encoders of the columns of a table."""

    target: str | None  # column of the classes
    columns: tuple[Column, ...]
    missing: Missing
    ignored: tuple[str, ...] = ()  # columns without an encoder
    decimal: str = "."  # of training, like marks
    marks: tuple[str, ...] = MARKS

    @classmethod
    def fit(
        cls,
        tables: Tables,
        target: str | None,
        drop: Names = (),
        categorical: Names = (),
        max_categories: int = 100,
    ) -> tuple["TableEncoder", Notes]:
        """Fit the encoder to one table or two tables of bounds.

        The categories after the ``max_categories`` most frequent are
        merged.
        """
        first = tables[0]
        for name in (target, *drop, *categorical):
            if name is not None:
                first.check_column(name)
        if max_categories < 2:
            raise ValueError(f"max_categories= must be at least 2, got {max_categories}.")
        used = [name for name in first.frame if name != target and name not in drop]
        decimal = detect_decimal([first.cells(name) for name in used], first.reading)
        tables = [replace(t, reading=replace(t.reading, decimal=decimal)) for t in tables]
        notes = [note for table in tables for note in table.notes]
        columns: list[Column] = []
        for name in used:
            column, remarks = fit_column(tables, name, name in categorical, max_categories)
            columns += [column] if column is not None else []
            if remarks:
                notes.append(f"{first.column(name)}: {'; '.join(remarks)}")
        if not columns:
            raise ValueError(f"{first.name} has no column to learn from except {target!r}.")
        if first.reading.decimal == "auto" and decimal == ",":
            notes.append(f"{first.name}: numbers have ',' before decimals")
        rows = torch.cat([_features(columns, table) for table in tables])
        missing = Missing.fit(rows, [column.width for column in columns])
        kept = {target, *(column.name for column in columns)}
        ignored = tuple(name for name in first.frame if name not in kept)
        return cls(target, tuple(columns), missing, ignored, decimal, first.reading.marks), notes

    @property
    def numbers(self) -> set[str]:
        """Names of number columns."""
        return {column.name for column in self.columns if isinstance(column, Number)}

    def encode(
        self, tables: Tables, counts: Counts | None = None
    ) -> tuple[Tensor | Interval, Notes]:
        """Encode one table or two tables of bounds, and update ``counts``.

        Missing cells are NaN in a single table.
        """
        reading = tables[0].reading.complete(self.decimal, self.marks)
        tables = [replace(table, reading=reading) for table in tables]
        first, counts = tables[0], {} if counts is None else counts
        for column in self.columns:
            check_cells(tables, column.name, isinstance(column, Number))
        lower, *upper = (_features(self.columns, table) for table in tables)
        self._count(first, lower, counts)
        notes = [note for table in tables for note in table.notes]
        for (name, what), (count, place) in counts.items():
            found = f"{pluralize(count, what)}, first {place}"
            notes.append(f"{first.column(name)}: {found}; {_EFFECTS[what]}")
        known = {self.target, *self.ignored, *(column.name for column in self.columns)}
        if unused := [str(name) for name in first.frame if name not in known]:
            notes.append(f"{first.name}: not used, because not in training: {', '.join(unused)}")
        return self.missing.intervals(lower, *upper) if upper else lower, notes

    def _count(self, table: Table, features: Tensor, counts: Counts) -> None:
        widths = [column.width for column in self.columns]
        for column, cells in zip(self.columns, features.split(widths, 1), strict=True):
            masks = {"missing value": cells[:, 0].isnan()}
            if isinstance(column, Number):
                limits = torch.tensor([column.low, column.high])
                masks["distant number"] = torch.isin(cells[:, 0], limits)
            if isinstance(column, Category):
                masks["unknown value"] = ~cells.any(1)
            for what, mask in masks.items():
                for row in mask.nonzero()[:1, 0].tolist():
                    place = f"{str(table.frame[column.name].iloc[row])!r} in {table.row(row)}"
                    count, place = counts.get((column.name, what), (0, place))
                    counts[column.name, what] = count + int(mask.sum()), place

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON."""
        columns = [{"kind": type(c).__name__.lower(), **asdict(c)} for c in self.columns]
        record = {**vars(self), "columns": columns, "missing": self.missing.to_json()}
        return json.loads(json.dumps(record))

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "TableEncoder":
        """Invert :meth:`to_json`."""
        columns = []
        for entry in record["columns"]:
            values = {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
            columns.append(_KINDS[str(values.pop("kind"))](**values))
        missing, ignored = Missing.from_json(record["missing"]), tuple(record["ignored"])
        marks = tuple(record["marks"])
        return cls(record["target"], tuple(columns), missing, ignored, record["decimal"], marks)


def _features(columns: Sequence[Column], table: Table) -> Tensor:
    return torch.from_numpy(np.concatenate([column.encode(table) for column in columns], axis=1))


def labelled_rows(
    tables: Tables, target: str | None, drop_unlabelled: bool
) -> tuple[Tables, Notes]:
    """Return the rows that have a class."""
    if target is None:
        return tables, []
    check_cells(tables, target)
    first = tables[0]
    missing = first.cells(target).isna()
    if not missing.any():
        return tables, []
    counts = f"{missing.sum()} of {len(first)}"
    cells = f"first in {first.row(missing.argmax())}: {list_counts(first.count_missing(target))}"
    found = f"{first.column(target)}: {counts} rows have no class, {cells}"
    if missing.all():
        raise ValueError(f"{found}. Choose another column with target=.")
    if not drop_unlabelled:
        raise ValueError(
            f"{found}. Pass drop_unlabelled=True to drop them, or missing= if it is a class."
        )
    kept = [replace(table, frame=table.frame[~missing]) for table in tables]
    return kept, [f"{found}; they were dropped"]


def find_classes(
    labels: Array, target: str = "", most: int | None = None
) -> tuple[list[str], Notes]:
    """Return the sorted classes and notes."""
    names, counts = np.unique(labels.astype(str), return_counts=True)
    values = parse_numbers(names)
    is_number = bool(np.isfinite(values).all())
    is_quantity = is_number and np.median(counts) < _FEW_ROWS
    limit = most or (_MOST_NUMBERS if is_quantity else _MOST_CLASSES)
    if len(names) > limit:
        advice = "Divide the numbers into ranges" if is_quantity else "Choose another column"
        found = f"The target {target!r} has {len(names)} classes, more than {limit}"
        raise ValueError(f"{found}. {advice}, or pass max_classes={len(names)}.")
    single, notes = names[counts == 1].tolist(), []
    if single and len(labels) > len(names):
        notes.append(f"target {target!r}: classes with one row only: {list_names(single, 'name')}")
    order = values.argsort(kind="stable") if is_number else ...
    return names[order].tolist(), notes


def read_labels(
    table: Table, target: str | None, classes: Sequence[str]
) -> tuple[Tensor, Tensor | None]:
    """Return labels ``(N,)`` and, without ``target``, distributions ``(N, K)``.

    The distributions are the votes in the columns ``classes``.
    """
    if target is None:
        distributions = _read_distributions(table, classes)
        return distributions.argmax(1), distributions
    texts = table.texts(target)
    indices = pd.Index(classes, dtype=object).get_indexer(texts)
    for row in np.flatnonzero(indices < 0):
        found = f"{table.at(row, target)}: the model has no class {texts[row]!r}"
        raise ValueError(f"{found}, only {', '.join(classes)}.")
    return torch.from_numpy(indices), None


def _read_distributions(table: Table, columns: Sequence[str]) -> Tensor:
    votes = np.stack([table.numbers(column) for column in columns], axis=1)
    for row, k in np.argwhere(~(votes >= 0)):
        place = table.at(row, columns[k])
        raise ValueError(f"{place}: votes must be at least 0, got {votes[row, k]:g}.")
    total = votes.sum(1, keepdims=True)
    for row in np.flatnonzero(total == 0):
        raise ValueError(f"{table.at(row, columns[0])}: no class has a vote.")
    return torch.from_numpy(votes / total).float()
