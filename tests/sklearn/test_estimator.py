"""The scikit-learn estimator: scikit-learn's own checks, weights, early stopping, saving, refusals."""

import json
import pickle
from itertools import product
from unittest.mock import patch

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from creinn import Interval, load
from creinn.sklearn import CreINNClassifier, preparation

QUICK = {"hidden_layer_sizes": (16,), "max_iter": 20, "learning_rate": 0.01}

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have valid feature names.*:UserWarning")


# scikit-learn's own checks. That of array libraries skips itself without SCIPY_ARRAY_API.
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "Batches are drawn by rows, batch norm and distance count rows: "
    "a row of weight 2 is not the same as the row twice. A row of weight 0 is the same as none.",
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([CreINNClassifier(**QUICK)], expected_failed_checks=lambda _: EXPECTED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_accuracy_with_string_labels(fitted, wine):
    _, test, _, y = wine
    assert fitted.classes_.tolist() == ["barbera", "barolo", "grignolino"]
    assert fitted.score(test, y) > 0.9
    assert set(fitted.predict(test)) <= set(y)


def test_predictions_are_consistent(fitted, wine):
    _, test, _, _ = wine
    p, bounds, sets = (
        fitted.predict_proba(test),
        fitted.predict_interval(test),
        fitted.predict_set(test),
    )
    assert p.shape == (len(test), 3)
    assert bounds.shape == (len(test), 3, 2)
    assert p.dtype == bounds.dtype == np.float64
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
    assert (bounds[..., 0] <= p + 1e-12).all()
    assert (p <= bounds[..., 1] + 1e-12).all()
    assert (bounds[..., 1] > bounds[..., 0]).any()
    assert (fitted.predict(test) == fitted.classes_[p.argmax(1)]).all()
    assert sets.dtype == bool
    assert sets[np.arange(len(test)), p.argmax(1)].all()
    # a class is kept if its upper bound reaches the lower bound of every class
    expected = bounds[..., 1] >= bounds[..., 0].max(1, keepdims=True)
    np.testing.assert_array_equal(sets, expected)
    uncertainty = fitted.uncertainty(test)
    np.testing.assert_allclose(
        uncertainty["total"] - uncertainty["aleatoric"], uncertainty["epistemic"], atol=1e-9
    )
    entropy = -(p * np.log2(np.maximum(p, 1e-300))).sum(1)
    assert (uncertainty["aleatoric"] <= entropy + 1e-9).all()
    assert (entropy <= uncertainty["total"] + 1e-9).all()
    log_loss(fitted.predict(test), p, labels=fitted.classes_)  # warns if rows do not sum to one


def test_logarithms_of_probabilities(fitted, wine):
    _, test, _, _ = wine
    np.testing.assert_allclose(
        np.exp(fitted.predict_log_proba(test)), fitted.predict_proba(test), atol=1e-12
    )


@pytest.mark.parametrize("options", [{}, {"distance": False}, {"n_estimators": 2}])
def test_float32_is_preserved(quick, wine, options):
    X, test, y, _ = wine
    X, test = X.astype(np.float32), test.astype(np.float32)
    clf = quick(max_iter=2, **options).fit(X, y)
    seen = []
    predict = type(clf.model_).predict
    with patch.object(
        type(clf.model_),
        "predict",
        lambda self, x, size: (seen.append(x), predict(self, x, size))[1],
    ):
        clf.credal_set(test)
    assert seen[0].dtype == torch.float32
    for rows in (test, test.astype(np.float64)):
        assert clf.predict_proba(rows).dtype == clf.predict_log_proba(rows).dtype == np.float32
        assert (
            clf.predict_interval(rows).dtype == clf.uncertainty(rows)["total"].dtype == np.float32
        )
    double = quick(max_iter=2, **options).fit(X.astype(np.float64), y)
    assert double.predict_proba(test).dtype == np.float64
    np.testing.assert_allclose(double.predict_proba(test), clf.predict_proba(test), atol=0.05)
    both = Interval(torch.from_numpy(X), torch.from_numpy(X))
    assert quick(max_iter=1).fit(both, y).predict_proba(both).dtype == np.float32


def test_sparse_tables_raise(quick, fitted, wine):
    X, _, y, _ = wine
    for call in (lambda: quick().fit(csr_array(X), y), lambda: fitted.predict(csr_array(X))):
        with pytest.raises(TypeError, match="toarray"):
            call()


def test_two_classes(quick):
    X, y = load_breast_cancer(return_X_y=True)
    X, test, y, labels = train_test_split(X, y.astype(bool), stratify=y, random_state=0)
    clf = quick().fit(X, y)
    assert clf.score(test, labels) > 0.93
    assert clf.predict(test).dtype == bool
    assert clf.model_.num_logits == 1
    bounds = clf.predict_interval(test)
    np.testing.assert_allclose(bounds[:, 0, 0], 1 - bounds[:, 1, 1], atol=1e-12)
    np.testing.assert_allclose(
        clf.uncertainty(test)["epistemic"], bounds[:, 1, 1] - bounds[:, 1, 0], atol=1e-12
    )


def test_random_state_is_deterministic(quick, wine):
    X, test, y, _ = wine

    def proba(state):
        return quick(max_iter=3, n_estimators=2, random_state=state).fit(X, y).predict_proba(test)

    first = proba(0)
    before = torch.random.get_rng_state()
    np.testing.assert_array_equal(first, proba(0))
    assert torch.equal(
        before, torch.random.get_rng_state()
    )  # and the caller's generator is not touched
    np.testing.assert_array_equal(proba(np.random.RandomState(1)), proba(np.random.RandomState(1)))
    assert not np.array_equal(first, proba(1))


def test_ensemble_averages_members(quick, wine):
    X, test, y, _ = wine
    clf = quick(max_iter=3, n_estimators=3).fit(X, y)
    assert len(clf.model_.members) == len(clf.histories_) == 3
    scaled = clf._preparation.apply([test], torch.float64)
    lower = torch.stack([member(scaled).lower for member in clf.model_.members])
    assert not torch.allclose(lower[0], lower[1])
    np.testing.assert_allclose(
        clf.predict_interval(test)[..., 0], lower.mean(0).detach().numpy(), atol=1e-12
    )


# Files.


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_estimators": 2},
        {"distance": False, "mode": "sound"},
        {"early_stopping": False},
    ],
)
def test_save_and_load(quick, wine, tmp_path, options):
    X, test, y, _ = wine
    clf = quick(max_iter=2, class_weight={"barolo": 2.0}, **options).fit(X, y)
    clf.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    again = CreINNClassifier.load(tmp_path)
    assert again.get_params() == clf.get_params()
    assert (again.n_features_in_, again.n_iter_) == (13, 2)
    assert again.histories_ == clf.histories_
    np.testing.assert_allclose(again.predict_interval(test), clf.predict_interval(test), atol=1e-12)
    np.testing.assert_array_equal(again.predict(test), clf.predict(test))
    again.save(tmp_path / "again")
    assert CreINNClassifier.load(tmp_path / "again").fit(X, y).score(X, y) == clone(clf).fit(
        X, y
    ).score(X, y)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 1, 2], dtype=np.int8),
        np.array([1.5, 2.5, 3.5], dtype=np.float32).round(),
        np.array(["ä", "bb", "c"]),
        np.array(["ä", "bb", "c"], dtype=object),
        np.array([True, False]),
    ],
)
def test_loaded_labels_have_original_type(quick, tmp_path, labels):
    frame, y = load_iris(return_X_y=True, as_frame=True)
    y = labels[y.to_numpy() % len(labels)]
    weights = {label: 1 + index for index, label in enumerate(labels)}
    clf = quick(
        max_iter=1, hidden_layer_sizes=[4], class_weight=weights, learning_rate=np.float32(0.5)
    ).fit(frame, y)
    clf.save(tmp_path)
    again = CreINNClassifier.load(tmp_path)
    assert again.classes_.dtype == clf.classes_.dtype
    np.testing.assert_array_equal(again.classes_, clf.classes_)
    np.testing.assert_array_equal(again.feature_names_in_, clf.feature_names_in_)
    assert again.class_weight == weights
    assert again.hidden_layer_sizes == (4,)
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(frame[frame.columns[::-1]])


