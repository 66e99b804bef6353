"""Files of tables, CSV or Parquet, whole or in chunks of rows; of CSV, encoding and separator are found out, and said.

A CSV file may be packed. Only its beginning decides what parts the cells; all of it is looked at to find its encoding.
"""

import bz2
import csv
import gzip
import io
import lzma
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from creinn.data.numerals import is_numeric, parse
from creinn.data.parquet import is_parquet, parquet_chunks
from creinn.data.table import AUTO, Reading, Table, check_names, check_rows, clean_texts

_SEPARATORS = (",", ";", "\t", "|")
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_LOOKED_AT = 100  # lines, to find the separator
_BEGINNING = 1_000_000  # characters that hold these lines
_BLOCK = 1 << 20


def read_table(path: str | PathLike[str], reading: Reading = AUTO) -> Table:
    """Read a whole file of a table; see :func:`read_chunks`."""
    (table,) = read_chunks(path, reading)
    return table


def read_chunks(
    path: str | PathLike[str],
    reading: Reading = AUTO,
    rows: int | None = None,
    numbers: Collection[str] = (),
) -> Iterator[Table]:
    """Read a table in chunks of ``rows``, all alike; Parquet, or CSV with a header line, plain or packed.

    Packed are ``.zip`` with one table in it, ``.gz``, ``.bz2``, ``.xz``. Columns of CSV that are ``numbers``, with a
    point before decimals, become such if all their cells of a chunk are, which is much quicker than from texts.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is empty, no table, in another encoding, or has columns without a name or of the same name.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    return (
        parquet_chunks(path, reading, rows)
        if is_parquet(path)
        else _csv_chunks(path, reading, rows, numbers)
    )


def in_step(*streams: Iterator[Table]) -> Iterator[list[Table]]:
    """Chunks of one table, or of lower and upper bounds side by side; refuses tables of different numbers of rows."""
    names, before = [""] * len(streams), 0
    for tables in zip_longest(*streams):
        names = [
            name if table is None else table.name for name, table in zip(names, tables, strict=True)
        ]
        rows = [0 if table is None else len(table) for table in tables]
        if len(set(rows)) > 1:
            check_rows(
                names,
                [before + n + sum(map(len, rest)) for n, rest in zip(rows, streams, strict=True)],
            )
        before += rows[0]
        yield list(tables)


def is_packed_table(path: Path) -> bool:
    """Whether it is a zip archive of a table rather than of images."""
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return len(_packed(archive)) > 0
    return False


def _csv_chunks(
    path: Path, reading: Reading, rows: int | None, numbers: Collection[str]
) -> Iterator[Table]:
    encoding, notes = _encoding(path, reading.encoding)
    with _opened(path) as (file, share), io.TextIOWrapper(file, encoding, newline="") as text:
        beginning = text.read(_BEGINNING).lstrip("\r\n")
        separator = reading.separator.replace("\\t", "\t")
        if separator == "auto" and (separator := _separator(beginning)) != ",":
            notes.append(f"{path}: cells are parted by {separator!r}")
        if len(separator) != 1:
            raise ValueError(
                f"The separator must be one sign, \\t for a tab, or auto, got {separator!r}."
            )
        names, below = _header(beginning, separator, path)
        # An empty line stands for the header, so that numbers are found below it and lines are counted with it.
        lines = _Lines(separator * (len(names) - 1) + "\n" + below, text, trims=len(names) > 1)
        has_index = int(not names[0] and len(names) > 1)
        if has_index:
            notes.append(
                f"{path}: the first column has no name and numbers the rows, so it is left out"
            )
        check_names(names[has_index:], str(path))
        first = 0
        for cells in _parsed(lines, names, separator, path, rows, _quick(names, numbers, reading)):
            frame = _cleaned(cells if first else cells.iloc[1:]).reset_index(drop=True)
            if not (len(frame) or first):
                raise ValueError(f"{path} has a header line, but no rows below it.")
            if has_index and not _is_index(frame[0]):
                check_names(names, str(path))
            frame = frame.iloc[:, has_index:].set_axis(names[has_index:], axis=1)
            yield Table(
                str(path),
                frame,
                replace(reading, separator=separator),
                tuple(notes),
                first,
                share(),
            )
            first += len(frame)


def _quick(names: list[str], numbers: Collection[str], reading: Reading) -> dict[int, list[str]]:
    """Places of columns that pandas may read as numbers, with marks of missing ones; none if these look like numbers.

    For pandas would take -999.0 too for the mark -999.
    """
    if parse(reading.missing)[1].any():
        return {}
    return {at: ["", *reading.missing] for at, name in enumerate(names) if name in numbers}


def _header(text: str, separator: str, path: Path) -> tuple[list[str], str]:
    """Names of the columns, and the text below."""
    lines = io.StringIO(text, newline="")
    try:
        names = [name.strip() for name in next(csv.reader(lines, delimiter=separator), [])]
    except csv.Error as error:
        raise ValueError(
            f"{path} is not a table with {separator!r} between cells: {error}."
        ) from error
    if not names:
        raise ValueError(
            f"{path} is empty. A header line with names of columns is needed, then rows."
        )
    if lines.tell() == _BEGINNING:
        raise ValueError(
            f"{path} is no table: the header line does not end within {_BEGINNING} characters."
        )
    return names, lines.read()


class _Lines:
    """A text file for pandas, with a beginning of its own; ``trims`` whether line ends at its end are left out."""

    def __init__(self, beginning: str, rest: io.TextIOBase, trims: bool) -> None:
        self._kept, self._rest, self._trims, self._line_ends = beginning, rest, trims, ""

    def read(self, size: int = -1) -> str:
        while block := self._kept or self._rest.read(size):
            block, self._kept = self._line_ends + block, ""
            text = block.rstrip("\r\n") if self._trims else block
            self._line_ends = block[len(text) :]
            if text:
                return text
        return ""

    def __iter__(self) -> Iterator[str]:  # pandas takes it for a file only then
        return iter(self.read, "")


def _parsed(
    lines: _Lines,
    names: list[str],
    separator: str,
    path: Path,
    rows: int | None,
    marks: dict[int, list[str]],
) -> Iterator[pd.DataFrame]:
    """Chunks of cells, the first one below an empty line; of a single column each line is a row, blank or not."""
    kinds = {at: object for at in range(len(names)) if at not in marks}
    how: dict[str, Any] = {
        "dtype": kinds,
        "na_values": marks,
        "keep_default_na": False,
        "skip_blank_lines": False,
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            reader = pd.read_csv(
                lines,
                sep=separator,
                header=None,
                names=range(len(names)),
                low_memory=False,
                iterator=True,
                **how,
            )
            yield reader.read(rows and rows + 1)
            with suppress(StopIteration):
                while rows is not None:
                    yield reader.read(rows)
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        message = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"{path} is not a table with {separator!r} between cells: {message}."
        ) from error


def _cleaned(cells: pd.DataFrame) -> pd.DataFrame:
    """Numbers as they are; texts without space around them, ``None`` if empty."""
    return cells.apply(lambda column: column if is_numeric(column) else clean_texts(column))


def _is_index(cells: pd.Series) -> bool:
    """Whether all are whole numbers, none of them twice: what pandas and R write unasked."""
    values, is_number = parse(cells)
    return bool(is_number.all() and (values == values.round()).all()) and cells.is_unique


def _packed(archive: zipfile.ZipFile) -> list[str]:
    names = (name for name in archive.namelist() if not name.startswith("__MACOSX/"))
    return [name for name in names if name.lower().endswith((".csv", ".tsv", ".txt"))]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Callable[[], float]]]:
    """The bytes of a file, unpacked, and a function that says which share of it is read."""
    with open(path, "rb") as file, ExitStack() as stack:
        unpacked: Any = file
        if path.suffix.lower() == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(file))
            names = _packed(archive)
            if len(names) != 1:
                raise ValueError(
                    f"{path} holds {len(names)} tables ({', '.join(names[:3])}), but one is needed."
                )
            unpacked = stack.enter_context(archive.open(names[0]))
        elif opener := _OPENERS.get(path.suffix.lower()):
            unpacked = stack.enter_context(opener(file))
        size = max(1, path.stat().st_size)
        try:
            yield unpacked, lambda: min(1.0, file.tell() / size)
        except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path} cannot be unpacked: {error}. It is truncated or damaged."
            ) from error


def _encoding(path: Path, encoding: str) -> tuple[str, list[str]]:
    """The encoding that suits all of a file, and a note if it was guessed."""
    with _opened(path) as (file, _):
        content = file.read(1000)
    if encoding != "auto":
        guesses = [encoding]
    elif content.startswith((b"\xff\xfe", b"\xfe\xff")):
        guesses = ["utf-16"]
    elif b"\0" in content:
        guesses = ["utf-16-le" if content[1::2].count(0) > content[::2].count(0) else "utf-16-be"]
    else:
        guesses = ["utf-8-sig", "cp1252", "latin-1"]
    for guess in guesses:
        try:
            with _opened(path) as (file, _), io.TextIOWrapper(file, guess, newline="") as text:
                while text.read(_BLOCK):
                    pass
        except LookupError:
            raise ValueError(
                f"There is no encoding {guess!r}; utf-8, cp1252 and utf-16 are usual ones."
            ) from None
        except UnicodeError as error:
            wanted = "UTF-8 or UTF-16" if encoding == "auto" else f"{encoding}: {error}"
            continue
        note = f"{path} is not in UTF-8 and is read as {guess}; name another --encoding if letters are wrong"
        return guess, [] if guess in ("utf-8-sig", encoding) else [note]
    raise ValueError(
        f"{path} is not a text in {wanted}. Name another --encoding, if it is a table."
    )


def _separator(text: str) -> str:
    """The sign that parts the header into most cells, and most lines into as many."""
    lines = text.splitlines()[:_LOOKED_AT]

    def cells(separator: str) -> int:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:
            return 1
        most_are_equal = counts and counts.count(counts[0]) > len(counts) / 2
        return (
            counts[0]
            if most_are_equal and sum(n > counts[0] for n in counts) < len(counts) / 10
            else 1
        )

    return max(_SEPARATORS, key=cells)
