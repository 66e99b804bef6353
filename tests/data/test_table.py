"""Cells of a table as numbers, texts and dates; messages on cells that are neither."""

import numpy as np
import pandas as pd
import pytest

from creinn.data.numerals import Style
from creinn.data.table import MARKS, Reading, Table, has_units


def table(*cells: str | None, **options) -> Table:
    frame = pd.DataFrame({"x": cells}, dtype=object)
    return Table("t.csv", frame, Reading(**{"separator": ",", **options}))


def test_default_marks_are_missing_and_counted():
    cells = table(*MARKS, None, "1", "NA")
    np.testing.assert_array_equal(cells.numbers("x"), [np.nan] * 11 + [1, np.nan])
    counts = cells.marked("x")
    assert counts["NA"] == 2
    assert counts["empty"] == 1
    assert counts.sum() == 12


def test_auto_can_be_extended():
    assert Reading(("auto", "-9")).marks == (*MARKS, "-9")
    assert Reading(()).marks == ()
    np.testing.assert_array_equal(
        table("-9", "?", missing=("auto", "-9")).numbers("x"), [np.nan] * 2
    )


def test_all_texts_that_are_not_numbers_are_listed_with_their_counts():
    cells = ["1", "k.A.", "2", "k.A.", "defekt", "inf"]
    with pytest.raises(ValueError, match=r"row 2.*'k\.A\.' \(2\), 'defekt' \(1\), 'inf' \(1\)"):
        table(*cells).numbers("x")
    with pytest.raises(ValueError, match=r"40 more"):
        table(*(f"t{i}" for i in range(90))).numbers("x")


@pytest.mark.parametrize(
    ("cells", "style", "token"),
    [
        (("1.5", "2,5"), Style(), "decimal=','"),
        (("1,5", "2.5"), Style(","), r"decimal='\.'"),
        (("1.5", "12.30 €"), Style(), "Convert"),
        (("1.5", "4.1%"), Style(), "Convert"),
        (("1.5", "x"), Style(), "missing="),
    ],
)
def test_messages_name_the_likely_cause(cells, style, token):
    with pytest.raises(ValueError, match=token):
        table(*cells).numbers("x", style)


def test_units():
    for texts in (["12.30 €", "1.2 €"], ["4.1%"], ["$3", "$ 1,200.50"]):
        assert has_units(pd.Series(texts))
    for texts in (["12.30 €", "x"], ["41"], ["a%"], []):
        assert not has_units(pd.Series(texts, dtype=object))


def test_absent_columns():
    with pytest.raises(ValueError, match="'weight'"):
        table("1").numbers("weight")
