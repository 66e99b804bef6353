"""Tables of texts and numbers, number formats, and checks of lower and upper bounds.

The messages name the options of :class:`Reading` and of the encoder as keywords, such as
``missing=``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from creinn.numerics import pluralize

Floats = npt.NDArray[np.float64]
Texts = npt.NDArray[np.object_]

MARKS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-")
"""The default marks of missing values. Empty cells are always missing."""
UNIT = re.compile(r"[€$£¥]\s*[+-]?\d[\d.,' ]*|[+-]?\d[\d.,' ]*\s*[€$£¥%]")
UNIT_ADVICE = "Convert such cells to numbers: '4.1%' to 4.1, '12.30 €' to 12.30."
_INTEGER = re.compile(r"^([+-]?\d+)\.0+$")  # an integer in a column with missing values
_DECIMAL = (".", ",")
_THOUSANDS = ("none", ".", ",", "'", " ")
_SAMPLE = 1000  # distinct texts of a column that are used to detect the number format


class NumberFormat(NamedTuple):
    """The decimal mark and the thousands separator, or ``"none"``."""

    decimal: str = "."
    thousands: str = "none"


PLAIN = NumberFormat()


@dataclass(frozen=True)
class Reading:
    """Options for reading tables. The value ``auto`` is detected."""

    missing: tuple[str, ...] = ("auto",)  # marks of missing values; auto means MARKS
    separator: str = "auto"  # the character between cells; \t is a tab
    decimal: str = "auto"  # the decimal mark
    thousands: str = "auto"  # the thousands separator, or "none"
    encoding: str = "auto"  # the name of the encoding in Python
    comment: str = ""  # the character that starts a comment
    dayfirst: bool | None = None  # whether the day of 03/04/2021 is the third

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of missing values."""
        return tuple(m for mark in self.missing for m in (MARKS if mark == "auto" else (mark,)))

    @property
    def number_format(self) -> NumberFormat:
        """The format of numbers, which is plain if it is ``auto``."""
        plain = self.with_format(PLAIN)
        return NumberFormat(plain.decimal, plain.thousands)

    def with_format(self, form: NumberFormat) -> "Reading":
        """Return the options with the marks of a format in place of ``auto``."""
        marks = form._asdict().items()
        return replace(self, **{k: mark for k, mark in marks if getattr(self, k) == "auto"})

    def formats(self) -> list[NumberFormat]:
        """Return the possible formats of numbers, sorted by likelihood."""
        for option, marks in (("decimal", _DECIMAL), ("thousands", _THOUSANDS)):
            mark = getattr(self, option)
            if mark not in ("auto", *marks):
                raise ValueError(f"{option}= must be auto or one of {marks}, got {mark!r}.")
        if self.decimal == self.thousands != "auto":
            raise ValueError(f"decimal= and thousands= must differ, but both are {self.decimal!r}.")
        decimals = _DECIMAL if self.separator == "," else _DECIMAL[::-1]
        forms = [NumberFormat(d, t) for d in decimals for t in _THOUSANDS if d != t]
        return [
            form
            for form in (PLAIN, *forms)
            if self.decimal in ("auto", form.decimal) and self.thousands in ("auto", form.thousands)
        ]


AUTO = Reading()


