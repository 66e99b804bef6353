"""What is learnt of a table's columns, and said: missing values, decimal commas, dates, keys, rare categories."""

import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from creinn.data.columns import Category
from creinn.data.encoder import TableEncoder, classes_of
from creinn.data.table import Reading, Table


def table(**columns: list[str | None]) -> Table:
    return Table("t.csv", pd.DataFrame(columns, dtype=object))


Y40 = ["a", "b"] * 20


COMMAS = Reading(separator=",")


def said(columns: dict[str, list[str | None]], reading: Reading = COMMAS, **options) -> list[str]:
    data = Table("t.csv", pd.DataFrame({**columns, "y": Y40}, dtype=object), reading)
    return [
        note.removeprefix("t.csv, column 'x': ")
        for note in TableEncoder.fit([data], "y", **options)[1]
    ]


def test_marks_of_missing_values():
    """Empty cells, and rare marks, are missing; a frequent mark in a column of words is a category, unless named."""
    garage = ["NA"] * 2 + ["None"] * 10 + [None] + ["shed"] * 27
    frame = pd.DataFrame({"x": garage, "y": Y40}, dtype=object)
    encoder, notes = TableEncoder.fit([Table("t.csv", frame)], "y")
    assert encoder.columns == (Category("x", ("NA", "None", "shed")),)
    assert notes == [
        "t.csv, column 'x': 1 missing value, for which values of the training table are tried; "
        "'None' (10 rows) is a category; if it marks missing values, say --missing None; "
        "'NA' (2 rows) is a category; if it marks missing values, say --missing NA"
    ]
    (x,), _ = encoder.encode([Table("t.csv", frame)])
    np.testing.assert_array_equal(x[0], [1, 0, 0])
    assert np.isnan(x[12]).all()
    rare = ["NA", *garage[2:], "shed"]
    assert TableEncoder.fit([table(x=rare, y=Y40)], "y")[0].columns == (
        Category("x", ("None", "shed")),
    )
    named = Table("t.csv", frame, Reading(("NA", "None"), ","))
    with pytest.raises(ValueError, match="no column to learn from"):  # all others are sheds
        TableEncoder.fit([named], "y")
    numbers = ["NA"] * 10 + [str(i % 5) for i in range(30)]
    assert said({"x": numbers}) == [
        "10 missing values, for which values of the training table are tried"
    ]
    with pytest.raises(
        ValueError, match=r"'None' is not a number, but 30 of 40 values.*\(--missing\)"
    ):
        said({"x": [text.replace("NA", "None") for text in numbers]})


def test_decimal_commas_are_read_and_said():
    columns = {"x": [f"{i % 7},5" for i in range(40)], "z": [f"1.{i + 100},25" for i in range(40)]}
    frame = pd.DataFrame({**columns, "y": Y40}, dtype=object)
    semicolons = Table("t.csv", frame, Reading(separator=";"))
    encoder, notes = TableEncoder.fit([semicolons], "y")
    assert notes == [
        "t.csv, numbers have ',' before decimals and '.' between thousands: '0,5' is 0.5 (x, z)"
    ]
    x = encoder.columns[0]
    assert (x.mean, x.style) == (
        pytest.approx(np.mean([i % 7 + 0.5 for i in range(40)])),
        (",", "."),
    )
    assert encoder.columns[1].mean == pytest.approx(1119.75)
    copy = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    (x_new,), _ = copy.encode([table(x=["3,5"], z=["1.100"])])
    np.testing.assert_allclose(x_new[0, 0], (3.5 - x.mean) / x.scale, rtol=1e-6)
    with pytest.raises(ValueError, match=r"'3\.5' is not a number"):  # never 35
        copy.encode([table(x=["3.5"], z=["1"])])
    point = Table(
        "new.csv",
        pd.DataFrame({"x": ["3.5"], "z": ["1"]}, dtype=object),
        Reading(decimal=".", thousands="none"),
    )
    np.testing.assert_allclose(
        copy.encode([point])[0][0][0, 0], (3.5 - x.mean) / x.scale, rtol=1e-6
    )


