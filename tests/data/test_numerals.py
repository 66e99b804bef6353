"""Numbers as people write them: styles found, named, told apart."""

import numpy as np
import pandas as pd
import pytest

from creinn.data.numerals import PLAIN, Style, choose_styles, parse, styles, told_apart


@pytest.mark.parametrize(
    ("style", "text", "value"),
    [
        (PLAIN, "1.5", 1.5),
        (PLAIN, "1,5", None),
        (Style(",", ""), "-1,5e3", -1500),
        (Style(",", ""), ",5", 0.5),
        (Style(",", ""), "1.5", None),
        (Style(",", "."), "1.234.567,5", 1234567.5),
        (Style(",", "."), "1.5", None),  # no group of three
        (Style(",", "."), "1234,5", 1234.5),
        (Style(".", ","), "22,967", 22967),
        (Style(".", ","), "1,23", None),
        (Style(".", ","), ",", None),
        (Style(".", "'"), "1'234.5", 1234.5),
        (Style(",", " "), "1\u202f234,5", 1234.5),
    ],
)
def test_numbers_by_hand(style, text, value):
    values, is_number = parse([text, None], style)
    np.testing.assert_array_equal(values, [np.nan if value is None else value, np.nan])
    assert is_number.tolist() == [value is not None, False]


@pytest.mark.parametrize(
    ("separator", "columns", "expected"),
    [
        (";", [["3,5", "22,967"], ["1", "2"]], [Style(",", "")] * 2),
        (";", [["22,967", "967"]], [Style(",", "")]),
        (",", [["22,967", "967"], ["3.5", "1"]], [Style(".", ",")] * 2),
        (";", [["1.234,5"], ["1.234", "17"]], [Style(",", ".")] * 2),
        (";", [["1.5", "2.5"], ["x", "y"]], [PLAIN, PLAIN]),
        (",", [["1", "2"], []], [PLAIN, PLAIN]),
        (";", [["1,5"], ["2,5"], ["3.14"]], [Style(",", ""), Style(",", ""), PLAIN]),
        (",", [["1", "?", "2"]], [PLAIN]),
    ],
)
def test_styles_are_found(separator, columns, expected):
    series = [pd.Series(column, dtype=object) for column in columns]
    assert choose_styles(series, styles(separator)) == expected


def test_styles_that_are_named():
    assert styles(",", ".", "none") == (PLAIN,)
    assert styles(",", ",", ".") == (Style(",", "."),)
    assert {style.decimal for style in styles(",", ",")} == {","}
    assert styles(",", ",", "'") == (Style(",", "'"),)
    for decimal, thousands, message in (
        (";", "auto", "decimal sign must be"),
        (".", "x", "thousands sign must be"),
        (",", ",", "both ','"),
    ):
        with pytest.raises(ValueError, match=message):
            styles(",", decimal, thousands)


def test_what_is_said():
    cells = pd.Series(["1", None, "1.234"], dtype=object)
    assert told_apart(cells, Style(",", ".")) == (
        "numbers have ',' before decimals and '.' between thousands: '1.234' is 1234"
    )
    assert told_apart(cells, PLAIN) == ""
    assert told_apart(pd.Series(["1", "2"], dtype=object), Style(",", "")) == ""
