"""Calibration of a model: any form of data, what it keeps, saves and forgets, and what it refuses."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from creinn import CreINN, Ensemble, TrainConfig, fit, load, models
from creinn import compile as compiled
from creinn import nn as inn
from creinn.credal.conformal import SCORES, conformal_rank
from distance_cases import blobs, ordinary


@pytest.fixture(scope="module")
def trained():
    model = ordinary()
    fit(model, blobs(), None, TrainConfig(epochs=20, progress=False))
    return model.eval()


@pytest.fixture
def model(trained, tmp_path):
    trained.save(tmp_path / "fresh")
    return load(tmp_path / "fresh")


def coverage(model, x, y, **options):
    sets = model.predict(x).classes("conformal", **options)
    return sets[torch.arange(len(y)), y].double().mean().item()


@pytest.mark.parametrize("score", list(SCORES))
def test_coverage_of_calibration_rows(model, score):
    x, y = blobs(200, seed=5)
    assert model.calibrate(x, y, coverage=0.9, score=score) is model
    for asked, found in ((0.9, coverage(model, x, y)), (0.6, coverage(model, x, y, coverage=0.6))):
        exact = conformal_rank(200, asked) / 200
        assert found >= exact - 1e-9
        assert found == pytest.approx(exact, abs=0.011) or score in (
            "aps",
            "raps",
        )  # sums of 1 are ties


@pytest.mark.parametrize("form", ["loader", "dataset", "iterator", "arrays"])
def test_data_formats(model, form):
    x, y = blobs(200, seed=5)
    expected = model.calibrate(x, y).calibration.conformal.scores
    data = TensorDataset(x, y)
    loader = DataLoader(data, 32)
    given = {
        "loader": (loader,),
        "dataset": (data,),
        "iterator": (iter(loader),),
        "arrays": (x.numpy(), y.numpy()),
    }
    found = model.calibrate(*given[form]).calibration.conformal.scores
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_mean_coverage_of_new_rows():
    found = []
    for seed in range(8):
        model = ordinary(seed=seed)
        fit(model, blobs(150, seed=seed), None, TrainConfig(epochs=5, progress=False))
        model.calibrate(*blobs(200, seed=100 + seed), coverage=0.9)
        found.append(coverage(model, *blobs(400, seed=200 + seed)))
    assert sum(found) / 8 == pytest.approx(0.9, abs=0.03)


def test_class_conditional_coverage(model):
    x, y = blobs(1800, seed=5)
    y = torch.where(
        (torch.arange(1800) % 18 == 0) & (y == 0), 2, y
    )  # some rows of one class are similar to another class
    for by, holds in ((None, False), ("class", True)):
        model.calibrate(x[:900], y[:900], coverage=0.95, by=by)
        sets = model.predict(x[900:]).classes("conformal")
        covered = sets[torch.arange(900), y[900:]].double()
        assert (min(covered[y[900:] == k].mean() for k in range(3)) > 0.92) == holds


def test_groups(model):
    x, y = blobs(300, seed=5)
    groups = torch.arange(300) % 2
    y = torch.where(groups == 1, (y + 1) % 3, y)  # every label of the second group is wrong
    model.calibrate(x, y, coverage=0.9, by=groups)
    size = model.predict(x).classes("conformal", groups=groups).sum(1).double()
    assert size[groups == 1].mean() > size[groups == 0].mean() + 0.5


def test_too_few_rows(model):
    x, y = blobs(60, seed=5)
    with pytest.raises(ValueError, match="99"):
        model.calibrate(x, y, coverage=0.99)
    assert model.calibration.conformal is None
    rare = torch.where(torch.arange(60) < 5, 2, y % 2)
    with pytest.warns(UserWarning, match=r"2 \(5\)"):
        model.calibrate(x, rare, coverage=0.9, by="class")
    assert model.predict(x).classes("conformal")[:, 2].all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 1.5}, r"1\.5"),
        ({"by": "label"}, "label"),
        ({"score": "margin"}, "margin"),
        ({"by": [0, 1]}, r"\(60,\)"),
        ({"y": torch.zeros(60, 2)}, r"\(60, 2\)"),
        ({"y": torch.full((60, 3), 0.5)}, "0.5, 0.5, 0.5"),
        ({"y": torch.full((60, 3), 1 / 3), "by": "class"}, "by='class' needs classes"),
        ({"y": torch.full((60,), 7)}, "target 0 is 7"),
    ],
)
def test_invalid_arguments_raise(model, options, message):
    x, y = blobs(60, seed=5)
    with pytest.raises(ValueError, match=message):
        model.calibrate(x, **{"y": y, **options})


def test_distributions_as_labels(model):
    x, _ = blobs(400, seed=6)
    torch.manual_seed(1)
    truth = model.predict(x).intersection * 0.7 + 0.1
    votes = torch.distributions.Multinomial(5, truth).sample().double() / 5
    model.calibrate(DataLoader(TensorDataset(x[:200], votes[:200]), 50), coverage=0.9)
    prediction = model.predict(x[200:])
    wide = prediction.widened()
    inside = wide.contains(votes[200:]).double().mean().item()
    assert inside == pytest.approx(0.9, abs=0.08)
    assert prediction.contains(votes[200:]).double().mean() < 0.5
    assert wide.width.mean() > prediction.width.mean()


def test_margin_by_formula(model):
    x, y = blobs(200, seed=5)
    q = np.eye(3)[y] * 0.6 + 0.4 / 3
    model.calibrate(x, q, coverage=0.9)
    prediction = model.predict(x)
    lower, upper = prediction.lower.double().numpy(), prediction.upper.double().numpy()
    below, above = (np.sqrt(p * (1 - p)) + 0.02 for p in (lower, upper))
    scores = np.maximum((lower - q) / below, (q - upper) / above).max(1)
    margin = max(0, np.sort(scores)[math.ceil(201 * 0.9) - 1])
    low, high = (lower - margin * below).clip(0), (upper + margin * above).clip(None, 1)
    reachable = np.maximum(low, 1 - high.sum(1, keepdims=True) + high)
    assert margin > 0.1
    np.testing.assert_allclose(prediction.widened().lower.numpy(), reachable, atol=1e-3)
    far = model.predict(1e4 * x[:5]).widened()  # the distance makes these sets vacuous
    assert torch.equal(far.width, torch.ones(5, 3))


@pytest.mark.parametrize("by", [None, "class"])
def test_save_load_cast_and_compile(model, by, tmp_path):
    x, y = blobs(200, seed=5)
    model.calibrate(x, y, coverage=0.9, by=by, score="lac", random=True)
    model.save(tmp_path / "m")
    expected = model.calibration.conformal
    for other in (
        load(tmp_path / "m"),
        compiled(model, x),
        load(tmp_path / "m").double(),
        model.to(torch.bfloat16),
    ):
        found = other.calibration.conformal
        assert torch.equal(found.scores, expected.scores)
        assert torch.equal(found.groups, expected.groups)
        settings = (found.score, found.by, found.coverage, found.random)
        assert settings == ("lac", by, 0.9, True)
    assert torch.equal(
        compiled(load(tmp_path / "m"), x).predict(x).conformal.scores, expected.scores
    )


def test_ensembles_and_interval_networks():
    x, y = blobs(200, seed=5)
    torch.manual_seed(0)
    members = [CreINN(models.mlp(4, 3, hidden=(8,))).eval() for _ in range(2)]
    ensemble = Ensemble(members).calibrate(x, y, coverage=0.8, score="lac")
    assert coverage(ensemble, x, y) == pytest.approx(0.805, abs=0.01)
    assert members[0].predict(x).conformal is None


def test_training_and_new_distance_remove_calibration(model):
    x, y = blobs(200, seed=5)
    model.calibrate(x, y)
    model.fit_distance(*blobs())
    assert model.calibration.conformal is None
    model.calibrate(x, y)
    fit(model, blobs(), None, TrainConfig(epochs=1, progress=False))
    assert model.predict(x).conformal is None


@pytest.mark.parametrize("is_ensemble", [False, True])
def test_fit_temperature(model, is_ensemble):
    x, y = blobs(200, seed=5)
    before = float(model.temperature.value)
    model = Ensemble([model]) if is_ensemble else model
    model.calibrate(x, y)
    model.fit_temperature(DataLoader(TensorDataset(x, y), 50))
    part = model.members[0] if is_ensemble else model
    assert float(part.temperature.value) != before
    assert not model.calibration.is_fitted


def test_calibration_does_not_change_probabilities(model):
    x, y = blobs(200, seed=5)
    before = model.predict(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.calibrate(x, y)
    torch.testing.assert_close(model.predict(x).lower, before.lower)
    assert model.predict(x[:1] * torch.nan, missing="vacuous").classes("conformal").all()
    far = model.predict(50 * x).classes("conformal").double().sum(1).mean()
    assert (
        far > 2.9 > model.predict(x).classes("conformal").double().sum(1).mean()
    )  # no guarantee there, but they grow


def test_sets_do_not_depend_on_batch_size():
    """One-hot rows of four categories: all scores are ties, which batches round differently."""
    found = {}
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        truth = torch.rand(4, 3, generator=generator) ** 2
        truth /= truth.sum(1, keepdim=True)
        torch.manual_seed(seed)
        model = CreINN(models.mlp(4, 3, hidden=(64, 64), layers=inn)).eval()
        category = torch.randint(4, (256,), generator=generator)
        y = torch.multinomial(truth[category], 1, generator=generator).squeeze(1)
        x = torch.eye(4)[category]
        for dtype in (torch.float32, torch.float64):
            model.to(dtype).calibrate(x, y, coverage=0.9)
            for predicted in (torch.float32, torch.float64):
                model.to(predicted)
                assert model.calibration_is_current
                sets = {}
                for size in (1, 7, 256):
                    rows = torch.arange(max(4, size)) % 4
                    many = model.predict(torch.eye(4)[rows], batch_size=size).classes("conformal")
                    sets[size] = many[:4]
                    assert torch.equal(many, many[:4][rows])
                    covered = (truth * sets[size]).sum(1).mean().item()
                    found.setdefault((dtype, predicted, size), []).append(covered)
                assert torch.equal(sets[1], sets[256])
                assert torch.equal(sets[7], sets[256])
                model.to(dtype)
    for coverages in found.values():
        assert sum(coverages) / 20 >= 0.9
