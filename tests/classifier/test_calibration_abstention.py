"""Tests of abstention with a guaranteed error rate: calibration, saved models and stale models."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from creinn import CreINN, Ensemble, compile, load, models
from creinn import nn as inn
from creinn.credal.abstention import CRITERIA, NoThresholdError, fit_abstention
from creinn.credal.credal_set import CredalSet


def member(seed=0):
    torch.manual_seed(seed)
    model = CreINN(models.mlp(2, 3, hidden=(8,))).eval()
    inn.scale_radii_(model, 0.1)
    return model


@pytest.fixture(params=["CreINN", "Ensemble"])
def model(request):
    return member() if request.param == "CreINN" else Ensemble([member(), member(1)])


def rows(model, count=2000, seed=0, rate=0.3):
    """Return rows of which the most uncertain share ``rate`` has random labels."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 2, generator=generator)
    prediction = model.predict(x)
    ranks = prediction.ranking("total").argsort().argsort()
    wrong = (prediction.label + torch.randint(1, 3, (count,), generator=generator)) % 3
    return x, torch.where(ranks >= (1 - rate) * count, wrong, prediction.label)


def test_calibrate_by_hand():
    """All of 700 certain rows are right, and all of 300 uncertain rows are wrong."""
    is_sure = torch.arange(1000) % 10 < 7
    p = torch.where(is_sure[:, None], torch.tensor([0.9, 0.1, 0.0]), torch.tensor([0.6, 0.4, 0.0]))
    sets, labels = CredalSet(p, p), torch.where(is_sure, 0, 1)
    model = member().calibrate_predictions(sets, labels, max_error=0.1)
    abstention = model.calibration.abstention
    assert torch.equal(sets.with_abstention(abstention).accepted, is_sure)
    # the limit is the entropy of (0.9, 0.1): 0.9 log2(10 / 9) + 0.1 log2(10)
    assert abstention.limits == pytest.approx((0.4690,), abs=1e-4)
    # 800 rows test it, about 560 of them are accepted; the bound is 1 - 0.05 ** (1 / 560) = 0.0053
    with pytest.raises(NoThresholdError, match=r"0\.00[56]") as found:
        model.calibrate_predictions(sets, labels, max_error=0.001)
    assert found.value.smallest in (0.005, 0.006)


def test_error_rate_among_accepted_rows(model):
    x, y = rows(model)
    assert model.calibrate(x, y, max_error=0.05) is model
    new, labels = rows(model, seed=1)
    prediction = model.predict(new)
    accepted = prediction.accepted
    assert accepted.shape == (2000,)
    assert 0.6 < accepted.double().mean() < 0.8
    assert (prediction.label != labels)[accepted].double().mean() <= 0.05


@pytest.mark.parametrize("by", CRITERIA)
def test_measures(by):
    model = member()
    x, label = rows(model, rate=0)
    y = torch.where(torch.arange(2000) % 9 == 0, (label + 1) % 3, label)
    prediction = model.calibrate(x, y, max_error=0.3, by=by).predict(x)
    expected = fit_abstention(prediction.ranking(by), prediction.label != y, 0.3, by=by)
    assert prediction.abstention == expected


@pytest.mark.parametrize("form", ["loader", "arrays"])
def test_data_formats(form):
    model = member()
    x, y = rows(model)
    expected = model.calibrate(x, y, max_error=0.1).predict(x).accepted
    data = (DataLoader(TensorDataset(x, y), 300),) if form == "loader" else (x.numpy(), y.numpy())
    assert torch.equal(model.calibrate(*data, max_error=0.1).predict(x).accepted, expected)


def test_with_coverage(model):
    x, y = rows(model)
    both = model.calibrate(x, y, coverage=0.9, max_error=0.1).predict(x)
    only_coverage = model.calibrate(x, y, coverage=0.9)
    assert torch.equal(only_coverage.predict(x).accepted, both.accepted)  # it is kept
    assert torch.equal(both.classes("conformal"), only_coverage.predict(x).classes("conformal"))
    by_class = model.calibrate(x, y, coverage=0.9, max_error=0.1, by="class").calibration
    assert (by_class.conformal.by, by_class.abstention.by) == ("class", "total")