def test_dates_become_numbers():
    days = [f"{day:02}.{month:02}.2021" for month in (3, 4) for day in range(1, 21)]
    encoder, notes = TableEncoder.fit([table(x=[*days[:-1], None], y=Y40)], "y")
    assert notes == [
        "t.csv, column 'x': dates, '01.03.2021' for 1 March 2021; they become year, month, day of the week and days "
        "since the first; 1 missing value, for which values of the training table are tried"
    ]
    (column,) = encoder.columns
    assert (column.form, column.first, column.means[0], column.scales[0]) == (
        "%d.%m.%Y",
        "2021-03-01 00:00:00",
        2021,
        1,
    )
    copy = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    (x,), _ = copy.encode([table(x=["08.03.2022", None])])  # a Tuesday
    parts = x[0] * np.array(column.scales) + np.array(column.means)
    np.testing.assert_allclose(parts, [2022, 3, 1, 372], rtol=1e-5)
    assert np.isnan(x[1]).all()
    with pytest.raises(
        ValueError, match=r"row 1, column 'x': '2022-03-08' is not a date of the form %d\.%m\.%Y"
    ):
        copy.encode([table(x=["2022-03-08"])])
    forced, _ = TableEncoder.fit([table(x=days, y=Y40)], "y", categorical=["x"])
    assert isinstance(forced.columns[0], Category)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("2021-03-{:02}", "ISO8601"),
        ("2021-03-{:02}T10:00:00Z", "ISO8601"),
        ("2021/03/{:02}", "ISO8601"),
        ("{:02}/03/2021", "%d/%m/%Y"),
        ("03/{:02}/2021", "%m/%d/%Y"),
        ("{:02}.03.2021 10:30", "%d.%m.%Y %H:%M"),
        ("1.2.{}", None),
        ("{}-20", None),
        ("192.168.0.{}", None),
    ],
)
def test_forms_of_dates(text, form):
    encoder, _ = TableEncoder.fit(
        [table(x=[text.format(i + 1) for i in range(20)] * 2, y=Y40)], "y"
    )
    assert getattr(encoder.columns[0], "form", None) == form


KEYS = {
    "in order": [str(7000 + 13 * i**2) for i in range(40)],
    "dense": [str(i * 27 % 41 + 5) for i in range(40)],
    "id": [str((i * 27 % 41) ** 4) for i in range(40)],
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_are_said(kind):
    name = "user_id" if kind == "id" else "x"
    (found,) = said({name: KEYS[kind]})
    assert "whole numbers, none of them twice: if they number the rows" in found
    assert found.endswith(f"leave the column out with --drop {name}")
    assert said({"x": KEYS["id"]}) == []
    assert said({name: ["5", *KEYS[kind][1:-1], "5"]}) == []  # one twice
    assert said({name: [text + ".5" for text in KEYS[kind]]}) == []


def test_rare_categories_are_taken_together():
    words = ["u"] * 18 + ["v"] * 18 + ["p", "q", "r", None]
    encoder, notes = TableEncoder.fit([table(x=words, y=Y40)], "y", max_categories=2)
    assert encoder.columns == (Category("x", ("u", "v"), other=True),)
    assert notes[0].endswith("; the 3 rarest of 5 categories are taken together as one")
    (x,), notes = encoder.encode([table(x=["u", "q", "new", None])])
    np.testing.assert_array_equal(x, [[1, 0, 0], [0, 0, 1], [0, 0, 1], [np.nan] * 3])
    assert len(notes) == 1
    with pytest.raises(ValueError, match="at least 2 categories"):
        TableEncoder.fit([table(x=words, y=Y40)], "y", max_categories=1)


def test_many_categories_take_little_memory():
    rows = 20_000
    many = table(x=[f"c{i % 3000}" for i in range(rows)], y=["a", "b"] * (rows // 2))
    encoder, _ = TableEncoder.fit([many], "y")
    tracemalloc.start()
    (x,), _ = encoder.encode([many])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert x.shape == (rows, 101)
    assert x.dtype == np.float32
    assert peak < 4 * x.nbytes


def test_targets_that_look_wrong():
    prices = np.array([str(i / 7) for i in range(100)], object)
    with pytest.raises(
        ValueError,
        match=r"'price' has 100 different numbers in 100 rows. Was regression meant.*classes 100",
    ):
        classes_of(prices, "price")
    assert len(classes_of(prices, "price", 100)) == 100
    with pytest.raises(ValueError, match="'price' has 100 classes, more than 99"):
        classes_of(prices, "price", 99)
    assert len(classes_of(np.repeat(prices, 5), "price")) == 100  # each often enough
    words = np.array([f"w{i}" for i in range(1001)], object)
    with pytest.raises(
        ValueError,
        match=r"'word' has 1001 classes, more than 1000. If it is the right column, say --max-cl",
    ):
        classes_of(words, "word")
    assert len(classes_of(words[:1000], "word")) == 1000
