"""Tables of results as text, Markdown and HTML.

A row is a dictionary of cells: text, numbers, :class:`MeanStd` or
``None``.
"""

from collections.abc import Mapping, Sequence
from numbers import Integral
from statistics import fmean, stdev
from typing import NamedTuple

from markupsafe import Markup

from creinn.report.theme import render

NO_VALUE = "\N{EN DASH}"


class MeanStd(NamedTuple):
    """Mean and standard deviation of runs; the latter is ``None`` for one run.

    Example:
        >>> MeanStd.of([1.0, 2.0, 3.0])
        MeanStd(mean=2.0, std=1.0)
    """

    mean: float
    std: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "MeanStd":
        """Compute both."""
        return cls(fmean(values), float(stdev(values)) if len(values) > 1 else None)


Cell = str | int | float | MeanStd | None
Row = Mapping[str, Cell]
Digits = int | Mapping[str, int]


def format_cell(cell: Cell, digits: int = 3) -> str:
    """Format a cell; ``None`` is a dash.

    Example:
        >>> format_cell(MeanStd(0.94312, 0.0021)), format_cell(None)
        ('0.943 ± 0.002', '–')
    """
    if cell is None:
        return NO_VALUE
    if isinstance(cell, MeanStd):
        mean = format_cell(cell.mean, digits)
        return mean if cell.std is None else f"{mean} ± {format_cell(cell.std, digits)}"
    return str(cell) if isinstance(cell, str | Integral) else f"{cell:.{digits}f}"


def text_table(rows: Sequence[Row], digits: Digits = 3) -> str:
    """Return a table for a terminal.

    ``digits`` is the number of decimals, or a dictionary by column.

    Example:
        >>> print(text_table([{"model": "SNN", "acc": 0.9}]))
        model    acc
        -----  -----
        SNN    0.900
    """
    columns, cells, numeric = _grid(rows, digits)
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    aligned = [">" if right else "<" for right in numeric]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(aligned, widths, strict=True))
    lines = [columns, ["-" * width for width in widths], *cells]
    return "\n".join(form.format(*line).rstrip() for line in lines)


def markdown_table(rows: Sequence[Row], digits: Digits = 3) -> str:
    """Return a Markdown table; see :func:`text_table`.

    Example:
        >>> print(markdown_table([{"model": "SNN", "acc": 0.9}], digits=2))
        | model | acc |
        |---|---:|
        | SNN | 0.90 |
    """
    columns, cells, numeric = _grid(rows, digits)
    rule = "|".join("---:" if right else "---" for right in numeric)
    lines = [[cell.replace("|", "\\|") for cell in line] for line in [columns, *cells]]
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, f"|{rule}|", *body])


def html_table(rows: Sequence[Row], digits: Digits = 3) -> Markup:
    """Return an HTML table; see :func:`text_table`.

    Columns with a name that ends with "(paper)" are grey.
    """
    columns, cells, numeric = _grid(rows, digits)
    return render("table.html", columns=columns, numeric=numeric, rows=cells)


def _grid(rows: Sequence[Row], digits: Digits) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return the columns, the cells, and which columns are numeric."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        raise ValueError("A table needs at least one row and one column.")
    places = digits if isinstance(digits, Mapping) else dict.fromkeys(columns, digits)
    cells = [[format_cell(row.get(name), places.get(name, 3)) for name in columns] for row in rows]
    numeric = [not any(isinstance(row.get(name), str) for row in rows) for name in columns]
    return columns, cells, numeric
