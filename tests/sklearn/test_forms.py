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
    assert seen == [
        (103, 21),
        (124, None),
        (124, None),
        (93, 31),
    ]  # the first learns from all rows anew


def test_refit_on_all_rows(quick, wine, monkeypatch):
    X, _, y, _ = wine
    seen = []
    refit = CreINNClassifier._refit

    def spy(self, build, data, config, number, first, epochs):
        model = refit(self, build, data, config, number, first, epochs)
        seen.append((first, model, len(data[1])))
        return model

    monkeypatch.setattr(CreINNClassifier, "_refit", spy)
    clf = quick(max_iter=30, n_iter_no_change=2, n_estimators=2).fit(X, y)
    for (first, model, rows), member in zip(seen, clf.model_.members, strict=True):
        assert (member is model, rows) == (True, 124)
        for part in ("medians", "scale"):
            torch.testing.assert_close(
                getattr(model.distance_radius, part),
                getattr(first.distance_radius, part),
                check_dtype=False,
            )
        assert float(model.temperature.value) == pytest.approx(float(first.temperature.value)) != 1
        assert not torch.equal(model.network.head.weight.float(), first.network.head.weight)
    weights = [member.network.head.weight for member in clf.model_.members]
    assert not torch.equal(*weights)
    for options in ({"early_stopping": True}, {"early_stopping": False}):
        quick(max_iter=1, **options).fit(X, y)
    assert len(seen) == 2


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
