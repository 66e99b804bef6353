"""Tables of results as text, Markdown and HTML.

A row is a dictionary from the names of the columns to cells. A cell is text, a number, a
:class:`MeanStd`, or ``None`` if there is no value.
"""

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from numbers import Integral, Real
from typing import NamedTuple

from markupsafe import Markup

from creinn.report.theme import render

NO_VALUE = "\N{EN DASH}"


class MeanStd(NamedTuple):
    """The mean and the standard deviation of several runs.

    The standard deviation is ``None`` if there is only one run.

    Example:
        >>> MeanStd.of([1.0, 2.0, 3.0])
        MeanStd(mean=2.0, std=1.0)
    """

    mean: float
    std: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "MeanStd":
        """Compute the mean and the sample standard deviation (with divisor ``n - 1``).

        Raises:
            ValueError: If there are no values.
        """
        if len(values) == 0:
            raise ValueError("The mean is not defined, because there are no values.")
        mean = sum(values) / len(values)
        squares = sum((value - mean) ** 2 for value in values)
        return cls(float(mean), sqrt(squares / (len(values) - 1)) if len(values) > 1 else None)


Cell = str | int | float | MeanStd | None
Row = Mapping[str, Cell]
Digits = int | Mapping[str, int]


def format_cell(cell: Cell, digits: int = 3) -> str:
    """Format a cell; numbers have ``digits`` decimals, and ``None`` is a dash.

    Example:
        >>> format_cell(MeanStd(0.94312, 0.0021)), format_cell(12), format_cell(None)
        ('0.943 ± 0.002', '12', '–')
    """
    if cell is None:
        return NO_VALUE
    if isinstance(cell, MeanStd):
        mean = format_cell(cell.mean, digits)
        return mean if cell.std is None else f"{mean} ± {format_cell(cell.std, digits)}"
    if isinstance(cell, Real) and not isinstance(cell, Integral):
        return f"{cell:.{digits}f}" if isfinite(cell) else str(cell)
    return str(cell)


def with_published(
    rows: Sequence[Row], published: Mapping[str, Row], key: str, suffix: str = " (paper)"
) -> list[dict[str, Cell]]:
    """Add the published values as columns to the right of our columns.

    Args:
        rows: The rows of our results.
        published: The published rows by their value in the column ``key``. If there is no published
            row, the cells are empty.
        key: The column that identifies a row.
        suffix: The text that is added to the names of the published columns.

    Raises:
        ValueError: If there are no rows, or if a column is missing in our rows.

    Example:
        >>> with_published([{"model": "A", "acc": 0.8}], {"A": {"acc": 0.84}}, key="model")
        [{'model': 'A', 'acc': 0.8, 'acc (paper)': 0.84}]
    """
    columns = _columns(rows)
    if key not in columns:
        raise ValueError(f"The rows have no column {key!r}. The columns are {', '.join(columns)}.")
    paired = {name for row in published.values() for name in row}
    if strange := sorted(paired - set(columns)):
        raise ValueError(
            f"The columns {', '.join(strange)} are published, but the rows only have "
            f"{', '.join(columns)}."
        )
    theirs = {
        name: {f"{column}{suffix}": cell for column, cell in row.items()}
        for name, row in published.items()
    }
    order = []
    for name in columns:
        order += [name, name + suffix] if name in paired else [name]
    joined = ({**row, **theirs.get(str(row[key]), {})} for row in rows)
    return [{label: row.get(label) for label in order} for row in joined]


def text_table(rows: Sequence[Row], digits: Digits = 3) -> str:
    """Return a table for a terminal, with text on the left and numbers on the right.

    Args:
        rows: The rows of the table.
        digits: The number of decimals, for all columns or by the name of a column.

    Raises:
        ValueError: If there are no rows or no columns.

    Example:
        >>> print(text_table([{"model": "SNN", "acc": 0.9}, {"model": "CreINN", "acc": None}]))
        model     acc
        ------  -----
        SNN     0.900
        CreINN      –
    """
    columns, cells, numeric = _grid(rows, digits)
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    form = "  ".join(
        f"{{:{'>' if right else '<'}{width}}}" for width, right in zip(widths, numeric, strict=True)
    )
    lines = [columns, ["-" * width for width in widths], *cells]
    return "\n".join(form.format(*line).rstrip() for line in lines)


def markdown_table(rows: Sequence[Row], digits: Digits = 3) -> str:
    """Return a Markdown table; see :func:`text_table`.

    Example:
        >>> print(markdown_table([{"model": "SNN", "acc": MeanStd(0.9, 0.01)}], digits=2))
        | model | acc |
        |---|---:|
        | SNN | 0.90 ± 0.01 |
    """
    columns, cells, numeric = _grid(rows, digits)
    rule = "|".join("---:" if right else "---" for right in numeric)
    head, *body = (
        " | ".join(cell.replace("|", "\\|") for cell in line) for line in [columns, *cells]
    )
    return "\n".join([f"| {head} |", f"|{rule}|", *(f"| {line} |" for line in body)])


def html_table(rows: Sequence[Row], digits: Digits = 3) -> Markup:
    """Return an HTML table; see :func:`text_table`.

    The published columns are grey. In a narrow window, a table with more than three columns is
    shown as a list.
    """
    columns, cells, numeric = _grid(rows, digits)
    return render("table.html", columns=columns, numeric=numeric, rows=cells)


def _columns(rows: Sequence[Row]) -> list[str]:
    """Return the names of all columns in the order of the rows."""
    if len(rows) == 0:
        raise ValueError("The table must have at least one row.")
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        raise ValueError("The table must have at least one column.")
    return columns


def _grid(rows: Sequence[Row], digits: Digits) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return the column names, the cells as text, and a mask of the numeric columns."""
    columns = _columns(rows)
    places = [digits if isinstance(digits, int) else digits.get(name, 3) for name in columns]
    cells = [
        [format_cell(row.get(name), place) for name, place in zip(columns, places, strict=True)]
        for row in rows
    ]
    numeric = [not any(isinstance(row.get(name), str) for row in rows) for name in columns]
    return columns, cells, numeric