def test_load_of_network_without_scaling_raises(quick, wine, tmp_path):
    X, test, y, _ = wine
    clf = quick(max_iter=2, n_estimators=2).fit(X, y)
    for name, model in (("all", clf.model_), ("one", clf.model_.members[0])):
        model.save(tmp_path / name)
        with pytest.warns(UserWarning, match="CreINNClassifier.load"):
            network = load(tmp_path / name)
        scaler = network.preprocessing["scaler"]
        scaled = torch.from_numpy((test - scaler["mean"]) / scaler["scale"])
        torch.testing.assert_close(
            network.predict(scaled).lower,
            model.predict(clf._preparation.apply([test], torch.float64)).lower,
        )
        with pytest.raises(ValueError, match="no estimator"):
            CreINNClassifier.load(tmp_path / name)
    clf.save(tmp_path)
    with pytest.warns(UserWarning, match="is the network of a CreINNClassifier"):
        load(tmp_path)


def test_invalid_save_and_load(quick, wine, tmp_path):
    X, _, y, _ = wine
    with pytest.raises(NotFittedError):
        quick().save(tmp_path)
    with pytest.raises(FileNotFoundError, match="There is no saved model in"):
        CreINNClassifier.load(tmp_path)
    clf = quick(max_iter=1, random_state=np.random.RandomState(0)).fit(X, y)
    with pytest.warns(UserWarning, match="A generator as random_state is not saved"):
        clf.save(tmp_path)
    assert CreINNClassifier.load(tmp_path).random_state is None
    config = json.loads((tmp_path / "config.json").read_text())
    for change in ({"names": 3, "dtype": "float8"}, {"parameters": {"hiden": (3,)}}):
        config["preprocessing"]["estimator"] |= change
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match="valid estimator"):
            CreINNClassifier.load(tmp_path)


