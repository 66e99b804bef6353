"""Tests of the scaling of numbers, and of the values that replace missing values."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nan

from creinn import CredalSet, CreINN, Ensemble, fit, models
from creinn import nn as inn
from creinn.baselines import SNN, DeepEnsemble
from creinn.baselines.factory import build_classifier
from creinn.classifier.methods import METHODS
from creinn.data.features import FAR, FILLS, MARGIN, PLAUSIBLE, Missing, fit_scaling
from creinn.evaluation import set_decisions
from creinn.training import TrainConfig

X = torch.tensor([[3.0, 1.0, 0.0], [nan, 0.0, 1.0], [1.0, nan, nan], [5.0, 1.0, 0.0]])


def test_fit_by_hand():
    missing = Missing.fit(X, (1, 2))
    assert missing.low.tolist() == [1, 0, 0]
    assert missing.high.tolist() == [5, 1, 1]
    assert missing.marked == (0, 1)
    assert missing.num_features == 5
    assert sorted(missing.donors[:, 0].tolist()) == [1] * 5 + [3] * 6 + [5] * 5
    assert (missing.donors[:, 1:].sum(1) == 1).all()  # a category stays a category
    assert missing.donors[:, 1].sum() == 11  # two of three
    assert Missing.fit(X[:, 1:]).marked == (0, 1)
    copy = Missing.from_json(json.loads(json.dumps(missing.to_json(), allow_nan=False)))
    torch.testing.assert_close(copy.fills(X), missing.fills(X))


def test_transform_by_hand():
    missing = Missing.fit(X, (1, 2))
    box = missing.intervals(X)
    assert box.lower.tolist()[:3] == [[3, 1, 0, 0, 0], [1, 0, 1, 1, 0], [1, 0, 0, 0, 1]]
    assert box.upper.tolist()[:3] == [[3, 1, 0, 0, 0], [5, 0, 1, 1, 0], [1, 1, 1, 0, 1]]
    pair = missing.intervals(X - 1, X + 1)
    assert (pair.lower[2, 0], pair.upper[2, 0], pair.upper[1, 0]) == (0, 2, 5)
    fills = missing.fills(X)
    assert len(fills) == FILLS
    assert all(torch.equal(filled[0], box.lower[0]) for filled in fills)
    assert {float(filled[1, 0]) for filled in fills} == {1, 3, 5}
    assert all(
        ((box.lower <= filled) & (filled <= box.upper)).all()
        for filled in (*fills, missing.fill(X))
    )
    torch.testing.assert_close(missing.fill(X, 3), missing.fill(X, 3), rtol=0, atol=0)


def test_empty_column_is_zero():
    missing = Missing.fit(torch.full((2, 1), nan))
    assert missing.intervals(torch.tensor([[nan]])).upper.tolist() == [[0, 1]]
    assert (missing.donors == 0).all()


def network(form: str) -> torch.nn.Module:
    layers = torch.nn if form in ("creinn-d", "snn", "deep-ensemble") else inn
    return models.mlp(5, 3, (8,), layers=layers)


def model(form: str):
    torch.manual_seed(0)
    if form == "snn":
        return SNN(network(form)).eval()
    if form == "deep-ensemble":
        return DeepEnsemble([SNN(network(form)) for _ in range(3)]).eval()
    if form == "ensemble":
        return Ensemble([model("paper"), model("paper")], "envelope")
    if form == "creinn-d":
        return CreINN(network(form), distance=1.0).fit_distance(
            torch.randn(60, 5), torch.arange(60) % 3
        )
    return build_classifier(METHODS["creinn"], lambda layers: network(form), mode=form).eval()


@pytest.mark.parametrize(
    "form", ["creinn-d", "paper", "scaled", "sound", "ensemble", "snn", "deep-ensemble"]
)
def test_complete_rows_are_unchanged(form):
    missing, classifier = Missing.fit(X, (1, 2)), model(form)
    x = X[[1, 0, 2, 3, 1]]
    got = missing.predict(classifier, x, batch_size=2)
    plain = classifier.predict(missing.fill(x[[1, 3]]), 2)
    torch.testing.assert_close(got.probabilities[[1, 3]], plain.probabilities)
    torch.testing.assert_close(got.probabilities[0], got.probabilities[4])
    fills = [classifier.predict(filled, 2) for filled in missing.fills(x)]
    if form in ("snn", "deep-ensemble"):
        mean = torch.stack([filled.probabilities for filled in fills]).mean(0)
        torch.testing.assert_close(got.probabilities, mean)
    else:
        mean = torch.stack([filled.probabilities for filled in fills]).mean(0)
        if form != "creinn-d":
            torch.testing.assert_close(got.label[[0, 2, 4]], mean.argmax(1)[[0, 2, 4]])
        assert got.classes("e-admissibility").gather(1, got.label[:, None]).all()
        inside = [
            ((got.lower <= f.lower + 1e-6) & (got.upper >= f.upper - 1e-6)).all(1) for f in fills
        ]
        assert torch.stack(inside).sum(0).min() >= (PLAUSIBLE if form == "creinn-d" else FILLS)
    complete = missing.predict(classifier, x[[1, 3]], 2)
    torch.testing.assert_close(complete.probabilities, plain.probabilities)


def test_implausible_fillings_are_ignored():
    """Far from the training data the sets of a CreINN-D are all of the simplex, and would say nothing."""
    missing, classifier = Missing.fit(X, (1, 2)), model("creinn-d")
    missing.donors[:, 0] = torch.linspace(-1, 1, FILLS)
    missing.donors[: FILLS - PLAUSIBLE, 0] = 1e4
    assert missing.predict(classifier, X[1:2]).width.max() < 0.9
    missing.donors[: FILLS - PLAUSIBLE + 1, 0] = 1e4
    assert missing.predict(classifier, X[1:2]).width.max() > 0.99


def test_sound_sets_contain_training_range():
    missing, classifier = Missing.fit(X, (1, 2)), model("sound")
    whole = missing.predict(classifier, X[1:2])
    values = torch.linspace(1, 5, 201)
    rows = torch.cat((values[:, None], torch.tensor([[0.0, 1.0, 1.0, 0.0]]).expand(201, -1)), 1)
    inside = classifier.predict(rows)
    assert (whole.lower <= inside.lower + 1e-6).all()
    assert (whole.upper >= inside.upper - 1e-6).all()
    assert (whole.width > inside.width.amax(0) + 1e-4).any()


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
@pytest.mark.parametrize("form", ["creinn-d", "creinn"])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_sets_grow_with_missing_values(load, form, share):
    """Real data, with a share of the training cells missing: blank more cells, and EU and sets grow; coverage holds."""
    x, y = (torch.from_numpy(part) for part in load(return_X_y=True))
    x = ((x - x.mean(0)) / x.std(0)).float()
    train, test = train_test_split(torch.arange(len(y)), stratify=y, test_size=0.3, random_state=0)
    generator = torch.Generator().manual_seed(0)
    rows = x[train].masked_fill(
        torch.rand(len(train), x.shape[1], generator=generator) < share, nan
    )
    missing = Missing.fit(rows)
    torch.manual_seed(0)
    logits = 1 if y.max() == 1 else 3
    layers = torch.nn if form == "creinn-d" else inn
    classifier = CreINN(
        models.mlp(missing.num_features, logits, (16,), layers=layers), distance=form == "creinn-d"
    )
    fit(
        classifier,
        (missing.fill(rows), y[train]),
        None,
        TrainConfig(epochs=20, learning_rate=0.01, progress=False),
    )
    blanked = x[test]
    order = torch.rand(blanked.shape, generator=generator).argsort(1)
    sets: list[CredalSet] = []
    for count in (0, 2, 5):
        sets.append(missing.predict(classifier, blanked.masked_fill(order < count, nan)))
    found = [set_decisions(s.classes("maximality"), y[test]) for s in sets]
    uncertainty = [float(s.epistemic.mean()) for s in sets]
    assert uncertainty[0] < uncertainty[1] < uncertainty[2]
    assert found[0].size < found[1].size < found[2].size
    assert min(result.coverage for result in found[1:]) >= found[0].coverage - 0.02  # one row of 54


# Scaling.


@pytest.mark.parametrize("factor", [1.0, 1e300, 1e-300])
def test_mean_and_deviation_of_known_numbers(factor):
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((200, 3)) < 0.2, np.nan, rng.normal(size=(200, 3)))
    weights = rng.random(200)
    scaling, outliers = fit_scaling(rows * factor, weights)
    expected = StandardScaler().fit(rows, sample_weight=weights)
    np.testing.assert_allclose(scaling.mean / factor, expected.mean_)
    np.testing.assert_allclose(scaling.scale / factor, expected.scale_)
    assert outliers.tolist() == [0, 0, 0]


def test_one_outlier_does_not_change_the_scaling_of_other_rows():
    values = np.random.default_rng(0).normal(size=(40, 1))
    clean, _ = fit_scaling(values)
    for outlier in (1e4, -1e30, 1.7e308):
        rows = np.concatenate((values, [[outlier]]))
        scaling, outliers = fit_scaling(rows)
        assert outliers.tolist() == [1]
        np.testing.assert_allclose(scaling.apply(values), clean.apply(values), atol=1e-9)
        far = scaling.apply(rows)[-1, 0]
        assert MARGIN < abs(far) < 10
        assert np.sign(far) == np.sign(outlier)


def test_outliers_where_most_values_are_equal():
    rows = np.r_[np.zeros(30), np.arange(9.0), 1e20][:, None]
    scaling, outliers = fit_scaling(rows)
    assert outliers.tolist() == [1]
    assert np.ptp(scaling.apply(rows[:-1])) > 1
    rare, none = fit_scaling(np.r_[np.zeros(30), 1.0][:, None])
    assert none.tolist() == [0]
    assert np.isfinite(rare.low).all()


def test_distant_values_are_clipped_and_constants_are_zero():
    scaling, _ = fit_scaling(np.array([[1.0, 0.1], [3.0, 0.1]]))
    np.testing.assert_array_equal(scaling.apply(np.array([[1e300, 0.1]])), [[FAR, 0]])
    scaling, _ = fit_scaling(np.array([[1e308], [-1e308], [0.0]]))
    assert np.isfinite(scaling.apply(np.array([[1e308], [-1e308]]))).all()
