"""Encoder of tables, and the classes of a target column.

The encoder is fitted to one table, or to lower and upper bounds. It returns the features
``(N, features)``, with NaN for missing cells, and notes on what was detected, omitted or unknown.
It is saved as plain JSON.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from creinn.data.columns import (
    Category,
    Column,
    ColumnStats,
    Date,
    Features,
    Number,
    case_remarks,
    fit_column,
)
from creinn.data.table import (
    PLAIN,
    NumberFormat,
    Reading,
    Tables,
    Texts,
    check_cells,
    check_pair,
    describe_format,
    detect_format,
    list_counts,
    parse_numbers,
)
from creinn.numerics import list_names, pluralize

Names = Collection[str]
Notes = list[str]

_KINDS: dict[str, Any] = {kind.kind: kind for kind in (Number, Category, Date)}
_MOST_CLASSES, _MOST_NUMBERS = 1000, 50  # of a target
_FEW_ROWS = 5  # a number with fewer rows is probably not a class


@dataclass(frozen=True)
class TableEncoder:
    """Encoders of the columns of a training table, in their order.

    Example:
        >>> encoder = TableEncoder("y", (Number("age", 40.0, 10.0), Category("sex", ("f", "m"))))
        >>> encoder.widths
        [1, 2]
    """

    target: str | None  # the column of the classes
    columns: tuple[Column, ...]  # the columns that are features
    ignored: tuple[str, ...] = ()  # the columns that are dropped, constant or empty
    number_format: NumberFormat = PLAIN  # of the training table

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

        Returns the encoder and notes. The columns in ``categorical`` are categories even if they
        contain numbers or dates. If a column has more than ``max_categories``, the rare categories
        are merged.
        """
        check_pair(tables)
        first = tables[0]
        for name in (*([target] if target is not None else ()), *drop, *categorical):
            first.check_column(name)
        if max_categories < 2:
            raise ValueError(f"max_categories= must be at least 2, got {max_categories}.")
        notes = [note for table in tables for note in table.notes]
        ignored = [name for name in first.columns if name in drop]
        used = [name for name in first.columns if name != target and name not in drop]
        form = detect_format([first.cells(name) for name in used], first.reading)
        tables = _with_format(tables, form)
        columns: list[Column] = []
        for name in used:
            column, remarks = fit_column(tables, name, name in categorical, max_categories)
            if remarks:
                notes.append(f"{first.name}, column {name!r}: {'; '.join(remarks)}")
            if column is None:
                ignored.append(name)
            else:
                columns.append(column)
        if not columns:
            raise ValueError(f"{first.name} has no column to learn from besides {target!r}.")
        numbers = (first.cells(column.name) for column in columns if isinstance(column, Number))
        examples = filter(None, (describe_format(cells, form) for cells in numbers))
        notes += [f"{first.name}: {example}" for example in list(examples)[:1]]
        form = tables[0].reading.number_format
        return cls(target, tuple(columns), tuple(ignored), form), notes

    @property
    def widths(self) -> list[int]:
        """The number of features of each column."""
        return [column.width for column in self.columns]

    def plain_numbers(self, reading: Reading) -> set[str]:
        """Return the names of the columns that can be parsed by pandas."""
        if reading.with_format(self.number_format).number_format != PLAIN:
            return set()
        return {column.name for column in self.columns if isinstance(column, Number)}

    def encode(
        self, tables: Tables, stats: dict[str, ColumnStats] | None = None
    ) -> tuple[list[Features], Notes]:
        """Encode one table or the tables of two bounds, and return the features and notes.

        ``stats`` are the counts of earlier chunks. They are updated, and the notes are on all
        chunks.
        """
        check_pair(tables)
        tables = _with_format(tables, self.number_format)
        first, stats = tables[0], {} if stats is None else stats
        notes = [note for table in tables for note in table.notes]
        parts: list[list[Features]] = [[] for _ in tables]
        for column in self.columns:
            first.check_column(column.name)
            check_cells(tables, column.name, isinstance(column, Number))
            for part, table in zip(parts, tables, strict=True):
                part.append(column.encode(table))
            counts = stats.setdefault(column.name, ColumnStats())
            counts.update(column, first, parts[0][-1])
            where = f"{first.name}, column {column.name!r}"
            notes += [f"{where}: {remark}" for remark in counts.remarks()]
        used = {self.target, *self.ignored, *(column.name for column in self.columns)}
        if unused := [str(name) for name in first.columns if name not in used]:
            absent = "the training table has no such column"
            notes.append(f"{first.name}: not used, because {absent}: {', '.join(unused)}")
        return [np.concatenate(part, axis=1) for part in parts], notes

    def to_json(self) -> dict[str, Any]:
        """Return the encoder as plain JSON, for a saved model."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]
        return json.loads(json.dumps({**vars(self), "columns": columns}))

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "TableEncoder":
        """Return the encoder of a record of :meth:`to_json`."""
        columns = []
        for entry in record["columns"]:
            values = {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
            columns.append(
                _KINDS[entry["kind"]](**{k: v for k, v in values.items() if k != "kind"})
            )
        form = NumberFormat(*record["number_format"])
        return cls(record["target"], tuple(columns), tuple(record["ignored"]), form)


def _with_format(tables: Tables, form: NumberFormat) -> Tables:
    return [replace(table, reading=table.reading.with_format(form)) for table in tables]


def labelled_rows(
    tables: Tables, target: str, drop_unlabelled: bool
) -> tuple[Tables, Texts, Notes]:
    """Return the rows that have a class, their classes ``(N,)``, and notes."""
    check_cells(tables, target)
    first = tables[0]
    texts = first.texts(target)
    missing = np.array([text is None for text in texts])
    if not missing.any():
        return tables, texts, []
    marks = list_counts(first.count_missing(target))
    found = f"{first.name}, column {target!r}: {missing.sum()} of {len(texts)} rows have no class"
    if missing.all():
        raise ValueError(f"{found}: {marks}. Pass target= with the column that holds the classes.")
    if not drop_unlabelled:
        raise ValueError(
            f"{found}: {marks}, first in {first.row(missing.argmax())}. Pass "
            "drop_unlabelled=True to drop these rows, or missing= if such a text is a class."
        )
    kept = [replace(table, frame=table.frame[~missing]) for table in tables]
    return kept, texts[~missing], [f"{found} and were dropped: {marks}"]


def find_classes(
    labels: Texts, target: str = "", most: int | None = None
) -> tuple[list[str], Notes]:
    """Return the sorted distinct labels and notes on unusual classes.

    Labels are sorted as numbers if possible.

    Example:
        >>> find_classes(np.array(["10", "9", "10", "9"], dtype=object))
        (['9', '10'], [])
    """
    names, counts = np.unique(labels.astype(str), return_counts=True)
    found = names.tolist()
    values = parse_numbers(found)
    is_number = bool(np.isfinite(values).all())
    what, advice = f"The target {target!r} has {len(found)}", f"pass max_classes={len(found)}."
    is_quantity = is_number and len(found) > _MOST_NUMBERS and np.median(counts) < _FEW_ROWS
    if most is None and is_quantity:
        raise ValueError(
            f"{what} different numbers in {pluralize(len(labels), 'row')}. creinn supports "
            f"classification only: divide the numbers into ranges. If each is a class, {advice}"
        )
    if len(found) > (limit := most or _MOST_CLASSES):
        raise ValueError(f"{what} classes, more than {limit}. If it is the right column, {advice}")
    notes = [f"target {target!r}: {remark}" for remark in case_remarks(found)]
    if len(single := names[counts == 1].tolist()) and len(labels) > len(found):
        notes.append(f"target {target!r}: classes with one row only: {list_names(single, 'name')}")
    if is_number:
        found = [found[i] for i in np.argsort(values, kind="stable")]
    return found, notes