def test_copies_give_equal_predictions(fitted, wine, tmp_path):
    _, test, _, _ = wine
    expected = fitted.predict_proba(test)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(fitted)).predict_proba(test), expected)
    joblib.dump(fitted, tmp_path / "clf.joblib")
    np.testing.assert_allclose(joblib.load(tmp_path / "clf.joblib").predict_proba(test), expected)
    with pytest.raises(NotFittedError):
        clone(fitted).predict_proba(test)


def test_prediction_does_not_depend_on_other_rows(fitted, wine):
    _, test, _, _ = wine
    one_by_one = np.concatenate([fitted.predict_interval(test[i : i + 1]) for i in range(10)])
    np.testing.assert_allclose(one_by_one, fitted.predict_interval(test)[:10], atol=1e-12)


def test_pipeline_grid_search_and_cross_validation(quick, wine):
    X, test, y, labels = wine
    pipeline = make_pipeline(MinMaxScaler(), quick(max_iter=10))
    search = GridSearchCV(
        pipeline,
        {"creinnclassifier__hidden_layer_sizes": [(8,), (16, 8)]},
        cv=2,
        scoring="neg_log_loss",
    )
    search.fit(X, y)
    assert search.score(test, labels) > -0.8
    assert cross_val_score(quick(max_iter=40), X, y, cv=2).mean() > 0.85


def test_feature_names(quick):
    frame, y = load_iris(return_X_y=True, as_frame=True)
    clf = quick(max_iter=2).fit(frame, y)
    assert clf.feature_names_in_.tolist() == list(frame.columns)
    assert clf.n_features_in_ == 4
    with pytest.raises(ValueError, match="feature names should match"):
        clf.predict(frame[frame.columns[::-1]])
    with pytest.raises(ValueError, match="expecting 4"):
        clf.predict(frame.to_numpy()[:, :3])


def test_class_weights_increase_recall_of_rare_class(quick):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)) + 1.2 * (np.arange(600) >= 560)[:, None]
    y = np.where(np.arange(600) >= 560, "rare", "usual")
    plain = quick().fit(X, y)
    assert (plain.predict(X)[y == "rare"] == "rare").mean() < 0.5
    for weight in ("balanced", {"rare": 14.0, "usual": 1.0}):
        weighted = quick(class_weight=weight).fit(X, y)
        assert (
            balanced_accuracy_score(y, weighted.predict(X))
            > balanced_accuracy_score(y, plain.predict(X)) + 0.1
        )


# Weights of rows.


