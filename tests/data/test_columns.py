"""Tests of the columns of a table: numbers, categories and dates."""

import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from creinn.data.columns import Category, Date, Number
from creinn.data.encoder import TableEncoder
from creinn.data.table import Reading, Table

Y40 = ["a", "b"] * 20


def table(reading: Reading | None = None, /, **columns: list[str | None]) -> Table:
    frame = pd.DataFrame(columns, dtype=object)
    return Table("t.csv", frame, reading or Reading(separator=","))


def learn(cells: list[str | None], name: str = "x", **options):
    """Return the encoder of a column of 40 cells, and the note."""
    reading = Reading(**{"separator": ",", **options})
    encoder, notes = TableEncoder.fit([table(reading, **{name: cells, "y": Y40})], "y")
    return encoder.columns[0], " ".join(notes)


# Missing values.


def test_missing_value_markers_are_counted():
    column, note = learn(["NA", "?", None, "?"] + [str(i % 5) for i in range(36)])
    assert isinstance(column, Number)
    assert "4 missing values ('?' 2, " in note
    column, note = learn(["-"] * 8 + ["u", "v"] * 16)
    assert column == Category("x", ("u", "v"))
    assert "'-' 8" in note


@pytest.mark.parametrize("mark", ["None", "-", "?", "N/A"])
def test_frequent_marker_in_categories_is_ambiguous(mark):
    cells = [mark] * 9 + ["u", "v"] * 15 + ["w"]
    with pytest.raises(ValueError, match="missing="):
        learn(cells)
    assert mark in learn(cells, missing=())[0].categories
    assert mark not in learn(cells, missing=("auto", mark))[0].categories
    numbers, _ = learn([mark] * 9 + [str(i % 5) for i in range(31)])
    assert isinstance(numbers, Number)


# Numbers.


def test_decimal_commas_are_detected_and_noted():
    columns = {"x": [f"{i % 7},5" for i in range(40)], "z": [str(i % 5) for i in range(40)]}
    encoder, notes = TableEncoder.fit([table(Reading(separator=";"), **columns, y=Y40)], "y")
    assert "numbers have ','" in notes[0]
    x = encoder.columns[0]
    assert encoder.decimal == ","
    assert x.mean == pytest.approx(np.mean([i % 7 + 0.5 for i in range(40)]))
    copy = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    with pytest.raises(ValueError, match=r"decimal='\.'"):  # never 35
        copy.encode([table(x=["3.5"], z=["1"])])
    point = table(Reading(decimal="."), x=["3.5"], z=["1"])
    expected = (3.5 - x.mean) / x.scale
    np.testing.assert_allclose(copy.encode([point])[0][0, 0], expected, rtol=1e-6)


def test_leading_zeros_are_categories():
    column, note = learn(["01067", "10115", "80331", "01067"] * 10)
    assert column == Category("x", ("01067", "10115", "80331"))
    assert "'01067'" in note
    assert isinstance(learn(["0", "10", "0.5", "7"] * 10)[0], Number)


def test_outliers_do_not_change_other_rows():
    cells = [str(i % 7) for i in range(39)]
    column, note = learn([*cells, "1e30"])
    assert "1 outlier" in note
    assert "1e+30" in note
    assert 1 < column.scale < 3
    x = column.encode(table(x=["3", "1e30", "-1e300"]))
    assert abs(x[0, 0]) < 1
    assert np.isfinite(x).all()


@pytest.mark.parametrize("texts", [["12.30 €", "9.99 €"], ["4.1%", "3%"], ["$5", "$7.50"]])
def test_numbers_with_units_raise(texts):
    with pytest.raises(ValueError, match="Convert"):
        learn(texts * 20)
    encoder, _ = TableEncoder.fit([table(x=texts * 20, y=Y40)], "y", categorical=["x"])
    assert isinstance(encoder.columns[0], Category)


def test_increasing_integers_are_noted():
    keys = [str(7000 + 13 * i**2) for i in range(40)]
    assert "drop='x'" in learn(keys)[1]
    assert "drop=" not in learn([*keys[:-1], "5"])[1]
    assert "drop=" not in learn([text + ".5" for text in keys])[1]


def test_numbers_in_two_formats_are_ambiguous():
    columns = {"x": [f"{i % 7},5" for i in range(40)], "z": [f"{i % 7}.25" for i in range(40)]}
    columns["w"] = columns["x"]
    for forced in ((), ("z",)):
        data = table(Reading(separator=";"), **columns, y=Y40)
        if forced:
            columns = TableEncoder.fit([data], "y", categorical=forced)[0].columns
            assert [column.width for column in columns] == [1, 7, 1]
        else:
            with pytest.raises(ValueError, match="'z'"):
                TableEncoder.fit([data], "y")


