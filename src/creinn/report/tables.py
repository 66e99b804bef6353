"""Rows of results -> aligned text, Markdown and HTML.

In: one mapping per row, from column name to cell: text, a number, a :class:`Spread` (mean ± standard deviation), or
``None`` for what does not apply. Out: the same cells in three forms. Published numbers go into columns beside ours.
"""

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from numbers import Integral, Real
from typing import NamedTuple

from markupsafe import Markup

from creinn.report.theme import render

MISSING = "\N{EN DASH}"


class Spread(NamedTuple):
    """Mean of several runs and their standard deviation; ``None`` for a single run.

    Example:
        >>> Spread.of([1.0, 2.0, 3.0])
        Spread(mean=2.0, std=1.0)
    """

    mean: float
    std: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Mean and sample standard deviation (divisor ``n - 1``) of the runs.

        Raises:
            ValueError: If there are no values.
        """
        if len(values) == 0:
            raise ValueError("A mean needs at least one value, but there are none.")
        mean = sum(values) / len(values)
        squares = sum((value - mean) ** 2 for value in values)
        return cls(float(mean), sqrt(squares / (len(values) - 1)) if len(values) > 1 else None)


Cell = str | int | float | Spread | None
Row = Mapping[str, Cell]
Digits = int | Mapping[str, int]


def format_cell(cell: Cell, digits: int = 3) -> str:
    """A cell as text: numbers with ``digits`` decimals, integers and text as they are, what is missing as a dash.

    Example:
        >>> format_cell(Spread(0.94312, 0.0021)), format_cell(12), format_cell(0.5, 1), format_cell(None)
        ('0.943 ± 0.002', '12', '0.5', '–')
    """
    if cell is None:
        return MISSING
    if isinstance(cell, Spread):
        mean = format_cell(cell.mean, digits)
        return mean if cell.std is None else f"{mean} ± {format_cell(cell.std, digits)}"
    if isinstance(cell, Real) and not isinstance(cell, Integral):
        return f"{cell:.{digits}f}" if isfinite(cell) else str(cell)
    return str(cell)


def with_published(
    rows: Sequence[Row], published: Mapping[str, Row], key: str, suffix: str = " (paper)"
) -> list[dict[str, Cell]]:
    """Put a published column, named with ``suffix``, to the right of each of our columns that has one.

    ``published`` holds rows by their value in the column ``key``; a row of ours that is not among them gets dashes.

    Raises:
        ValueError: If there are no rows, one lacks the column ``key``, or a published column is not among ours.

    Example:
        >>> with_published([{"model": "A", "acc": 0.8}], {"A": {"acc": 0.84}}, key="model")
        [{'model': 'A', 'acc': 0.8, 'acc (paper)': 0.84}]
    """
    columns = _columns(rows)
    if key not in columns:
        raise ValueError(
            f"The rows have no column {key!r}; their columns are {', '.join(columns)}."
        )
    paired = {name for row in published.values() for name in row}
    if strange := sorted(paired - set(columns)):
        raise ValueError(
            f"Published columns without one of ours: {', '.join(strange)}. Ours are {', '.join(columns)}."
        )
    theirs = {
        name: {f"{column}{suffix}": cell for column, cell in row.items()}
        for name, row in published.items()
    }
    order = [
        label for name in columns for label in ([name, name + suffix] if name in paired else [name])
    ]
    joined = ({**row, **theirs.get(str(row[key]), {})} for row in rows)
    return [{label: row.get(label) for label in order} for row in joined]


def text_table(rows: Sequence[Row], digits: Digits = 3) -> str:
    """Aligned columns for a terminal; words to the left, numbers to the right.

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
    """A Markdown table; pipes in cells are escaped. Refuses what :func:`text_table` does.

    Example:
        >>> print(markdown_table([{"model": "SNN", "acc": Spread(0.9, 0.01)}], digits=2))
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
    """An HTML table for a page; published columns stand in grey. Refuses what :func:`text_table` does.

    On a narrow window a table of more than three columns becomes a list of its rows, with the names of the columns.
    """
    columns, cells, numeric = _grid(rows, digits)
    return render("table.html", columns=columns, numeric=numeric, rows=cells)


def _columns(rows: Sequence[Row]) -> list[str]:
    """Names of all columns, in the order in which rows bring them."""
    if len(rows) == 0:
        raise ValueError("A table needs at least one row, but there are none.")
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        raise ValueError("A table needs at least one column, but the rows are empty.")
    return columns


def _grid(rows: Sequence[Row], digits: Digits) -> tuple[list[str], list[list[str]], list[bool]]:
    """Column names, formatted cells, and whether each column holds numbers only."""
    columns = _columns(rows)
    places = [digits if isinstance(digits, int) else digits.get(name, 3) for name in columns]
    cells = [
        [format_cell(row.get(name), place) for name, place in zip(columns, places, strict=True)]
        for row in rows
    ]
    numeric = [not any(isinstance(row.get(name), str) for row in rows) for name in columns]
    return columns, cells, numeric
