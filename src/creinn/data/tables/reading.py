"""A CSV file, plain or packed, as a table of texts: encoding and separator are found out, and said."""

import bz2
import csv
import gzip
import lzma
import warnings
import zipfile
from dataclasses import replace
from io import StringIO
from itertools import islice
from operator import eq, gt
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from creinn.data.tables.numerals import parse
from creinn.data.tables.table import Reading, Table, Texts

SEPARATORS = (",", ";", "\t", "|")
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_TABLES = (".csv", ".tsv", ".txt")
_LOOKED_AT = 100  # lines, to find the separator


def read_table(path: str | PathLike[str], reading: Reading = Reading()) -> Table:  # noqa: B008 (frozen)
    """Read a CSV file with a header line; of one column, each line is a row, blank or not.

    A file may be packed: ``.zip`` with one table in it, ``.gz``, ``.bz2`` or ``.xz``.

    Args:
        path: The file.
        reading: How to read it.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is empty, no CSV, in another encoding, or has columns without a name or of the same name.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    text, notes = _decoded(_content(path), reading.encoding, path)
    separator = reading.separator.replace("\\t", "\t")
    if separator == "auto":
        separator = _separator(text)
        if separator != ",":
            notes.append(f"{path}: cells are parted by {separator!r}")
    cells = _split(text, separator, path)
    names = [name.strip() if isinstance(name, str) else "" for name in cells.iloc[0]]
    if len(cells) == 1:
        raise ValueError(f"{path} has a header line, but no rows below it.")
    columns = [_stripped(cells[i].iloc[1:]) for i in range(len(names))]
    if not names[0] and len(names) > 1 and _is_index(columns[0]):
        notes.append(f"{path}: the first column has no name and numbers the rows, so it is left out")
        names, columns = names[1:], columns[1:]
    _check_names(names, path)
    frame = pd.DataFrame(dict(zip(names, columns, strict=True)), dtype=object)
    return Table(str(path), frame, replace(reading, separator=separator), tuple(notes))


def is_packed_table(path: Path) -> bool:
    """Whether it is a zip archive of a table rather than of images."""
    try:
        return path.suffix.lower() == ".zip" and path.is_file() and len(_packed(path)) > 0
    except zipfile.BadZipFile:
        return False


def _packed(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
    return [name for name in names if name.lower().endswith(_TABLES)]


def _content(path: Path) -> bytes:
    if path.suffix.lower() != ".zip":
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            return file.read()
    names = _packed(path)
    if len(names) != 1:
        raise ValueError(f"{path} holds {len(names)} tables ({', '.join(names[:3])}), but one is needed.")
    with zipfile.ZipFile(path) as archive:
        return archive.read(names[0])


def _decoded(content: bytes, encoding: str, path: Path) -> tuple[str, list[str]]:
    """The text, and a note if its encoding was guessed."""
    if encoding != "auto":
        try:
            return content.decode(encoding), []
        except LookupError:
            raise ValueError(f"There is no encoding {encoding!r}; utf-8, cp1252 and utf-16 are usual ones.") from None
        except UnicodeError as error:
            raise ValueError(f"{path} is not a text in {encoding}: {error}. Name another --encoding.") from error
    guesses = ["utf-8-sig", "cp1252", "latin-1"]
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        guesses = ["utf-16"]
    elif b"\0" in content[:1000]:
        little = content[1:1000:2].count(0) > content[:1000:2].count(0)
        guesses = ["utf-16-le" if little else "utf-16-be"]
    for guess in guesses:
        try:
            text = content.decode(guess)
        except UnicodeError:
            continue
        note = f"{path} is not in UTF-8 and is read as {guess}; name another --encoding if letters are wrong"
        return text, [] if guess == "utf-8-sig" else [note]
    raise ValueError(f"{path} is not a text in UTF-8 or UTF-16. Name its --encoding, if it is a table.")


def _separator(text: str) -> str:
    """The sign that parts the header into most cells, and most lines into as many."""
    lines = text[: 1000 * _LOOKED_AT].splitlines()[:_LOOKED_AT]

    def cells(separator: str) -> int:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:
            return 1
        equal, more = (sum(test(count, counts[0]) for count in counts) for test in (eq, gt))
        return counts[0] if equal > len(counts) / 2 and more < len(counts) / 10 else 1

    return max(SEPARATORS, key=cells)


def _split(text: str, separator: str, path: Path) -> pd.DataFrame:
    """All cells, the header's among them."""
    text = text.lstrip("\r\n")
    header = next(csv.reader(islice(StringIO(text), 1), delimiter=separator), [])
    if len(header) > 1:
        text = text.rstrip("\r\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                StringIO(text),
                sep=separator,
                header=None,
                dtype=object,
                keep_default_na=False,
                skip_blank_lines=False,
            )
    except pd.errors.EmptyDataError:
        raise ValueError(
            f"{path} is empty. A header line with the names of the columns is needed, then rows."
        ) from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        message = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{path} is not a table with {separator!r} between cells: {message}.") from error


def _check_names(names: list[str], path: Path) -> None:
    for position, name in enumerate(names, start=1):
        if not name:
            raise ValueError(f"{path}: column {position} of {len(names)} has no name in the header line.")
        if names.index(name) != position - 1:
            raise ValueError(
                f"{path}: columns {names.index(name) + 1} and {position} have the same name {name!r}. Rename one."
            )


def _is_index(cells: Texts) -> bool:
    """Whether all are whole numbers, none of them twice: what pandas and R write unasked."""
    values, is_number = parse(cells)
    return bool(is_number.all() and (values == values.round()).all()) and len(set(cells)) == len(cells)


def _stripped(cells: pd.Series) -> Texts:
    texts = cells.str.strip()
    return texts.where(texts.notna() & (texts != ""), None).to_numpy(dtype=object)
