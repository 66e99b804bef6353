"""How one column of a table becomes numbers: standardised, or one indicator per category.

In: a table. Out: an array ``(N, width)``. A column is a plain record that can be written as JSON.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from creinn.tables.table import Floats, Table


@dataclass(frozen=True)
class Number:
    """A column of numbers, shifted and scaled as ``(x - mean) / scale``.

    Args:
        name: Of the column.
        fill: What a missing value is taken for: the median of the training table.
        mean: Of the training table.
        scale: Standard deviation in the training table.
    """

    name: str
    fill: float
    mean: float
    scale: float

    @property
    def width(self) -> int:
        """Number of features."""
        return 1

    def encode(self, table: Table) -> Floats:
        """One feature ``(N, 1)``; the map keeps order.

        Raises:
            ValueError: If a cell is not a finite number.
        """
        values = table.numbers(self.name)
        return ((np.where(np.isnan(values), self.fill, values) - self.mean) / self.scale)[:, None]

    def filled(self, missing: int) -> str:
        """A remark on missing values."""
        return f"{counted(missing, 'missing value')} taken for the median {self.fill:g}"


@dataclass(frozen=True)
class Category:
    """A column of categories, one feature for each that the training table has.

    Args:
        name: Of the column.
        fill: What a missing value is taken for: the most frequent category of the training table.
        categories: Those of the training table.
    """

    name: str
    fill: str
    categories: tuple[str, ...]

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.categories)

    def encode(self, table: Table) -> Floats:
        """Indicators ``(N, categories)``; all 0 for a category that the training table does not have."""
        filled = np.array([self.fill if text is None else text for text in table.texts(self.name)], dtype=object)
        return (filled[:, None] == np.array(self.categories, dtype=object)).astype(np.float64)

    def filled(self, missing: int) -> str:
        """A remark on missing values."""
        return f"{counted(missing, 'missing value')} taken for the most frequent, {self.fill!r}"

    def unknown(self, table: Table) -> str:
        """A remark on categories that the training table does not have; empty if there are none."""
        known = {None, *self.categories}
        texts = table.texts(self.name)
        rows = [row for row, text in enumerate(texts) if text not in known]
        if not rows:
            return ""
        return (
            f"{counted(len(rows), 'value')} not seen in training, first {texts[rows[0]]!r} in row {rows[0] + 1}; "
            f"taken for none of the {len(self.categories)} known ones"
        )


Column = Number | Category
_KINDS: dict[str, Any] = {"number": Number, "category": Category}


def column_to_json(column: Column) -> dict[str, Any]:
    """A column as plain JSON."""
    kind = next(kind for kind, class_ in _KINDS.items() if isinstance(column, class_))
    return {"kind": kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in asdict(column).items()}}


def column_from_json(record: dict[str, Any]) -> Column:
    """The column that :func:`column_to_json` wrote.

    Raises:
        ValueError: If the record is of another form.
    """
    entries = dict(record)
    kind = entries.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"Unknown kind of column {kind!r} in the saved model.")
    try:
        return _KINDS[kind](**{k: tuple(v) if isinstance(v, list) else v for k, v in entries.items()})
    except TypeError as error:
        raise ValueError(f"A column of the saved model cannot be read: {error}.") from error


def counted(number: int, noun: str) -> str:
    """A number with its noun in singular or plural.

    Example:
        >>> counted(1, "row"), counted(2, "row")
        ('1 row', '2 rows')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
