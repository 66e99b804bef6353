"""A table of texts, or of what a file knows to be numbers or dates; one of a pair of bounds; or a part of a long one.

A cell stays as it is until a caller asks for numbers, texts or dates. In messages rows are counted from 1, below the
header, as they are in the file.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from creinn.data.numerals import PLAIN, Floats, Style, counted, is_numeric, parse

Texts = npt.NDArray[np.object_]

MISSING = (
    "NA",
    "NaN",
    "nan",
)  # cells with these texts hold no value, unless others are named; empty ones never do
_WHOLE = re.compile(
    r"^([+-]?\d+)\.0+$"
)  # how other programs write integers in columns with missing values


@dataclass(frozen=True)
class Reading:
    """How a file is to be read; ``auto`` is found out."""

    missing: tuple[str, ...] = MISSING  # texts that stand for a missing value
    separator: str = "auto"  # between cells; \t is a tab
    decimal: str = "auto"  # sign before decimals
    thousands: str = "auto"  # sign between thousands, or "none"
    encoding: str = "auto"  # as Python names it

    def style(self, own: Style) -> Style:
        """How numbers are written: as is said here, or else in a style of their own."""
        said = (self.decimal, self.thousands.replace("none", ""))
        return Style(
            *(known if sign == "auto" else sign for sign, known in zip(said, own, strict=True))
        )


AUTO = Reading()


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns; an empty cell is ``None``, or what pandas has for it. Refusals name row and column."""

    name: str  # where it was read from, for messages
    frame: pd.DataFrame
    reading: Reading = Reading(separator=",")  # with the separator that was found
    notes: tuple[str, ...] = ()  # on what was found out or left out in reading
    first: int = 0  # rows that stand before it in the file
    share: float = 1.0  # of the file that is read with it

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def columns(self) -> list[str]:
        """Their names, in the order of the file."""
        return list(self.frame.columns)

    def cells(self, column: str, known: Collection[str] = ()) -> pd.Series:
        """Cells as written, or numbers; missing ones are ``None`` or NaN. ``known`` marks of such are values here."""
        self.check_column(column)
        cells = self.frame[column]
        marks: Any = set(self.reading.missing).difference(known)
        if is_numeric(cells):
            values, is_number = parse(sorted(marks))
            marks = values[is_number]
        elif cells.dtype != object:  # truth values, dates
            cells = cells.astype(str).astype(object).where(cells.notna(), None)
        return cells.mask(cells.isin(marks), None) if len(marks) else cells

    def texts(self, column: str, known: Collection[str] = ()) -> Texts:
        """As :meth:`cells`, but a whole number is written without decimals, ``1.0`` as ``1``."""
        codes, found = pd.factorize(self.cells(column, known))
        return np.array([*(_WHOLE.sub(r"\1", str(text)) for text in found), None], dtype=object)[
            codes
        ]

    def numbers(self, column: str, style: Style = PLAIN) -> Floats:
        """Cells as finite numbers, NaN where missing, written in a style unless another was named in reading."""
        cells = self.cells(column)
        values, is_number = parse(cells, self.reading.style(style))
        for row in np.flatnonzero(~is_number & cells.notna().to_numpy()):
            what = (
                "finite number."
                if np.isinf(values[row])
                else "number. What marks a missing one, name by --missing."
            )
            raise ValueError(f"{self.at(row, column)}: {str(cells.iloc[row])!r} is not a {what}")
        return values

    def dates(self, column: str, form: str) -> pd.Series:
        """Cells as times without a zone, NaT where missing; ``form`` is as :func:`pandas.to_datetime` takes it."""
        cells = self.cells(column)
        times = parse_dates(cells, form)
        for row in np.flatnonzero(times.isna() & cells.notna()):
            raise ValueError(
                f"{self.at(row, column)}: {cells.iloc[row]!r} is not a date of the form {form}."
            )
        return times

    def row(self, row: int | np.integer[Any]) -> str:
        """A row by name, for messages; ``row`` is counted from 0, as in arrays."""
        return f"row {self.first + row + 1}"

    def at(self, row: int | np.integer[Any], column: str) -> str:
        """A cell by name, for messages."""
        return f"{self.name} {self.row(row)}, column {column!r}"

    def check_column(self, column: str, why: str = "") -> None:
        """Refuse a name that no column has; ``why`` may say what it is needed for."""
        if column not in self.frame:
            raise ValueError(
                f"{self.name} has no column {column!r}{why}; its columns are {', '.join(self.columns)}."
            )


Tables = Sequence[Table]  # one, or two: lower and upper bounds of the same rows


def parse_dates(cells: pd.Series, form: str) -> pd.Series:
    """Times without a zone, NaT where a cell is no date of that form."""
    return pd.to_datetime(cells, format=form, errors="coerce", utc=True).dt.tz_localize(None)


def clean_texts(cells: pd.Series) -> pd.Series:
    """Texts without space around them, ``None`` if empty."""
    cells = cells.astype(object).str.strip()
    return cells.where(cells.notna() & (cells != ""), None)


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse columns without a name, or of the same name."""
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
    """Refuse tables of a pair that differ in their numbers of rows."""
    if len(set(rows)) > 1:
        found = f"{names[0]} has {counted(rows[0], 'row')}, but {names[1]} has {rows[1]}"
        raise ValueError(f"{found}. Each row must have both bounds.")


def check_same_texts(tables: Tables, column: str) -> None:
    """Refuse a column of categories, or of classes, that differs between the tables of a pair."""
    lower = tables[0]
    for upper in tables[1:]:
        low, high = lower.texts(column), upper.texts(column)
        for row in np.flatnonzero(low != high):
            one, other = (
                "missing" if text is None else repr(text) for text in (low[row], high[row])
            )
            raise ValueError(
                f"{lower.at(row, column)} is {one}, but {other} in {upper.name}. Only numbers may differ."
            )


def check_bounds(tables: Tables, column: str, style: Style) -> None:
    """Refuse a column of numbers whose bounds are out of order, or missing in one table of a pair only."""
    lower = tables[0]
    for upper in tables[1:]:
        low, high = lower.numbers(column, style), upper.numbers(column, style)
        for row in np.flatnonzero(np.isnan(low) != np.isnan(high)):
            lacks, has = (lower, upper) if np.isnan(low[row]) else (upper, lower)
            raise ValueError(
                f"{lacks.at(row, column)} is missing, but not in {has.name}. Give both bounds or none."
            )
        for row in np.flatnonzero(low > high):
            above = f"{low[row]:g}, above the {high[row]:g} in {upper.name}"
            raise ValueError(f"{lower.at(row, column)} is {above}. Are the tables swapped?")
