"""Two tables that are the lower and the upper bounds of the same rows."""

import numpy as np

from creinn.data.tables.columns import counted
from creinn.data.tables.numerals import PLAIN, Style
from creinn.data.tables.table import Table


def check_pair(lower: Table, upper: Table) -> None:
    """Refuse tables that do not belong together: other columns, another number of rows.

    Raises:
        ValueError: If so; the message names the difference.
    """
    if len(lower) != len(upper):
        raise ValueError(
            f"{lower.name} has {counted(len(lower), 'row')}, but {upper.name} has {len(upper)}. Each row must have "
            f"both bounds."
        )
    for has, lacks in ((lower, upper), (upper, lower)):
        for column in has.columns:
            if column not in lacks.frame:
                raise ValueError(f"{has.name} has a column {column!r}, but {lacks.name} has not.")


def check_same_texts(lower: Table, upper: Table, column: str) -> None:
    """Refuse a column of categories, or of classes, that differs between the two tables.

    Raises:
        ValueError: If it does; the message names the first row.
    """
    low, high = lower.texts(column), upper.texts(column)
    differ = np.flatnonzero(low != high)
    if len(differ):
        row = int(differ[0])
        raise ValueError(
            f"{lower.at(row, column)} is {_shown(low[row])}, but {_shown(high[row])} in {upper.name}. "
            f"A column that is not numeric must be the same in both tables."
        )


def check_bounds(lower: Table, upper: Table, column: str, style: Style = PLAIN) -> None:
    """Refuse a column of numbers whose bounds are out of order, or missing in one table only.

    Raises:
        ValueError: If so; the message names the first row.
    """
    low, high = lower.numbers(column, style), upper.numbers(column, style)
    one_sided = np.flatnonzero(np.isnan(low) != np.isnan(high))
    if len(one_sided):
        row = int(one_sided[0])
        lacks, has = (lower, upper) if np.isnan(low[row]) else (upper, lower)
        raise ValueError(f"{lacks.at(row, column)} is missing, but not in {has.name}. Give both bounds, or neither.")
    inverted = np.flatnonzero(low > high)
    if len(inverted):
        row = int(inverted[0])
        raise ValueError(
            f"{lower.at(row, column)} is {low[row]:g}, above the {high[row]:g} in {upper.name}. Are the tables swapped?"
        )


def _shown(text: str | None) -> str:
    return "missing" if text is None else repr(text)
