"""What a training table says about its columns, and any table brought into that form.

In: one table, or lower and upper bounds. Out: numbers ``(N, features)``, NaN where missing, and notes on all that was
found out, left out or not known. The encoder can be written as JSON.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from creinn.data.columns import Category, Column, Date, Features, Number, Seen, learn_column
from creinn.data.numerals import PLAIN, Style, choose_styles, counted, parse, styles, told_apart
from creinn.data.table import Reading, Tables, Texts, check_bounds, check_rows, check_same_texts

Names = Collection[str]
Notes = list[str]

_MOST_CLASSES, _MOST_NUMBERS = 1000, 50  # of a target
_FEW_ROWS = 5  # numbers in fewer rows than that look like quantities


@dataclass(frozen=True)
class TableEncoder:
    """Columns of a training table, in order.

    Example:
        >>> encoder = TableEncoder("y", (Number("age", 40.0, 10.0), Category("sex", ("f", "m"))))
        >>> encoder.widths
        [1, 2]
    """

    target: str  # the column of classes
    columns: tuple[Column, ...]  # all that become features
    ignored: tuple[str, ...] = ()  # those that do not: dropped on request, constant, or empty

    @classmethod
    def fit(
        cls,
        tables: Tables,
        target: str,
        drop: Names = (),
        categorical: Names = (),
        max_categories: int = 100,
    ) -> tuple["TableEncoder", Notes]:
        """Learn all columns but the target and those to drop, of a pair from both bounds together; also gives notes.

        Numbers and dates in ``categorical`` columns are categories; beyond ``max_categories``, rare ones become one.

        Raises:
            ValueError: If a column is missing or mixed, the tables of a pair do not fit, or no column is left.
        """
        _check_pair(tables)
        first = tables[0]
        for name in (target, *drop, *categorical):
            first.check_column(name)
        if max_categories < 2:
            raise ValueError(
                f"A column needs at least 2 categories, but at most {max_categories} are asked for."
            )
        notes = [note for table in tables for note in table.notes]
        columns: list[Column] = []
        ignored = [name for name in first.columns if name in drop]
        used = [name for name in first.columns if name != target and name not in drop]
        candidates = styles(first.reading.separator, first.reading.decimal, first.reading.thousands)
        written: dict[Style, tuple[str, list[str]]] = {}
        for name, style in zip(
            used, choose_styles(map(first.cells, used), candidates), strict=True
        ):
            column, remarks = learn_column(tables, name, name in categorical, style, max_categories)
            if isinstance(column, Number) and (example := told_apart(first.cells(name), style)):
                written.setdefault(style, (example, []))[1].append(name)
            if remarks:
                notes.append(f"{first.name}, column {name!r}: {'; '.join(remarks)}")
            if column is None:
                ignored.append(name)
            else:
                columns.append(column)
        notes += [
            f"{first.name}, {example} ({', '.join(names)})" for example, names in written.values()
        ]
        if not columns:
            raise ValueError(
                f"{first.name} has no column to learn from besides the target {target!r}."
            )
        return cls(target, tuple(columns), tuple(ignored)), notes

    @property
    def widths(self) -> list[int]:
        """Number of features of each column."""
        return [column.width for column in self.columns]

    def plain_numbers(self, reading: Reading) -> set[str]:
        """Columns of numbers that are written as pandas reads them."""
        return {
            c.name
            for c in self.columns
            if isinstance(c, Number) and reading.style(c.style) == PLAIN
        }

    def encode(
        self, tables: Tables, seen: dict[str, Seen] | None = None
    ) -> tuple[list[Features], Notes]:
        """One table, or lower and upper, as numbers ``(N, features)``, NaN where a cell is missing; and notes.

        With what was ``seen`` in the chunks before, which is changed, the notes are on all of them.

        Raises:
            ValueError: If a column is missing, a cell not of its kind or far beyond all others, or a pair does not fit.
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
        features = [np.concatenate(part, axis=1) for part in parts]
        for table, numbers in zip(tables, features, strict=True):
            for row in np.flatnonzero(np.isinf(numbers).any(1)):
                where = f"{table.name} {table.row(row)}"
                raise ValueError(f"{where} holds a number far beyond those of the training table.")
        notes = [note for table in tables for note in table.notes]
        seen = {} if seen is None else seen
        for column, part in zip(self.columns, parts[0], strict=True):
            counts = seen.setdefault(column.name, Seen())
            counts.count(column, first, part)
            notes += [
                f"{first.name}, column {column.name!r}: {remark}"
                for remark in counts.remarks(column)
            ]
        used = {self.target, *self.ignored, *(column.name for column in self.columns)}
        if unused := [name for name in first.columns if name not in used]:
            notes.append(
                f"{first.name}: not used, for the training table has no such column: {', '.join(unused)}"
            )
        return features, notes

    def labels(self, tables: Tables) -> Texts:
        """Classes ``(N,)`` of one table, or of a pair, whose classes must agree; none may be missing."""
        check_same_texts(tables, self.target)
        texts = tables[0].texts(self.target)
        for row in np.flatnonzero(pd.isna(texts)):
            advice = "Fill it in, or drop the row; if it is no missing value, name the marks of such (--missing)."
            raise ValueError(f"{tables[0].at(row, self.target)}: the class is missing. {advice}")
        return texts

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for a saved model."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]
        return json.loads(
            json.dumps({"target": self.target, "columns": columns, "ignored": self.ignored})
        )

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "TableEncoder":
        """The encoder that :meth:`to_json` wrote; a record of another form is refused."""
        kinds: dict[Any, Any] = {kind.kind: kind for kind in (Number, Category, Date)}
        columns = []
        try:
            for entry in record["columns"]:
                values = {
                    key: tuple(value) if isinstance(value, list) else value
                    for key, value in entry.items()
                }
                columns.append(kinds[values.pop("kind")](**values))
            return cls(str(record["target"]), tuple(columns), tuple(record["ignored"]))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"The columns of a table cannot be read from the saved model: {error!r}."
            ) from error


def _check_pair(tables: Tables) -> None:
    """Refuse tables that do not belong together: other columns, another number of rows."""
    lower, upper = tables[0], tables[-1]
    check_rows([lower.name, upper.name], [len(lower), len(upper)])
    for has, lacks in ((lower, upper), (upper, lower)):
        for column in has.frame.columns.difference(lacks.frame.columns, sort=False):
            raise ValueError(f"{has.name} has a column {column!r}, but {lacks.name} has not.")


def classes_of(labels: Texts, target: str = "", most: int | None = None) -> list[str]:
    """The different labels, sorted; by value if all are numbers.

    Raises:
        ValueError: If there are more than ``most``; by default 1000, or 50 numbers most of which are in under 5 rows.

    Example:
        >>> classes_of(np.array(["10", "9", "10"], dtype=object))
        ['9', '10']
    """
    names, counts = np.unique(labels.astype(str), return_counts=True)
    found = names.tolist()
    values, is_number = parse(found)
    quantity = is_number.all() and len(found) > _MOST_NUMBERS and np.median(counts) < _FEW_ROWS
    what, advice = f"The target {target!r} has {len(found)}", f"say --max-classes {len(found)}."
    if most is None and quantity:
        advice = (
            f"Was regression meant? Here each number is a class: make ranges of them, or {advice}"
        )
        raise ValueError(f"{what} different numbers in {counted(len(labels), 'row')}. {advice}")
    if len(found) > (limit := most or _MOST_CLASSES):
        raise ValueError(f"{what} classes, more than {limit}. If it is the right column, {advice}")
    return [found[i] for i in np.argsort(values, kind="stable")] if is_number.all() else found
