"""What a training table says about one column: its kind, what a missing value is taken for, its scale.

In: one table, or two that are lower and upper bounds. Out: a :class:`Column`, or none where there is nothing to learn,
and a remark on what was decided.
"""

from collections.abc import Sequence

import numpy as np

from creinn.tables.columns import Category, Column, Number, counted
from creinn.tables.pair import check_bounds, check_same_texts
from creinn.tables.table import Table, parse


def learn_column(tables: Sequence[Table], name: str, categorical: bool = False) -> tuple[Column | None, str]:
    """A column, or ``None`` if it is empty or constant; and a remark, perhaps empty.

    A column whose values are all numbers is numeric, one without a number is categorical.

    Args:
        tables: One table, or lower and upper.
        name: Of the column.
        categorical: Whether numbers are categories.

    Raises:
        ValueError: If numbers and other texts are mixed, a number is not finite, bounds are out of order, or categories
            differ between the tables.
    """
    cells = tables[0].frame[name]
    present = cells.notna().to_numpy()
    if not present.any():
        return None, "it is empty, so it is left out"
    values, is_number = parse(cells)
    if categorical or not np.isfinite(values[present]).any():
        return _learn_category(tables, name)
    if np.isnan(values[present]).any():
        row = int(np.flatnonzero(present & np.isnan(values))[0])
        raise ValueError(
            f"{tables[0].at(row, name)}: {cells.iloc[row]!r} is not a number, but {int(is_number.sum())} of "
            f"{counted(int(present.sum()), 'value')} of this column are. Mend it, say which text stands for a missing "
            f"value, or name the column as categorical."
        )
    return _learn_number(tables, name)


def _learn_number(tables: Sequence[Table], name: str) -> tuple[Number | None, str]:
    if len(tables) == 2:
        check_bounds(tables[0], tables[1], name)
    values = np.concatenate([table.numbers(name) for table in tables])
    known = values[~np.isnan(values)]
    if known.min() == known.max():
        return None, f"it is {known[0]:g} in all rows, so it is left out"
    fill = float(np.median(known))
    filled = np.where(np.isnan(values), fill, values)
    size = np.abs(filled).max()  # kept out of the squares, which would overflow
    column = Number(name, fill, float((filled / size).mean() * size), float((filled / size).std() * size))
    missing = int(np.isnan(tables[0].numbers(name)).sum())
    return column, column.filled(missing) if missing else ""


def _learn_category(tables: Sequence[Table], name: str) -> tuple[Category | None, str]:
    if len(tables) == 2:
        check_same_texts(tables[0], tables[1], name)
    texts = tables[0].texts(name)
    known, counts = np.unique([text for text in texts if text is not None], return_counts=True)
    if len(known) == 1:
        return None, f"it is {str(known[0])!r} in all rows, so it is left out"
    column = Category(name, str(known[counts.argmax()]), tuple(map(str, known)))
    missing = int(len(texts) - counts.sum())
    remarks = [column.filled(missing)] if missing else []
    if len(known) > max(20, len(texts) // 2):
        remarks.append(f"{len(known)} categories in {len(texts)} rows; drop the column if it is a name or a key")
    return column, "; ".join(remarks)
