"""Encoders of the columns of a table.

A column becomes a float32 array ``(N, width)``, where missing cells are
NaN.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from creinn.data.features import FAR, OUTLIER, Array, Scaling, fit_scaling
from creinn.data.table import Table, Tables, parse_numbers
from creinn.numerics import pluralize

_FREQUENT = 0.2  # share of rows above which a mark of missing values is ambiguous
_DATES = ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y", "%m/%d/%Y", "%m-%d-%Y")
_TIMES = ("", " %H:%M", " %H:%M:%S")
_LIKE_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b"
_LIKE_NUMBER = r"[€$£¥]?\s*[+-]?\d+(?:[.,' ]\d{3})*(?:[.,]\d+)?\s*[€$£¥%]?"
_KEY_ROWS = 20  # for a note on keys


@dataclass(frozen=True)
class Number:
    """Numbers, mapped to ``(x - mean) / scale`` and clipped."""

    width: ClassVar[int] = 1
    name: str
    mean: float
    scale: float  # standard deviation without outliers
    low: float = -FAR  # limits of scaled values
    high: float = FAR

    def encode(self, table: Table) -> Array:
        """Return features ``(N, 1)``."""
        scaling = Scaling(self.mean, self.scale, self.low, self.high)
        return scaling.apply(table.numbers(self.name)[:, None]).astype(np.float32)


@dataclass(frozen=True)
class Category:
    """Categories as indicators."""

    name: str
    categories: tuple[str, ...]
    other: bool = False  # indicator of rare categories

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.categories) + self.other

    def encode(self, table: Table) -> Array:
        """Return indicators ``(N, width)``."""
        texts = table.texts(self.name)
        codes = pd.Index(self.categories, dtype=object).get_indexer(texts)
        codes[(codes < 0) & pd.notna(texts)] = len(self.categories)
        indicators = np.eye(len(self.categories) + 1, self.width, dtype=np.float32)
        missing = np.full((1, self.width), np.nan, np.float32)
        return np.concatenate((indicators, missing))[codes]  # -1 is missing


@dataclass(frozen=True)
class Date:
    """Dates as year, month, weekday, days since the first, and hour."""

    name: str
    form: str  # for pandas.to_datetime
    first: str  # training date
    means: tuple[float, ...]
    scales: tuple[float, ...]

    @property
    def width(self) -> int:
        """6 with the time of day, 4 without."""
        return len(self.means)

    def encode(self, table: Table) -> Array:
        """Return features ``(N, width)``."""
        cells = table.cells(self.name)
        times = parse_dates(cells, self.form)
        for row in np.flatnonzero(times.isna() & cells.notna()):
            found = f"{table.at(row, self.name)}: {cells.iloc[row]!r}"
            raise ValueError(f"{found} does not match the training format {self.form}.")
        parts = _date_parts(times, self.first)[:, : self.width]
        return ((parts - self.means) / self.scales).astype(np.float32)


Column = Number | Category | Date
Fitted = tuple[Column | None, list[str]]  # encoder and remarks


def fit_column(tables: Tables, name: str, categorical: bool, max_categories: int) -> Fitted:
    """Fit the encoder of a column; ``None`` if it is empty or constant."""
    table, remarks = tables[0], list[str]()
    present = table.cells(name).dropna()
    texts = present.drop_duplicates().astype(str)
    if not categorical and len(texts):
        zeros = texts[texts.str.fullmatch(r"0\d+")]
        has_number = np.isfinite(parse_numbers(present, table.reading.decimal)).any()
        if len(tables) == 1 and len(zeros) and texts.str.fullmatch(r"\d+").all():
            remarks = [f"categories, because of leading zeros such as {zeros.iloc[0]!r}"]
        elif has_number or texts.str.fullmatch(_LIKE_NUMBER).all():
            return _fit_number(tables, name)  # other cells raise an error
        elif form := _date_form(table, name, texts):
            return _fit_date(table, name, form)
        elif texts.str.match(_LIKE_DATE).all():
            remarks = [f"{texts.iloc[0]!r} is a category, because not all are dates of one format"]
    column, others = _fit_category(table, name, max_categories)
    return column, remarks + others


def _fit_number(tables: Tables, name: str) -> Fitted:
    values = np.concatenate([table.numbers(name) for table in tables])
    known = values[~np.isnan(values)]
    if known.min() == known.max():
        return _left_out(f"{known[0]:g} in all rows")
    scaling, (outliers,) = fit_scaling(known[:, None])
    remarks = _missing_remarks(tables[0], name)
    if outliers:
        far = known[np.abs(known - np.median(known)).argmax()]
        found = f"{pluralize(int(outliers), 'outlier')} such as {far:g}"
        distance = f"more than {OUTLIER} interquartile ranges from the median"
        remarks.append(f"{found}, {distance}, not used for the scale, and clipped")
    steps = np.diff(values[: len(tables[0])])
    if len(steps) >= _KEY_ROWS and (steps > 0).all() and (values == values.round()).all():
        remarks.append(f"increasing integers; if they are a key, pass drop={name!r}")
    return Number(name, *(float(part[0]) for part in scaling)), remarks


def parse_dates(cells: pd.Series, form: str) -> pd.Series:
    """Convert texts in format ``form`` to UTC times, and others to NaT."""
    return pd.to_datetime(cells, format=form, errors="coerce", utc=True).dt.tz_localize(None)


def _date_form(table: Table, name: str, texts: pd.Series) -> str | None:
    if not texts.str.match(r"\d+[-/.]\d+").all():
        return None
    forms = ["ISO8601", *(day + time for day in _DATES for time in _TIMES)]
    found = {form: parse_dates(texts, form) for form in forms}
    found = {form: times for form, times in found.items() if times.notna().all()}
    if not found or "ISO8601" in found:
        return next(iter(found), None)
    dayfirst = table.reading.dayfirst
    allowed = [form for form in found if dayfirst is None or form.startswith("%d") == dayfirst]
    where = f"{table.column(name)}: the date {texts.iloc[0]!r}"
    if not allowed:
        raise ValueError(f"{where} does not fit dayfirst={dayfirst}.")
    if not found[allowed[0]].equals(found[allowed[-1]]):
        advice = f"Pass dayfirst=True, dayfirst=False or categorical={name!r}"
        raise ValueError(f"{where} is ambiguous: no day exceeds 12. {advice}.")
    return allowed[0]


def _date_parts(times: pd.Series, first: str) -> Array:
    when = times.dt
    days = (times - pd.Timestamp(first)) / pd.Timedelta(days=1)
    hour = (when.hour + when.minute / 60) * (2 * np.pi / 24)
    parts = (when.year, when.month, when.day_of_week, days, np.sin(hour), np.cos(hour))
    return np.stack([part.to_numpy(np.float64) for part in parts], 1)


def _fit_date(table: Table, name: str, form: str) -> Fitted:
    from sklearn.preprocessing import StandardScaler  # for training only

    cells = table.cells(name).dropna()
    times = parse_dates(cells, form)
    first = str(times.min())
    if times.nunique() == 1:
        return _left_out(f"{first} in all rows")
    width = 6 if (times != times.dt.normalize()).any() else 4
    scaler = StandardScaler().fit(_date_parts(times, first)[:, :width])
    column = Date(name, form, first, tuple(scaler.mean_.tolist()), tuple(scaler.scale_.tolist()))
    shown = f"{cells.iloc[0]!r} is {times.iloc[0]:%d %B %Y}, in UTC if it has a time zone"
    hour = " and hour" if width == 6 else ""
    remark = f"dates, {shown}; features are year, month, weekday, days since the first{hour}"
    return column, [remark, *_missing_remarks(table, name)]


def _fit_category(table: Table, name: str, most: int) -> Fitted:
    missing = table.count_missing(name).drop(["empty", *table.reading.missing], errors="ignore")
    for mark, count in missing[missing > _FREQUENT * len(table)].items():
        others = ",".join(text for text in table.reading.marks if text != mark)
        raise ValueError(
            f"{table.column(name)}: {mark!r} is in {count} of {len(table)} rows. Pass "
            f"missing='auto,{mark}' if it marks missing values, or missing='{others}'."
        )
    counts = pd.Series(table.texts(name), dtype=object).value_counts()
    if len(counts) < 2:
        return _left_out(f"{counts.index[0]!r} in all rows" if len(counts) else "empty")
    remarks, total = _missing_remarks(table, name), len(counts)
    if total > max(_KEY_ROWS, len(table) // 2):
        found = f"{total} categories in {len(table)} rows"
        remarks.append(f"{found}; if it is a name or a key, pass drop={name!r}")
    if is_many := total > most:
        remarks.append(f"the {total - most} rarest of {total} categories are merged")
    categories = sorted(counts.sort_index().nlargest(most).index)
    return Category(name, tuple(categories), is_many), remarks


def _left_out(found: str) -> Fitted:
    return None, [f"it is {found}, so it is left out"]


def _missing_remarks(table: Table, name: str) -> list[str]:
    counts = table.count_missing(name)
    marks = ", ".join(f"{mark!r} {count}" for mark, count in counts.items())
    found = f"{pluralize(int(counts.sum()), 'missing value')} ({marks})"
    return [f"{found}, replaced by all plausible values"] if marks else []
