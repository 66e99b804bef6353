"""A table of texts, with errors that name file, row and column.

Nothing is guessed here: a cell stays a text until a caller asks for numbers or dates. Rows are counted from 1, below
the header.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from creinn.data.tables.numerals import PLAIN, Floats, Style, parse

Texts = npt.NDArray[np.object_]

MISSING = ("NA", "NaN", "nan")
"""Cells with these texts hold no value, unless others are named; empty ones never do."""

_WHOLE = re.compile(r"^([+-]?\d+)\.0+$")  # how other programs write integers in columns with missing values


@dataclass(frozen=True)
class Reading:
    r"""How a file is to be read; ``auto`` is found out.

    Args:
        missing: Texts that stand for a missing value.
        separator: Between cells; ``\t`` is a tab.
        decimal: Sign before decimals.
        thousands: Sign between thousands, or ``none``.
        encoding: Of the text, as Python names it.
    """

    missing: tuple[str, ...] = MISSING
    separator: str = "auto"
    decimal: str = "auto"
    thousands: str = "auto"
    encoding: str = "auto"


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of texts; an empty cell is ``None``.

    Args:
        name: Where it was read from, for messages.
        frame: The cells.
        reading: How it was read, with the separator that was found.
        notes: What was found out or left out in reading.
    """

    name: str
    frame: pd.DataFrame
    reading: Reading = Reading(separator=",")
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in the order of the file."""
        return list(self.frame.columns)

    def cells(self, column: str, known: Collection[str] = ()) -> pd.Series:
        """Cells as they are written; ``None`` where missing.

        Args:
            column: Which.
            known: Texts that are values here though they stand for a missing one elsewhere.

        Raises:
            ValueError: If there is no such column.
        """
        self.check_column(column)
        cells = self.frame[column]
        marks = [mark for mark in self.reading.missing if mark not in known]
        return cells.mask(cells.isin(marks), None)

    def texts(self, column: str, known: Collection[str] = ()) -> Texts:
        """As :meth:`cells`, but a whole number is written without decimals, ``1.0`` as ``1``.

        Raises:
            ValueError: If there is no such column.
        """
        codes, found = pd.factorize(self.cells(column, known))
        return np.array([*(_WHOLE.sub(r"\1", text) for text in found), None], dtype=object)[codes]

    def numbers(self, column: str, style: Style = PLAIN) -> Floats:
        """Cells as numbers; NaN where missing.

        Args:
            column: Which.
            style: How numbers are written, unless it was said in reading.

        Raises:
            ValueError: If there is no such column, or a cell is not a finite number.
        """
        cells = self.cells(column)
        said = (self.reading.decimal, self.reading.thousands.replace("none", ""))
        chosen = [own if sign == "auto" else sign for sign, own in zip(said, style, strict=True)]
        values, is_number = parse(cells, Style(*chosen))
        bad = np.flatnonzero(~is_number & cells.notna().to_numpy())
        if len(bad):
            row = int(bad[0])
            what = "finite number." if np.isinf(values[row]) else "number. What marks a missing one, name by --missing."
            raise ValueError(f"{self.at(row, column)}: {cells.iloc[row]!r} is not a {what}")
        return values

    def dates(self, column: str, form: str) -> pd.Series:
        """Cells as times without a zone; NaT where missing.

        Args:
            column: Which.
            form: As :func:`pandas.to_datetime` takes it.

        Raises:
            ValueError: If there is no such column, or a cell is not a date of that form.
        """
        cells = self.cells(column)
        times = parse_dates(cells, form)
        bad = np.flatnonzero((times.isna() & cells.notna()).to_numpy())
        if len(bad):
            row = int(bad[0])
            raise ValueError(f"{self.at(row, column)}: {cells.iloc[row]!r} is not a date of the form {form}.")
        return times

    def at(self, row: int, column: str) -> str:
        """A cell by name, for messages; ``row`` is counted from 0, as in arrays."""
        return f"{self.name} row {row + 1}, column {column!r}"

    def check_column(self, column: str) -> None:
        """Refuse a name that no column has.

        Raises:
            ValueError: If so; the message lists the columns.
        """
        if column not in self.frame:
            raise ValueError(f"{self.name} has no column {column!r}; its columns are {', '.join(self.columns)}.")


def parse_dates(cells: pd.Series, form: str) -> pd.Series:
    """Times without a zone, NaT where a cell is no date of that form."""
    return pd.to_datetime(cells, format=form, errors="coerce", utc=True).dt.tz_localize(None)
