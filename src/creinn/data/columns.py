"""How one column of a table becomes numbers: standardised, one indicator per category, or the parts of a date.

What training tables say about a column is learnt, with remarks on what was decided or looks wrong. It is a plain record
that turns any table into an array ``(N, width)`` in single precision, NaN where a cell is missing.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from creinn.data.numerals import Floats, Style, counted, parse
from creinn.data.table import MISSING, Table, Tables, check_bounds, check_same_texts, parse_dates

Features = npt.NDArray[np.float32]

_FREQUENT = 0.05  # share of the rows at which a mark of missing values is a category of its own
_DAYS = ("%d.%m.%Y", "%d-%m-%Y", "%m/%d/%Y", "%d/%m/%Y")
_DATES = ("ISO8601", *(day + time for day in _DAYS for time in ("", " %H:%M", " %H:%M:%S")))
_DOUBTFUL = {"?", "-", "n/a", "na", "nan", "nil", "none", "null", "<na>", "missing", "unknown"}
_KEY_ROWS = 20  # with fewer, whole numbers of which none comes twice are no surprise


@dataclass(frozen=True)
class Number:
    """A column of numbers, shifted and scaled as ``(x - mean) / scale``, which keeps order."""

    kind: ClassVar[str] = "number"
    width: ClassVar[int] = 1
    name: str
    mean: float
    scale: float  # standard deviation in the training table
    decimal: str = "."  # sign before the decimals
    thousands: str = ""  # sign between thousands, if there is one

    @property
    def style(self) -> Style:
        """How they are written."""
        return Style(self.decimal, self.thousands)

    def encode(self, table: Table) -> Features:
        """One feature ``(N, 1)``; cells that are not finite numbers are refused."""
        with np.errstate(over="ignore"):
            return ((table.numbers(self.name, self.style) - self.mean) / self.scale).astype(
                np.float32
            )[:, None]


@dataclass(frozen=True)
class Category:
    """A column of categories, one feature for each that is not rare, and perhaps one for all others together."""

    kind: ClassVar[str] = "category"
    name: str
    categories: tuple[str, ...]
    other: bool = (
        False  # whether there is a feature for others; without it, they have all features 0
    )

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.categories) + self.other

    def encode(self, table: Table) -> Features:
        """Indicators ``(N, width)``."""
        texts = table.texts(self.name, self.categories)
        codes = pd.Index(self.categories, dtype=object).get_indexer(texts)
        features = np.zeros((len(texts), len(self.categories) + 1), np.float32)
        features[np.arange(len(texts)), codes] = (
            1  # an unknown one has the code -1, and so the last place
        )
        features[pd.isna(texts)] = np.nan
        return features[:, : self.width]


@dataclass(frozen=True)
class Date:
    """A column of dates: year, month, day of the week and days since the first one, each shifted and scaled."""

    kind: ClassVar[str] = "date"
    width: ClassVar[int] = 4
    name: str
    form: str  # how dates are written, as pandas.to_datetime takes it
    first: str  # of the training table
    means: tuple[float, ...]
    scales: tuple[float, ...]

    def encode(self, table: Table) -> Features:
        """Features ``(N, 4)``; cells that are not dates of the form are refused."""
        parts = _date_parts(table.dates(self.name, self.form), self.first)
        return ((parts - self.means) / self.scales).astype(np.float32)


def _date_parts(times: pd.Series, first: str) -> Floats:
    when = times.dt
    days = (times - pd.Timestamp(first)) / pd.Timedelta(days=1)
    return np.stack(
        [part.to_numpy(np.float64) for part in (when.year, when.month, when.day_of_week, days)], 1
    )


Column = Number | Category | Date


def learn_column(
    tables: Tables, name: str, categorical: bool, style: Style, max_categories: int
) -> tuple[Column | None, list[str]]:
    """A column, or ``None`` if empty or constant; and remarks. Mixed ones and pairs that do not fit are refused."""
    cells = tables[0].cells(name)
    present = cells.notna().to_numpy()
    values, is_number = parse(cells, style)
    if not categorical and np.isfinite(values[present]).any():
        for row in np.flatnonzero(present & np.isnan(values)):
            share = f"{int(is_number.sum())} of {counted(int(present.sum()), 'value')} of this column are"
            advice = "Mend it, name it as a mark of missing values (--missing), or name the column as categorical."
            raise ValueError(
                f"{tables[0].at(row, name)}: {cells.iloc[row]!r} is not a number, but {share}. {advice}"
            )
        check_bounds(tables, name, style)
        return _learn_number(tables, name, style)
    check_same_texts(tables, name)
    form = None if categorical or not present.any() else _date_form(cells[present])
    return (
        _learn_category(tables[0], name, max_categories)
        if form is None
        else _learn_date(tables[0], name, form)
    )


def _learn_number(tables: Tables, name: str, style: Style) -> tuple[Number | None, list[str]]:
    values = np.concatenate([table.numbers(name, style) for table in tables])
    known = values[~np.isnan(values)]
    if known.min() == known.max():
        return None, [f"it is {known[0]:g} in all rows, so it is left out"]
    size = np.abs(known).max()  # kept out of the squares, which would overflow
    column = Number(
        name, float((known / size).mean() * size), float((known / size).std() * size), *style
    )
    first = values[: len(tables[0])]
    remarks = missing_remarks(int(np.isnan(first).sum()))
    if _is_key(first, name):
        advice = f"if they number the rows, they say nothing of new ones; leave the column out with --drop {name}"
        remarks.append(f"whole numbers, none of them twice: {advice}")
    return column, remarks


def _is_key(values: Floats, name: str) -> bool:
    """Whether numbers look like those of rows: none twice, and dense, in order of the rows, or called so."""
    n = len(values)
    if n < _KEY_ROWS or not (values == values.round()).all() or len(np.unique(values)) < n:
        return False
    ranks = values.argsort().argsort()
    in_order = abs(np.corrcoef(ranks, np.arange(n))[0, 1]) > 0.95
    dense = np.ptp(values) < 10 * n
    return bool(
        in_order or dense or name.lower().endswith(("id", "key", "index", "number", "nr", "no"))
    )


def _date_form(cells: pd.Series) -> str | None:
    """The way of writing dates that suits all cells, if there is one."""
    some = cells.drop_duplicates().astype(str)
    forms = _DATES if some.str.match(r"\d+[-/.]\d+").all() else ()
    return next((form for form in forms if parse_dates(some, form).notna().all()), None)


def _learn_date(table: Table, name: str, form: str) -> tuple[Date | None, list[str]]:
    times = table.dates(name, form)
    first = str(times.min())
    if times.min() == times.max():
        return None, [f"it is {first} in all rows, so it is left out"]
    parts = _date_parts(times.dropna(), first)
    scales = parts.std(0)
    column = Date(
        name,
        form,
        first,
        tuple(parts.mean(0).tolist()),
        tuple(np.where(scales > 0, scales, 1).tolist()),
    )
    at = times.notna().argmax()
    shown = f"{table.cells(name).iloc[at]!r} for {times.iloc[at].day} {times.iloc[at]:%B %Y}"
    remark = f"dates, {shown}; they become year, month, day of the week and days since the first"
    return column, [remark, *missing_remarks(int(times.isna().sum()))]


def _learn_category(table: Table, name: str, most: int) -> tuple[Category | None, list[str]]:
    every = table.texts(name, MISSING)
    nobody_named_marks = table.reading.missing == MISSING
    kept = [mark for mark in MISSING if nobody_named_marks and np.mean(every == mark) >= _FREQUENT]
    texts = pd.Series(table.texts(name, kept), dtype=object)
    counts = texts.value_counts()
    if len(counts) < 2:
        what = f"{counts.index[0]!r} in all rows" if len(counts) else "empty"
        return None, [f"it is {what}, so it is left out"]
    frequent = (
        counts.sort_index(kind="stable").sort_values(ascending=False, kind="stable").index[:most]
    )
    column = Category(name, tuple(sorted(frequent)), len(counts) > most)
    remarks = missing_remarks(int(texts.isna().sum()))
    remarks += [
        f"{text!r} ({counted(count, 'row')}) is a category; if it marks missing values, say --missing {text}"
        for text, count in counts.items()
        if text.casefold() in _DOUBTFUL
    ]
    if len(counts) > max(20, len(texts) // 2):
        remarks.append(
            f"{len(counts)} categories in {len(texts)} rows; drop the column if it is a name or a key"
        )
    if column.other:
        remarks.append(
            f"the {len(counts) - most} rarest of {len(counts)} categories are taken together as one"
        )
    return column, remarks


@dataclass
class Seen:
    """What new rows of a column hold that training rows do not, counted in one table after another."""

    missing: int = 0
    unknown: int = 0  # categories that no feature stands for
    first_unknown: str = ""

    def count(self, column: Column, table: Table, features: Features) -> None:
        """Count the rows of a further table."""
        self.missing += int(np.isnan(features[:, 0]).sum())
        if isinstance(column, Category) and len(rows := np.flatnonzero(~features.any(1))):
            first = table.texts(column.name, column.categories)[rows[0]]
            self.first_unknown = self.first_unknown or f"first {first!r} in {table.row(rows[0])}"
            self.unknown += len(rows)

    def remarks(self, column: Column) -> list[str]:
        """What there is to say in sum."""
        remarks = missing_remarks(self.missing)
        if isinstance(column, Category) and self.unknown:
            known = f"taken for none of the {len(column.categories)} known ones"
            found = f"{counted(self.unknown, 'value')} not seen in training"
            remarks.append(f"{found}, {self.first_unknown}; {known}")
        return remarks


def missing_remarks(count: int) -> list[str]:
    """A remark on missing values, if there are any."""
    return (
        [f"{counted(count, 'missing value')}, for which values of the training table are tried"]
        if count
        else []
    )
