"""Encoders of the columns of a table: numbers, categories and dates.

Numbers are standardized, categories are one-hot encoded, and dates are divided into parts. An
encoder is fitted to the tables for training. The result for a table is an array
``(N, width)`` in single precision, in which missing cells are NaN.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.preprocessing import StandardScaler

from creinn.data.features import FAR, OUTLIER, Scaling, fit_scaling
from creinn.data.table import (
    UNIT_ADVICE,
    Floats,
    NumberFormat,
    Table,
    Tables,
    check_bounds,
    check_same_texts,
    have_units,
    list_counts,
    parse_dates,
    parse_numbers,
)
from creinn.numerics import pluralize

Features = npt.NDArray[np.float32]

_FREQUENT = 0.2  # fraction of the rows above which a mark of missing values is ambiguous
_DAY_FIRST, _MONTH_FIRST = ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y"), ("%m/%d/%Y", "%m-%d-%Y")
_LIKE_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b"
_TIMES = ("", " %H:%M", " %H:%M:%S")
_DOUBTFUL = {"n.a.", "na", "nan", "nil", "none", "null", "<na>", "missing", "unknown"}
_KEY_ROWS = 20  # fewer distinct integers are not reported as a key


@dataclass(frozen=True)
class Number:
    """A column of numbers, mapped to ``(x - mean) / scale`` and clipped."""

    kind: ClassVar[str] = "number"
    width: ClassVar[int] = 1
    name: str
    mean: float
    scale: float  # the standard deviation in the training table, without outliers
    low: float = -FAR  # the limits of the scaled values
    high: float = FAR
    decimal: str = "."
    thousands: str = ""

    @property
    def form(self) -> NumberFormat:
        """The format of the numbers."""
        return NumberFormat(self.decimal, self.thousands)

    def encode(self, table: Table) -> Features:
        """Return the feature ``(N, 1)``.

        Raises:
            ValueError: If a cell is not a number.
        """
        values = table.numbers(self.name, self.form)[:, None]
        parts = (np.array([part]) for part in (self.mean, self.scale, self.low, self.high))
        return Scaling(*parts).apply(values).astype(np.float32)


@dataclass(frozen=True)
class Category:
    """A column of categories with one indicator for each category.

    Rare categories share one indicator.
    """

    kind: ClassVar[str] = "category"
    name: str
    categories: tuple[str, ...]
    other: bool = False  # whether rare categories were merged; otherwise unknown ones are all 0

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.categories) + self.other

    def encode(self, table: Table) -> Features:
        """Return the indicators ``(N, width)``."""
        texts = table.texts(self.name)
        codes = pd.Index(self.categories, dtype=object).get_indexer(texts)
        codes[(codes < 0) & pd.notna(texts)] = len(self.categories)
        indicators = np.eye(len(self.categories) + 1, self.width, dtype=np.float32)
        missing = np.full((1, self.width), np.nan, np.float32)
        return np.concatenate((indicators, missing))[codes]  # the code of a missing cell is -1


@dataclass(frozen=True)
class Date:
    """A column of dates: year, month, weekday, days since the first, and the hour."""

    kind: ClassVar[str] = "date"
    name: str
    form: str  # the format in pandas.to_datetime
    first: str  # the first date in the training table
    means: tuple[float, ...]
    scales: tuple[float, ...]

    @property
    def width(self) -> int:
        """The number of features: 6 with the time of day, and 4 without."""
        return len(self.means)

    def encode(self, table: Table) -> Features:
        """Return the features ``(N, width)``.

        Raises:
            ValueError: If a cell is not a date.
        """
        parts = _date_parts(table.dates(self.name, self.form), self.first)[:, : self.width]
        return ((parts - self.means) / self.scales).astype(np.float32)


Column = Number | Category | Date
Fitted = tuple[Column | None, list[str]]  # the encoder, or None for a constant; and the remarks


def fit_column(
    tables: Tables, name: str, categorical: bool, form: NumberFormat, max_categories: int
) -> Fitted:
    """Fit the encoder of a column.

    The encoder is ``None`` if the column is empty or constant.

    Raises:
        ValueError: If the column is ambiguous, or if the tables of a pair do not fit.
    """
    table = tables[0]
    present = table.cells(name).dropna()
    has_zeros = len(tables) == 1 and _has_leading_zeros(present)
    is_typed = not categorical and not has_zeros
    if is_typed and not np.isnan(parse_numbers(present, form)).all():
        check_bounds(tables, name, form)
        return _fit_number(tables, name, form)
    check_same_texts(tables, name)
    if is_typed and have_units(present):
        found = f"{table.name}, column {name!r}: {present.iloc[0]!r} is a number with a unit"
        advice = f"{UNIT_ADVICE} Or pass categorical={name!r} if the cells are categories."
        raise ValueError(f"{found}. {advice}")
    if is_typed and len(present) and (date_form := _date_form(table, name, present)):
        return _fit_date(table, name, date_form)
    column, remarks = _fit_category(table, name, max_categories)
    if has_zeros and not categorical:
        zero = next(text for text in map(str, present) if text.startswith("0") and text != "0")
        remarks.insert(0, f"categories, because of leading zeros such as {zero!r}")
    elif is_typed and len(present) and present.astype(str).str.match(_LIKE_DATE).all():
        found = f"categories such as {present.iloc[0]!r}, because not all are dates of one format"
        remarks.insert(0, f"{found}; supported are ISO 8601 and days with years of four digits")
    return column, remarks


def _has_leading_zeros(cells: pd.Series) -> bool:
    """Return whether all cells are digits and some start with 0, as in postal codes."""
    if cells.dtype != object or not len(cells):
        return False
    texts = cells.drop_duplicates().astype(str)
    return bool(texts.str.fullmatch(r"\d+").all() and texts.str.fullmatch(r"0\d+").any())


def _fit_number(tables: Tables, name: str, form: NumberFormat) -> Fitted:
    values = np.concatenate([table.numbers(name, form) for table in tables])
    known = values[~np.isnan(values)]
    if known.min() == known.max():
        return None, [f"it is {known[0]:g} in all rows, so it is left out"]
    scaling, (outliers,) = fit_scaling(known[:, None])
    mean, scale, low, high = (float(part[0]) for part in scaling)
    column = Number(name, mean, scale, low, high, *form)
    remarks = missing_remarks(tables[0], name)
    if outliers:
        far = known[np.abs(known - np.median(known)).argmax()]
        found = f"{pluralize(int(outliers), 'outlier')} such as {far:g}"
        remarks.append(
            f"{found}, more than {OUTLIER} interquartile ranges from the median, not used for mean "
            "and standard deviation, and clipped"
        )
    if _is_key(values[: len(tables[0])], name):
        remarks.append(f"distinct integers in all rows; if they are a key, pass drop={name!r}")
    return column, remarks


def _is_key(values: Floats, name: str) -> bool:
    """Return whether the values are distinct integers, and probably a key."""
    n = len(values)
    if n < _KEY_ROWS or not (values == values.round()).all() or len(np.unique(values)) < n:
        return False
    ranks = values.argsort().argsort()
    is_sorted = abs(np.corrcoef(ranks, np.arange(n))[0, 1]) > 0.95
    is_named = str(name).lower().endswith(("id", "key", "index", "number", "nr", "no"))
    return bool(is_sorted or np.ptp(values) < 10 * n or is_named)


def _date_form(table: Table, name: str, cells: pd.Series) -> str | None:
    """Return the format of dates that fits all cells, or ``None``.

    Raises:
        ValueError: If the order of day and month is ambiguous.
    """
    texts = cells.drop_duplicates().astype(str)
    if not texts.str.match(r"\d+[-/.]\d+").all():
        return None
    if parse_dates(texts, "ISO8601").notna().all():
        return "ISO8601"
    found = {}
    for form in (day + time for day in (*_DAY_FIRST, *_MONTH_FIRST) for time in _TIMES):
        times = parse_dates(texts, form)
        if times.notna().all():
            found[form] = times
    dayfirst = table.reading.dayfirst
    forms = [form for form in found if dayfirst is None or form.startswith("%d") == dayfirst]
    where = f"{table.name}, column {name!r}"
    if not forms and found:
        raise ValueError(f"{where}: the date {texts.iloc[0]!r} does not fit dayfirst={dayfirst}.")
    if len(forms) > 1 and not found[forms[0]].equals(found[forms[1]]):
        raise ValueError(
            f"{where}: the order of day and month in {texts.iloc[0]!r} is ambiguous, because no "
            "day is above 12. Pass dayfirst=True or dayfirst=False, or "
            f"categorical={name!r}."
        )
    return forms[0] if forms else None


def _date_parts(times: pd.Series, first: str) -> Floats:
    when = times.dt
    days = (times - pd.Timestamp(first)) / pd.Timedelta(days=1)
    hour = (when.hour + when.minute / 60) * (2 * np.pi / 24)
    parts = (when.year, when.month, when.day_of_week, days, np.sin(hour), np.cos(hour))
    return np.stack([part.to_numpy(np.float64) for part in parts], 1)


def _fit_date(table: Table, name: str, form: str) -> Fitted:
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
        found = f"time zones {list_counts(zones.value_counts())} are converted to UTC"
        remarks.append(f"{found}; {without} without a zone are taken as UTC" if without else found)
    return column, remarks + missing_remarks(table, name)


def _fit_category(table: Table, name: str, most: int) -> Fitted:
    _check_frequent_marks(table, name)
    texts = pd.Series(table.texts(name), dtype=object)
    counts = texts.value_counts()
    if len(counts) < 2:
        found = f"{counts.index[0]!r} in all rows" if len(counts) else "empty"
        return None, [f"it is {found}, so it is left out"]
    ordered = counts.sort_index(kind="stable").sort_values(ascending=False, kind="stable")
    column = Category(name, tuple(sorted(ordered.index[:most])), len(counts) > most)
    remarks = missing_remarks(table, name)
    doubtful = counts[[text.casefold() in _DOUBTFUL for text in counts.index]]
    if len(doubtful):
        found = f"{list_counts(doubtful)} may mark missing values"
        remarks.append(f"{found}; pass missing= if they do")
    remarks += case_remarks(counts.index)
    if len(counts) > max(20, len(texts) // 2):
        found = f"{len(counts)} categories in {len(texts)} rows"
        remarks.append(f"{found}; if it is a name or a key, pass drop={name!r}")
    if column.other:
        remarks.append(f"the {len(counts) - most} rarest of {len(counts)} categories are merged")
    return column, remarks


def _check_frequent_marks(table: Table, name: str) -> None:
    """Raise a ``ValueError`` if a default missing-value mark is a frequent category."""
    given, marks = table.reading.missing, table.reading.marks
    counts = table.count_missing(name).drop("empty", errors="ignore")
    for mark, count in counts.items() if "auto" in given else ():
        if count > _FREQUENT * len(table) and mark not in given:
            others = ",".join(text for text in marks if text != mark)
            raise ValueError(
                f"{table.name}, column {name!r}: {mark!r} is in {count} of {len(table)} rows. Pass "
                f"missing='auto,{mark}' if it marks missing values, or missing='{others}' if it is "
                "a category."
            )


def case_remarks(names: Iterable[str]) -> list[str]:
    """Return a remark on names that differ only in case, if there are any."""
    texts = pd.Series(sorted(names, key=str.casefold), dtype=object)
    found = ", ".join(map(repr, texts[texts.str.casefold().duplicated(keep=False)]))
    return [f"names that differ in case only: {found}"] if found else []


def missing_remarks(table: Table, name: str) -> list[str]:
    """Return a remark on missing values with the count of each mark, if there are any."""
    counts = table.count_missing(name)
    marks = [f"{mark if mark == 'empty' else repr(mark)} {n}" for mark, n in counts.items()]
    return _missing_remarks(int(counts.sum()), f" ({', '.join(marks)})")


def _missing_remarks(count: int, marks: str = "") -> list[str]:
    found = f"{pluralize(count, 'missing value')}{marks}, replaced by all plausible values"
    return [found] if count else []


@dataclass
class ColumnStats:
    """Counts of missing cells, unknown categories and clipped numbers in all chunks."""

    missing: int = 0
    unknown: int = 0  # cells with a category that has no feature
    first_unknown: str = ""
    clipped: int = 0

    def update(self, column: Column, table: Table, features: Features) -> None:
        """Count the cells of another chunk."""
        self.missing += int(np.isnan(features[:, 0]).sum())
        if isinstance(column, Number):
            limits = np.array([column.low, column.high], np.float32)
            self.clipped += int(np.isin(features[:, 0], limits).sum())
        if isinstance(column, Category) and len(rows := np.flatnonzero(~features.any(1))):
            first = table.texts(column.name)[rows[0]]
            self.first_unknown = self.first_unknown or f"first {first!r} in {table.row(rows[0])}"
            self.unknown += len(rows)

    def remarks(self, column: Column) -> list[str]:
        """Return remarks on all chunks."""
        remarks = _missing_remarks(self.missing)
        if self.clipped:
            found = pluralize(self.clipped, "number")
            remarks.append(f"{found} far from the training rows, clipped")
        if isinstance(column, Category) and self.unknown:
            known = f"treated as none of the {len(column.categories)} known ones"
            found = f"{pluralize(self.unknown, 'value')} not seen in training"
            remarks.append(f"{found}, {self.first_unknown}; {known}")
        return remarks
