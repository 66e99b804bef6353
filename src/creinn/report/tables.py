"""Tables of results as text, Markdown and HTML.

A row is a dictionary from the names of the columns to cells. A cell is text, a number, a
:class:`MeanStd`, or ``None`` if there is no value.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from numbers import Integral, Real
from statistics import fmean, stdev
from typing import NamedTuple

from markupsafe import Markup

from creinn.report.theme import render

NO_VALUE = "\N{EN DASH}"


class MeanStd(NamedTuple):
    """The mean and the standard deviation of several runs, which is ``None`` for one run.

    Example:
        >>> MeanStd.of([1.0, 2.0, 3.0])
        MeanStd(mean=2.0, std=1.0)
    """

    mean: float
    std: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "MeanStd":
        """Compute the mean and the sample standard deviation (with divisor ``n - 1``)."""
        return cls(fmean(values), float(stdev(values)) if len(values) > 1 else None)


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


def text_table(rows: Sequence[Row], digits: Digits = 3) -> str:
    """Return a table for a terminal, with text on the left and numbers on the right.

    Args:
        rows: The rows of the table.
        digits: The number of decimals, for all columns or by the name of a column.

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

    Columns that end with "(paper)" are grey. In a narrow window, a table with more than three
    columns is shown as a list.
    """
    columns, cells, numeric = _grid(rows, digits)
    return render("table.html", columns=columns, numeric=numeric, rows=cells)


def _grid(rows: Sequence[Row], digits: Digits) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return the column names, the cells as text, and a mask of the numeric columns."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        raise ValueError("The table must have at least one row and one column.")
    places = [digits if isinstance(digits, int) else digits.get(name, 3) for name in columns]
    cells = [
        [format_cell(row.get(name), place) for name, place in zip(columns, places, strict=True)]
        for row in rows
    ]
    numeric = [not any(isinstance(row.get(name), str) for row in rows) for name in columns]
    return columns, cells, numeric
