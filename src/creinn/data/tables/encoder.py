"""What a training table says about its columns, and any table brought into that form.

In: one table, or two that are lower and upper bounds. Out: numbers ``(N, features)``, NaN where missing, and notes on
all that was found out, left out or not known. The encoder can be written as JSON and read back; it holds no code.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from creinn.data.tables.columns import (
    Category,
    Column,
    Features,
    Number,
    column_from_json,
    column_to_json,
    counted,
    missing_note,
)
from creinn.data.tables.learn import MAX_CATEGORIES, learn_column
from creinn.data.tables.numerals import Style, choose_styles, parse, styles, told_apart
from creinn.data.tables.pair import check_bounds, check_pair, check_same_texts
from creinn.data.tables.table import Table, Texts

Notes = list[str]

MOST_CLASSES, MOST_NUMBERS, FEW_ROWS = 1000, 50, 5  # of a target; numbers in fewer rows than that look like quantities


@dataclass(frozen=True)
class TableEncoder:
    """Columns of a training table, in order.

    Args:
        target: The column of classes.
        columns: All columns that become features.
        ignored: Columns that do not: dropped on request, constant, or empty.

    Example:
        >>> encoder = TableEncoder("y", (Number("age", 40.0, 10.0), Category("sex", ("f", "m"))))
        >>> encoder.num_features
        3
    """

    target: str
    columns: tuple[Column, ...]
    ignored: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls,
        tables: Sequence[Table],
        target: str,
        drop: Collection[str] = (),
        categorical: Collection[str] = (),
        max_categories: int = MAX_CATEGORIES,
    ) -> tuple["TableEncoder", Notes]:
        """Learn the columns of one training table, or of two that are lower and upper bounds; also gives notes.

        A column whose values are all numbers is numeric, one of dates is a date, another without a number is
        categorical. Means and deviations of a pair are those of both bounds together.

        Args:
            tables: One table, or lower and upper.
            target: The column of classes.
            drop: Columns to leave out.
            categorical: Columns whose numbers or dates are categories.
            max_categories: Of a column; rare ones beyond that number become one.

        Raises:
            ValueError: If a column is missing, numbers and other texts are mixed in one, tables of a pair do not belong
                together, or no column is left.
        """
        first = tables[0]
        if len(tables) == 2:
            check_pair(tables[0], tables[1])
        for name in (target, *drop, *categorical):
            first.check_column(name)
        if max_categories < 2:
            raise ValueError(f"A column needs at least 2 categories, but at most {max_categories} are asked for.")
        notes = [note for table in tables for note in table.notes]
        columns: list[Column] = []
        ignored = [name for name in first.columns if name in drop]
        used = [name for name in first.columns if name != target and name not in drop]
        reading = first.reading
        candidates = styles(reading.separator, reading.decimal, reading.thousands)
        written: dict[Style, tuple[str, list[str]]] = {}
        for name, style in zip(used, choose_styles(map(first.cells, used), candidates), strict=True):
            column, remark = learn_column(tables, name, name in categorical, style, max_categories)
            if isinstance(column, Number) and (example := told_apart(first.cells(name), style)):
                written.setdefault(style, (example, []))[1].append(name)
            if remark:
                notes.append(f"{first.name}, column {name!r}: {remark}")
            if column is None:
                ignored.append(name)
            else:
                columns.append(column)
        notes += [f"{first.name}, {example} ({', '.join(names)})" for example, names in written.values()]
        if not columns:
            raise ValueError(f"{first.name} has no column to learn from besides the target {target!r}.")
        return cls(target, tuple(columns), tuple(ignored)), notes

    @property
    def num_features(self) -> int:
        """Length of a row of numbers."""
        return sum(column.width for column in self.columns)

    @property
    def widths(self) -> list[int]:
        """Number of features of each column."""
        return [column.width for column in self.columns]

    def encode(self, table: Table) -> tuple[Features, Notes]:
        """A table as numbers ``(N, features)``, NaN where a cell is missing, and notes.

        Raises:
            ValueError: If a column is missing, or a cell of a numeric one is not a number, or far beyond all others.
        """
        self._check_columns(table)
        features = np.concatenate([column.encode(table) for column in self.columns], axis=1)
        beyond = np.isinf(features).any(1)
        if beyond.any():
            row = int(beyond.argmax())
            raise ValueError(f"{table.name} row {row + 1} holds a number far beyond those of the training table.")
        return features, self._notes(table, features)

    def encode_pair(self, lower: Table, upper: Table) -> tuple[Features, Features, Notes]:
        """Lower and upper bounds as numbers, ``lower <= upper``, and notes.

        Raises:
            ValueError: As :meth:`encode`; or if the tables do not belong together, bounds are out of order or one of
                them is missing, or categories differ.
        """
        check_pair(lower, upper)
        self._check_columns(lower)
        for column in self.columns:
            if isinstance(column, Number):
                check_bounds(lower, upper, column.name, column.style)
            else:
                check_same_texts(lower, upper, column.name)
        low, notes = self.encode(lower)
        high, _ = self.encode(upper)
        return low, high, [*notes, *upper.notes]

    def labels(self, tables: Sequence[Table]) -> Texts:
        """Classes ``(N,)`` of one table, or of a pair, whose classes must agree.

        Raises:
            ValueError: If there is no target column, a class is missing, or classes of a pair differ.
        """
        if len(tables) == 2:
            check_same_texts(tables[0], tables[1], self.target)
        texts = tables[0].texts(self.target)
        for row, text in enumerate(texts):
            if text is None:
                where = tables[0].at(row, self.target)
                raise ValueError(
                    f"{where}: the class is missing. Fill it in, or drop the row; name the marks of missing values "
                    f"(--missing) if it is one by mistake."
                )
        return texts

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for a saved model."""
        return {
            "target": self.target,
            "columns": [column_to_json(column) for column in self.columns],
            "ignored": list(self.ignored),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "TableEncoder":
        """The encoder that :meth:`to_json` wrote.

        Raises:
            ValueError: If the record is of another form.
        """
        try:
            columns = tuple(column_from_json(entry) for entry in record["columns"])
            return cls(str(record["target"]), columns, tuple(record["ignored"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"The columns of a table cannot be read from the saved model: {error!r}.") from error

    def _check_columns(self, table: Table) -> None:
        for column in self.columns:
            if column.name not in table.frame:
                raise ValueError(
                    f"{table.name} has no column {column.name!r}, which the model was trained with; "
                    f"its columns are {', '.join(table.columns)}."
                )

    def _notes(self, table: Table, features: Features) -> Notes:
        notes: Notes = list(table.notes)
        at = 0
        for column in self.columns:
            where = f"{table.name}, column {column.name!r}"
            if missing := int(np.isnan(features[:, at]).sum()):
                notes.append(f"{where}: {missing_note(missing)}")
            if isinstance(column, Category) and (remark := column.unknown(table)):
                notes.append(f"{where}: {remark}")
            at += column.width
        used = {self.target, *self.ignored, *(column.name for column in self.columns)}
        unused = [name for name in table.columns if name not in used]
        if unused:
            notes.append(f"{table.name}: not used, for the training table has no such column: {', '.join(unused)}")
        return notes


def classes_of(labels: Texts, target: str = "", most: int | None = None) -> list[str]:
    """The different labels, sorted; by value if all are numbers.

    Args:
        labels: One per row.
        target: Name of their column, for messages.
        most: Number of classes to allow; by default 1000, or 50 numbers most of which are in fewer than 5 rows.

    Raises:
        ValueError: If there are more.

    Example:
        >>> classes_of(np.array(["10", "9", "10"], dtype=object))
        ['9', '10']
    """
    names, counts = np.unique(labels.astype(str), return_counts=True)
    found = names.tolist()
    values, is_number = parse(found)
    quantity = bool(is_number.all()) and len(found) > MOST_NUMBERS and np.median(counts) < FEW_ROWS
    if most is None and quantity:
        raise ValueError(
            f"The target {target!r} has {len(found)} different numbers in {counted(len(labels), 'row')}. Was "
            f"regression meant? Here each number is a class: make ranges of them, or say --max-classes {len(found)}."
        )
    if len(found) > (most or MOST_CLASSES):
        raise ValueError(
            f"The target {target!r} has {len(found)} classes, more than {most or MOST_CLASSES}. If it is the right "
            f"column, say --max-classes {len(found)}."
        )
    return [found[i] for i in np.argsort(values, kind="stable")] if is_number.all() else found
