"""Encode a column of a table: numbers are standardised, categories one-hot, dates in parts.

What is learnt from training tables is a plain record that maps any table to an array ``(N, width)``
in single precision, NaN where a cell is missing. Learning also returns remarks for the user.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from creinn.data.numerals import Floats, Style, listed_counts, parse
from creinn.data.scaling import FAR, OUTLIER, Scaling, learn_scaling
from creinn.data.table import (
    UNIT_ADVICE,
    Table,
    Tables,
    check_bounds,
    check_same_texts,
    has_units,
    parse_dates,
)
from creinn.numerics import pluralize

Features = npt.NDArray[np.float32]

_FREQUENT = 0.2  # share of the rows above which a mark of missing values may be a category
_DAY_FIRST, _MONTH_FIRST = ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y"), ("%m/%d/%Y", "%m-%d-%Y")
_TIMES = ("", " %H:%M", " %H:%M:%S")
_DOUBTFUL = {"n.a.", "na", "nan", "nil", "none", "null", "<na>", "missing", "unknown"}
_KEY_ROWS = 20  # fewer different whole numbers may be a coincidence
_OTHER = "\0other"  # stands for rare categories


@dataclass(frozen=True)
class Number:
    """A column of numbers, mapped to ``(x - mean) / scale`` and clipped."""

    kind: ClassVar[str] = "number"
    width: ClassVar[int] = 1
    name: str
    mean: float
    scale: float  # standard deviation in the training table, without outliers
    low: float = -FAR  # limits of the scaled values
    high: float = FAR
    decimal: str = "."
    thousands: str = ""

    @property
    def style(self) -> Style:
        """How numbers are written."""
        return Style(self.decimal, self.thousands)

    def encode(self, table: Table) -> Features:
        """One feature ``(N, 1)``; raises a ``ValueError`` for cells that are not finite numbers."""
        values = table.numbers(self.name, self.style)[:, None]
        bounds = (np.array([value]) for value in (self.mean, self.scale, self.low, self.high))
        return Scaling(*bounds).apply(values).astype(np.float32)


@dataclass(frozen=True)
class Category:
    """A column of categories: one indicator for each, and one for all others if some were rare."""

    kind: ClassVar[str] = "category"
    name: str
    categories: tuple[str, ...]
    other: bool = False  # without it, unknown categories have all features 0

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.categories) + self.other

    @cached_property
    def _encoder(self) -> OneHotEncoder:
        names = [*self.categories, *([_OTHER] if self.other else [])]
        known = [np.array(names, dtype=object)]
        encoder = OneHotEncoder(
            categories=known, handle_unknown="ignore", sparse_output=False, dtype=np.float32
        )
        return encoder.fit(known[0][:1, None])

    def encode(self, table: Table) -> Features:
        """Indicators ``(N, width)``."""
        codes, found = pd.factorize(table.texts(self.name))
        if self.other:
            found = np.where(np.isin(found, self.categories), found, _OTHER)
        missing = np.full((1, self.width), np.nan, np.float32)
        rows = self._encoder.transform(found[:, None]) if len(found) else missing[:0]
        return np.concatenate((rows, missing))[codes]  # a missing cell has the code -1


@dataclass(frozen=True)
class Date:
    """A column of dates: year, month, weekday and days since the first; hour as sine and cosine."""

    kind: ClassVar[str] = "date"
    name: str
    form: str  # as in pandas.to_datetime
    first: str  # in the training table
    means: tuple[float, ...]
    scales: tuple[float, ...]

    @property
    def width(self) -> int:
        """Number of features: 6 with time of day, 4 without."""
        return len(self.means)

    def encode(self, table: Table) -> Features:
        """Features ``(N, width)``; raises a ``ValueError`` for cells that are not such dates."""
        parts = _date_parts(table.dates(self.name, self.form), self.first)[:, : self.width]
        return ((parts - self.means) / self.scales).astype(np.float32)


Column = Number | Category | Date


def learn_column(
    tables: Tables, name: str, categorical: bool, style: Style, max_categories: int
) -> tuple[Column | None, list[str]]:
    """Learn a column; ``None`` if it is empty or constant. Also returns remarks.

    Raises:
        ValueError: If the column is ambiguous, or the tables of a pair do not agree.
    """
    table = tables[0]
    present = table.cells(name).dropna()
    values, _ = parse(present, style)
    has_zeros = len(tables) == 1 and _has_leading_zeros(present)
    if not categorical and not has_zeros and not np.isnan(values).all():
        check_bounds(tables, name, style)
        return _learn_number(tables, name, style)
    check_same_texts(tables, name)
    form = None
    if not categorical and not has_zeros and len(present):
        if has_units(present):
            where = f"{table.name}, column {name!r}: {present.iloc[0]!r}"
            raise ValueError(
                f"{where} is a number with a unit. {UNIT_ADVICE} Or pass categorical={name!r} if the "
                "column holds categories."
            )
        form = _date_form(table, name, present)
    if form is not None:
        return _learn_date(table, name, form)
    column, remarks = _learn_category(table, name, max_categories)
    if has_zeros and not categorical:
        zero = next(text for text in present if str(text).startswith("0") and len(text) > 1)
        remarks.insert(0, f"categories, because of leading zeros such as {zero!r}")
    return column, remarks


def _has_leading_zeros(cells: pd.Series) -> bool:
    """Whether all cells are digits, and some start with a zero, as in postal codes."""
    if cells.dtype != object or not len(cells):
        return False
    texts = cells.drop_duplicates().astype(str)
    return bool(texts.str.fullmatch(r"\d+").all() and texts.str.fullmatch(r"0\d+").any())


def _learn_number(tables: Tables, name: str, style: Style) -> tuple[Number | None, list[str]]:
    values = np.concatenate([table.numbers(name, style) for table in tables])
    known = values[~np.isnan(values)]
    if known.min() == known.max():
        return None, [f"it is {known[0]:g} in all rows, so it is left out"]
    scaling, (outliers,) = learn_scaling(known[:, None])
    mean, scale, low, high = (float(part[0]) for part in scaling)
    column = Number(name, mean, scale, low, high, *style)
    remarks = missing_remarks(tables[0], name)
    if outliers:
        far = known[np.abs(known - np.median(known)).argmax()]
        remarks.append(
            f"{pluralize(outliers, 'outlier')} such as {far:g}, more than {OUTLIER} interquartile "
            "ranges from the median, left out of mean and deviation, and clipped"
        )
    if _is_key(values[: len(tables[0])], name):
        remarks.append(
            f"different whole numbers in all rows; if they number the rows, pass drop={name!r}"
        )
    return column, remarks


def _is_key(values: Floats, name: str) -> bool:
    """Whether numbers look like row numbers: all different, and dense, in order or named so."""
    n = len(values)
    if n < _KEY_ROWS or not (values == values.round()).all() or len(np.unique(values)) < n:
        return False
    ranks = values.argsort().argsort()
    in_order = abs(np.corrcoef(ranks, np.arange(n))[0, 1]) > 0.95
    is_named = str(name).lower().endswith(("id", "key", "index", "number", "nr", "no"))
    return bool(in_order or np.ptp(values) < 10 * n or is_named)


def _date_form(table: Table, name: str, cells: pd.Series) -> str | None:
    """The date format of all cells, if there is one; raises if day and month may be swapped."""
    some = cells.drop_duplicates().astype(str)
    if not some.str.match(r"\d+[-/.]\d+").all():
        return None
    if parse_dates(some, "ISO8601").notna().all():
        return "ISO8601"
    found = {}
    for days in (_DAY_FIRST, _MONTH_FIRST):
        for form in (day + time for day in days for time in _TIMES):
            times = parse_dates(some, form)
            if times.notna().all():
                found[form] = times
    dayfirst = table.reading.dayfirst
    forms = [form for form in found if dayfirst is None or form.startswith("%d") == dayfirst]
    if not forms and found:
        raise ValueError(
            f"{table.name}, column {name!r}: dates such as {some.iloc[0]!r} do not fit "
            f"dayfirst={dayfirst}."
        )
    if len(forms) > 1 and not found[forms[0]].equals(found[forms[1]]):
        raise ValueError(
            f"{table.name}, column {name!r}: the order of day and month in {some.iloc[0]!r} is "
            "undecidable, since no day is above 12. Pass dayfirst=True or dayfirst=False, or "
            f"categorical={name!r}."
        )
    return forms[0] if forms else None


def _date_parts(times: pd.Series, first: str) -> Floats:
    when = times.dt
    days = (times - pd.Timestamp(first)) / pd.Timedelta(days=1)
    hour = (when.hour + when.minute / 60) * (2 * np.pi / 24)
    parts = (when.year, when.month, when.day_of_week, days, np.sin(hour), np.cos(hour))
    return np.stack([part.to_numpy(np.float64) for part in parts], 1)


def _learn_date(table: Table, name: str, form: str) -> tuple[Date | None, list[str]]:
    times = table.dates(name, form)
    known = times.dropna()
    first = str(known.min())
    if known.nunique() == 1:
        return None, [f"it is {first} in all rows, so it is left out"]
    has_time = bool((known != known.dt.normalize()).any())
    scaler = StandardScaler().fit(_date_parts(known, first)[:, : 6 if has_time else 4])
    column = Date(name, form, first, tuple(scaler.mean_.tolist()), tuple(scaler.scale_.tolist()))
    cells = table.cells(name)[times.notna()].astype(str)
    shown = f"{cells.iloc[0]!r} is {known.iloc[0].day} {known.iloc[0]:%B %Y}"
    hour = ", and hour as sine and cosine" if has_time else ""
    remarks = [f"dates, {shown}; features are year, month, weekday, days since the first{hour}"]
    zones = cells.str.extract(r"\d:\d\d.*?(Z|[+-]\d\d:?\d\d)$")[0]
    if zones.notna().any():
        without = int(zones.isna().sum())
        found = f"time zones {listed_counts(zones.value_counts())} are converted to UTC"
        remarks.append(f"{found}; {without} without a zone are taken as UTC" if without else found)
    return column, remarks + missing_remarks(table, name)


def _learn_category(table: Table, name: str, most: int) -> tuple[Category | None, list[str]]:
    _check_frequent_marks(table, name)
    texts = pd.Series(table.texts(name), dtype=object)
    counts = texts.value_counts()
    if len(counts) < 2:
        what = f"{counts.index[0]!r} in all rows" if len(counts) else "empty"
        return None, [f"it is {what}, so it is left out"]
    ordered = counts.sort_index(kind="stable").sort_values(ascending=False, kind="stable")
    column = Category(name, tuple(sorted(ordered.index[:most])), len(counts) > most)
    remarks = missing_remarks(table, name)
    doubtful = counts[[text.casefold() in _DOUBTFUL for text in counts.index]]
    if len(doubtful):
        remarks.append(
            f"{listed_counts(doubtful)} may mark missing values; pass missing= if they do"
        )
    remarks += case_remarks(counts.index)
    if len(counts) > max(20, len(texts) // 2):
        many = f"{len(counts)} categories in {len(texts)} rows"
        remarks.append(f"{many}; if it is a name or a key, pass drop={name!r}")
    if column.other:
        remarks.append(f"the {len(counts) - most} rarest of {len(counts)} categories are merged")
    return column, remarks


def _check_frequent_marks(table: Table, name: str) -> None:
    """Raise a ``ValueError`` if a default mark of missing values may well be a category."""
    if "auto" not in table.reading.missing:
        return
    for mark, count in table.marked(name).drop("empty", errors="ignore").items():
        if count > _FREQUENT * len(table) and mark not in table.reading.missing:
            others = ",".join(text for text in table.reading.marks if text != mark)
            raise ValueError(
                f"{table.name}, column {name!r}: {mark!r} stands in {count} of {len(table)} rows. "
                f"Pass missing='auto,{mark}' if it marks missing values, or missing='{others}' if "
                "it is a category."
            )


def case_remarks(names: Iterable[str]) -> list[str]:
    """A remark on names that differ in upper and lower case only."""
    texts = pd.Series(sorted(names, key=str.casefold), dtype=object)
    found = ", ".join(map(repr, texts[texts.str.casefold().duplicated(keep=False)]))
    return [f"names that differ in case only: {found}"] if found else []


@dataclass
class ColumnStats:
    """Counts of missing cells, unknown categories and clipped numbers over all chunks."""

    missing: int = 0
    unknown: int = 0  # categories without a feature
    first_unknown: str = ""
    clipped: int = 0

    def count(self, column: Column, table: Table, features: Features) -> None:
        """Count the rows of a further table."""
        self.missing += int(np.isnan(features[:, 0]).sum())
        if isinstance(column, Number):
            limits = np.array([column.low, column.high], np.float32)
            self.clipped += int(np.isin(features[:, 0], limits).sum())
        if isinstance(column, Category) and len(rows := np.flatnonzero(~features.any(1))):
            first = table.texts(column.name)[rows[0]]
            self.first_unknown = self.first_unknown or f"first {first!r} in {table.row(rows[0])}"
            self.unknown += len(rows)

    def remarks(self, column: Column) -> list[str]:
        """Remarks on all rows so far."""
        remarks = _missing(self.missing, "")
        if self.clipped:
            remarks.append(
                f"{pluralize(self.clipped, 'number')} far from the training rows, clipped"
            )
        if isinstance(column, Category) and self.unknown:
            known = f"treated as none of the {len(column.categories)} known ones"
            found = f"{pluralize(self.unknown, 'value')} not seen in training"
            remarks.append(f"{found}, {self.first_unknown}; {known}")
        return remarks


def missing_remarks(table: Table, name: str) -> list[str]:
    """A remark on missing values with the count of each mark, if there are any."""
    marked: pd.Series = table.marked(name)
    shown: Sequence[str] = [
        f"{mark if mark == 'empty' else repr(mark)} {count}" for mark, count in marked.items()
    ]
    return _missing(int(marked.sum()), f" ({', '.join(shown)})")


def _missing(count: int, marks: str) -> list[str]:
    found = f"{pluralize(count, 'missing value')}{marks}, replaced by all plausible values"
    return [found] if count else []
