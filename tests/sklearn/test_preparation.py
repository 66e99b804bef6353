"""Tests of the preparation of rows: scaling, missing numbers, intervals and invalid tables."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.preprocessing import StandardScaler

from creinn import Interval
from creinn.sklearn import CreINNClassifier

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have valid feature names.*:UserWarning")


def test_columns_are_standardized(quick, wine):
    X, test, y, labels = wine
    assert quick().fit(X * 1e4 + 1e6, y).score(test * 1e4 + 1e6, labels) > 0.9


# What a table may hold.


@pytest.mark.parametrize("factor", [1e300, 1e-300])
def test_scaling_of_large_and_small_columns(quick, wine, factor):
    X, test, y, _ = wine
    expected = quick(max_iter=3).fit(X, y).predict_interval(test)
    np.testing.assert_allclose(
        quick(max_iter=3).fit(X * factor, y).predict_interval(test * factor), expected, atol=0.02
    )


@pytest.mark.parametrize("value", [0.1, 1e30])
def test_constant_column_is_zero(quick, wine, value):
    X, _, y, _ = wine
    clf = quick(max_iter=1).fit(np.c_[X, np.full(len(X), value)], y)
    assert (clf._preparation.apply([np.full((3, 14), value)], torch.float64)[:, 13] == 0).all()


def test_moments_ignore_missing_values(quick, wine):
    X, _, y, _ = wine
    weights = 1.0 + np.arange(len(y)) % 3
    blank = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X)
    expected = StandardScaler().fit(blank, sample_weight=weights)
    preparation = quick(max_iter=1).fit(blank, y, weights)._preparation
    np.testing.assert_allclose(preparation.scaling.mean, expected.mean_)
    np.testing.assert_allclose(preparation.scaling.scale, expected.scale_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distant_values_do_not_overflow(quick, wine, dtype):
    X, _, y, _ = wine
    for options in ({}, {"n_estimators": 2}):
        clf = quick(max_iter=5, **options).fit(X.astype(dtype), y)
        far = np.full((4, 13), [[1e7], [1e30], [-1e160], [1.7e308]])
        np.testing.assert_allclose(clf.uncertainty(far)["epistemic"], np.log2(3), atol=1e-5)
        np.testing.assert_allclose(clf.predict_interval(far), [[[0, 1]] * 3] * 4, atol=1e-6)


@pytest.fixture(scope="module")
def mixed():
    """A frame with all types of columns, and classes that follow from the texts."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=200),
            "text": np.array(["low", "high"])[y],
            "category": pd.Categorical(rng.integers(0, 3, 200)),
            "boolean": rng.random(200) > 0.5,
            "date": pd.date_range("2020", periods=200, freq="7h"),
            "day": pd.date_range("2020", periods=200).strftime("%Y-%m-%d"),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.02), y


def test_frames_of_all_types_are_encoded(quick, mixed, tmp_path):
    X, y = mixed
    clf = quick().fit(X, y)
    assert clf.score(X, y) > 0.95
    assert clf.n_features_in_ == 6
    assert any("'date'" in note for note in clf.notes_)
    clf.save(tmp_path)
    again = CreINNClassifier.load(tmp_path)
    np.testing.assert_allclose(again.predict_proba(X), clf.predict_proba(X), atol=1e-6)
    shuffled = X.sample(frac=1, random_state=0)
    order = X.index.get_indexer(shuffled.index)
    np.testing.assert_allclose(clf.predict_proba(shuffled), clf.predict_proba(X)[order], atol=1e-6)
    assert cross_val_score(quick(), X, y, cv=2).mean() > 0.9


