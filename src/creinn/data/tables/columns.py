"""How one column of a table becomes numbers: standardised, one indicator per category, or the parts of a date.

In: a table. Out: an array ``(N, width)`` in single precision, NaN where a cell is missing. A column is a plain record
that can be written as JSON.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from creinn.data.tables.numerals import Floats, Style
from creinn.data.tables.table import Table

Features = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Number:
    """A column of numbers, shifted and scaled as ``(x - mean) / scale``.

    Args:
        name: Of the column.
        mean: Of the training table.
        scale: Standard deviation in the training table.
        decimal: Sign before the decimals.
        thousands: Sign between thousands; empty if there is none.
    """

    name: str
    mean: float
    scale: float
    decimal: str = "."
    thousands: str = ""

    @property
    def width(self) -> int:
        """Number of features."""
        return 1

    @property
    def style(self) -> Style:
        """How the numbers are written."""
        return Style(self.decimal, self.thousands)

    def encode(self, table: Table) -> Features:
        """One feature ``(N, 1)``; the map keeps order.

        Raises:
            ValueError: If a cell is not a finite number.
        """
        with np.errstate(over="ignore"):
            return ((table.numbers(self.name, self.style) - self.mean) / self.scale).astype(np.float32)[:, None]


@dataclass(frozen=True)
class Category:
    """A column of categories, one feature for each, and perhaps one for all rare ones together.

    Args:
        name: Of the column.
        categories: Those of the training table that have a feature.
        other: Whether there is a feature for all others.
    """

    name: str
    categories: tuple[str, ...]
    other: bool = False

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.categories) + self.other

    def encode(self, table: Table) -> Features:
        """Indicators ``(N, width)``; for a category without a feature the one for others, or else all 0."""
        texts = table.texts(self.name, self.categories)
        codes = pd.Index(self.categories, dtype=object).get_indexer(texts)
        features = np.zeros((len(texts), self.width), np.float32)
        known = np.flatnonzero(codes >= 0)
        features[known, codes[known]] = 1
        if self.other:
            features[codes < 0, -1] = 1
        features[pd.isna(texts)] = np.nan
        return features

    def unknown(self, table: Table) -> str:
        """A remark on categories without a feature; empty if there are none, or if there is a feature for them."""
        texts = table.texts(self.name, self.categories)
        rows = np.flatnonzero(~pd.isna(texts) & ~np.isin(texts.astype(str), self.categories))
        if self.other or not len(rows):
            return ""
        return (
            f"{counted(len(rows), 'value')} not seen in training, first {texts[rows[0]]!r} in row {rows[0] + 1}; "
            f"taken for none of the {len(self.categories)} known ones"
        )


@dataclass(frozen=True)
class Date:
    """A column of dates: year, month, day of the week and days since the first one, each shifted and scaled.

    Args:
        name: Of the column.
        form: How dates are written, as :func:`pandas.to_datetime` takes it.
        first: The first of the training table.
        means: Of the four numbers in the training table.
        scales: Their standard deviations.
    """

    name: str
    form: str
    first: str
    means: tuple[float, ...]
    scales: tuple[float, ...]

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.means)

    def encode(self, table: Table) -> Features:
        """Features ``(N, 4)``.

        Raises:
            ValueError: If a cell is not a date.
        """
        parts = date_parts(table.dates(self.name, self.form), self.first)
        return ((parts - np.array(self.means)) / np.array(self.scales)).astype(np.float32)


def date_parts(times: pd.Series, first: str) -> Floats:
    """Year, month, day of the week and days since ``first``, ``(N, 4)``."""
    when = times.dt
    days = (times - pd.Timestamp(first)) / pd.Timedelta(days=1)
    return np.stack([part.to_numpy(np.float64) for part in (when.year, when.month, when.day_of_week, days)], 1)


Column = Number | Category | Date
_KINDS: dict[str, Any] = {"number": Number, "category": Category, "date": Date}


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


def missing_note(missing: int) -> str:
    """A remark on missing values."""
    return f"{counted(missing, 'missing value')}, for which values of the training table are tried"
