"""Tables of texts and numbers, and checks of their cells."""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from creinn.data.features import Array
from creinn.numerics import shorten_list

MARKS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-")
"""Default marks of missing values; empty cells are always missing."""
_INTEGER = re.compile(r"^([+-]?\d+)\.0+$")  # in a column with missing values
_SWAP = str.maketrans(".,", ",.")


@dataclass(frozen=True)
class Reading:
    """Options for reading tables; ``auto`` detects the value."""

    missing: tuple[str, ...] = ("auto",)  # auto means MARKS
    separator: str = "auto"  # \t is a tab
    decimal: str = "auto"
    encoding: str = "auto"
    comment: str = ""  # first character of comments
    dayfirst: bool | None = None  # whether 03/04/2021 is in April

    def __post_init__(self) -> None:
        if self.decimal not in ("auto", ".", ","):
            raise ValueError(f"decimal= must be '.', ',' or auto, got {self.decimal!r}.")
        try:
            codecs.lookup("utf-8" if self.encoding == "auto" else self.encoding)
        except LookupError as error:
            raise ValueError(f"encoding= is unknown to Python: {error}.") from error

    @property
    def marks(self) -> tuple[str, ...]:
        """Marks of missing values."""
        return self.complete(".", MARKS).missing

    def complete(self, decimal: str, marks: Sequence[str]) -> "Reading":
        """Replace ``auto`` in ``decimal`` and ``missing``."""
        decimal = decimal if self.decimal == "auto" else self.decimal
        missing = [m for mark in self.missing for m in (marks if mark == "auto" else [mark])]
        return replace(self, decimal=decimal, missing=tuple(missing))


@dataclass(frozen=True, eq=False)
class Table:
    """Table of numbers and texts."""

    name: str  # of the file
    frame: pd.DataFrame  # the index is the row number from 0
    reading: Reading = Reading(separator=",")  # with the detected separator
    notes: tuple[str, ...] = ()  # decisions of the reader
    share: float = 1.0  # fraction of the file that is read

    def __len__(self) -> int:
        return len(self.frame)

    def cells(self, column: str) -> pd.Series:
        """Texts or numbers, or ``None`` or NaN if missing."""
        self.check_column(column)
        cells, marks = self.frame[column], np.array(self.reading.marks, dtype=object)
        if is_numeric(cells):
            marks = parse_numbers(marks)
            marks = marks[np.isfinite(marks)]
        return cells.mask(cells.isin(marks), None) if len(marks) else cells

    def count_missing(self, column: str) -> pd.Series:
        """Count the missing cells by mark, or ``"empty"``."""
        cells = self.frame[column].astype(object)
        marks = cells[cells.isna() | cells.isin(self.reading.marks)]
        return marks.fillna("empty").value_counts()

    def texts(self, column: str) -> Array:
        """Texts, such as ``"1"`` for 1.0, or ``None``."""
        codes, found = pd.factorize(self.cells(column))
        texts = [*(_INTEGER.sub(r"\1", str(text)) for text in found), None]
        return np.array(texts, dtype=object)[codes]

    def numbers(self, column: str) -> Array:
        """Numbers, or NaN if missing."""
        cells, decimal = self.cells(column), self.reading.decimal
        values = parse_numbers(cells, decimal)
        wrong = ~np.isfinite(values) & cells.notna().to_numpy()
        if wrong.any():
            texts, other = cells[wrong].astype(str), "." if decimal == "," else ","
            count = f"{len(texts)} of {cells.count()} cells"
            raise ValueError(
                f"{self.at(wrong.argmax(), column)}: {texts.iloc[0]!r} is not a finite number. "
                f"{count} are not: {list_counts(texts.value_counts())}. Convert units, or pass "
                f"decimal={other!r}, missing= or categorical={column!r}."
            )
        return values

    def row(self, row: Any) -> str:
        """Row number for messages, from 1."""
        return f"row {self.frame.index[row] + 1}"

    def column(self, column: str) -> str:
        """Column name for messages."""
        return f"{self.name}, column {column!r}"

    def at(self, row: Any, column: str) -> str:
        """Cell position for messages."""
        return f"{self.name} {self.row(row)}, column {column!r}"

    def check_column(self, column: str) -> None:
        """Raise a ``ValueError`` if the column is missing."""
        if column not in self.frame:
            known = ", ".join(map(str, self.frame))
            raise ValueError(f"{self.name} has no column {column!r}; its columns are {known}.")


Tables = Sequence[Table]  # one, or lower and upper bounds


def is_numeric(cells: pd.Series) -> bool:
    """Return whether a column is numeric."""
    return pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells)


def as_cells(column: pd.Series) -> pd.Series:
    """Strip cells that are not numbers."""
    if is_numeric(column):
        return column
    texts = column.dropna().astype(str).str.strip().astype(object)
    return texts[texts != ""].reindex(column.index)


def parse_numbers(cells: Any, decimal: str = ".") -> Array:
    """Convert texts to numbers or NaN."""
    if not (isinstance(cells, pd.Series) and is_numeric(cells)):
        cells = pd.Series(cells, dtype=object)
        cells = cells.str.translate(_SWAP) if decimal == "," else cells
        cells = pd.to_numeric(cells, errors="coerce")
    return cells.to_numpy(np.float64, na_value=np.nan)


def detect_decimal(columns: Sequence[pd.Series], reading: Reading) -> str:
    """Return the given decimal mark, or the one that fits most columns."""
    if reading.decimal != "auto" or reading.separator == ",":
        return reading.decimal.replace("auto", ".")
    samples = [column.dropna().drop_duplicates().head(1000) for column in columns]

    def fit(decimal: str) -> tuple[int, float]:
        shares = [np.isfinite(parse_numbers(s, decimal)).mean() for s in samples if len(s)]
        return shares.count(1), sum(shares)

    return max(".,", key=fit)


def list_counts(counts: pd.Series) -> str:
    """List texts with their counts, such as ``'a' (2), 'b' (1)``."""
    return shorten_list([f"{text!r} ({count})" for text, count in counts.items()])


def check_pair(tables: Sequence[Table | None]) -> None:
    """Raise an error if the columns or the numbers of rows differ."""
    lower, upper = tables[0], tables[-1]
    if lower is None or upper is None or len(lower) != len(upper):
        raise ValueError("Lower and upper bounds have different numbers of rows.")
    for column in lower.frame.columns.symmetric_difference(upper.frame.columns):
        upper.check_column(column)
        lower.check_column(column)


def check_cells(tables: Tables, column: str, is_number: bool = False) -> None:
    """Raise an error if bounds are reversed or texts differ."""
    lower = tables[0]
    for upper in tables[1:]:
        if is_number:
            low, high = lower.numbers(column), upper.numbers(column)
            is_wrong = (low > high) | (np.isnan(low) != np.isnan(high))
        else:
            low, high = lower.texts(column), upper.texts(column)
            is_wrong = low != high
        for row in np.flatnonzero(is_wrong):
            rule = "not exceed the upper bound" if is_number else "be equal"
            found = f"{lower.at(row, column)} is {low[row]}, but {high[row]} in {upper.name}"
            raise ValueError(f"{found}. The cells must {rule}, or both be missing.")