def test_invalid_frames(quick, mixed):
    X, y = mixed
    clf = quick(max_iter=1).fit(X, y)
    with pytest.raises(ValueError, match="text"):
        clf.predict(X.drop(columns="text"))
    with pytest.raises(TypeError, match="data frame"):
        clf.predict(X.to_numpy())
    with pytest.raises(ValueError, match="'number'"):
        clf.predict(X.assign(number="many"))
    with pytest.raises(ValueError, match="total_seconds"):
        quick().fit(X.assign(span=pd.to_timedelta(np.arange(len(y)), "D")), y)
    with pytest.raises(ValueError, match="to_datetime"):
        quick().fit(X.assign(day=[f"{i % 12 + 1:02}/03/2021" for i in range(len(y))]), y)
    with pytest.raises(ValueError, match="1 of 200 labels"):
        quick().fit(X, [None, *y[1:]])
    with pytest.raises(ValueError, match="inconsistent"):
        quick().fit(X, y[1:])


def test_columns_of_numbers_of_other_types(quick):
    frame, y = load_iris(return_X_y=True, as_frame=True)
    integers = y.astype("Int64").mask(y == 1)
    clf = quick(max_iter=1).fit(frame.assign(new=y > 0, other=integers), y)
    assert clf.notes_ == []


def test_outlier_does_not_change_scaling(quick, wine):
    X, test, y, labels = wine
    X = X.copy()
    X[0, :] = 1e30
    clf = quick(max_iter=40).fit(X, y)
    assert clf.score(test, labels) > 0.9
    assert sum("1 outlier" in note for note in clf.notes_) == 13


def test_masked_entries_are_missing(wine, fitted):
    _, test, _, _ = wine
    gaps = np.arange(13) < 4
    masked = np.ma.masked_array(test, np.broadcast_to(gaps, test.shape))
    expected = fitted.predict_interval(np.where(gaps, np.nan, test))
    np.testing.assert_allclose(fitted.predict_interval(masked), expected, atol=1e-12)


