"""Learn the columns of a training table, and encode any table alike.

In: one table, or lower and upper bounds. Out: features ``(N, features)``, NaN where missing, and
notes on what was detected, left out or unknown. The encoder is saved as plain JSON.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from creinn.data.columns import (
    Category,
    Column,
    ColumnStats,
    Date,
    Features,
    Number,
    case_remarks,
    learn_column,
)
from creinn.data.numerals import Style, choose_styles, listed_counts, parse, styles, told_apart
from creinn.data.table import Reading, Tables, Texts, check_bounds, check_rows, check_same_texts
from creinn.numerics import list_names, pluralize

Names = Collection[str]
Notes = list[str]

_MOST_CLASSES, _MOST_NUMBERS = 1000, 50  # of a target
_FEW_ROWS = 5  # numbers with fewer rows each look like quantities


@dataclass(frozen=True)
class TableEncoder:
    """Encoders of the columns of a training table, in order.

    Example:
        >>> encoder = TableEncoder("y", (Number("age", 40.0, 10.0), Category("sex", ("f", "m"))))
        >>> encoder.widths
        [1, 2]
    """

    target: str | None  # column of the classes
    columns: tuple[Column, ...]  # columns that become features
    ignored: tuple[str, ...] = ()  # columns that do not: dropped, constant or empty

    @classmethod
    def fit(
        cls,
        tables: Tables,
        target: str | None,
        drop: Names = (),
        categorical: Names = (),
        max_categories: int = 100,
    ) -> tuple["TableEncoder", Notes]:
        """Learn all columns except the target and those to drop; also returns notes.

        Columns in ``categorical`` hold categories even if these are numbers or dates. Beyond
        ``max_categories`` of a column, rare categories are merged.

        Raises:
            ValueError: If a column is absent or ambiguous, a pair does not fit, or none is left.
        """
        _check_pair(tables)
        first = tables[0]
        for name in (*([target] if target is not None else ()), *drop, *categorical):
            first.check_column(name)
        if max_categories < 2:
            raise ValueError(f"max_categories= must be at least 2, got {max_categories}.")
        notes = [note for table in tables for note in table.notes]
        columns: list[Column] = []
        ignored = [name for name in first.columns if name in drop]
        used = [name for name in first.columns if name != target and name not in drop]
        candidates = styles(first.reading.separator, first.reading.decimal, first.reading.thousands)
        written: dict[Style, tuple[str, list[str]]] = {}
        found_styles = choose_styles(map(first.cells, used), candidates)
        for name, style in zip(used, found_styles, strict=True):
            column, remarks = learn_column(tables, name, name in categorical, style, max_categories)
            if isinstance(column, Number) and (example := told_apart(first.cells(name), style)):
                written.setdefault(style, (example, []))[1].append(name)
            if remarks:
                notes.append(f"{first.name}, column {name!r}: {'; '.join(remarks)}")
            if column is None:
                ignored.append(name)
            else:
                columns.append(column)
        for example, names in written.values():
            notes.append(f"{first.name}, {example} ({', '.join(names)})")
        if not columns:
            raise ValueError(f"{first.name} has no column to learn from besides {target!r}.")
        return cls(target, tuple(columns), tuple(ignored)), notes

    @property
    def widths(self) -> list[int]:
        """Number of features of each column."""
        return [column.width for column in self.columns]

    def plain_numbers(self, reading: Reading) -> set[str]:
        """Columns of numbers that pandas can parse as they are written."""
        numbers = [column for column in self.columns if isinstance(column, Number)]
        return {column.name for column in numbers if reading.style(column.style) == Style()}

    def encode(
        self, tables: Tables, stats: dict[str, ColumnStats] | None = None
    ) -> tuple[list[Features], Notes]:
        """Encode one table, or lower and upper bounds; also returns notes.

        ``stats`` are those of earlier chunks; they are updated, and the notes are on all chunks.

        Raises:
            ValueError: If a column is absent, a cell not of its kind, or a pair does not fit.
        """
        _check_pair(tables)
        first = tables[0]
        for column in self.columns:
            first.check_column(column.name, ", which the model was trained with")
            if isinstance(column, Number):
                check_bounds(tables, column.name, column.style)
            else:
                check_same_texts(tables, column.name)
        parts = [[column.encode(table) for column in self.columns] for table in tables]
        notes = [note for table in tables for note in table.notes]
        stats = {} if stats is None else stats
        for column, part in zip(self.columns, parts[0], strict=True):
            counts = stats.setdefault(column.name, ColumnStats())
            counts.count(column, first, part)
            where = f"{first.name}, column {column.name!r}"
            notes += [f"{where}: {remark}" for remark in counts.remarks(column)]
        used = {self.target, *self.ignored, *(column.name for column in self.columns)}
        if unused := [str(name) for name in first.columns if name not in used]:
            absent = "the training table has no such column"
            notes.append(f"{first.name}: not used, because {absent}: {', '.join(unused)}")
        return [np.concatenate(part, axis=1) for part in parts], notes

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for a saved model."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]
        record = {"target": self.target, "columns": columns, "ignored": self.ignored}
        return json.loads(json.dumps(record))

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "TableEncoder":
        """Encoder that :meth:`to_json` wrote; raises a ``ValueError`` for other records."""
        kinds: dict[Any, Any] = {kind.kind: kind for kind in (Number, Category, Date)}
        columns = []
        try:
            for entry in record["columns"]:
                pairs = entry.items()
                values = {key: tuple(v) if isinstance(v, list) else v for key, v in pairs}
                columns.append(kinds[values.pop("kind")](**values))
            return cls(record["target"], tuple(columns), tuple(record["ignored"]))
        except (AttributeError, KeyError, TypeError) as error:
            found = f"The columns of a table cannot be read from the saved model: {error!r}."
            raise ValueError(found) from error


def _check_pair(tables: Tables) -> None:
    """Raise a ``ValueError`` if tables of a pair differ in columns or number of rows."""
    lower, upper = tables[0], tables[-1]
    check_rows([lower.name, upper.name], [len(lower), len(upper)])
    for has, lacks in ((lower, upper), (upper, lower)):
        for column in has.frame.columns.difference(lacks.frame.columns, sort=False):
            raise ValueError(f"{has.name} has a column {column!r}, but {lacks.name} has not.")


def labelled_rows(
    tables: Tables, target: str, drop_unlabelled: bool
) -> tuple[Tables, Texts, Notes]:
    """Tables with their classes ``(N,)``; rows without a class raise, or are dropped with a note.

    Raises:
        ValueError: If rows have no class, or the classes of a pair differ.
    """
    check_same_texts(tables, target)
    texts = tables[0].texts(target)
    lacks = pd.isna(texts)
    if not lacks.any():
        return tables, texts, []
    marked = listed_counts(tables[0].marked(target))
    found = f"{tables[0].name}, column {target!r}: {lacks.sum()} of {len(texts)} rows have no class"
    if not drop_unlabelled:
        raise ValueError(
            f"{found}: {marked}, first in {tables[0].row(int(lacks.argmax()))}. Pass "
            "drop_unlabelled=True to drop these rows, or missing= if such a text is a class."
        )
    kept = [replace(table, frame=table.frame[~lacks]) for table in tables]
    return kept, texts[~lacks], [f"{found} and were dropped: {marked}"]


def classes_of(labels: Texts, target: str = "", most: int | None = None) -> tuple[list[str], Notes]:
    """Different labels, sorted, by value if all are numbers; and notes on those that look wrong.

    Raises:
        ValueError: If there are more than ``most``, by default 1000, or 50 numbers with few rows.

    Example:
        >>> classes_of(np.array(["10", "9", "10", "9"], dtype=object))
        (['9', '10'], [])
    """
    names, counts = np.unique(labels.astype(str), return_counts=True)
    found = names.tolist()
    values, is_number = parse(found)
    quantity = is_number.all() and len(found) > _MOST_NUMBERS and np.median(counts) < _FEW_ROWS
    what, advice = f"The target {target!r} has {len(found)}", f"pass max_classes={len(found)}."
    if most is None and quantity:
        raise ValueError(
            f"{what} different numbers in {pluralize(len(labels), 'row')}. creinn classifies and has "
            f"no regression: divide the numbers into ranges. If each is a class, {advice}"
        )
    if len(found) > (limit := most or _MOST_CLASSES):
        raise ValueError(f"{what} classes, more than {limit}. If it is the right column, {advice}")
    notes = [f"target {target!r}: {remark}" for remark in case_remarks(found)]
    if len(single := names[counts == 1].tolist()) and len(labels) > len(found):
        notes.append(f"target {target!r}: classes with one row only: {list_names(single, 'name')}")
    if is_number.all():
        found = [found[i] for i in np.argsort(values, kind="stable")]
    return found, notes
