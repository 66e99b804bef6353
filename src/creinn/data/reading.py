"""Readers of CSV and Parquet tables, whole or in chunks of rows.

A CSV file can be compressed; its encoding and separator are detected.
"""

import bz2
import csv
import gzip
import io
import lzma
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import pandas as pd

from creinn.data.table import Reading, Table, Tables, as_cells, check_pair, parse_numbers
from creinn.numerics import list_names

Names = Collection[str]

_DAMAGED = EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile
_INDEX = "__index_level_0__"  # pandas index in Parquet


def read_chunks(
    paths: Sequence[Path], reading: Reading, rows: int | None = None, numbers: Names = ()
) -> Iterator[Tables]:
    """Read one table, or two tables of bounds, in chunks of ``rows`` or whole.

    In a CSV file, pandas parses the columns in ``numbers``, which is
    faster.
    """
    chunks = [
        _parquet_chunks(path, reading, rows)
        if is_parquet(path)
        else _csv_chunks(path, reading, rows, numbers)
        for path in paths
    ]
    for tables in zip_longest(*chunks):
        check_pair(tables)
        yield tables


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet by its suffix."""
    return path.suffix.lower() in (".parquet", ".pq")


def _csv_chunks(path: Path, reading: Reading, rows: int | None, numbers: Names) -> Iterator[Table]:
    reading, notes = _detect(path, reading)
    with _open(path, reading.encoding) as (text, share), warnings.catch_warnings():
        _, header = next(_records(text, reading), (0, []))
        names = [name.strip() for name in header]
        if not names:
            raise ValueError(f"{path} is empty. A table needs a header line.")
        first = int(not names[0] and len(names) > 1)
        if first == 1:
            notes.append(f"{path}: the first column has no name and is left out")
        _check_names(names[first:], path)
        if reading.decimal == "," or np.isfinite(parse_numbers(reading.marks)).any():
            numbers = ()  # pandas equates the mark -999 with -999.0
        warnings.simplefilter("error", pd.errors.ParserWarning)
        is_checked = False
        try:
            chunks = pd.read_csv(
                text,
                sep=reading.separator,
                comment=reading.comment or None,
                names=names,
                index_col=False,
                dtype={name: object for name in names if name not in numbers},
                na_values={name: ["", *reading.marks] for name in numbers},
                keep_default_na=False,
                skip_blank_lines=len(names) > 1,
                low_memory=False,
                chunksize=rows or 2**62,
            )
            for chunk in chunks:
                if len(chunk) == 0:
                    raise ValueError(f"{path} has no rows after the header line.")
                frame = chunk.iloc[:, first:].apply(as_cells)
                if not is_checked and frame.iloc[:, -1].isna().any():
                    _check_lines(path, len(names), reading)  # a short row has missing cells
                    is_checked = True
                yield Table(str(path), frame, reading, tuple(notes), share())
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            _check_lines(path, len(names), reading)
            raise ValueError(f"{path} is not a table: {' '.join(str(error).split())}") from error


def _detect(path: Path, reading: Reading) -> tuple[Reading, list[str]]:
    notes = []
    if reading.encoding == "auto":
        reading = replace(reading, encoding=_encoding(path))
        if reading.encoding != "utf-8-sig":
            found = f"{path} was read as {reading.encoding}"
            notes.append(f"{found}; if letters are wrong, pass encoding=")
    separator = reading.separator.replace("\\t", "\t")
    if separator == "auto":
        separator = _separator(path, reading)
        if separator != ",":
            notes.append(f"{path}: cells are separated by {separator!r}")
    if len(separator) != 1:
        raise ValueError(f"separator= must be one character, \\t or auto, got {separator!r}.")
    return replace(reading, separator=separator), notes


def _records(lines: Iterable[str], reading: Reading) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines, delimiter=reading.separator)
    for cells in reader:
        if cells and not (reading.comment and cells[0].startswith(reading.comment)):
            yield reader.line_num, cells


def _check_lines(path: Path, columns: int, reading: Reading) -> None:
    with _open(path, reading.encoding) as (text, _):
        for line, cells in _records(text, reading):
            if len(cells) != columns and not (reading.comment and reading.comment in str(cells)):
                raise ValueError(
                    f"{path}, line {line}: found {len(cells)} of {columns} cells. Correct the "
                    "line, quote cells, or pass separator= or comment=."
                )


def _check_names(names: Sequence[str], path: Path) -> None:
    for position, name in enumerate(names, start=1):
        if not name:
            raise ValueError(f"{path}: column {position} has no name.")
        if names.count(name) > 1:
            raise ValueError(f"{path} has several columns {name!r}. Rename them.")


@contextmanager
def _open(path: Path, encoding: str) -> Iterator[tuple[Any, Callable[[], float]]]:
    """Open a text file, and yield it and the fraction read so far."""
    opener, size = _OPENERS.get(path.suffix.lower()), path.stat().st_size or 1
    try:
        with open(path, "rb") as file:
            binary = file if opener is None else opener(file)
            with io.TextIOWrapper(binary, encoding, newline="") as text:
                yield text, lambda: min(1.0, file.tell() / size)
    except _DAMAGED as error:
        raise ValueError(f"{path} is truncated or damaged: {error}.") from error
    except UnicodeError as error:
        raise ValueError(f"{path} is not text: {error}. If it is CSV, pass encoding=.") from error


def _open_zip(file: BinaryIO) -> IO[bytes]:
    archive = zipfile.ZipFile(file)
    files = [name for name in archive.namelist() if not name.endswith("/")]
    names = [name for name in files if not name.startswith("__MACOSX/")]
    if len(names) != 1:
        raise ValueError(f"{file.name} must contain one table, got {list_names(names, 'file')}.")
    return archive.open(names[0])


_OPENERS: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zip": _open_zip}


def _encoding(path: Path) -> str:
    """UTF-16 if the file has a byte order mark, else UTF-8 or cp1252."""
    with _open(path, "latin-1") as (text, _):
        start = text.read(1000)
    if path.suffix.lower() in (".json", ".xls", ".xlsx") or start.startswith(("{", "[{", "[[")):
        raise ValueError(f"{path} is not CSV. Convert JSON and Excel files with pandas.")
    if start.startswith(("\xff\xfe", "\xfe\xff")):
        return "utf-16"
    with suppress(ValueError), _open(path, "utf-8-sig") as (text, _):
        while text.read(1 << 20):
            pass
        return "utf-8-sig"
    return "cp1252"


def _separator(path: Path, reading: Reading) -> str:
    """Separator with the most cells in the header and most other lines."""
    with _open(path, reading.encoding) as (text, _):
        lines = list(islice(text, 100))

    def count_cells(separator: str) -> int:
        records = _records(lines, replace(reading, separator=separator))
        counts = [len(cells) for _, cells in records]
        return counts[0] if counts and counts.count(counts[0]) > len(counts) / 2 else 1

    return max(",;\t|", key=count_cells)


def _parquet_chunks(path: Path, reading: Reading, rows: int | None) -> Iterator[Table]:
    pa, pq = load_pyarrow()
    try:
        with pq.ParquetFile(path) as file:
            schema, total = file.schema_arrow, file.metadata.num_rows
            if total == 0:
                raise ValueError(f"{path} has no rows.")
            columns = [name for name in schema.names if name != _INDEX]
            _check_names(columns, path)
            for name in columns:
                if pa.types.is_nested(kind := schema.field(name).type):
                    raise ValueError(f"{path}: column {name!r} has type {kind}. Remove it.")
            has_index = _INDEX in schema.names
            notes = (f"{path}: the index of pandas was left out",) if has_index else ()
            size, end = rows or total, 0
            for batch in _regrouped(pa, file.iter_batches(size, columns=columns), size):
                start, end = end, end + len(batch)
                frame = batch.to_pandas(types_mapper=pd.ArrowDtype)
                frame = frame.set_axis(pd.RangeIndex(start, end)).apply(as_cells)
                yield Table(str(path), frame, reading, notes, end / total)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}. Is it complete?") from error


def _regrouped(pa: Any, batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """Yield tables of ``rows`` rows; batches end with row groups."""
    waiting = []
    for batch in batches:
        waiting.append(batch)
        while sum(map(len, waiting)) >= rows:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, rows)
            waiting = table.slice(rows).to_batches()
    if waiting:
        yield pa.Table.from_batches(waiting)


def load_pyarrow() -> tuple[Any, Any]:
    """Import ``pyarrow`` and ``pyarrow.parquet``."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        advice = 'Parquet files require pyarrow: pip install "creinn[parquet]"'
        raise ImportError(advice) from error
    return pyarrow, pyarrow.parquet