def test_zero_weight_rows_are_ignored(quick, wine):
    X, test, y, _ = wine
    weights = (np.arange(len(y)) % 3).astype(float)
    for options in ({}, {"early_stopping": True}, {"distance": False}):
        clf = quick(max_iter=3, **options)
        expected = clf.fit(X[weights > 0], y[weights > 0], weights[weights > 0]).predict_interval(
            test
        )
        np.testing.assert_allclose(
            clf.fit(X, y, weights).predict_interval(test), expected, atol=1e-6
        )
    low, y_low = (
        Interval(X, X),
        np.where(weights > 0, y, "none such"),
    )  # the class has no rows
    assert "none such" not in quick(max_iter=1).fit(low, y_low, sample_weight=weights).classes_
    with pytest.raises(ValueError, match="only one class: 'barolo'"):
        quick().fit(X, y, sample_weight=y == "barolo")


def test_sample_weights_equal_class_weights(quick, wine, monkeypatch):
    fit = preparation.fit_scaling
    monkeypatch.setattr(preparation, "fit_scaling", lambda rows, weights: fit(rows))
    X, test, y, _ = wine
    by_class = {"barbera": 4.0, "barolo": 1.0, "grignolino": 0.5}
    of_rows = np.array([by_class[label] for label in y])
    options = {"max_iter": 10}
    expected = quick(class_weight=by_class, **options).fit(X, y).predict_proba(test)
    plain = quick(**options).fit(X, y).predict_proba(test)
    for scale in (1, 1e-20, 1e307):  # their sum does not matter
        got = quick(**options).fit(X, y, sample_weight=scale * of_rows).predict_proba(test)
        np.testing.assert_allclose(got, expected, atol=0.02)
    assert np.abs(plain - expected).max() > 0.1
    # "balanced" undoes them: the weight of each class is then the same
    balanced = quick(class_weight="balanced", **options)
    expected = balanced.fit(X, y).predict_proba(test)
    np.testing.assert_allclose(balanced.fit(X, y, of_rows).predict_proba(test), expected, atol=0.02)


def test_sample_weights_in_scaling_and_early_stopping(quick, wine):
    X, _, y, _ = wine
    weights = 1.0 + np.arange(len(y)) % 3
    clf = quick(max_iter=3, early_stopping=True).fit(X, y, weights)
    np.testing.assert_allclose(
        clf._preparation.scaling.mean, np.repeat(X, weights.astype(int), 0).mean(0)
    )
    other = quick(max_iter=3, early_stopping=True).fit(X, y, weights**5)
    assert not np.allclose(
        clf.histories_[0]["val_loss"], other.histories_[0]["val_loss"], rtol=1e-3
    )
    with pytest.raises(ValueError, match="Negative values"):
        quick().fit(X, y, sample_weight=-weights)


def test_initial_prediction_is_class_frequencies(quick, wine):
    X, _, y, _ = wine
    clf = quick(max_iter=1).fit(X, y)
    for masses, kind in product(
        (np.array([1.0, 2.0, 5.0]), np.array([1.0, 3.0])), ("point", "interval")
    ):
        model = clf._build(masses, kind).eval()
        (
            model.norm if model.logit_norm else model.network.head
        ).weight.data.zero_()  # the logits are then the shifts
        torch.testing.assert_close(
            model(torch.zeros(1, clf.n_features_in_)).intersection[0].double(),
            torch.from_numpy(masses / masses.sum()),
        )


def test_early_stopping_restores_best_weights(quick, wine):
    X, _, y, _ = wine
    clf = quick(max_iter=200, early_stopping=0.25, n_iter_no_change=3).fit(X, y)
    history = clf.histories_[0]
    assert clf.n_iter_ == len(history) < 200
    assert history.best_epoch == len(history) - 3
    until_best = clone(clf).set_params(max_iter=history.best_epoch).fit(X, y)
    np.testing.assert_allclose(clf.predict_proba(X), until_best.predict_proba(X), atol=1e-6)
    assert quick(max_iter=5, early_stopping=False).fit(X, y).histories_[0]["val_loss"] == [None] * 5


@pytest.mark.filterwarnings("ignore:There is one row of each class")
def test_small_batches(quick):
    X, y = load_iris(return_X_y=True)
    for rows, batch_size in (
        (slice(None, None, 6), 2),
        ([0, 100], 64),
    ):  # the last batch has one row
        clf = quick(max_iter=1, batch_size=batch_size).fit(X[rows], y[rows])
        assert np.isfinite(clf.predict_proba(X)).all()


