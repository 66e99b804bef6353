"""Cells of a table as numbers, texts and dates, number formats, and messages."""

import numpy as np
import pandas as pd
import pytest

from creinn.data.table import (
    MARKS,
    PLAIN,
    NumberFormat,
    Reading,
    Table,
    choose_formats,
    describe_format,
    have_units,
    parse_numbers,
)


def table(*cells: str | None, **options) -> Table:
    frame = pd.DataFrame({"x": cells}, dtype=object)
    return Table("t.csv", frame, Reading(**{"separator": ",", **options}))


def test_default_missing_value_markers():
    cells = table(*MARKS, None, "1", "NA")
    np.testing.assert_array_equal(cells.numbers("x"), [np.nan] * 11 + [1, np.nan])
    counts = cells.count_missing("x")
    assert counts["NA"] == 2
    assert counts["empty"] == 1
    assert counts.sum() == 12


def test_extend_auto_markers():
    assert Reading(("auto", "-9")).marks == (*MARKS, "-9")
    assert Reading(()).marks == ()
    np.testing.assert_array_equal(
        table("-9", "?", missing=("auto", "-9")).numbers("x"), [np.nan] * 2
    )


def test_non_numeric_values_are_listed():
    cells = ["1", "k.A.", "2", "k.A.", "defekt", "inf"]
    with pytest.raises(ValueError, match=r"'k\.A\.' \(2\)"):
        table(*cells).numbers("x")
    with pytest.raises(ValueError, match=r"40 more"):
        table(*(f"t{i}" for i in range(90))).numbers("x")


@pytest.mark.parametrize(
    ("cells", "style", "token"),
    [
        (("1.5", "2,5"), NumberFormat(), "decimal=','"),
        (("1,5", "2.5"), NumberFormat(","), r"decimal='\.'"),
        (("1.5", "12.30 €"), NumberFormat(), "Convert"),
        (("1.5", "4.1%"), NumberFormat(), "Convert"),
        (("1.5", "x"), NumberFormat(), "missing="),
    ],
)
def test_error_messages(cells, style, token):
    with pytest.raises(ValueError, match=token):
        table(*cells).numbers("x", style)


def test_units():
    for texts in (["12.30 €", "1.2 €"], ["4.1%"], ["$3", "$ 1,200.50"]):
        assert have_units(pd.Series(texts))
    for texts in (["12.30 €", "x"], ["41"], ["a%"], []):
        assert not have_units(pd.Series(texts, dtype=object))


def test_missing_columns():
    with pytest.raises(ValueError, match="'weight'"):
        table("1").numbers("weight")


def test_comment_before_header():
    frame = pd.DataFrame({"# by hand": ["1"], "2021": ["2"]})
    with pytest.raises(ValueError, match="comment='#'"):
        Table("t.csv", frame, Reading()).check_column("y")


# Formats of numbers.


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        (PLAIN, "1.5", 1.5),
        (PLAIN, "1,5", None),
        (NumberFormat(",", ""), "-1,5e3", -1500),
        (NumberFormat(",", ""), ",5", 0.5),
        (NumberFormat(",", ""), "1.5", None),
        (NumberFormat(",", "."), "1.234.567,5", 1234567.5),
        (NumberFormat(",", "."), "1.5", None),  # not a group of three digits
        (NumberFormat(",", "."), "1234,5", 1234.5),
        (NumberFormat(".", ","), "22,967", 22967),
        (NumberFormat(".", ","), "1,23", None),
        (NumberFormat(".", ","), ",", None),
        (NumberFormat(".", "'"), "1'234.5", 1234.5),
        (NumberFormat(",", " "), "1\u202f234,5", 1234.5),
    ],
)
def test_number_formats(form, text, value):
    expected = [np.nan if value is None else value, np.nan]
    np.testing.assert_array_equal(parse_numbers([text, None], form), expected)


@pytest.mark.parametrize(
    ("separator", "columns", "expected"),
    [
        (";", [["3,5", "22,967"], ["1", "2"]], [NumberFormat(",", "")] * 2),
        (";", [["22,967", "967"]], [NumberFormat(",", "")]),
        (",", [["22,967", "967"], ["3.5", "1"]], [NumberFormat(".", ",")] * 2),
        (";", [["1.234,5"], ["1.234", "17"]], [NumberFormat(",", ".")] * 2),
        (";", [["1.5", "2.5"], ["x", "y"]], [PLAIN, PLAIN]),
        (",", [["1", "2"], []], [PLAIN, PLAIN]),
        (";", [["1,5"], ["2,5"], ["3.14"]], [NumberFormat(",", "")] * 2 + [PLAIN]),
        (",", [["1", "?", "2"]], [PLAIN]),
        (",", [], []),
    ],
)
def test_formats_are_detected(separator, columns, expected):
    series = [pd.Series(column, dtype=object) for column in columns]
    assert choose_formats(series, Reading(separator=separator)) == expected


def candidates(decimal, thousands):
    return Reading(separator=",", decimal=decimal, thousands=thousands).candidates()


def test_formats_with_given_markers():
    assert candidates(".", "none") == (PLAIN,)
    assert candidates(",", ".") == (NumberFormat(",", "."),)
    assert {form.decimal for form in candidates(",", "auto")} == {","}
    assert candidates(",", "'") == (NumberFormat(",", "'"),)
    for decimal, thousands, token in (
        (";", "auto", "decimal="),
        (".", "x", "thousands="),
        (",", ",", "thousands="),
    ):
        with pytest.raises(ValueError, match=token):
            candidates(decimal, thousands)


def test_describe_formats():
    cells = pd.Series(["1", None, "1.234"], dtype=object)
    assert "'1.234' is 1234" in describe_format(cells, NumberFormat(",", "."))
    assert describe_format(cells, PLAIN) == ""
    assert describe_format(pd.Series(["1", "2"], dtype=object), NumberFormat(",", "")) == ""
