"""What a training table says about its columns, and any table brought into that form.

In: one table, or two that are lower and upper bounds. Out: numbers ``(N, features)``, and notes on all that was filled
in, left out or not known. The encoder can be written as JSON and read back; it holds no code.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from creinn.tables.columns import Category, Column, Number, column_from_json, column_to_json
from creinn.tables.learn import learn_column
from creinn.tables.pair import check_bounds, check_pair, check_same_texts
from creinn.tables.table import Floats, Table, Texts, parse

Notes = list[str]


@dataclass(frozen=True)
class TableEncoder:
    """Columns of a training table, in order.

    Args:
        target: The column of classes.
        columns: All columns that become features.
        ignored: Columns that do not: dropped on request, constant, or empty.

    Example:
        >>> encoder = TableEncoder("y", (Number("age", 40.0, 40.0, 10.0), Category("sex", "f", ("f", "m"))))
        >>> encoder.num_features
        3
    """

    target: str
    columns: tuple[Column, ...]
    ignored: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls, tables: Sequence[Table], target: str, drop: Collection[str] = (), categorical: Collection[str] = ()
    ) -> tuple["TableEncoder", Notes]:
        """Learn the columns of one training table, or of two that are lower and upper bounds; also gives notes.

        A column whose values are all numbers is numeric, one without a number is categorical. Medians, means and
        deviations of a pair are those of both bounds together.

        Args:
            tables: One table, or lower and upper.
            target: The column of classes.
            drop: Columns to leave out.
            categorical: Columns whose numbers are categories.

        Raises:
            ValueError: If a column is missing, numbers and other texts are mixed in one, tables of a pair do not belong
                together, or no column is left.
        """
        first = tables[0]
        if len(tables) == 2:
            check_pair(tables[0], tables[1])
        for name in (target, *drop, *categorical):
            first.check_column(name)
        notes: Notes = []
        columns: list[Column] = []
        ignored = [name for name in first.columns if name in drop]
        for name in first.columns:
            if name == target or name in drop:
                continue
            column, remark = learn_column(tables, name, name in categorical)
            if remark:
                notes.append(f"{first.name}, column {name!r}: {remark}")
            if column is None:
                ignored.append(name)
            else:
                columns.append(column)
        if not columns:
            raise ValueError(f"{first.name} has no column to learn from besides the target {target!r}.")
        return cls(target, tuple(columns), tuple(ignored)), notes

    @property
    def num_features(self) -> int:
        """Length of a row of numbers."""
        return sum(column.width for column in self.columns)

    def encode(self, table: Table) -> tuple[Floats, Notes]:
        """A table as numbers ``(N, features)``, and notes.

        Raises:
            ValueError: If a column is missing, or a cell of a numeric one is not a number.
        """
        self._check_columns(table)
        return np.concatenate([column.encode(table) for column in self.columns], axis=1), self._notes(table)

    def encode_pair(self, lower: Table, upper: Table) -> tuple[Floats, Floats, Notes]:
        """Lower and upper bounds as numbers, ``lower <= upper``, and notes.

        Raises:
            ValueError: As :meth:`encode`; or if the tables do not belong together, bounds are out of order or one of
                them is missing, or categories differ.
        """
        check_pair(lower, upper)
        self._check_columns(lower)
        for column in self.columns:
            check = check_bounds if isinstance(column, Number) else check_same_texts
            check(lower, upper, column.name)
        low, notes = self.encode(lower)
        high, _ = self.encode(upper)
        return low, high, notes

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
                raise ValueError(f"{where}: the class is missing. Fill it in, or drop the row.")
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

    def _notes(self, table: Table) -> Notes:
        notes: Notes = []
        for column in self.columns:
            where = f"{table.name}, column {column.name!r}"
            if missing := int(table.frame[column.name].isna().sum()):
                notes.append(f"{where}: {column.filled(missing)}")
            if isinstance(column, Category) and (remark := column.unknown(table)):
                notes.append(f"{where}: {remark}")
        used = {self.target, *self.ignored, *(column.name for column in self.columns)}
        unused = [name for name in table.columns if name not in used]
        if unused:
            notes.append(f"{table.name}: not used, for the training table has no such column: {', '.join(unused)}")
        return notes


def classes_of(labels: Texts) -> list[str]:
    """The different labels, sorted; by value if all are numbers.

    Example:
        >>> classes_of(np.array(["10", "9", "10"], dtype=object))
        ['9', '10']
    """
    found = sorted(set(labels))
    values, is_number = parse(found)
    return [found[i] for i in np.argsort(values, kind="stable")] if is_number.all() else found
