"""Cells of a table as numbers, texts and dates, number formats, and messages."""

import numpy as np
import pandas as pd
import pytest

from creinn.data.table import (
    MARKS,
    Reading,
    Table,
    check_pair,
    detect_decimal,
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
    with pytest.raises(ValueError, match=r"90 of 90"):
        table(*(f"t{i}" for i in range(90))).numbers("x")


@pytest.mark.parametrize(
    ("cells", "decimal", "token"),
    [
        (("1.5", "2,5"), ".", "decimal=','"),
        (("1,5", "2.5"), ",", r"decimal='\.'"),
        (("1.5", "12.30 €"), ".", "Convert"),
        (("1.5", "4.1%"), ".", "Convert"),
        (("1.5", "x"), ".", "missing="),
    ],
)
def test_error_messages(cells, decimal, token):
    with pytest.raises(ValueError, match=token):
        table(*cells, decimal=decimal).numbers("x")


def test_missing_columns():
    with pytest.raises(ValueError, match="'weight'"):
        table("1").numbers("weight")


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        ({"x": ["1", "2"]}, {"x": ["1"]}, "rows"),
        ({"x": ["1"], "z": ["1"]}, {"x": ["1"]}, r"hi\.csv.* 'z'"),
        ({"x": ["1"]}, {"x": ["1"], "z": ["1"]}, r"lo\.csv.* 'z'"),
    ],
)
def test_tables_of_other_shapes_raise(lower, upper, message):
    names = {"lo.csv": lower, "hi.csv": upper}
    with pytest.raises(ValueError, match=message):
        check_pair([Table(name, pd.DataFrame(columns)) for name, columns in names.items()])


# Formats of numbers.


@pytest.mark.parametrize(
    ("decimal", "text", "value"),
    [
        (",", "-1,5e3", -1500),
        (",", ",5", 0.5),
        (",", "1.234,5", None),
        (",", "1.5", None),
        (",", "1234,5", 1234.5),
        (".", "22,967", None),
        (".", "1,23", None),
        (".", ",", None),
        (".", "1.5", 1.5),
    ],
)
def test_number_formats(decimal, text, value):
    expected = [np.nan if value is None else value, np.nan]
    np.testing.assert_array_equal(parse_numbers([text, None], decimal), expected)


@pytest.mark.parametrize(
    ("separator", "columns", "expected"),
    [
        (";", [["3,5", "22,967"], ["1", "2"]], ","),
        (";", [["22,967", "967"]], ","),
        (",", [["22,967", "967"]], "."),
        (";", [["1.5", "2.5"], ["x", "y"]], "."),
        (";", [["1.234", "2.345"]], "."),
        (";", [["1", "2"], []], "."),
        (";", [["1,5"], ["2,5"], ["3.14"]], ","),
        (";", [["1", "?", "2"]], "."),
        (";", [], "."),
    ],
)
def test_decimal_marks_are_detected(separator, columns, expected):
    series = [pd.Series(column, dtype=object) for column in columns]
    assert detect_decimal(series, Reading(separator=separator)) == expected
    assert detect_decimal(series, Reading(separator=separator, decimal=".")) == "."


def test_invalid_decimal_mark():
    with pytest.raises(ValueError, match="decimal="):
        Reading(decimal=";")
