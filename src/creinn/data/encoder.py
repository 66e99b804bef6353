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
import pandas as pd

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
    Reading,
    Tables,
    Texts,
    check_bounds,
    check_rows,
    check_same_texts,
    choose_formats,
    describe_format,
    list_counts,
    parse_numbers,
)
from creinn.numerics import list_names, pluralize

Names = Collection[str]
Notes = list[str]

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

        Raises:
            ValueError: If a column does not exist or is ambiguous, if the tables of a pair do not
                fit, or if no column is left.
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
        examples: dict[Any, tuple[str, list[str]]] = {}  # the columns by format
        for name, form in zip(
            used, choose_formats(map(first.cells, used), first.reading), strict=True
        ):
            column, remarks = fit_column(tables, name, name in categorical, form, max_categories)
            if isinstance(column, Number) and (text := describe_format(first.cells(name), form)):
                examples.setdefault(form, (text, []))[1].append(name)
            if remarks:
                notes.append(f"{first.name}, column {name!r}: {'; '.join(remarks)}")
            if column is None:
                ignored.append(name)
            else:
                columns.append(column)
        notes += [f"{first.name}, {text} ({', '.join(who)})" for text, who in examples.values()]
        if not columns:
            raise ValueError(f"{first.name} has no column to learn from besides {target!r}.")
        return cls(target, tuple(columns), tuple(ignored)), notes

    @property
    def widths(self) -> list[int]:
        """The number of features of each column."""
        return [column.width for column in self.columns]

    def plain_numbers(self, reading: Reading) -> set[str]:
        """Return the names of the columns that can be parsed by pandas."""
        numbers = [column for column in self.columns if isinstance(column, Number)]
        return {column.name for column in numbers if reading.number_format(column.form) == PLAIN}

    def encode(
        self, tables: Tables, stats: dict[str, ColumnStats] | None = None
    ) -> tuple[list[Features], Notes]:
        """Encode one table or the tables of two bounds, and return the features and notes.

        ``stats`` are the counts of earlier chunks. They are updated, and the notes are on all
        chunks.

        Raises:
            ValueError: If a column does not exist, if a cell does not have the type of its column,
                or if the tables of a pair do not fit.
        """
        _check_pair(tables)
        first = tables[0]
        for column in self.columns:
            first.check_column(column.name, ", which the model was trained with")
            if isinstance(column, Number):
                check_bounds(tables, column.name, column.form)
            else:
                check_same_texts(tables, column.name)
        parts = [[column.encode(table) for column in self.columns] for table in tables]
        notes = [note for table in tables for note in table.notes]
        stats = {} if stats is None else stats
        for column, part in zip(self.columns, parts[0], strict=True):
            counts = stats.setdefault(column.name, ColumnStats())
            counts.update(column, first, part)
            where = f"{first.name}, column {column.name!r}"
            notes += [f"{where}: {remark}" for remark in counts.remarks(column)]
        used = {self.target, *self.ignored, *(column.name for column in self.columns)}
        if unused := [str(name) for name in first.columns if name not in used]:
            absent = "the training table has no such column"
            notes.append(f"{first.name}: not used, because {absent}: {', '.join(unused)}")
        return [np.concatenate(part, axis=1) for part in parts], notes

    def to_json(self) -> dict[str, Any]:
        """Return the encoder as plain JSON, for a saved model."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]
        record = {"target": self.target, "columns": columns, "ignored": self.ignored}
        return json.loads(json.dumps(record))

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "TableEncoder":
        """Return the encoder of a record, or raise a ``ValueError`` if it is not valid."""
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
    """Raise a ``ValueError`` if two tables differ in columns or number of rows."""
    lower, upper = tables[0], tables[-1]
    check_rows([lower.name, upper.name], [len(lower), len(upper)])
    for has, lacks in ((lower, upper), (upper, lower)):
        for column in has.frame.columns.difference(lacks.frame.columns, sort=False):
            raise ValueError(f"{has.name} has a column {column!r}, but {lacks.name} has not.")


def labelled_rows(
    tables: Tables, target: str, drop_unlabelled: bool
) -> tuple[Tables, Texts, Notes]:
    """Return the rows that have a class, their classes ``(N,)``, and notes.

    Raises:
        ValueError: If the classes of a pair differ, or if a row has no class and
            ``drop_unlabelled`` is false.
    """
    check_same_texts(tables, target)
    texts = tables[0].texts(target)
    missing = pd.isna(texts)
    if not missing.any():
        return tables, texts, []
    marks = list_counts(tables[0].count_missing(target))
    found = f"{missing.sum()} of {len(texts)} rows have no class"
    found = f"{tables[0].name}, column {target!r}: {found}"
    if missing.all():
        raise ValueError(f"{found}: {marks}. Pass target= with the column that holds the classes.")
    if not drop_unlabelled:
        raise ValueError(
            f"{found}: {marks}, first in {tables[0].row(int(missing.argmax()))}. Pass "
            "drop_unlabelled=True to drop these rows, or missing= if such a text is a class."
        )
    kept = [replace(table, frame=table.frame[~missing]) for table in tables]
    return kept, texts[~missing], [f"{found} and were dropped: {marks}"]


def find_classes(
    labels: Texts, target: str = "", most: int | None = None
) -> tuple[list[str], Notes]:
    """Return the sorted distinct labels and notes on unusual classes.

    Labels are sorted as numbers if possible.

    Raises:
        ValueError: If there are more than ``most`` classes (1000 by default), or more than 50
            numbers with few rows.

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
