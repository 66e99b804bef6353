"""Encoders of the columns of a table: numbers, categories and dates.

Numbers are standardized, categories are one-hot encoded, and dates are divided into parts. The
result for a table is an array ``(N, width)`` in single precision. Missing cells are NaN.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from creinn.data.features import FAR, OUTLIER, Scaling, fit_scaling
from creinn.data.table import (
    AUTO,
    UNIT,
    UNIT_ADVICE,
    Floats,
    Table,
    Tables,
    check_cells,
    list_counts,
    parse_numbers,
)
from creinn.numerics import pluralize

Features = npt.NDArray[np.float32]

_FREQUENT = 0.2  # fraction of the rows above which a mark of missing values is ambiguous
_DAY_FIRST, _MONTH_FIRST = ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y"), ("%m/%d/%Y", "%m-%d-%Y")
_LIKE_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b"
_TIMES = ("", " %H:%M", " %H:%M:%S")
_DOUBTFUL = {"n.a.", "na", "nan", "nil", "none", "null", "<na>", "missing", "unknown"}
_REPLACED = ", replaced by all plausible values"
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

    def encode(self, table: Table) -> Features:
        """Return the feature ``(N, 1)``."""
        parts = (np.array([part]) for part in (self.mean, self.scale, self.low, self.high))
        return Scaling(*parts).apply(table.numbers(self.name)[:, None]).astype(np.float32)


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
        """Return the features ``(N, width)``."""
        cells = table.cells(self.name)
        times = parse_dates(cells, self.form)
        for row in np.flatnonzero(times.isna() & cells.notna()):
            found = f"{table.at(row, self.name)}: {cells.iloc[row]!r} is not a date"
            raise ValueError(f"{found} in the format of the training, {self.form}.")
        parts = _date_parts(times, self.first)[:, : self.width]
        return ((parts - self.means) / self.scales).astype(np.float32)


Column = Number | Category | Date
Fitted = tuple[Column | None, list[str]]  # the encoder, or None for a constant; and the remarks


def fit_column(tables: Tables, name: str, categorical: bool, max_categories: int) -> Fitted:
    """Fit the encoder of a column.

    The encoder is ``None`` if the column is empty or constant.
    """
    table, remarks = tables[0], list[str]()
    present = table.cells(name).dropna()
    is_typed = len(present) > 0 and not categorical
    if is_typed and len(tables) == 1 and (zero := _leading_zero(present)):
        remarks.append(f"categories, because of leading zeros such as {zero!r}")
    elif is_typed and np.isfinite(parse_numbers(present, table.reading.number_format)).any():
        check_cells(tables, name, is_number=True)
        return _fit_number(tables, name)
    elif is_typed:
        check_cells(tables, name)
        _check_not_numbers(table, name, present)
        if date_form := _date_form(table, name, present):
            return _fit_date(table, name, date_form)
        if present.astype(str).str.match(_LIKE_DATE).all():
            found = f"categories such as {present.iloc[0]!r}, because not all are dates of one"
            remarks.append(f"{found} format; use ISO 8601 or days with years of four digits")
    check_cells(tables, name)
    column, others = _fit_category(table, name, max_categories)
    return column, remarks + others


def _leading_zero(cells: pd.Series) -> str | None:
    """Return a text with a leading zero, as in postal codes, if all cells are digits."""
    texts = cells.drop_duplicates().astype(str)
    zeros = texts[texts.str.fullmatch(r"0\d+")]
    has_digits = cells.dtype == object and texts.str.fullmatch(r"\d+").all()
    return zeros.iloc[0] if has_digits and len(zeros) else None


def _check_not_numbers(table: Table, name: str, cells: pd.Series) -> None:
    """Raise a ``ValueError`` for numbers with units or with another decimal mark."""
    texts, advice = cells.drop_duplicates().astype(str), ""
    if all(map(UNIT.fullmatch, texts)):
        advice = UNIT_ADVICE
    elif any(np.isfinite(parse_numbers(texts, form)).all() for form in AUTO.formats()):
        advice = f"The numbers were read with decimal={table.reading.number_format.decimal!r}."
    if advice:
        found = f"{table.name}, column {name!r}: {texts.iloc[0]!r} is not a plain number"
        raise ValueError(f"{found}. {advice} Pass categorical={name!r} for categories.")


def _fit_number(tables: Tables, name: str) -> Fitted:
    values = np.concatenate([table.numbers(name) for table in tables])
    known = values[~np.isnan(values)]
    if known.min() == known.max():
        return None, [f"it is {known[0]:g} in all rows, so it is left out"]
    scaling, (outliers,) = fit_scaling(known[:, None])
    column = Number(name, *(float(part[0]) for part in scaling))
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
    """Return whether the values are distinct integers that are dense, in order or named."""
    n = len(values)
    if n < _KEY_ROWS or (values != values.round()).any() or len(np.unique(values)) < n:
        return False
    is_named = name.lower().endswith(("id", "key", "index", "number", "nr", "no"))
    return is_named or pd.Series(values).is_monotonic_increasing or bool(np.ptp(values) < 10 * n)


def parse_dates(cells: pd.Series, form: str) -> pd.Series:
    """Convert texts in a given format to times in UTC, and other texts to NaT."""
    return pd.to_datetime(cells, format=form, errors="coerce", utc=True).dt.tz_localize(None)


def _date_form(table: Table, name: str, cells: pd.Series) -> str | None:
    """Return the format of dates that fits all cells, or ``None``."""
    texts = cells.drop_duplicates().astype(str)
    if not texts.str.match(r"\d+[-/.]\d+").all():
        return None
    forms = ["ISO8601", *(day + t for day in (*_DAY_FIRST, *_MONTH_FIRST) for t in _TIMES)]
    found = {form: parse_dates(texts, form) for form in forms}
    found = {form: times for form, times in found.items() if times.notna().all()}
    dayfirst = table.reading.dayfirst
    if not found or "ISO8601" in found:
        return next(iter(found), None)
    allowed = [form for form in found if dayfirst is None or form.startswith("%d") == dayfirst]
    where = f"{table.name}, column {name!r}"
    if not allowed:
        raise ValueError(f"{where}: the date {texts.iloc[0]!r} does not fit dayfirst={dayfirst}.")
    if not found[allowed[0]].equals(found[allowed[-1]]):
        raise ValueError(
            f"{where}: the order of day and month in {texts.iloc[0]!r} is ambiguous, because no "
            f"day is above 12. Pass dayfirst=True or dayfirst=False, or categorical={name!r}."
        )
    return allowed[0]


def _date_parts(times: pd.Series, first: str) -> Floats:
    when = times.dt
    days = (times - pd.Timestamp(first)) / pd.Timedelta(days=1)
    hour = (when.hour + when.minute / 60) * (2 * np.pi / 24)
    parts = (when.year, when.month, when.day_of_week, days, np.sin(hour), np.cos(hour))
    return np.stack([part.to_numpy(np.float64) for part in parts], 1)


def _fit_date(table: Table, name: str, form: str) -> Fitted:
    from sklearn.preprocessing import StandardScaler  # prediction does not need it

    cells = table.cells(name).dropna().astype(str)
    times = parse_dates(cells, form)
    first = str(times.min())
    if times.nunique() == 1:
        return None, [f"it is {first} in all rows, so it is left out"]
    has_time = bool((times != times.dt.normalize()).any())
    scaler = StandardScaler().fit(_date_parts(times, first)[:, : 6 if has_time else 4])
    column = Date(name, form, first, tuple(scaler.mean_.tolist()), tuple(scaler.scale_.tolist()))
    shown = f"{cells.iloc[0]!r} is {times.iloc[0].day} {times.iloc[0]:%B %Y}"
    hour = ", and hour as sine and cosine" if has_time else ""
    remarks = [f"dates, {shown}; features are year, month, weekday, days since the first{hour}"]
    zones = cells.str.extract(r"\d:\d\d.*?(Z|[+-]\d\d:?\d\d)$")[0].fillna("no zone")
    if (zones != "no zone").any():
        found = list_counts(zones.value_counts())
        remarks.append(f"time zones {found}; times are converted to UTC")
    return column, remarks + missing_remarks(table, name)


def _fit_category(table: Table, name: str, most: int) -> Fitted:
    _check_frequent_marks(table, name)
    counts = pd.Series(table.texts(name), dtype=object).value_counts()
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
    if len(counts) > max(20, len(table) // 2):
        found = f"{len(counts)} categories in {len(table)} rows"
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
    found = f"{pluralize(int(counts.sum()), 'missing value')} ({', '.join(marks)})"
    return [found + _REPLACED] if marks else []


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
            self.clipped += int(np.isin(features, limits).sum())
        if isinstance(column, Category) and len(rows := np.flatnonzero(~features.any(1))):
            first = f"first {table.texts(column.name)[rows[0]]!r} in {table.row(rows[0])}"
            self.first_unknown = self.first_unknown or first
            self.unknown += len(rows)

    def remarks(self) -> list[str]:
        """Return remarks on all chunks."""
        found = {
            f"{pluralize(self.missing, 'missing value')}{_REPLACED}": self.missing,
            f"{pluralize(self.clipped, 'number')} far from training rows, clipped": self.clipped,
            f"{pluralize(self.unknown, 'value')} not seen in training, {self.first_unknown}; "
            "treated as none of the known categories": self.unknown,
        }
        return [text for text, count in found.items() if count]
