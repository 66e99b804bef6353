"""Number formats: texts to numbers, and counts with nouns in messages.

A style is a point or a comma before decimals, with an optional sign between thousands.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]

_SAMPLE = 1000  # different texts of a column to look at


class Style(NamedTuple):
    """Signs before decimals and between thousands; the latter may be empty."""

    decimal: str = "."
    thousands: str = ""


PLAIN = Style()
_POINT = (Style(".", ","), Style(".", "'"), Style(".", " "))
_COMMA = (Style(",", ""), Style(",", "."), Style(",", " "))


def styles(separator: str, decimal: str = "auto", thousands: str = "auto") -> tuple[Style, ...]:
    """Candidate styles, likely ones first; commas are decimal only where they separate no cells."""
    if decimal not in ("auto", ".", ","):
        raise ValueError(f"The decimal sign must be '.', ',' or auto, got {decimal!r}.")
    if thousands not in ("auto", "none", ",", ".", "'", " "):
        raise ValueError(
            f"The thousands sign must be ',', '.', ''', ' ', none or auto, got {thousands!r}."
        )
    every = (PLAIN, *_POINT, *_COMMA) if separator == "," else (PLAIN, *_COMMA, *_POINT)
    wanted = "" if thousands == "none" else thousands
    found = tuple(
        s for s in every if decimal in ("auto", s.decimal) and wanted in ("auto", s.thousands)
    )
    if not found and wanted == decimal:
        raise ValueError(f"The decimal sign and the thousands sign are both {decimal!r}.")
    return found or (Style(decimal, wanted),)


def parse(cells: Any, style: Style = PLAIN) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Cells as numbers, NaN where they are none, and whether each is a finite number.

    Example:
        >>> parse(["1.234,5", "12.34"], Style(",", "."))[0]
        array([1234.5,    nan])
    """
    if is_numeric(cells):
        values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        return values, np.isfinite(values)
    texts = pd.Series(cells, dtype=object)
    if style != PLAIN:
        decimal, thousands = map(re.escape, style)
        texts = texts.str.replace("[\u00a0\u202f]", " ", regex=True)
        groups = rf"|\d{{1,3}}(?:{thousands}\d{{3}})+" if thousands else ""
        number = rf"[+-]?(?:\d+{groups})?(?:{decimal}\d*)?(?:[eE][+-]?\d+)?"
        texts = texts.where(texts.str.fullmatch(number, na=False).astype(bool))
        texts = texts.str.replace(style.thousands, "", regex=False) if thousands else texts
        texts = texts.str.replace(style.decimal, ".", regex=False)
    values = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    return values, np.isfinite(values)


def is_numeric(cells: Any) -> bool:
    """Whether the type of a column is numeric, and not boolean."""
    kind = getattr(cells, "dtype", object)
    return pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind)


def choose_styles(columns: Iterable[pd.Series], candidates: Sequence[Style]) -> list[Style]:
    """Style per column: the one that fits most columns, or else most cells of the column."""
    shares = []  # of the cells of each column that are numbers in each style
    for column in columns:
        sample = column.dropna().drop_duplicates().head(_SAMPLE)
        shares.append(
            [parse(sample, style)[1].mean() if len(sample) else 0.0 for style in candidates]
        )
    common = int(np.argmax((np.array(shares) == 1).sum(0))) if shares else 0
    return [candidates[common if share[common] == 1 else int(np.argmax(share))] for share in shares]


def told_apart(cells: pd.Series, style: Style) -> str:
    """Describe a style with an example; empty if all cells are plain numbers."""
    texts = cells.dropna().drop_duplicates()
    values, usual = parse(texts, style)[0], parse(texts)[0]
    differ = values != usual
    if style == PLAIN or not differ.any():
        return ""
    between = f" and {style.thousands!r} between thousands" if style.thousands else ""
    example = f"{texts[differ].iloc[0]!r} is {values[differ][0]:.10g}"
    return f"numbers have {style.decimal!r} before decimals{between}: {example}"


def listed_counts(counts: pd.Series) -> str:
    """Texts with their counts, at most 50.

    Example:
        >>> listed_counts(pd.Series(["a", "b", "a"]).value_counts())
        "'a' (2), 'b' (1)"
    """
    shown = [f"{text!r} ({count})" for text, count in counts.head(50).items()]
    return ", ".join([*shown, *([f"{len(counts) - 50} more"] if len(counts) > 50 else [])])
