"""Tables to numbers and back: columns by hand, saved as JSON, pairs of bounds, tables that do not fit."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from creinn.data.columns import Category, Number
from creinn.data.encoder import TableEncoder, classes_of
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
        Number("age", 20.0, pytest.approx((200 / 3) ** 0.5)),
        Category("sex", ("f", "m")),
    )
    assert encoder.ignored == ("one", "none", "same")
    assert notes == [
        "train.csv, column 'age': 1 missing value, for which values of the training table are tried",
        "train.csv, column 'sex': 1 missing value, for which values of the training table are tried",
        "train.csv, column 'one': it is 5 in all rows, so it is left out",
        "train.csv, column 'none': it is empty, so it is left out",
        "train.csv, column 'same': it is 'x' in all rows, so it is left out",
    ]
    (x,), _ = encoder.encode([TRAINING])
    r, gap = 1.5**0.5, np.nan
    np.testing.assert_allclose(x, [[-r, 0, 1], [r, 1, 0], [gap, 0, 1], [0, gap, gap]], rtol=1e-6)
    assert encoder.widths == [1, 2]


def test_json_round_trip_encodes_alike():
    encoder, _ = TableEncoder.fit([TRAINING], "y")
    copy = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))
    assert copy == encoder
    new = table(
        "new.csv", sex=["m", "x", None, "x"], age=["1", None, "2", "3"], extra=["1", "2", "3", "4"]
    )
    (x,), notes = copy.encode([new])
    np.testing.assert_array_equal(x, encoder.encode([new])[0][0])
    np.testing.assert_array_equal(x[:, 1:], [[0, 1], [0, 0], [np.nan, np.nan], [0, 0]])
    assert notes == [
        "new.csv, column 'age': 1 missing value, for which values of the training table are tried",
        "new.csv, column 'sex': 1 missing value, for which values of the training table are tried",
        "new.csv, column 'sex': 2 values not seen in training, first 'x' in row 2; taken for none of the 2 known ones",
        "new.csv: not used, for the training table has no such column: extra",
    ]


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"target": "y", "columns": [{"kind": "place", "name": "a"}], "ignored": []},
        {"target": "y", "columns": [{"kind": "number", "name": "a"}], "ignored": []},
        {"target": "y", "columns": 3, "ignored": []},
    ],
)
def test_foreign_json_is_refused(record):
    with pytest.raises(ValueError, match="saved model"):
        TableEncoder.from_json(record)


def test_dropped_and_forced_columns():
    data = table(id=["1", "2", "3"], zip=["10", "11.0", "10"], x=["1", "2", "3"], y=["a", "b", "a"])
    encoder, _ = TableEncoder.fit([data], "y", drop=["id"], categorical=["zip"])
    assert encoder.columns[0] == Category("zip", ("10", "11"))
    assert encoder.ignored == ("id",)
    _, notes = encoder.encode([table(zip=["11"], x=["1"])])
    assert notes == []  # neither the dropped column nor the target is missed


def test_names_are_said_to_be_many():
    many = [f"p{i}" for i in range(30)]
    _, notes = TableEncoder.fit([table(name=many, y=["a", "b"] * 15)], "y")
    assert notes == [
        "t.csv, column 'name': 30 categories in 30 rows; drop the column if it is a name or a key",
    ]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"x": ["1", "2"]}, {}, r"t\.csv has no column 'y'; its columns are x"),
        (
            {"x": ["1", "2"], "y": ["a", "b"]},
            {"drop": ["z"]},
            r"t\.csv has no column 'z'; its columns are x, y",
        ),
        (
            {"x": ["1", "1"], "y": ["a", "b"]},
            {},
            r"t\.csv has no column to learn from besides the target 'y'",
        ),
        (
            {"x": ["1", "2", "?"], "y": ["a", "b", "a"]},
            {},
            r"t\.csv row 3, column 'x': '\?' is not a number, but 2 of 3 values of this column are",
        ),
        (
            {"x": ["1", "-inf"], "y": ["a", "b"]},
            {},
            r"t\.csv row 2, column 'x': '-inf' is not a finite number",
        ),
    ],
)
def test_training_tables_that_are_refused(columns, options, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder.fit([table(**columns)], "y", **options)


def test_tables_that_do_not_fit_the_model():
    encoder, _ = TableEncoder.fit([TRAINING], "y")
    with pytest.raises(
        ValueError, match=r"new\.csv has no column 'sex', which the model was trained with"
    ):
        encoder.encode([table("new.csv", age=["1"])])
    with pytest.raises(ValueError, match=r"new\.csv row 2, column 'age': 'old' is not a number"):
        encoder.encode([table("new.csv", age=["1", "old"], sex=["f", "f"])])


def test_labels():
    encoder, _ = TableEncoder.fit([TRAINING], "y")
    assert encoder.labels([TRAINING]).tolist() == ["a", "b", "a", "b"]
    with pytest.raises(ValueError, match=r"t\.csv row 2, column 'y': the class is missing"):
        encoder.labels([table(y=["a", None])])
    with pytest.raises(ValueError, match=r"lo\.csv row 1, column 'y' is 'a', but 'b' in hi\.csv"):
        encoder.labels([table("lo.csv", y=["a"]), table("hi.csv", y=["b"])])


def test_classes_are_sorted_by_value_if_numbers():
    assert classes_of(np.array(["10", "9", "9"], object)) == ["9", "10"]
    assert classes_of(np.array(["10", "9", "b"], object)) == ["10", "9", "b"]
    assert classes_of(np.array(["True", "False"], object)) == ["False", "True"]


numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(numbers, st.floats(0, 1e3)), min_size=2, max_size=20), st.data())
def test_pairs_are_scaled_by_one_map_that_keeps_order(rows, data):
    low = [a for a, _ in rows]
    high = [a + w for a, w in rows]
    if len({*low, *high}) == 1:
        return
    lower = table("lo.csv", x=[repr(v) for v in low], y=["a", "b", *"a" * (len(low) - 2)])
    upper = table("hi.csv", x=[repr(v) for v in high], y=["a", "b", *"a" * (len(low) - 2)])
    encoder, _ = TableEncoder.fit([lower, upper], "y")
    (lo, hi), _ = encoder.encode([lower, upper])
    assert (lo <= hi).all()
    both = np.concatenate([low, high])[:, None]
    scaler = StandardScaler().fit(both)
    np.testing.assert_allclose(encoder.columns[0].mean, scaler.mean_[0], rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(encoder.columns[0].scale, both.std(), rtol=1e-6)
    # a point between the bounds stays between them
    row = data.draw(st.integers(0, len(low) - 1))
    share = data.draw(st.floats(0, 1))
    inside = min(max(low[row] + share * (high[row] - low[row]), low[row]), high[row])
    (point,), _ = encoder.encode([table(x=[repr(inside)])])
    assert lo[row, 0] <= point[0, 0] <= hi[row, 0]


def test_missing_values_of_pairs():
    lower = table("lo.csv", x=["1", None, "3"], k=["u", "v", None], y=["a", "b", "a"])
    upper = table("hi.csv", x=["2", None, "5"], k=["u", "v", None], y=["a", "b", "a"])
    encoder, notes = TableEncoder.fit([lower, upper], "y")
    assert encoder.columns[0].mean == 2.75  # of 1, 2, 3, 5
    assert (
        notes[0]
        == "lo.csv, column 'x': 1 missing value, for which values of the training table are tried"
    )
    (lo, hi), _ = encoder.encode([lower, upper])
    assert np.isnan(lo[1, 0])
    assert np.isnan(hi[1, 0])


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        ({"x": ["1", "2"]}, {"x": ["1"]}, r"lo\.csv has 2 rows, but hi\.csv has 1"),
        ({"x": ["1"], "z": ["1"]}, {"x": ["1"]}, r"lo\.csv has a column 'z', but hi\.csv has not"),
        ({"x": ["1"]}, {"x": ["1"], "z": ["1"]}, r"hi\.csv has a column 'z', but lo\.csv has not"),
        (
            {"x": ["0", "3"]},
            {"x": ["1", "2"]},
            r"lo\.csv row 2, column 'x' is 3, above the 2 in hi\.csv",
        ),
        (
            {"x": ["0", None]},
            {"x": ["1", "2"]},
            r"lo\.csv row 2, column 'x' is missing, but not in hi\.csv",
        ),
        (
            {"x": ["0", "1"]},
            {"x": ["1", None]},
            r"hi\.csv row 2, column 'x' is missing, but not in lo\.csv",
        ),
        ({"x": ["0", "b"]}, {"x": ["1", "2"]}, r"lo\.csv row 2, column 'x': 'b' is not a number"),
        (
            {"x": ["u", "v"]},
            {"x": ["u", "u"]},
            r"lo\.csv row 2, column 'x' is 'v', but 'u' in hi\.csv",
        ),
        (
            {"x": ["u", None]},
            {"x": ["u", "u"]},
            r"lo\.csv row 2, column 'x' is missing, but 'u' in hi\.csv",
        ),
    ],
)
def test_pairs_that_are_refused(lower, upper, message):
    classes = ["a", "b"]
    tables = [
        table("lo.csv", **lower, y=classes[: len(lower["x"])]),
        table("hi.csv", **upper, y=classes[: len(upper["x"])]),
    ]
    with pytest.raises(ValueError, match=message):
        TableEncoder.fit(tables, "y")
    kind = Category("x", ("u", "v")) if "u" in lower["x"] else Number("x", 0.0, 1.0)
    with pytest.raises(ValueError, match=message.split(", but 1 of")[0]):
        TableEncoder("y", (kind,)).encode(tables)


def test_large_numbers_do_not_overflow():
    encoder, _ = TableEncoder.fit([table(x=["1e300", "-1e300", "3e299"], y=["a", "b", "a"])], "y")
    (x,), _ = encoder.encode([table(x=["1e300", "-1e300"])])
    assert np.isfinite(x).all()
