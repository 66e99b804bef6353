"""Tests of the encoder of tables, of pairs of bounds, and of invalid tables."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from creinn.data.columns import Category, Number
from creinn.data.encoder import TableEncoder, find_classes, labelled_rows
from creinn.data.features import Missing, fit_scaling
from creinn.data.table import Table


def table(name: str = "t.csv", /, **columns: list[str | None]) -> Table:
    return Table(name, pd.DataFrame(columns, dtype=object))


TRAINING = table(
    "train.csv",
    age=["10", "30", None, "20"],
    sex=["m", "f", "m", None],
    one=["5", "5", None, "5"],
    none=[None, None, None, None],
    same=["x", "x", "x", "x"],
    y=["a", "b", "a", "b"],
)


def test_columns_by_hand():
    encoder, notes = TableEncoder.fit([TRAINING], "y")
    # ages 10, 30, 20: mean 20, deviation sqrt(200 / 3)
    assert encoder.columns == (
        Number("age", pytest.approx(20.0), pytest.approx((200 / 3) ** 0.5)),
        Category("sex", ("f", "m")),
    )
    assert encoder.ignored == ("one", "none", "same")
    tokens = ("1 missing value", "1 missing value", "5 in all rows", "empty", "'x' in all rows")
    assert len(notes) == len(tokens)
    assert all(token in note for token, note in zip(tokens, notes, strict=True))
    x, _ = encoder.encode([TRAINING])
    r, gap = 1.5**0.5, np.nan
    expected = [[-r, 0, 1], [r, 1, 0], [gap, 0, 1], [0, gap, gap]]
    np.testing.assert_allclose(x, expected, rtol=1e-6, atol=1e-6)
    assert [column.width for column in encoder.columns] == [1, 2]


def test_json_round_trip():
    encoder, _ = TableEncoder.fit([TRAINING], "y")
    copy = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))
    assert copy.to_json() == encoder.to_json()
    assert copy.columns == encoder.columns
    new = table(
        "new.csv", sex=["m", "x", None, "x"], age=["1", None, "2", "3"], extra=["1", "2", "3", "4"]
    )
    x, notes = copy.encode([new])
    np.testing.assert_array_equal(x, encoder.encode([new])[0])
    np.testing.assert_array_equal(x[:, 1:], [[0, 1], [0, 0], [np.nan, np.nan], [0, 0]])
    tokens = ("1 missing value", "1 missing value", "2 unknown values.*'x' in row 2", "extra")
    assert len(notes) == len(tokens)
    assert all(re.search(token, note) for token, note in zip(tokens, notes, strict=True))


def test_chunks_are_counted_together():
    encoder, _ = TableEncoder.fit([TRAINING], "y")
    stats = {}
    encoder.encode([table(age=["1", None], sex=["x", "m"])], stats)
    _, notes = encoder.encode([table(age=["1e30", None], sex=["x", "m"])], stats)
    tokens = ("2 missing values", "2 unknown values", "1 distant number.*clipped")
    assert all(re.search(token, note) for token, note in zip(tokens, notes, strict=True))


def test_dropped_and_forced_columns():
    data = table(id=["1", "2", "3"], zip=["10", "11.0", "10"], x=["1", "2", "3"], y=["a", "b", "a"])
    encoder, _ = TableEncoder.fit([data], "y", drop=["id"], categorical=["zip"])
    assert encoder.columns[0] == Category("zip", ("10", "11"))
    assert encoder.ignored == ("id",)
    _, notes = encoder.encode([table(zip=["11"], x=["1"])])
    assert notes == []  # neither the dropped column nor the target is missed


def test_many_names_are_noted():
    many = [f"p{i}" for i in range(30)]
    _, (note,) = TableEncoder.fit([table(name=many, y=["a", "b"] * 15)], "y")
    assert "30 categories" in note


@pytest.mark.parametrize(
    ("columns", "options", "token"),
    [
        ({"x": ["1", "2"]}, {}, "'y'"),
        ({"x": ["1", "2"], "y": ["a", "b"]}, {"drop": ["z"]}, "'z'"),
        ({"x": ["1", "1"], "y": ["a", "b"]}, {}, "no column to learn from"),
        ({"x": ["1", "2", "v"], "y": ["a", "b", "a"]}, {}, r"row 3.*'v' \(1\)"),
        ({"x": ["1", "-inf"], "y": ["a", "b"]}, {}, "'-inf'"),
    ],
)
def test_invalid_training_tables(columns, options, token):
    with pytest.raises(ValueError, match=token):
        TableEncoder.fit([table(**columns)], "y", **options)


def test_incompatible_tables():
    encoder, _ = TableEncoder.fit([TRAINING], "y")
    with pytest.raises(ValueError, match="'sex'"):
        encoder.encode([table("new.csv", age=["1"])])
    with pytest.raises(ValueError, match="row 2, column 'age': 'old'"):
        encoder.encode([table("new.csv", age=["1", "old"], sex=["f", "f"])])


def test_rows_without_class_are_counted_and_dropped():
    assert labelled_rows([TRAINING], "y", drop_unlabelled=False) == ([TRAINING], [])
    unlabelled = table(x=["1", "2", "3", "4"], y=["a", None, "?", "b"])
    with pytest.raises(ValueError, match=r"2 of 4 rows.*drop_unlabelled="):
        labelled_rows([unlabelled], "y", drop_unlabelled=False)
    (kept,), (note,) = labelled_rows([unlabelled], "y", drop_unlabelled=True)
    assert kept.texts("y").tolist() == ["a", "b"]
    assert kept.row(1) == "row 4"  # rows keep their numbers
    assert "2 of 4" in note
    with pytest.raises(ValueError, match="target="):
        labelled_rows([table(x=["1", "2"], y=[None, "?"])], "y", drop_unlabelled=True)
    with pytest.raises(ValueError, match="a, but b"):
        labelled_rows([table("lo.csv", y=["a"]), table("hi.csv", y=["b"])], "y", False)


def test_numeric_classes_are_sorted_by_value():
    for labels, classes in (
        (["10", "9", "9", "10"], ["9", "10"]),
        (["10", "9", "b"], ["10", "9", "b"]),
        (["True", "False"], ["False", "True"]),
    ):
        assert find_classes(np.array(labels, object)) == (classes, [])


def test_suspicious_classes_are_noted():
    _, (note,) = find_classes(np.array(["ja", "ja", "nein"], object), "y")
    assert "one row only: 1 name (nein)" in note


def test_suspicious_targets():
    prices = np.array([str(i / 7) for i in range(100)], object)
    with pytest.raises(ValueError, match="max_classes=100"):
        find_classes(prices, "price")
    assert len(find_classes(prices, "price", 100)[0]) == 100
    with pytest.raises(ValueError, match="more than 99"):
        find_classes(prices, "price", 99)
    assert len(find_classes(np.repeat(prices, 5), "price")[0]) == 100  # each often enough
    words = np.array([f"w{i}" for i in range(1001)], object)
    with pytest.raises(ValueError, match="max_classes=1001"):
        find_classes(words, "word")
    assert len(find_classes(words[:1000], "word")[0]) == 1000


numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))
widths = st.floats(0, 1e3).map(lambda x: round(x, 3))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(numbers, widths), min_size=2, max_size=20), st.data())
def test_pairs_share_one_monotone_scaling(rows, data):
    low = [a for a, _ in rows]
    high = [a + w for a, w in rows]
    both = np.concatenate([low, high])[:, None]
    _, (outliers,) = fit_scaling(both)
    assume(np.ptp(both) > 0 and not outliers)
    lower = table("lo.csv", x=[repr(v) for v in low], y=["a", "b", *"a" * (len(low) - 2)])
    upper = table("hi.csv", x=[repr(v) for v in high], y=["a", "b", *"a" * (len(low) - 2)])
    encoder, _ = TableEncoder.fit([lower, upper], "y")
    bounds, _ = encoder.encode([lower, upper])
    assert (bounds.lower <= bounds.upper).all()
    scaler = StandardScaler().fit(both)
    np.testing.assert_allclose(encoder.columns[0].mean, scaler.mean_[0], rtol=1e-9, atol=1e-6)
    rounding = 1e-14 * np.abs(both).max()
    np.testing.assert_allclose(encoder.columns[0].scale, both.std(), rtol=1e-6, atol=rounding)
    # a point between the bounds is still between the bounds
    row = data.draw(st.integers(0, len(low) - 1))
    share = data.draw(st.floats(0, 1))
    inside = min(max(low[row] + share * (high[row] - low[row]), low[row]), high[row])
    point, _ = encoder.encode([table(x=[repr(inside)])])
    assert bounds.lower[row, 0] <= point[0, 0] <= bounds.upper[row, 0]


def test_missing_values_of_pairs():
    lower = table("lo.csv", x=["1", None, "3"], k=["u", "v", None], y=["a", "b", "a"])
    upper = table("hi.csv", x=["2", None, "5"], k=["u", "v", None], y=["a", "b", "a"])
    encoder, notes = TableEncoder.fit([lower, upper], "y")
    assert encoder.columns[0].mean == pytest.approx(2.75)  # of 1, 2, 3, 5
    assert "1 missing value" in notes[0]
    bounds, _ = encoder.encode([lower, upper])
    values = encoder.missing
    assert bounds.lower[1].tolist() == [values.low[0], 0, 1, 1, 0]  # ends with the indicators
    assert bounds.upper[1].tolist() == [values.high[0], 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (
            {"x": ["0", "3"]},
            {"x": ["1", "2"]},
            r"lo\.csv row 2, column 'x' is 3.0, but 2.0 in hi\.csv",
        ),
        (
            {"x": ["0", None]},
            {"x": ["1", "2"]},
            r"lo\.csv row 2, column 'x' is nan, but 2.0 in hi\.csv",
        ),
        (
            {"x": ["0", "1"]},
            {"x": ["1", None]},
            r"lo\.csv row 2, column 'x' is 1.0, but nan in hi\.csv",
        ),
        ({"x": ["0", "b"]}, {"x": ["1", "2"]}, r"lo\.csv row 2, column 'x': 'b'"),
        (
            {"x": ["u", "v"]},
            {"x": ["u", "u"]},
            r"lo\.csv row 2, column 'x' is v, but u in hi\.csv",
        ),
        (
            {"x": ["u", None]},
            {"x": ["u", "u"]},
            r"lo\.csv row 2, column 'x' is None, but u in hi\.csv",
        ),
    ],
)
def test_invalid_pairs_raise(lower, upper, message):
    tables = [table("lo.csv", **lower), table("hi.csv", **upper)]
    kind = Category("x", ("u", "v")) if "u" in lower["x"] else Number("x", 0.0, 1.0)
    with pytest.raises(ValueError, match=message):
        TableEncoder("y", (kind,), Missing.fit(torch.zeros(1, kind.width))).encode(tables)


def test_large_numbers_do_not_overflow():
    encoder, _ = TableEncoder.fit([table(x=["1e300", "-1e300", "3e299"], y=["a", "b", "a"])], "y")
    x, _ = encoder.encode([table(x=["1e300", "-1e300"])])
    assert x.isfinite().all()
