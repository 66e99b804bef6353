"""A CSV file as a table of texts, with errors that name file, row and column.

Nothing is guessed here: a cell stays a text until a caller asks for numbers. Rows are counted from 1, below the
header; blank lines are not counted.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Texts = npt.NDArray[np.object_]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MISSING = frozenset({"", "NA", "N/A", "n/a", "<NA>", "NaN", "nan", "null", "NULL", "None"})
"""Cells with these texts hold no value."""

_WHOLE = re.compile(r"^([+-]?\d+)\.0+$")  # how other programs write integers in columns with missing values


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of texts; a missing value is ``None``.

    Args:
        name: Where it was read from, for messages.
        frame: The cells.
    """

    name: str
    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in the order of the file."""
        return list(self.frame.columns)

    def texts(self, column: str) -> Texts:
        """Cells of a column; ``None`` where missing. A whole number is written without decimals, ``1.0`` as ``1``.

        Raises:
            ValueError: If there is no such column.
        """
        self.check_column(column)
        cells = self.frame[column].to_numpy(dtype=object)
        return np.array(
            [None if c is None else _WHOLE.sub(r"\1", c) if _WHOLE.fullmatch(c) else c for c in cells], object
        )

    def numbers(self, column: str) -> Floats:
        """Cells of a column as numbers; NaN where missing.

        Raises:
            ValueError: If there is no such column, or a cell is not a finite number.
        """
        self.check_column(column)
        values, is_number = parse(self.frame[column])
        bad = np.flatnonzero(~is_number & self.frame[column].notna().to_numpy())
        if len(bad):
            row = int(bad[0])
            infinite = bool(np.isinf(values[row]))
            raise ValueError(
                f"{self.at(row, column)}: {self.frame[column].iloc[row]!r} is not a "
                f"{'finite ' if infinite else ''}number."
            )
        return values

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


def read_table(path: str | PathLike[str], missing: Sequence[str] = (), separator: str = ",") -> Table:
    """Read a CSV file in UTF-8 with a header line.

    Args:
        path: The file.
        missing: Texts that stand for a missing value, besides :data:`MISSING`.
        separator: Between cells.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is empty, no CSV, or has columns without a name or of the same name.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            cells = pd.read_csv(
                path, sep=separator, header=None, dtype=object, keep_default_na=False, encoding="utf-8-sig"
            )
    except pd.errors.EmptyDataError:
        raise ValueError(
            f"{path} is empty. A header line with the names of the columns is needed, then rows."
        ) from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise ValueError(f"{path} is not a table: {_one_line(error)}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8: {error.reason} at byte {error.start}.") from error
    names = [name.strip() if isinstance(name, str) else "" for name in cells.iloc[0]]
    _check_names(names, path)
    if len(cells) == 1:
        raise ValueError(f"{path} has a header line, but no rows below it.")
    marks = [*MISSING, *missing]
    columns = {name: _stripped(cells[i].iloc[1:], marks) for i, name in enumerate(names)}
    return Table(str(path), pd.DataFrame(columns, dtype=object))


def parse(cells: Any) -> tuple[Floats, Bools]:
    """Cells as numbers where they are (NaN elsewhere), and whether each is a finite one."""
    values = pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce").to_numpy(dtype=np.float64)
    return values, np.isfinite(values)


def _check_names(names: list[str], path: Path) -> None:
    for position, name in enumerate(names, start=1):
        if not name:
            raise ValueError(f"{path}: column {position} of {len(names)} has no name in the header line.")
        if names.index(name) != position - 1:
            raise ValueError(
                f"{path}: columns {names.index(name) + 1} and {position} have the same name {name!r}. Rename one."
            )


def _stripped(cells: pd.Series, missing: Sequence[str]) -> Texts:
    texts = cells.str.strip()
    values = texts.to_numpy(dtype=object, copy=True)
    values[(texts.isna() | texts.isin(missing)).to_numpy()] = None
    return values


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
