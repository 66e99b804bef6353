"""Tables of texts, numbers and dates, formats of numbers, and checks of bounds.

The messages name the options of :class:`Reading` and of the encoder as keywords, such as
``missing=``.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from creinn.numerics import pluralize

Floats = npt.NDArray[np.float64]
Texts = npt.NDArray[np.object_]

MARKS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-")
"""The default marks of missing values. Empty cells are always missing."""
UNIT_ADVICE = "Convert such cells to numbers: '4.1%' to 4.1, '12.30 €' to 12.30."
_INTEGER = re.compile(r"^([+-]?\d+)\.0+$")  # an integer in a column with missing values
_UNIT = re.compile(r"[€$£¥]\s*[+-]?\d[\d.,' ]*|[+-]?\d[\d.,' ]*\s*[€$£¥%]")
_SAMPLE = 1000  # distinct texts of a column that are used to detect the format


class NumberFormat(NamedTuple):
    """The decimal mark and the thousands separator, which can be empty."""

    decimal: str = "."
    thousands: str = ""


PLAIN = NumberFormat()
_POINT = tuple(NumberFormat(".", mark) for mark in (",", "'", " "))
_COMMA = tuple(NumberFormat(",", mark) for mark in ("", ".", " "))


@dataclass(frozen=True)
class Reading:
    """The options for the reader of tables. The value ``auto`` is detected."""

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

    def number_format(self, detected: NumberFormat) -> NumberFormat:
        """Return the format in these options, with the detected marks for ``auto``."""
        given = (self.decimal, self.thousands.replace("none", ""))
        marks = zip(given, detected, strict=True)
        return NumberFormat(*(own if mark == "auto" else mark for mark, own in marks))

    def candidates(self) -> tuple[NumberFormat, ...]:
        """Return the possible formats of numbers, sorted by likelihood."""
        for option, marks in (("decimal", ".,"), ("thousands", ",.' ")):
            mark = getattr(self, option)
            if mark not in ("auto", *marks) and (option, mark) != ("thousands", "none"):
                raise ValueError(f"{option}= must be auto or one of {marks!r}, got {mark!r}.")
        if self.decimal == self.thousands != "auto":
            raise ValueError(f"decimal= and thousands= must differ, but both are {self.decimal!r}.")
        known = (*_POINT, *_COMMA) if self.separator == "," else (*_COMMA, *_POINT)
        found = tuple(form for form in (PLAIN, *known) if self.number_format(form) == form)
        return found or (self.number_format(PLAIN),)


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
        """Count the cells with each missing-value mark.

        Empty cells are counted as ``"empty"``.
        """
        cells = self.frame[column]
        marks = cells[cells.isna() | cells.astype(object).isin(self.reading.marks)]
        return marks.astype(object).where(marks.notna(), "empty").value_counts()

    def texts(self, column: str) -> Texts:
        """Return the cells as texts, and ``None`` for missing cells.

        The number 1.0 becomes ``"1"``.
        """
        codes, found = pd.factorize(self.cells(column))
        texts = [*(_INTEGER.sub(r"\1", str(text)) for text in found), None]
        return np.array(texts, dtype=object)[codes]

    def numbers(self, column: str, own: NumberFormat = PLAIN) -> Floats:
        """Return the cells as numbers, where a missing cell is NaN.

        The format is that of ``reading``, and ``own`` where this is ``auto``.

        Raises:
            ValueError: If a cell is not a finite number.
        """
        cells, form = self.cells(column), self.reading.number_format(own)
        values = parse_numbers(cells, form)
        wrong = ~np.isfinite(values) & cells.notna().to_numpy()
        if not wrong.any():
            return values
        texts, advice = cells[wrong].astype(str), ""
        other = "," if form.decimal == "." else "."
        if any(map(_UNIT.fullmatch, texts)):
            advice = f" {UNIT_ADVICE}"
        elif np.isfinite(parse_numbers(texts, NumberFormat(other))).any():
            advice = f" The numbers were read with decimal={form.decimal!r}; try decimal={other!r}."
        raise ValueError(
            f"{self.at(int(wrong.argmax()), column)}: {texts.iloc[0]!r} is not a finite number. "
            f"{pluralize(len(texts), 'cell')} of {cells.count()} are not: "
            f"{list_counts(texts.value_counts())}.{advice} Pass missing= with these texts if they "
            f"mark missing values, or categorical={column!r} in training if they are categories."
        )

    def dates(self, column: str, form: str) -> pd.Series:
        """Return the cells as times in UTC, and NaT for missing cells.

        Raises:
            ValueError: If a cell is not a date in the format ``form`` of the training.
        """
        cells = self.cells(column)
        times = parse_dates(cells, form)
        for row in np.flatnonzero(times.isna() & cells.notna()):
            found = f"{self.at(row, column)}: {cells.iloc[row]!r}"
            raise ValueError(f"{found} is not a date in the format of the training, {form}.")
        return times

    def row(self, row: int | np.integer[Any]) -> str:
        """Return the number of a row for messages. The first row is 1."""
        return f"row {self.frame.index[row] + 1}"

    def at(self, row: int | np.integer[Any], column: str) -> str:
        """Return the name of a cell for messages."""
        return f"{self.name} {self.row(row)}, column {column!r}"

    def check_column(self, column: str, why: str = "") -> None:
        """Raise a ``ValueError`` if the column does not exist."""
        if column not in self.frame:
            known = ", ".join(map(str, self.columns))
            found = f"{self.name} has no column {column!r}{why}; its columns are {known}."
            sign = str(self.columns[0])[:1]
            if sign in ("#", "%") and not self.reading.comment:
                found += f" If line 1 is a comment, pass comment={sign!r}."
            raise ValueError(found)


Tables = Sequence[Table]  # one table, or the lower and upper bounds of the same rows


def is_numeric(cells: Any) -> bool:
    """Return whether the type of a column is numeric, and not boolean."""
    kind = getattr(cells, "dtype", object)
    return pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind)


def parse_numbers(cells: Any, form: NumberFormat = PLAIN) -> Floats:
    """Convert the texts in a given format to numbers, where other texts are NaN.

    Example:
        >>> parse_numbers(["1.234,5", "12.34"], NumberFormat(",", "."))
        array([1234.5,    nan])
    """
    if is_numeric(cells):
        return cells.to_numpy(dtype=np.float64, na_value=np.nan)
    texts = pd.Series(cells, dtype=object)
    if form != PLAIN:
        decimal, thousands = map(re.escape, form)
        texts = texts.str.replace("[\u00a0\u202f]", " ", regex=True)
        groups = rf"|\d{{1,3}}(?:{thousands}\d{{3}})+" if thousands else ""
        number = rf"[+-]?(?:\d+{groups})?(?:{decimal}\d*)?(?:[eE][+-]?\d+)?"
        texts = texts.where(texts.str.fullmatch(number, na=False).astype(bool))
        texts = texts.str.replace(form.thousands, "", regex=False) if thousands else texts
        texts = texts.str.replace(form.decimal, ".", regex=False)
    return pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)


def choose_formats(columns: Iterable[pd.Series], reading: Reading) -> list[NumberFormat]:
    """Choose a format for each column.

    This is the format that fits the most columns if it fits all cells of the column, and otherwise
    the format that fits the most cells of the column.
    """
    candidates = reading.candidates()
    rows = []
    for column in columns:
        sample = column.dropna().drop_duplicates().head(_SAMPLE)
        fits = [np.isfinite(parse_numbers(sample, form)).sum() for form in candidates]
        rows.append(np.array(fits) / max(1, len(sample)))
    shares = np.reshape(rows, (-1, len(candidates)))
    common = int((shares == 1).sum(0).argmax())
    return [candidates[common if row[common] == 1 else int(row.argmax())] for row in shares]


def describe_format(cells: pd.Series, form: NumberFormat) -> str:
    """Describe a format with an example, or return "" if all cells are plain numbers."""
    texts = cells.dropna().drop_duplicates()
    values = parse_numbers(texts, form)
    differ = values != parse_numbers(texts)
    if form == PLAIN or not differ.any():
        return ""
    between = f" and {form.thousands!r} between thousands" if form.thousands else ""
    example = f"{texts[differ].iloc[0]!r} is {values[differ][0]:.10g}"
    return f"numbers have {form.decimal!r} before decimals{between}: {example}"


def have_units(cells: pd.Series) -> bool:
    """Return whether all texts are numbers with a currency sign or a percent sign."""
    return len(cells) > 0 and all(map(_UNIT.fullmatch, cells.drop_duplicates().astype(str)))


def parse_dates(cells: pd.Series, form: str) -> pd.Series:
    """Convert texts in a given format to times in UTC, and other texts to NaT."""
    return pd.to_datetime(cells, format=form, errors="coerce", utc=True).dt.tz_localize(None)


def list_counts(counts: pd.Series) -> str:
    """Return the texts in the index with their counts, and at most 50 of them.

    Example:
        >>> list_counts(pd.Series(["a", "b", "a"]).value_counts())
        "'a' (2), 'b' (1)"
    """
    shown = [f"{text!r} ({count})" for text, count in counts.head(50).items()]
    return ", ".join([*shown, *([f"{len(counts) - 50} more"] if len(counts) > 50 else [])])


def check_rows(names: Sequence[str], rows: Sequence[int]) -> None:
    """Raise a ``ValueError`` if the tables of a pair have different numbers of rows."""
    if len(set(rows)) > 1:
        found = f"{names[0]} has {pluralize(rows[0], 'row')}, but {names[1]} has {rows[1]}"
        raise ValueError(f"{found}. Each row must have both bounds.")


def check_same_texts(tables: Tables, column: str) -> None:
    """Raise a ``ValueError`` if the texts of a column differ between two tables."""
    lower = tables[0]
    for upper in tables[1:]:
        low, high = lower.texts(column), upper.texts(column)
        for row in np.flatnonzero(low != high):
            one, other = ("missing" if t is None else repr(t) for t in (low[row], high[row]))
            found = f"{lower.at(row, column)} is {one}, but {other} in {upper.name}"
            raise ValueError(f"{found}. Only numbers can differ.")


def check_bounds(tables: Tables, column: str, form: NumberFormat) -> None:
    """Raise a ``ValueError`` if bounds are reversed or only one of them is missing."""
    lower = tables[0]
    for upper in tables[1:]:
        low, high = lower.numbers(column, form), upper.numbers(column, form)
        for row in np.flatnonzero(np.isnan(low) != np.isnan(high)):
            lacks, has = (lower, upper) if np.isnan(low[row]) else (upper, lower)
            found = f"{lacks.at(row, column)} is missing, but not in {has.name}"
            raise ValueError(f"{found}. Give both bounds or none.")
        for row in np.flatnonzero(low > high):
            found = f"{low[row]:g}, above the {high[row]:g} in {upper.name}"
            raise ValueError(f"{lower.at(row, column)} is {found}. Are the tables swapped?")