# Missing numbers make the credal sets wider.


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return train_test_split(X, y, stratify=y, random_state=0)


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("wine", {}),
        ("wine", {"n_estimators": 2}),
        ("wine", {"distance": False}),
        ("wine", {"distance": False, "mode": "sound"}),
        ("cancer", {}),
    ],
)
def test_sets_grow_with_missing_values(quick, data, options, request):
    X, test, y, labels = request.getfixturevalue(data)
    clf = quick(**options).fit(X, y)
    order = np.random.default_rng(0).permutation(X.shape[1])
    uncertainty, sizes, covered = [], [], []
    for missing in (0, 2, len(order) // 2, len(order)):
        blank = np.where(np.isin(np.arange(len(order)), order[:missing]), np.nan, test)
        uncertainty.append(clf.uncertainty(blank)["epistemic"].mean())
        sets, bounds = clf.predict_set(blank), clf.predict_interval(blank)
        sizes.append(sets.sum(1).mean())
        covered.append(sets[np.arange(len(test)), np.searchsorted(clf.classes_, labels)].mean())
    assert (np.diff(uncertainty) > 0).all()
    assert (np.diff(sizes) >= 0).all()
    assert sizes[-1] > 1.5
    assert min(covered) > 0.9
    np.testing.assert_allclose(
        bounds, bounds[:1].repeat(len(test), 0), atol=1e-9
    )  # without any number, all rows are equal
    assert np.isfinite(bounds).all()


@pytest.mark.parametrize("options", [{}, {"distance": False}])
def test_missing_numbers_in_training(quick, wine, tmp_path, options):
    X, test, y, labels = wine
    rng = np.random.default_rng(0)
    gaps = rng.random(X.shape) < 0.2
    gaps[:, 5] = False
    clf = quick(max_iter=40, **options).fit(pd.DataFrame(np.where(gaps, np.nan, X)), y)
    assert clf.score(test, labels) > 0.85
    assert clf.n_features_in_ == 13
    blank = np.where(np.arange(13) < 4, np.nan, test)
    assert clf.uncertainty(blank)["epistemic"].mean() > clf.uncertainty(test)["epistemic"].mean()
    clf.save(tmp_path)
    again = CreINNClassifier.load(tmp_path)
    np.testing.assert_allclose(
        again.predict_interval(blank), clf.predict_interval(blank), atol=1e-6
    )
    if options:  # points and intervals have the same marks of what is missing
        both = clf.predict_interval(Interval(test, test))
        np.testing.assert_allclose(both, clf.predict_interval(test), atol=1e-9)


def test_missing_numbers_after_training_on_intervals(quick, wide):
    X, test, y, _ = wide
    clf = quick(max_iter=5).fit(X, y)
    points = test.center.numpy()
    blank = np.where(np.arange(13) < 6, np.nan, points)
    assert clf.uncertainty(blank)["epistemic"].mean() > clf.uncertainty(points)["epistemic"].mean()


# Interval data, with the same verbs.


@pytest.fixture(scope="module")
def wide(wine):
    X, test, y, labels = wine
    spread = 0.2 * X.std(0)
    return Interval(X - spread, X + spread), Interval(test - spread, test + spread), y, labels


def test_interval_data(quick, wide):
    X, test, y, labels = wide
    clf = quick(max_iter=40).fit(X, y)
    assert clf.model_.is_interval
    assert bool(clf.model_.distance_radius.fitted)
    assert clf.score(test, labels) > 0.9
    assert clf.predict_interval(test).shape == (len(test), 3, 2)
    assert clf.predict_set(test).shape == (len(test), 3)
    assert set(clf.uncertainty(test)) == {"total", "aleatoric", "epistemic"}
    assert clf.n_features_in_ == 13
    clf.predict(test.center.numpy())  # points do as well
    with pytest.raises(ValueError, match="12 features"):
        clf.predict(Interval(test.lower[:, 1:], test.upper[:, 1:]))


def test_bounds_share_one_monotone_scaling(quick, wide):
    X, _, y, _ = wide
    clf = quick(max_iter=1).fit(X, y)
    scaled = clf._preparation.apply([X.lower.numpy(), X.upper.numpy()], torch.float64)
    both = torch.cat((X.lower, X.upper))
    mean, std = both.mean(0), both.std(0, correction=0)
    torch.testing.assert_close(scaled.lower, (X.lower - mean) / std)
    torch.testing.assert_close(scaled.upper, (X.upper - mean) / std)
    assert (scaled.lower <= scaled.upper).all()


def test_wider_intervals_give_wider_sets(wine):
    X, test, y, labels = wine
    options = {"learning_rate": 0.01, "mode": "sound", "distance": False, "random_state": 0}
    clf = CreINNClassifier(max_iter=30, **options).fit(X, y)
    assert clf.score(test, labels) > 0.9
    spread = 0.1 * X.std(0)
    inner, outer = (
        clf.predict_interval(test),
        clf.predict_interval(Interval(test - spread, test + spread)),
    )
    assert (outer[..., 0] <= inner[..., 0] + 1e-9).all()
    assert (outer[..., 1] >= inner[..., 1] - 1e-9).all()
    assert 0 < (inner[..., 1] - inner[..., 0]).mean() < 0.5


def test_interval_data_in_cross_validation_and_search(quick, wide):
    X, _, y, _ = wide
    assert cross_val_score(quick(max_iter=40), X, y, cv=2).mean() > 0.85
    assert GridSearchCV(quick(), {"max_iter": [5, 6]}, cv=2).fit(X, y).predict(X).shape == y.shape


def test_invalid_data_raise(quick, wine):
    X, _, y, _ = wine
    with pytest.raises(ValueError, match="barolo"):
        quick().fit(X, np.full(len(X), "barolo"))
    with pytest.raises(ValueError, match="y is None"):
        quick().fit(X, None)
    with pytest.raises(ValueError, match="Expected 2D array"):
        quick().fit(Interval(X[:, 0], X[:, 0]), y)
    with pytest.raises(ValueError, match="infinity"):
        quick().fit(np.where(X > 1, np.inf, X), y)
    with pytest.raises(ValueError, match="Column 2"):
        quick().fit(np.where(np.arange(13) == 2, np.nan, X), y)
    with pytest.raises(ValueError, match="continuous"):
        quick().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="rule must be one of"):
        quick(max_iter=1).fit(X, y).predict_set(X, rule="guess")