@dataclass(frozen=True, eq=False)
class Table:
    """A table with named columns.

    A missing cell is ``None`` or NaN, and the index is the row number.
    """

    name: str  # the name of the file in messages
    frame: pd.DataFrame
    reading: Reading = Reading(separator=",")  # with the detected separator
    notes: tuple[str, ...] = ()  # what was detected or omitted by the reader
    share: float = 1.0  # the fraction of the file that has been read

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order of the file."""
        return list(self.frame.columns)

    def cells(self, column: str) -> pd.Series:
        """Return the cells as texts or numbers. Missing cells are ``None`` or NaN."""
        self.check_column(column)
        cells, marks = self.frame[column], np.array(self.reading.marks, dtype=object)
        if is_numeric(cells):
            marks = parse_numbers(marks)
            marks = marks[np.isfinite(marks)]
        elif cells.dtype != object:  # booleans, dates, categories
            cells = cells.astype(str).astype(object).where(cells.notna(), None)
        return cells.mask(cells.isin(marks), None) if len(marks) else cells

    def count_missing(self, column: str) -> pd.Series:
        """Count the cells with each mark; empty cells are counted as ``"empty"``."""
        cells = self.frame[column].astype(object)
        marks = cells[cells.isna() | cells.isin(self.reading.marks)]
        return marks.where(marks.notna(), "empty").value_counts()

    def texts(self, column: str) -> Texts:
        """Return the cells as texts, and ``None`` for missing cells.

        The number 1.0 becomes ``"1"``.
        """
        codes, found = pd.factorize(self.cells(column))
        texts = [*(_INTEGER.sub(r"\1", str(text)) for text in found), None]
        return np.array(texts, dtype=object)[codes]

    def numbers(self, column: str) -> Floats:
        """Return the cells as numbers, where a missing cell is NaN."""
        cells, form = self.cells(column), self.reading.number_format
        values = parse_numbers(cells, form)
        wrong = ~np.isfinite(values) & cells.notna().to_numpy()
        if not wrong.any():
            return values
        texts, advice = cells[wrong].astype(str), ""
        other = "," if form.decimal == "." else "."
        if any(map(UNIT.fullmatch, texts)):
            advice = f" {UNIT_ADVICE}"
        elif np.isfinite(parse_numbers(texts, NumberFormat(other))).any():
            advice = f" The numbers were read with decimal={form.decimal!r}; try decimal={other!r}."
        raise ValueError(
            f"{self.at(wrong.argmax(), column)}: {texts.iloc[0]!r} is not a finite number. "
            f"{pluralize(len(texts), 'cell')} of {cells.count()} are not: "
            f"{list_counts(texts.value_counts())}.{advice} Pass missing= with these texts if they "
            f"mark missing values, or categorical={column!r} in training if they are categories."
        )

    def row(self, row: int | np.integer[Any]) -> str:
        """Return the number of a row for messages. The first row is 1."""
        return f"row {self.frame.index[row] + 1}"

    def at(self, row: int | np.integer[Any], column: str) -> str:
        """Return the name of a cell for messages."""
        return f"{self.name} {self.row(row)}, column {column!r}"

    def check_column(self, column: str) -> None:
        """Raise a ``ValueError`` if the column does not exist."""
        if column not in self.frame:
            known = ", ".join(map(str, self.columns))
            raise ValueError(f"{self.name} has no column {column!r}; its columns are {known}.")


Tables = Sequence[Table]  # one table, or the lower and upper bounds of the same rows


def is_numeric(cells: pd.Series) -> bool:
    """Return whether the type of a column is numeric, and not boolean."""
    return pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells)


def parse_numbers(cells: Any, form: NumberFormat = PLAIN) -> Floats:
    """Convert texts in a given format to numbers, where other texts are NaN.

    Example:
        >>> parse_numbers(["1.234,5", "12.34"], NumberFormat(",", "."))
        array([1234.5,    nan])
    """
    if isinstance(cells, pd.Series) and is_numeric(cells):
        return cells.to_numpy(dtype=np.float64, na_value=np.nan)
    texts = pd.Series(cells, dtype=object)
    if form != PLAIN:
        decimal, thousands = map(re.escape, form)
        texts = texts.str.replace("[\u00a0\u202f]", " ", regex=True)
        groups = "" if form.thousands == "none" else rf"|\d{{1,3}}(?:{thousands}\d{{3}})+"
        number = rf"[+-]?(?:\d+{groups})?(?:{decimal}\d*)?(?:[eE][+-]?\d+)?"
        texts = texts.where(texts.str.fullmatch(number, na=False).astype(bool))
        texts = texts.str.replace(form.thousands, "", regex=False)
        texts = texts.str.replace(form.decimal, ".", regex=False)
    return pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)


def detect_format(columns: Sequence[pd.Series], reading: Reading) -> NumberFormat:
    """Return the format that fits all cells of the most columns."""
    samples = [column.dropna().drop_duplicates().head(_SAMPLE) for column in columns]

    def fit(form: NumberFormat) -> tuple[int, float]:
        shares = [np.isfinite(parse_numbers(s, form)).mean() for s in samples if len(s)]
        return shares.count(1), sum(shares)

    return max(reading.formats(), key=fit)


def describe_format(cells: pd.Series, form: NumberFormat) -> str:
    """Describe a format with an example, or return "" if all cells are plain numbers."""
    texts = cells.dropna().drop_duplicates()
    values = parse_numbers(texts, form)
    differ = values != parse_numbers(texts)
    if not differ.any():
        return ""
    between = "" if form.thousands == "none" else f" and {form.thousands!r} between thousands"
    example = f"{texts[differ].iloc[0]!r} is {values[differ][0]:.10g}"
    return f"numbers have {form.decimal!r} before decimals{between}: {example}"


def list_counts(counts: pd.Series) -> str:
    """Return the texts in the index with their counts, and at most 50 of them.

    Example:
        >>> list_counts(pd.Series(["a", "b", "a"]).value_counts())
        "'a' (2), 'b' (1)"
    """
    shown = [f"{text!r} ({count})" for text, count in counts.head(50).items()]
    return ", ".join([*shown, *([f"{len(counts) - 50} more"] if len(counts) > 50 else [])])


def check_pair(tables: Tables) -> None:
    """Raise a ``ValueError`` if two tables differ in columns or number of rows."""
    lower, upper = tables[0], tables[-1]
    if len(lower) != len(upper):
        found = f"{lower.name} and {upper.name} have different numbers of rows"
        raise ValueError(f"{found}. Each row must have both bounds.")
    for column in set(lower.columns) ^ set(upper.columns):
        upper.check_column(column)
        lower.check_column(column)


def check_cells(tables: Tables, column: str, is_number: bool = False) -> None:
    """Raise a ``ValueError`` if two tables have reversed numbers or other texts in a column."""
    lower = tables[0]
    for upper in tables[1:]:
        low: npt.NDArray[Any]
        high: npt.NDArray[Any]
        if is_number:
            low, high = lower.numbers(column), upper.numbers(column)
            is_wrong = (low > high) | (np.isnan(low) != np.isnan(high))
        else:
            low, high = lower.texts(column), upper.texts(column)
            is_wrong = low != high
        for row in np.flatnonzero(is_wrong):
            found = f"{lower.at(row, column)} is {low[row]}, but {high[row]} in {upper.name}"
            rule = "must not exceed the upper bound or be missing" if is_number else "must be equal"
            raise ValueError(f"{found}. The cell {rule}.")