# Dates.


def test_dates_are_converted_to_numbers():
    days = [f"{day:02}.{month:02}.2021" for month in (3, 4) for day in range(1, 21)]
    column, note = learn([*days[:-1], None])
    assert "01 March 2021" in note
    assert (column.form, column.first) == ("%d.%m.%Y", "2021-03-01 00:00:00")
    (x, missing) = column.encode(table(x=["08.03.2022", None]))  # a Tuesday
    parts = x * np.array(column.scales) + np.array(column.means)
    np.testing.assert_allclose(parts, [2022, 3, 1, 372], rtol=1e-5)
    assert np.isnan(missing).all()
    with pytest.raises(ValueError, match="row 1, column 'x': '2022-03-08'"):
        column.encode(table(x=["2022-03-08"]))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("2021-03-{:02}", "ISO8601"),
        ("2021-03-{:02}T10:00:00Z", "ISO8601"),
        ("2021/03/{:02}", "ISO8601"),
        ("{:02}/03/2021", "%d/%m/%Y"),
        ("03/{:02}/2021", "%m/%d/%Y"),
        ("03-{:02}-2021", "%m-%d-%Y"),
        ("{:02}.03.2021 10:30", "%d.%m.%Y %H:%M"),
        ("1.2.{}", None),
        ("{}-20", None),
        ("192.168.0.{}", None),
    ],
)
def test_date_formats(text, form):
    column, _ = learn([text.format(i + 1) for i in range(20)] * 2)
    assert getattr(column, "form", None) == form


@pytest.mark.parametrize("sign", ["/", "-"])
def test_ambiguous_order_of_day_and_month(sign):
    cells = [f"{i % 12 + 1:02}{sign}03{sign}2021" for i in range(40)]
    with pytest.raises(ValueError, match="dayfirst=True"):
        learn(cells)
    for dayfirst, first in ((True, "2021-03-01"), (False, "2021-01-03")):
        column, _ = learn(cells, dayfirst=dayfirst)
        assert column.first.startswith(first)
    with pytest.raises(ValueError, match="dayfirst=False"):
        learn([f"{i % 28 + 1:02}{sign}03{sign}2021" for i in range(40)], dayfirst=False)


@pytest.mark.parametrize("cells", [["03/25/2021", "25/03/2021"], ["25/3/21", "26/3/21"]])
def test_unsupported_date_formats_are_noted(cells):
    column, note = learn(cells * 20)
    assert isinstance(column, Category)
    assert f"{cells[0]!r} is a category, because not all are dates" in note


def test_time_of_day_and_time_zones():
    cells = [f"2021-03-{i % 9 + 1:02} {i % 24:02}:00" for i in range(40)]
    column, note = learn(cells)
    assert isinstance(column, Date)
    assert column.width == 6
    late, early = (
        column.encode(table(x=[f"2021-03-01 {hour}"]))[0] * column.scales + column.means
        for hour in ("18:00", "06:00")
    )
    np.testing.assert_allclose(late[4:], [-1, 0], atol=1e-6)
    np.testing.assert_allclose(early[4:], [1, 0], atol=1e-6)
    zoned, note = learn([f"{cell}:00+02:00" for cell in cells[:39]] + [f"{cells[39]}:00"])
    assert "UTC" in note
    assert zoned.first == "2021-02-28 22:00:00"


# Categories.


def test_rare_categories_are_merged():
    words = ["u"] * 18 + ["v"] * 18 + ["p", "q", "r", None]
    encoder, notes = TableEncoder.fit([table(x=words, y=Y40)], "y", max_categories=2)
    assert encoder.columns == (Category("x", ("u", "v"), other=True),)
    assert "the 3 rarest" in notes[0]
    x, _ = encoder.encode([table(x=["u", "q", "new", None])])
    np.testing.assert_array_equal(x, [[1, 0, 0], [0, 0, 1], [0, 0, 1], [np.nan] * 3])
    with pytest.raises(ValueError, match="max_categories="):
        TableEncoder.fit([table(x=words, y=Y40)], "y", max_categories=1)


def test_memory_of_many_categories():
    rows = 20_000
    many = table(x=[f"c{i % 3000}" for i in range(rows)], y=["a", "b"] * (rows // 2))
    encoder, _ = TableEncoder.fit([many], "y")
    tracemalloc.start()
    x, _ = encoder.encode([many])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert x.shape == (rows, 101)
    assert peak < 4 * x.nbytes
