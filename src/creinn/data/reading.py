"""Read CSV and Parquet tables with pandas, whole or in chunks of rows.

Detects encoding, separator and an index column, and reports them. CSV may be compressed.
"""

import bz2
import csv
import gzip
import io
import lzma
import re
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
_SAMPLE_LINES = 100  # to detect the separator
_BEGINNING = 1_000_000  # characters that contain these lines
_BLOCK = 1 << 20


def read_table(path: str | PathLike[str], reading: Reading = AUTO) -> Table:
    """Read a whole table; see :func:`read_chunks`."""
    (table,) = read_chunks(path, reading)
    return table


def read_chunks(
    path: str | PathLike[str],
    reading: Reading = AUTO,
    rows: int | None = None,
    numbers: Collection[str] = (),
) -> Iterator[Table]:
    """Read a table in chunks of ``rows``: Parquet, or CSV with a header line, plain or compressed.

    pandas parses the columns in ``numbers`` as numbers, which is faster than parsing texts later.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is empty or not a table, or columns have no name or the same name.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if is_parquet(path):
        return parquet_chunks(path, reading, rows)
    return _csv_chunks(path, reading, rows, numbers)


def in_step(*streams: Iterator[Table]) -> Iterator[list[Table]]:
    """Chunks of one table, or of two with equal numbers of rows, side by side."""
    names, before = [""] * len(streams), 0
    for tables in zip_longest(*streams):
        names = [n if table is None else table.name for n, table in zip(names, tables, strict=True)]
        rows = [0 if table is None else len(table) for table in tables]
        if len(set(rows)) > 1:
            rest = [sum(map(len, stream)) for stream in streams]
            check_rows(names, [before + n + more for n, more in zip(rows, rest, strict=True)])
        before += rows[0]
        yield list(tables)


def is_packed_table(path: Path) -> bool:
    """Whether a zip archive contains a table rather than images."""
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return len(_tables_in(archive)) > 0
    return False


def _csv_chunks(
    path: Path, reading: Reading, rows: int | None, numbers: Collection[str]
) -> Iterator[Table]:
    encoding, notes = _encoding(path, reading.encoding)
    with _opened(path) as (file, share), io.TextIOWrapper(file, encoding, newline="") as text:
        beginning = text.read(_BEGINNING)
        _check_csv(path, beginning)
        separator = reading.separator.replace("\\t", "\t")
        if separator == "auto" and (separator := _separator(beginning, reading)) != ",":
            notes.append(f"{path}: cells are separated by {separator!r}")
        if len(separator) != 1:
            raise ValueError(f"separator= must be one character, \\t or auto, got {separator!r}.")
        reading = replace(reading, encoding=encoding, separator=separator)
        text.seek(0)
        names = _header(text, path, reading)
        has_index = int(not names[0] and len(names) > 1)
        if has_index:
            notes.append(f"{path}: the first column has no name and numbers the rows: left out")
        check_names(names[has_index:], str(path))
        checked = False
        for cells in _parsed(text, path, names, reading, rows, numbers):
            if not checked and (cells.iloc[:, -1].isna() | (cells.iloc[:, -1] == "")).any():
                _check_lines(path, len(names), reading)  # short rows end in empty cells
                checked = True
            frame = cells.apply(lambda cell: cell if is_numeric(cell) else clean_texts(cell))
            if has_index and not _is_index(frame[0]):
                check_names(names, str(path))
            frame = frame.iloc[:, has_index:].set_axis(names[has_index:], axis=1)
            yield Table(str(path), frame, reading, tuple(notes), share())


def _parsed(
    text: io.TextIOBase,
    path: Path,
    names: list[str],
    reading: Reading,
    rows: int | None,
    numbers: Collection[str],
) -> Iterator[pd.DataFrame]:
    """Chunks of cells below the header; of a single column each line is a row, blank or not."""
    plain = not parse(reading.marks)[1].any()  # pandas would take -999.0 too for the mark -999
    fast = [k for k, name in enumerate(names[:-1]) if plain and name in numbers]
    options: dict[str, Any] = {
        "sep": reading.separator,
        "comment": reading.comment or None,
        "header": None,
        "names": range(len(names)),
        "index_col": False,
        "dtype": {k: object for k in range(len(names)) if k not in fast},
        "na_values": {k: ["", *reading.marks] for k in fast},
        "keep_default_na": False,
        "skip_blank_lines": len(names) > 1,
        "low_memory": False,
    }
    empty = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            for chunk in pd.read_csv(text, chunksize=rows or 2**62, **options):
                empty = empty and chunk.empty
                if not chunk.empty:
                    yield chunk
    except pd.errors.EmptyDataError:
        pass
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        _check_lines(path, len(names), reading)
        message = " ".join(str(error).split()).rstrip(".")
        found = f"{path} is not a table separated by {reading.separator!r}: {message}."
        raise ValueError(found) from error
    if empty:
        raise ValueError(f"{path} has a header line, but no rows below it.")


def _header(text: io.TextIOBase, path: Path, reading: Reading) -> list[str]:
    """Names of the columns; the text then stands at the line below."""
    lines = _records(iter(text.readline, ""), path, reading)
    for _, names in lines:
        return [name.strip() for name in names]
    raise ValueError(f"{path} is empty. It must have a header line with column names, then rows.")


def _records(lines: Iterator[str], path: Path, reading: Reading) -> Iterator[tuple[int, list[str]]]:
    """Cells of each record that is neither blank nor a comment, with its line number."""
    reader = csv.reader(lines, delimiter=reading.separator)
    try:
        for cells in reader:
            if cells and not (reading.comment and cells[0].startswith(reading.comment)):
                yield reader.line_num, cells
    except csv.Error as error:
        found = f"line {reader.line_num} cannot be separated by {reading.separator!r}: {error}."
        raise ValueError(f"{path}, {found}") from error


def _check_lines(path: Path, columns: int, reading: Reading) -> None:
    """Raise a ``ValueError`` for the first line with more or fewer cells than the header."""
    with _opened(path) as (file, _), io.TextIOWrapper(file, reading.encoding, newline="") as text:
        header: tuple[int, list[str]] | None = None
        for line, cells in _records(iter(text.readline, ""), path, reading):
            header = header or (line, cells)
            if len(cells) == columns or (reading.comment and reading.comment in "".join(cells)):
                continue
            found = f"{path}, line {line} has {len(cells)} cells, but the header has {columns}"
            for number, (sign, *_) in (header, (line, cells)):
                if sign[:1] in ("#", "%") and not reading.comment:
                    advice = f"If line {number} is a comment, pass comment={sign[0]!r}"
                    raise ValueError(f"{found}. {advice}.")
            raise ValueError(
                f"{found}. Correct the line, quote cells that contain {reading.separator!r}, or "
                "pass separator= if another character separates cells."
            )


def _check_csv(path: Path, beginning: str) -> None:
    """Raise a ``ValueError`` for JSON, and for a header line without an end."""
    suffixes = (".json", ".jsonl", ".ndjson")
    if path.suffix.lower() in suffixes or re.match(r'\s*(\{\s*"|\[\s*[\[{])', beginning):
        lines = ", lines=True" if re.match(r"\s*\{.*\}\s*\n\s*\{", beginning) else ""
        convert = f"pandas.read_json({str(path)!r}{lines}).to_csv('table.csv', index=False)"
        raise ValueError(f"{path} is JSON, not CSV. Convert it first: {convert}")
    if len(beginning) == _BEGINNING and "\n" not in beginning and "\r" not in beginning:
        raise ValueError(
            f"{path} is not a table: line 1 does not end within {_BEGINNING} characters."
        )


def _is_index(cells: pd.Series) -> bool:
    """Whether all cells are different whole numbers, as pandas and R write row labels."""
    values, is_number = parse(cells)
    return bool(is_number.all() and (values == values.round()).all()) and cells.is_unique


def _tables_in(archive: zipfile.ZipFile) -> list[str]:
    names = (name for name in archive.namelist() if not name.startswith("__MACOSX/"))
    return [name for name in names if name.lower().endswith((".csv", ".tsv", ".txt"))]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Callable[[], float]]]:
    """Uncompressed bytes of a file, and a function that returns the share that has been read."""
    with open(path, "rb") as file, ExitStack() as stack:
        unpacked: Any = file
        try:
            if path.suffix.lower() == ".zip":
                archive = stack.enter_context(zipfile.ZipFile(file))
                names = _tables_in(archive)
                if len(names) != 1:
                    found = f"{len(names)} tables ({', '.join(names[:3])})"
                    raise ValueError(f"{path} contains {found}; expected one.")
                unpacked = stack.enter_context(archive.open(names[0]))
            elif opener := _OPENERS.get(path.suffix.lower()):
                unpacked = stack.enter_context(opener(file))
            size = max(1, path.stat().st_size)
            yield unpacked, lambda: min(1.0, file.tell() / size)
        except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path} cannot be unpacked: {error}. It is truncated or damaged."
            ) from error


def _encoding(path: Path, encoding: str) -> tuple[str, list[str]]:
    """The encoding that decodes the whole file, and a note if it was guessed."""
    with _opened(path) as (file, _):
        content = file.read(1000)
    if path.suffix.lower() in (".xls", ".xlsx"):
        convert = f"pandas.read_excel({str(path)!r}).to_csv('table.csv', index=False)"
        raise ValueError(f"{path} is an Excel file. Convert it first: {convert}")
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
            known = "utf-8, cp1252 and utf-16 are common ones"
            raise ValueError(f"encoding={guess!r} is not known to Python; {known}.") from None
        except UnicodeError:
            continue
        note = f"{path} is not UTF-8 and was read as {guess}; if letters are wrong, pass encoding="
        return guess, [] if guess in ("utf-8-sig", encoding) else [note]
    tried = "UTF-8 or UTF-16" if encoding == "auto" else encoding
    raise ValueError(f"{path} is not text in {tried}. If it is a table, pass encoding=.")


def _separator(text: str, reading: Reading) -> str:
    """The separator that divides the header into most cells, and most lines into as many."""
    lines = text.splitlines()[:_SAMPLE_LINES]
    if reading.comment:
        lines = [line for line in lines if not line.startswith(reading.comment)]

    def cells(separator: str) -> int:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:
            return 1
        header = counts[0] if counts else 1
        most_are_equal = counts.count(header) > len(counts) / 2
        few_are_longer = sum(n > header for n in counts) < len(counts) / 10
        return header if most_are_equal and few_are_longer else 1

    return max(_SEPARATORS, key=cells)
