"""Tables as read: texts, numbers or dates per column; options of reading; checks of pairs of bounds.

Messages name options of :class:`Reading` and of the encoder as keywords, such as ``missing=``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from creinn.data.numerals import PLAIN, Floats, Style, is_numeric, listed_counts, parse
from creinn.numerics import pluralize

Texts = npt.NDArray[np.object_]

MARKS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-")
"""Texts that mark a missing value by default; empty cells are always missing."""
_WHOLE = re.compile(r"^([+-]?\d+)\.0+$")  # integers as written in columns with missing values
_UNIT = re.compile(r"[€$£¥]\s*[+-]?\d[\d.,' ]*|[+-]?\d[\d.,' ]*\s*[€$£¥%]")
UNIT_ADVICE = "Convert such cells to numbers: '4.1%' to 4.1, '12.30 €' to 12.30."


@dataclass(frozen=True)
class Reading:
    """Options for reading a table; ``auto`` is detected."""

    missing: tuple[str, ...] = ("auto",)  # marks of missing values; auto stands for MARKS
    separator: str = "auto"  # between cells; \t is a tab
    decimal: str = "auto"  # before decimals
    thousands: str = "auto"  # between thousands, or "none"
    encoding: str = "auto"  # as Python names it
    comment: str = ""  # begins a comment, to the end of the line
    dayfirst: bool | None = None  # whether 03/04/2021 is the third of April

    @property
    def marks(self) -> tuple[str, ...]:
        """Texts that mark a missing value."""
        return tuple(
            mark for name in self.missing for mark in (MARKS if name == "auto" else (name,))
        )

    def style(self, own: Style) -> Style:
        """The number format given here, or ``own`` where it is ``auto``."""
        given = (self.decimal, self.thousands.replace("none", ""))
        return Style(*(o if sign == "auto" else sign for sign, o in zip(given, own, strict=True)))


AUTO = Reading()


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns; missing cells are ``None`` or NaN. The index of the frame numbers the rows."""

    name: str  # the file, for messages
    frame: pd.DataFrame
    reading: Reading = Reading(separator=",")  # with the separator that was found
    notes: tuple[str, ...] = ()  # what was detected or left out in reading
    share: float = 1.0  # of the file that has been read

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in the order of the file."""
        return list(self.frame.columns)

    def cells(self, column: str) -> pd.Series:
        """Cells as written, or numbers; missing ones are ``None`` or NaN."""
        self.check_column(column)
        cells, marks = self.frame[column], np.array(self.reading.marks, dtype=object)
        if is_numeric(cells):
            values, is_number = parse(marks)
            marks = values[is_number]
        elif cells.dtype != object:  # booleans, dates, categories
            cells = cells.astype(str).astype(object).where(cells.notna(), None)
        return cells.mask(cells.isin(marks), None) if len(marks) else cells

    def marked(self, column: str) -> pd.Series:
        """Number of cells by mark of missing values; ``"empty"`` for empty cells."""
        cells = self.frame[column]
        marks = cells[cells.isna() | cells.astype(object).isin(self.reading.marks)]
        return marks.astype(object).where(marks.notna(), "empty").value_counts()

    def texts(self, column: str) -> Texts:
        """As :meth:`cells`, but whole numbers are written without decimals, ``1.0`` as ``1``."""
        codes, found = pd.factorize(self.cells(column))
        named = [*(_WHOLE.sub(r"\1", str(text)) for text in found), None]
        return np.array(named, dtype=object)[codes]

    def numbers(self, column: str, style: Style = PLAIN) -> Floats:
        """Cells as finite numbers, NaN where missing; other texts raise a ``ValueError``."""
        cells, style = self.cells(column), self.reading.style(style)
        values, is_number = parse(cells, style)
        wrong = ~is_number & cells.notna().to_numpy()
        if not wrong.any():
            return values
        texts = cells[wrong].astype(str)
        first = self.at(int(wrong.argmax()), column)
        advice = ""
        if any(map(_UNIT.fullmatch, texts)):
            advice = f" {UNIT_ADVICE}"
        elif parse(texts, Style("," if style.decimal == "." else "."))[1].any():
            other = "," if style.decimal == "." else "."
            advice = f" Numbers are read with decimal={style.decimal!r}; pass decimal={other!r}?"
        raise ValueError(
            f"{first}: {texts.iloc[0]!r} is not a finite number. {pluralize(len(texts), 'cell')} of "
            f"{int(cells.notna().sum())} are not: {listed_counts(texts.value_counts())}.{advice} "
            f"Pass missing= with these texts if they mark missing values, or categorical={column!r} "
            "in training if the column holds categories."
        )

    def dates(self, column: str, form: str) -> pd.Series:
        """Cells as times in UTC, NaT where missing; ``form`` as in :func:`pandas.to_datetime`."""
        cells = self.cells(column)
        times = parse_dates(cells, form)
        for row in np.flatnonzero(times.isna() & cells.notna()):
            found = f"{cells.iloc[row]!r} is not a date of the form {form}"
            raise ValueError(f"{self.at(row, column)}: {found}, as in training.")
        return times

    def row(self, row: int | np.integer[Any]) -> str:
        """Name of a row for messages, counted from 1; ``row`` is its position."""
        return f"row {self.frame.index[row] + 1}"

    def at(self, row: int | np.integer[Any], column: str) -> str:
        """Name of a cell for messages."""
        return f"{self.name} {self.row(row)}, column {column!r}"

    def check_column(self, column: str, why: str = "") -> None:
        """Raise a ``ValueError`` if there is no such column; ``why`` says what needs it."""
        if column not in self.frame:
            known = ", ".join(map(str, self.columns))
            raise ValueError(f"{self.name} has no column {column!r}{why}; its columns are {known}.")


Tables = Sequence[Table]  # one, or two: lower and upper bounds of the same rows


def has_units(cells: pd.Series) -> bool:
    """Whether all texts are numbers with a currency sign or a percent sign."""
    return len(cells) > 0 and all(map(_UNIT.fullmatch, cells.drop_duplicates().astype(str)))


def parse_dates(cells: pd.Series, form: str) -> pd.Series:
    """Times in UTC without a zone, NaT where a cell is not a date of that form."""
    return pd.to_datetime(cells, format=form, errors="coerce", utc=True).dt.tz_localize(None)


def clean_texts(cells: pd.Series) -> pd.Series:
    """Texts without surrounding space, ``None`` if empty."""
    cells = cells.astype(object).str.strip()
    return cells.where(cells.notna() & (cells != ""), None)


def check_names(names: Sequence[str], where: str) -> None:
    """Raise a ``ValueError`` if a column has no name, or two have the same."""
    for position, name in enumerate(names, start=1):
        if not name:
            raise ValueError(
                f"{where}: column {position} of {len(names)} has no name in the header line."
            )
        if (first := names.index(name) + 1) < position:
            raise ValueError(
                f"{where}: columns {first} and {position} have the same name {name!r}. Rename one."
            )


def check_rows(names: Sequence[str], rows: Sequence[int]) -> None:
    """Raise a ``ValueError`` if tables of a pair differ in their number of rows."""
    if len(set(rows)) > 1:
        found = f"{names[0]} has {pluralize(rows[0], 'row')}, but {names[1]} has {rows[1]}"
        raise ValueError(f"{found}. Each row must have both bounds.")


def check_same_texts(tables: Tables, column: str) -> None:
    """Raise a ``ValueError`` if categories or classes differ between the tables of a pair."""
    lower = tables[0]
    for upper in tables[1:]:
        low, high = lower.texts(column), upper.texts(column)
        for row in np.flatnonzero(low != high):
            one, other = ("missing" if t is None else repr(t) for t in (low[row], high[row]))
            found = f"{lower.at(row, column)} is {one}, but {other} in {upper.name}"
            raise ValueError(f"{found}. Only numbers may differ.")


def check_bounds(tables: Tables, column: str, style: Style) -> None:
    """Raise a ``ValueError`` if bounds are out of order, or only one of them is missing."""
    lower = tables[0]
    for upper in tables[1:]:
        low, high = lower.numbers(column, style), upper.numbers(column, style)
        for row in np.flatnonzero(np.isnan(low) != np.isnan(high)):
            lacks, has = (lower, upper) if np.isnan(low[row]) else (upper, lower)
            found = f"{lacks.at(row, column)} is missing, but not in {has.name}"
            raise ValueError(f"{found}. Give both bounds or none.")
        for row in np.flatnonzero(low > high):
            above = f"{low[row]:g}, above the {high[row]:g} in {upper.name}"
            raise ValueError(f"{lower.at(row, column)} is {above}. Are the tables swapped?")
