"""What a training table says about one column: its kind and scale, and what about it looks wrong.

In: one table, or two that are lower and upper bounds. Out: a :class:`Column`, or none where there is nothing to learn,
and a remark on what was decided.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from creinn.data.tables.columns import Category, Column, Date, Number, counted, date_parts, missing_note
from creinn.data.tables.numerals import PLAIN, Floats, Style, parse
from creinn.data.tables.pair import check_bounds, check_same_texts
from creinn.data.tables.table import MISSING, Table, parse_dates

MAX_CATEGORIES = 100
FREQUENT = 0.05  # share of the rows at which a mark of missing values is a category of its own
_DAYS = ("%d.%m.%Y", "%d-%m-%Y", "%m/%d/%Y", "%d/%m/%Y")
DATES = ("ISO8601", *(day + time for day in _DAYS for time in ("", " %H:%M", " %H:%M:%S")))
_DOUBTFUL = {"?", "-", "n/a", "na", "nan", "nil", "none", "null", "<na>", "missing", "unknown"}
_KEY_ROWS = 20  # with fewer, whole numbers of which none comes twice are no surprise


def learn_column(
    tables: Sequence[Table],
    name: str,
    categorical: bool = False,
    style: Style = PLAIN,
    max_categories: int = MAX_CATEGORIES,
) -> tuple[Column | None, str]:
    """A column, or ``None`` if it is empty or constant; and a remark, perhaps empty.

    A column whose values are all numbers is numeric, one of dates is a date, another without a number is categorical.

    Args:
        tables: One table, or lower and upper.
        name: Of the column.
        categorical: Whether numbers and dates are categories.
        style: How numbers are written.
        max_categories: Rare ones beyond that number become one.

    Raises:
        ValueError: If numbers and other texts are mixed, a number is not finite, bounds are out of order, or categories
            differ between the tables.
    """
    cells = tables[0].cells(name)
    present = cells.notna().to_numpy()
    values, is_number = parse(cells, style)
    if not categorical and np.isfinite(values[present]).any():
        if np.isnan(values[present]).any():
            row = int(np.flatnonzero(present & np.isnan(values))[0])
            raise ValueError(
                f"{tables[0].at(row, name)}: {cells.iloc[row]!r} is not a number, but {int(is_number.sum())} of "
                f"{counted(int(present.sum()), 'value')} of this column are. Mend it, name it as a mark of missing "
                f"values (--missing), or name the column as categorical."
            )
        return _learn_number(tables, name, style)
    form = None if categorical or not present.any() else _date_form(cells[present])
    if form is not None:
        return _learn_date(tables, name, form)
    return _learn_category(tables, name, max_categories)


def _learn_number(tables: Sequence[Table], name: str, style: Style) -> tuple[Number | None, str]:
    if len(tables) == 2:
        check_bounds(tables[0], tables[1], name, style)
    values = np.concatenate([table.numbers(name, style) for table in tables])
    known = values[~np.isnan(values)]
    if known.min() == known.max():
        return None, f"it is {known[0]:g} in all rows, so it is left out"
    size = np.abs(known).max()  # kept out of the squares, which would overflow
    column = Number(name, float((known / size).mean() * size), float((known / size).std() * size), *style)
    remarks = []
    if missing := int(np.isnan(values[: len(tables[0])]).sum()):
        remarks.append(missing_note(missing))
    if _is_key(values[: len(tables[0])], name):
        remarks.append(
            "whole numbers, none of them twice: if they number the rows, they say nothing of new ones; leave the "
            f"column out with --drop {name}"
        )
    return column, "; ".join(remarks)


def _is_key(values: Floats, name: str) -> bool:
    """Whether numbers look like those of rows: none twice, and dense, in order of the rows, or called so."""
    n = len(values)
    if n < _KEY_ROWS or not (values == values.round()).all() or len(np.unique(values)) < n:
        return False
    ranks = values.argsort().argsort()
    in_order = abs(np.corrcoef(ranks, np.arange(n))[0, 1]) > 0.95
    dense = np.ptp(values) < 10 * n
    return bool(in_order or dense or name.lower().endswith(("id", "key", "index", "number", "nr", "no")))


def _date_form(cells: pd.Series) -> str | None:
    """The way of writing dates that suits all cells, if there is one."""
    some = cells.drop_duplicates()
    if not some.str.match(r"\d+[-/.]\d+").all():
        return None
    return next((form for form in DATES if parse_dates(some, form).notna().all()), None)


def _learn_date(tables: Sequence[Table], name: str, form: str) -> tuple[Date | None, str]:
    if len(tables) == 2:
        check_same_texts(tables[0], tables[1], name)
    times = tables[0].dates(name, form)
    first = str(times.min())
    if times.min() == times.max():
        return None, f"it is {first} in all rows, so it is left out"
    parts = date_parts(times[times.notna()], first)
    scales = parts.std(0)
    column = Date(name, form, first, tuple(parts.mean(0).tolist()), tuple(np.where(scales > 0, scales, 1).tolist()))
    at, missing = times.notna().argmax(), int(times.isna().sum())
    shown = f"{tables[0].cells(name).iloc[at]!r} for {times.iloc[at].day} {times.iloc[at]:%B %Y}"
    remark = f"dates, {shown}; they become year, month, day of the week and days since the first"
    return column, f"{remark}; {missing_note(missing)}" if missing else remark


def _learn_category(tables: Sequence[Table], name: str, most: int) -> tuple[Category | None, str]:
    if len(tables) == 2:
        check_same_texts(tables[0], tables[1], name)
    every = tables[0].texts(name, MISSING)
    rows = len(every)
    kept = [
        mark
        for mark in MISSING
        if tables[0].reading.missing == MISSING and np.sum(every == mark) >= FREQUENT * rows  # nobody named the marks
    ]
    texts = tables[0].texts(name, kept)
    counts = pd.Series(texts, dtype=object).value_counts()
    if not len(counts):
        return None, "it is empty, so it is left out"
    if len(counts) == 1:
        return None, f"it is {counts.index[0]!r} in all rows, so it is left out"
    frequent = counts.sort_index(kind="stable").sort_values(ascending=False, kind="stable").index[:most]
    column = Category(name, tuple(sorted(frequent)), len(counts) > most)
    remarks = [missing_note(missing)] if (missing := int(rows - counts.sum())) else []
    for doubtful in (text for text in counts.index if text.casefold() in _DOUBTFUL):
        remarks.append(
            f"{doubtful!r} ({counted(int(counts[doubtful]), 'row')}) is a category; if it marks missing values, say "
            f"--missing {doubtful}"
        )
    if len(counts) > max(20, rows // 2):
        remarks.append(f"{len(counts)} categories in {rows} rows; drop the column if it is a name or a key")
    if column.other:
        remarks.append(f"the {len(counts) - most} rarest of {len(counts)} categories are taken together as one")
    return column, "; ".join(remarks)
