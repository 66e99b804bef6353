"""A CSV file, plain or packed, as a table of texts: encoding and separator are found out, and said.

A cell stays a text until a caller asks for numbers or dates. In messages rows are counted from 1, below the header.
"""

import bz2
import csv
import gzip
import lzma
import re
import warnings
import zipfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from creinn.data.numerals import PLAIN, Floats, Style, parse

Texts = npt.NDArray[np.object_]

MISSING = ("NA", "NaN", "nan")  # cells with these texts hold no value, unless others are named; empty ones never do
_SEPARATORS = (",", ";", "\t", "|")
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_LOOKED_AT = 100  # lines, to find the separator
_WHOLE = re.compile(r"^([+-]?\d+)\.0+$")  # how other programs write integers in columns with missing values


@dataclass(frozen=True)
class Reading:
    """How a file is to be read; ``auto`` is found out."""

    missing: tuple[str, ...] = MISSING  # texts that stand for a missing value
    separator: str = "auto"  # between cells; \t is a tab
    decimal: str = "auto"  # sign before decimals
    thousands: str = "auto"  # sign between thousands, or "none"
    encoding: str = "auto"  # as Python names it


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of texts; an empty cell is ``None``. Refusals name row and column."""

    name: str  # where it was read from, for messages
    frame: pd.DataFrame
    reading: Reading = Reading(separator=",")  # with the separator that was found
    notes: tuple[str, ...] = ()  # on what was found out or left out in reading

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def columns(self) -> list[str]:
        """Their names, in the order of the file."""
        return list(self.frame.columns)

    def cells(self, column: str, known: Collection[str] = ()) -> pd.Series:
        """Cells as they are written, ``None`` where missing; ``known`` marks of missing values are values here."""
        self.check_column(column)
        cells = self.frame[column]
        return cells.mask(cells.isin(set(self.reading.missing).difference(known)), None)

    def texts(self, column: str, known: Collection[str] = ()) -> Texts:
        """As :meth:`cells`, but a whole number is written without decimals, ``1.0`` as ``1``."""
        codes, found = pd.factorize(self.cells(column, known))
        return np.array([*(_WHOLE.sub(r"\1", text) for text in found), None], dtype=object)[codes]

    def numbers(self, column: str, style: Style = PLAIN) -> Floats:
        """Cells as finite numbers, NaN where missing, written in a style unless another was named in reading."""
        cells = self.cells(column)
        said = (self.reading.decimal, self.reading.thousands.replace("none", ""))
        chosen = [own if sign == "auto" else sign for sign, own in zip(said, style, strict=True)]
        values, is_number = parse(cells, Style(*chosen))
        for row in np.flatnonzero(~is_number & cells.notna().to_numpy()):
            what = "finite number." if np.isinf(values[row]) else "number. What marks a missing one, name by --missing."
            raise ValueError(f"{self.at(row, column)}: {cells.iloc[row]!r} is not a {what}")
        return values

    def dates(self, column: str, form: str) -> pd.Series:
        """Cells as times without a zone, NaT where missing; ``form`` is as :func:`pandas.to_datetime` takes it."""
        cells = self.cells(column)
        times = parse_dates(cells, form)
        for row in np.flatnonzero(times.isna() & cells.notna()):
            raise ValueError(f"{self.at(row, column)}: {cells.iloc[row]!r} is not a date of the form {form}.")
        return times

    def row(self, row: int | np.integer[Any]) -> str:
        """A row by name, for messages; ``row`` is counted from 0, as in arrays."""
        return f"row {row + 1}"

    def at(self, row: int | np.integer[Any], column: str) -> str:
        """A cell by name, for messages."""
        return f"{self.name} {self.row(row)}, column {column!r}"

    def check_column(self, column: str, why: str = "") -> None:
        """Refuse a name that no column has; ``why`` may say what it is needed for."""
        if column not in self.frame:
            raise ValueError(f"{self.name} has no column {column!r}{why}; its columns are {', '.join(self.columns)}.")


Tables = Sequence[Table]  # one, or two: lower and upper bounds of the same rows


def parse_dates(cells: pd.Series, form: str) -> pd.Series:
    """Times without a zone, NaT where a cell is no date of that form."""
    return pd.to_datetime(cells, format=form, errors="coerce", utc=True).dt.tz_localize(None)


def check_same_texts(tables: Tables, column: str) -> None:
    """Refuse a column of categories, or of classes, that differs between the tables of a pair."""
    lower = tables[0]
    for upper in tables[1:]:
        low, high = lower.texts(column), upper.texts(column)
        for row in np.flatnonzero(low != high):
            one, other = ("missing" if text is None else repr(text) for text in (low[row], high[row]))
            raise ValueError(f"{lower.at(row, column)} is {one}, but {other} in {upper.name}. Only numbers may differ.")


def check_bounds(tables: Tables, column: str, style: Style) -> None:
    """Refuse a column of numbers whose bounds are out of order, or missing in one table of a pair only."""
    lower = tables[0]
    for upper in tables[1:]:
        low, high = lower.numbers(column, style), upper.numbers(column, style)
        for row in np.flatnonzero(np.isnan(low) != np.isnan(high)):
            lacks, has = (lower, upper) if np.isnan(low[row]) else (upper, lower)
            raise ValueError(f"{lacks.at(row, column)} is missing, but not in {has.name}. Give both bounds or none.")
        for row in np.flatnonzero(low > high):
            above = f"{low[row]:g}, above the {high[row]:g} in {upper.name}"
            raise ValueError(f"{lower.at(row, column)} is {above}. Are the tables swapped?")


def read_table(path: str | PathLike[str], reading: Reading = Reading()) -> Table:
    """Read a CSV file with a header line, plain or packed: ``.zip`` with one table in it, ``.gz``, ``.bz2``, ``.xz``.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is empty, no CSV, in another encoding, or has columns without a name or of the same name.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    text, notes = _decoded(_content(path), reading.encoding, path)
    separator = reading.separator.replace("\\t", "\t")
    if separator == "auto" and (separator := _separator(text)) != ",":
        notes.append(f"{path}: cells are parted by {separator!r}")
    if len(separator) != 1:
        raise ValueError(f"The separator must be one sign, \\t for a tab, or auto, got {separator!r}.")
    cells = _split(text, separator, path).apply(lambda column: column.str.strip())
    if len(cells) == 1:
        raise ValueError(f"{path} has a header line, but no rows below it.")
    names = cells.iloc[0].fillna("").tolist()
    frame = cells.iloc[1:].where(cells.notna() & (cells != ""), None).reset_index(drop=True)
    if not names[0] and len(names) > 1 and _is_index(frame[0]):
        notes.append(f"{path}: the first column has no name and numbers the rows, so it is left out")
        names, frame = names[1:], frame.iloc[:, 1:]
    for position, name in enumerate(names, start=1):
        if not name:
            raise ValueError(f"{path}: column {position} of {len(names)} has no name in the header line.")
        if (first := names.index(name) + 1) < position:
            raise ValueError(f"{path}: columns {first} and {position} have the same name {name!r}. Rename one.")
    return Table(str(path), frame.set_axis(names, axis=1), replace(reading, separator=separator), tuple(notes))