def test_groups(model, tmp_path):
    x, y = rows(model)
    groups = torch.arange(2000) % 3
    y = torch.where(groups == 1, (model.predict(x).label + 1) % 3, y)  # all of them are wrong
    with pytest.warns(UserWarning, match="Group 1"):
        model.calibrate(x, y, coverage=0.9, max_error=0.1, by=groups)
    model.save(tmp_path)
    for found in (model.predict(x), load(tmp_path).predict(x)):
        accepted = found.accept(groups=groups)
        assert not accepted[groups == 1].any()
        assert accepted[groups == 0].any()
        assert found.classes("conformal", groups=groups).shape == (2000, 3)
        with pytest.raises(ValueError, match="groups"):
            found.accepted  # noqa: B018
    assert not model.predict(x).accept(groups=torch.full((2000,), 7)).any()


def test_saved_loaded_cast_and_compiled(model, tmp_path):
    x, y = rows(model)
    expected = model.calibrate(x, y, max_error=0.1, confidence=0.9, by="entropy").predict(x)
    model.save(tmp_path)
    others = load(tmp_path), load(tmp_path).double(), compile(model, x)
    for other in others:
        assert other.calibration.abstention == expected.abstention
        assert torch.equal(other.predict(x).accepted, expected.accepted)
    assert (expected.abstention.confidence, expected.abstention.by) == (0.9, "entropy")


def test_stale_limits_raise(model, tmp_path):
    x, y = rows(model)
    model.calibrate(x, y, coverage=0.9, max_error=0.1)
    part = next(module for module in model.modules() if isinstance(module, CreINN))
    with torch.no_grad():
        part.network.head.weight.mul_(2)
    model.save(tmp_path)
    for stale in (model, load(tmp_path)):
        with pytest.raises(RuntimeError, match="weights"):
            stale.predict(x).accepted  # noqa: B018
    model.calibrate(*rows(model), max_error=0.1)  # removes the stale conformal calibration
    assert model.predict(x).accepted.any()
    assert model.calibration.conformal is None


def test_batch_size_and_missing_values(model):
    x, y = rows(model)
    model.calibrate(x, y, max_error=0.1)
    x[3] = torch.nan
    prediction = model.predict(x, missing="vacuous")
    assert not prediction.accepted[3]
    small = model.predict(x[:100], batch_size=7, missing="vacuous")
    (limit,) = model.calibration.abstention.limits
    is_clear = (prediction.total[:100] - limit).abs() > 1e-3  # rounding can decide the others
    assert is_clear.sum() > 50
    assert torch.equal(small.accepted[is_clear], prediction.accepted[:100][is_clear])


@pytest.mark.parametrize(
    ("options", "token"),
    [
        ({"max_error": 0}, "max_error"),
        ({"max_error": 0.1, "confidence": 1.0}, "confidence"),
        ({"max_error": 0.1, "by": "class"}, "'class'"),
        ({"max_error": 0.1, "by": "width"}, "'width'"),
        ({"coverage": 0.9, "by": "total"}, "'total'"),
        ({"max_error": 0.1, "by": [0, 1]}, r"\(60,\)"),
        ({"max_error": 0.1, "y": torch.zeros(59, dtype=torch.long)}, "59"),
    ],
)
def test_invalid_arguments_raise(options, token):
    x = torch.randn(60, 2)
    with pytest.raises(ValueError, match=token):
        member().calibrate(x, **{"y": torch.arange(60) % 3, **options})


def test_distributions_as_labels_raise():
    with pytest.raises(TypeError, match="integers"):
        member().calibrate(torch.randn(60, 2), torch.full((60, 3), 1 / 3), max_error=0.1)


def test_prediction_without_calibration_raises():
    with pytest.raises(ValueError, match="max_error"):
        member().predict(torch.zeros(1, 2)).accepted  # noqa: B018