def test_one_row_per_class_raises(quick, wine):
    X, _, y, _ = wine
    rows = [np.flatnonzero(y == label)[0] for label in np.unique(y)]
    with pytest.warns(UserWarning, match="one row of each class"):
        quick(max_iter=1).fit(X[rows], y[rows])


def test_failed_fit_does_not_change_estimator(quick, wine):
    X, _, y, _ = wine
    clf = quick(max_iter=1).fit(X, y)
    with pytest.raises(ValueError, match="only one class"):
        clf.fit(X, np.zeros(len(X)))
    with pytest.raises(NotFittedError):
        clf.predict(X)


@pytest.mark.parametrize("columns", [[0], [0, 1]])
@pytest.mark.parametrize("classes", [2, 3])
def test_few_rows_and_few_columns(quick, columns, classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < classes][::10][:, columns], y[y < classes][::10]  # five rows of each class
    for options in (
        {},
        {"hidden_layer_sizes": ()},
        {"early_stopping": 0.4},
        {"n_estimators": 2},
    ):
        clf = quick(max_iter=3, **options).fit(X, y)
        uncertainty = clf.uncertainty(np.concatenate((X, X + 1e3)))
        assert all(np.isfinite(values).all() for values in uncertainty.values())
        bits = 1 if classes == 2 else np.log2(3)
        np.testing.assert_allclose(uncertainty["epistemic"][len(X) :], bits, atol=1e-6)


# What is refused.


@pytest.mark.parametrize(
    ("options", "token"),
    [
        ({"max_iter": 0}, "max_iter.*0"),
        ({"max_iter": 2.5}, "max_iter.*2.5"),
        ({"n_estimators": 0}, "n_estimators.*0"),
        ({"n_iter_no_change": 0}, "n_iter_no_change.*0"),
        ({"batch_size": 1}, "batch_size.*1"),
        ({"learning_rate": "slow"}, "learning_rate.*slow"),
        ({"learning_rate": -1.0}, "learning_rate.*-1"),
        ({"early_stopping": 1}, "early_stopping.*1"),
        ({"early_stopping": 1.0}, "early_stopping.*1.0"),
        ({"dropout": 1.0}, "dropout.*1.0"),
        ({"hidden_layer_sizes": (8, 3.7)}, "3.7"),
        ({"hidden_layer_sizes": (0,)}, "at least 1"),
        ({"hidden_layer_sizes": 64}, "hidden_layer_sizes.*64"),
        ({"mode": "exact"}, "mode.*exact"),
        ({"distance": "far"}, "distance.*far"),
        ({"distance": -1}, "distance.*-1"),
        ({"device": "abacus"}, "abacus"),
        ({"class_weight": "fair"}, "class_weight"),
        ({"class_weight": {"barolo": np.inf}}, "'barolo'.*inf"),
        ({"class_weight": {"barolo": 0.0}}, "'barolo'.*0.0"),
    ],
)
def test_invalid_settings_raise_in_fit(quick, wine, options, token):
    X, _, y, _ = wine
    clf = quick(**{"max_iter": 1, **options})  # does not complain
    with pytest.raises((TypeError, ValueError), match=token):
        clf.fit(X, y)


@pytest.mark.parametrize("missing", [np.nan, None, pd.NA])
def test_missing_labels_raise(quick, wine, missing):
    X, _, y, _ = wine
    y = y.astype(object)
    y[[3, 5]] = missing
    for labels in (y, pd.Series(y), list(y)):
        with pytest.raises(ValueError, match=f"2 of {len(y)} labels"):
            quick().fit(X, labels)


def test_missing_numeric_labels_raise(quick):
    with pytest.raises(ValueError, match="1 of 4 labels"):
        quick().fit(np.zeros((4, 2)), np.array([0.0, 1.0, np.nan, 1.0]))


def test_numpy_scalars_as_settings(quick, wine):
    X, _, y, _ = wine
    options = {"learning_rate": np.float32(0.01), "distance": np.float32(0.5)}
    options["hidden_layer_sizes"] = np.array([4, 4])
    clf = quick(max_iter=np.int64(1), **options).fit(pd.DataFrame(X), y)
    assert quick(max_iter=1, distance=np.False_).fit(X, y).model_.is_interval
    assert clf.predict_proba(pd.DataFrame(X)).shape == (len(X), 3)