def is_packed_table(path: Path) -> bool:
    """Whether it is a zip archive of a table rather than of images."""
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return len(_packed(archive)) > 0
    return False


def _packed(archive: zipfile.ZipFile) -> list[str]:
    names = (name for name in archive.namelist() if not name.startswith("__MACOSX/"))
    return [name for name in names if name.lower().endswith((".csv", ".tsv", ".txt"))]


def _content(path: Path) -> bytes:
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            names = _packed(archive)
            if len(names) != 1:
                raise ValueError(f"{path} holds {len(names)} tables ({', '.join(names[:3])}), but one is needed.")
            return archive.read(names[0])
    with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
        return file.read()


def _decoded(content: bytes, encoding: str, path: Path) -> tuple[str, list[str]]:
    """The text, and a note if its encoding was guessed."""
    if encoding != "auto":
        guesses = [encoding]
    elif content.startswith((b"\xff\xfe", b"\xfe\xff")):
        guesses = ["utf-16"]
    elif b"\0" in content[:1000]:
        guesses = ["utf-16-le" if content[1:1000:2].count(0) > content[:1000:2].count(0) else "utf-16-be"]
    else:
        guesses = ["utf-8-sig", "cp1252", "latin-1"]
    for guess in guesses:
        try:
            text = content.decode(guess)
        except LookupError:
            raise ValueError(f"There is no encoding {guess!r}; utf-8, cp1252 and utf-16 are usual ones.") from None
        except UnicodeError as error:
            wanted = "UTF-8 or UTF-16" if encoding == "auto" else f"{encoding}: {error}"
            continue
        note = f"{path} is not in UTF-8 and is read as {guess}; name another --encoding if letters are wrong"
        return text, [] if guess in ("utf-8-sig", encoding) else [note]
    raise ValueError(f"{path} is not a text in {wanted}. Name another --encoding, if it is a table.")


def _separator(text: str) -> str:
    """The sign that parts the header into most cells, and most lines into as many."""
    lines = text[: 1000 * _LOOKED_AT].splitlines()[:_LOOKED_AT]

    def cells(separator: str) -> int:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:
            return 1
        most_are_equal = counts and counts.count(counts[0]) > len(counts) / 2
        return counts[0] if most_are_equal and sum(n > counts[0] for n in counts) < len(counts) / 10 else 1

    return max(_SEPARATORS, key=cells)


def _split(text: str, separator: str, path: Path) -> pd.DataFrame:
    """All cells, the header's among them; of a table of one column each line is a row, blank or not."""
    text = text.lstrip("\r\n")
    header = next(csv.reader([StringIO(text).readline()], delimiter=separator), [])
    if len(header) > 1:
        text = text.rstrip("\r\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                StringIO(text), sep=separator, header=None, dtype=object, keep_default_na=False, skip_blank_lines=False
            )
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path} is empty. A header line with names of columns is needed, then rows.") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        message = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{path} is not a table with {separator!r} between cells: {message}.") from error


def _is_index(cells: pd.Series) -> bool:
    """Whether all are whole numbers, none of them twice: what pandas and R write unasked."""
    values, is_number = parse(cells)
    return bool(is_number.all() and (values == values.round()).all()) and cells.is_unique
