"""Tests of the forms of the estimator, and of the distance, the temperature and calibrated sets."""

import numpy as np
import pytest
import torch

from creinn import CreINN, Interval
from creinn.sklearn import CreINNClassifier
from creinn.sklearn.preparation import held_out_rows

# The forms: by default the distance from the training data decides how wide intervals are.


def test_default_is_the_recommended_form(fitted, wine):
    X, test, _, _ = wine
    assert not fitted.model_.is_interval
    assert not fitted.model_.logit_norm
    assert bool(fitted.model_.distance_radius.fitted)
    assert fitted.model_.distance_radius.distances[0].directions.dtype == torch.float64
    near = fitted.uncertainty(test)["epistemic"].mean()
    far = fitted.uncertainty(test + 20 * X.std(0))["epistemic"]
    assert near < 0.5
    assert (far > 1.5).all()  # nearly log2(3): nothing is known
    assert fitted.predict_set(test + 20 * X.std(0)).all()


def test_width_follows_the_distance(quick, wine):
    X, test, y, _ = wine
    widths = [
        np.ptp(quick(distance=scale).fit(X, y).predict_interval(test), axis=-1)
        for scale in (0, 0.1, 1)
    ]
    assert (widths[0] == 0).all()  # an ordinary network
    assert (widths[1] <= widths[2] + 1e-12).all()
    assert widths[2].mean() > widths[1].mean() > 0


def test_scale_is_chosen_on_validation_rows(quick, wine, monkeypatch):
    X, _, y, _ = wine
    seen = []

    def rows(batches):
        return None if batches is None else sum(len(labels) for _, labels in batches)

    monkeypatch.setattr(
        CreINN,
        "_fit_distance",
        lambda self, data, held_out, size: seen.append((rows(data), rows(held_out))),
    )
    quick(max_iter=1).fit(X, y)
    quick(max_iter=1, early_stopping=False).fit(X, y)
    quick(max_iter=1, early_stopping=0.25).fit(X, y)
    assert seen == [(103, 21), (124, None), (93, 31)]


def test_early_stopping_and_temperature_for_many_rows(quick):
    rng = np.random.default_rng(0)
    y = np.arange(360) % 3
    X = rng.normal(size=(360, 4)) + 1.5 * np.eye(4)[y]
    y[-2:] = 3  # too few of this class to hold some out
    clf = quick(max_iter=60, n_iter_no_change=3).fit(X, y)
    assert clf.n_iter_ < 60
    assert float(clf.model_.temperature.value) != 1
    held = held_out_rows("auto", y, "point", 0)
    assert (int(held.sum()), int(held[-2:].sum())) == (60, 0)
    for early_stopping, kind in ((False, "point"), ("auto", "interval")):
        assert not held_out_rows(early_stopping, y, kind, 0).any()
    assert not held_out_rows("auto", y[:59], "point", 0).any()


@pytest.mark.parametrize("mode", ["paper", "scaled", "sound"])
def test_interval_networks_without_distance(quick, wine, mode):
    X, test, y, labels = wine
    clf = quick(distance=False, mode=mode).fit(X, y)
    assert (clf.model_.is_interval, clf.model_.mode, clf.model_.distance_radius) == (
        True,
        mode,
        None,
    )
    assert clf.score(test, labels) > 0.9
    assert np.ptp(clf.predict_interval(Interval(test, test)), axis=-1).mean() > 0


def test_intervals_for_ordinary_network_raise(fitted, wine):
    _, test, _, _ = wine
    with pytest.raises(ValueError, match="distance=False"):
        fitted.predict(Interval(test, test))


def test_envelope_contains_members(quick, wine):
    X, test, y, _ = wine
    envelope = quick(max_iter=3, n_estimators=2).fit(X, y)
    envelope.model_.combine = "envelope"
    average = quick(max_iter=3, n_estimators=2).fit(X, y)
    wide, narrow = envelope.predict_interval(test), average.predict_interval(test)
    assert (wide[..., 0] <= narrow[..., 0] + 1e-12).all()
    assert (wide[..., 1] >= narrow[..., 1] - 1e-12).all()
    assert np.ptp(wide, axis=-1).mean() > np.ptp(narrow, axis=-1).mean()


# Sets with a guarantee.


def test_coverage_of_calibrated_sets(quick, tmp_path):
    rng = np.random.default_rng(0)
    names = np.array(["ham", "eggs", "spam"])
    codes = np.arange(600) % 3
    X = rng.normal(size=(600, 4)) + 1.2 * np.eye(4)[codes]
    X[::7, 0] = np.nan
    clf = quick(max_iter=15).fit(X[:200], names[codes[:200]])
    with pytest.raises(ValueError, match="carry no calibration"):
        clf.predict_set(X, coverage=0.9)
    assert clf.calibrate(X[200:400], names[codes[200:400]], coverage=0.8) is clf
    order = np.searchsorted(clf.classes_, names[codes])
    for asked in (0.8, 0.95):
        sets = clf.predict_set(X[400:], coverage=asked)
        assert sets[np.arange(200), order[400:]].mean() == pytest.approx(asked, abs=0.08)
    np.testing.assert_array_equal(
        clf.predict_set(X[400:], "conformal"), clf.predict_set(X[400:], coverage=0.8)
    )
    clf.save(tmp_path)
    loaded = CreINNClassifier.load(tmp_path)
    np.testing.assert_array_equal(
        loaded.predict_set(X, coverage=0.9), clf.predict_set(X, coverage=0.9)
    )
    clf.calibrate(X[200:400], np.eye(3)[order[200:400]] * 0.7 + 0.1)
    assert clf.credal_set(X).widened().contains(np.eye(3)[order] * 0.7 + 0.1).double().mean() > 0.9
    clf.calibrate(X[200:400], names[codes[200:400]], by=np.arange(200) % 2)
    assert clf.predict_set(X, groups=np.arange(600) % 2).shape == (600, 3)
    with pytest.raises(ValueError, match="'toast'"):
        clf.calibrate(X[:2], ["ham", "toast"])
    assert clf.fit(X[:200], codes[:200]).model_.calibration.conformal is None


@pytest.fixture(scope="module")
def votes():
    """Rows in two columns, with the shares of ten votes that depend on the first column."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    probability = 1 / (1 + np.exp(-2 * X[:, 0]))
    first = rng.binomial(10, probability) / 10
    return X, np.stack((first, 0.75 * (1 - first), 0.25 * (1 - first)), 1)


@pytest.mark.parametrize("distance", [True, False])
def test_label_distributions_are_learnt(quick, votes, distance):
    X, shares = votes
    clf = quick(distance=distance, max_iter=40).fit(X, shares)
    assert clf.classes_.tolist() == [0, 1, 2]
    by_majority = quick(distance=distance, max_iter=40).fit(X, shares.argmax(1))
    assert by_majority.classes_.tolist() == [0, 1]  # class 2 never has most of the votes
    found = clf.predict_proba(X)
    assert np.abs(found - shares).mean() < 0.1
    assert np.corrcoef(found[:, 2], shares[:, 2])[0, 1] > 0.8
    assert set(clf.predict(X)) == {0, 1}


def test_one_hot_distributions_train_like_classes(quick, wine):
    X, _, y, _ = wine
    classes = np.unique(y, return_inverse=True)[1]
    weights = np.linspace(0.5, 2, len(y))
    for options in ({}, {"class_weight": "balanced"}, {"class_weight": {0: 1, 1: 2, 2: 5}}):
        model, soft = quick(**options), quick(**options)
        expected = model.fit(X, classes, weights).predict_proba(X)
        found = soft.fit(X, np.eye(3)[classes], weights).predict_proba(X)
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_columns_of_distributions_are_classes(quick, votes):
    pandas = pytest.importorskip("pandas")
    X, shares = votes
    frame = pandas.DataFrame(shares, columns=["cat", "dog", "owl"])
    clf = quick(max_iter=2, class_weight={"owl": 3}).fit(X, frame)
    assert clf.classes_.tolist() == ["cat", "dog", "owl"]
    assert set(clf.predict(X)) <= {"cat", "dog", "owl"}


@pytest.mark.parametrize(
    ("change", "token"),
    [
        (lambda shares: 10 * shares, "votes"),
        (lambda shares: -shares, "index"),
        (lambda s: s[:9], "9"),
    ],
)
def test_invalid_distributions_raise(quick, votes, change, token):
    X, shares = votes
    with pytest.raises(ValueError, match=token):
        quick().fit(X, change(shares))


@pytest.fixture(scope="module")
def overlapping():
    """Training and calibration rows of two classes that overlap, and new rows."""
    rng = np.random.default_rng(1)
    y = np.arange(2400) % 2
    X = rng.normal(size=(2400, 2)) + 2 * y[:, None]
    names = np.array(["no", "yes"])[y]
    return (X[:400], names[:400]), (X[400:1400], names[400:1400]), (X[1400:], names[1400:])


def test_accepted_rows_have_few_errors(quick, overlapping, tmp_path):
    train, held_out, (X, y) = overlapping
    clf = quick().fit(*train)
    with pytest.raises(ValueError, match="calibrate"):
        clf.predict_or_abstain(X)
    assert (clf.predict(X) != y).mean() > 0.05
    clf.calibrate(*held_out, max_error=0.05, by="total")
    found = clf.predict_or_abstain(X)
    is_accepted = found != None  # noqa: E711  (an array)
    assert 0.5 < is_accepted.mean() < 1
    assert (found[is_accepted] != y[is_accepted]).mean() < 0.05
    assert (found[is_accepted] == clf.predict(X)[is_accepted]).all()
    named = clf.predict_or_abstain(X, sentinel="unknown")
    assert named.dtype.kind == "U"
    assert (named[~is_accepted] == "unknown").all()
    clf.save(tmp_path)
    loaded = CreINNClassifier.load(tmp_path)
    assert (loaded.predict_or_abstain(X, "unknown") == named).all()
    with pytest.raises(ValueError, match="yes"):
        clf.predict_or_abstain(X, sentinel="yes")


def test_abstention_by_groups(quick, overlapping):
    train, held_out, (X, _) = overlapping
    clf = quick().fit(*train)
    groups = np.arange(1000) % 2
    clf.calibrate(*held_out, max_error=0.1, by=groups)
    found = clf.predict_or_abstain(X, -1, groups=groups)
    assert found.dtype == object
    assert set(found) == {-1, "no", "yes"}
    assert (clf.predict_or_abstain(X, groups=groups + 7) == None).all()  # noqa: E711


def test_calibration_of_unsorted_columns(quick, votes):
    pandas = pytest.importorskip("pandas")
    X, shares = votes
    clf = quick().fit(X, pandas.DataFrame(shares, columns=["owl", "dog", "cat"]))
    labels = np.array(["owl", "dog", "cat"])[shares.argmax(1)]
    sets = clf.calibrate(X, labels, coverage=0.9).predict_set(X, coverage=0.9)
    assert sets[np.arange(400), shares.argmax(1)].mean() >= 0.9
