"""Temperature: against a fine grid, where it must stay bounded, and what a classifier does with it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from torch.utils.data import DataLoader, TensorDataset

from creinn import CreINN, Interval, TrainConfig, fit, load, models
from creinn import compile as compiled
from creinn import nn as inn
from creinn.baselines import BNN, SNN, local_reparameterization
from creinn.classifier import creinn as module
from creinn.classifier.temperature import DEVIATION, MAX_TEMPERATURE, fit_temperature
from distance_cases import blobs, ordinary

GRID = np.linspace(-math.log(MAX_TEMPERATURE), math.log(MAX_TEMPERATURE), 20001)


def slow_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The best of a fine grid."""
    if logits.shape[1] == 1:
        logits = np.concatenate((np.zeros_like(logits), logits), 1)
    rows = np.arange(len(labels))
    losses = [
        -log_softmax(logits * np.exp(-t), 1)[rows, labels].sum() + (t / DEVIATION) ** 2 / 2
        for t in GRID
    ]
    return float(np.exp(GRID[int(np.argmin(losses))]))


def test_distributions_weigh_the_classes():
    logits, labels = torch.tensor([[8.0, 0.0]] * 400), torch.tensor([0, 0, 0, 1] * 100)
    shares = torch.tensor([[0.75, 0.25]] * 400)
    assert fit_temperature(logits, shares) == pytest.approx(fit_temperature(logits, labels))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3, 10]), st.integers(1, 60), st.floats(-3, 3))
def test_temperature_matches_grid_search(seed, classes, rows, size):
    rng = np.random.default_rng(seed)
    logits = 10**size * rng.normal(size=(rows, classes))
    labels = rng.integers(0, max(classes, 2), rows)
    found = fit_temperature(torch.from_numpy(logits), torch.from_numpy(labels))
    assert math.log(found) == pytest.approx(math.log(slow_temperature(logits, labels)), abs=2e-3)


def test_by_hand():
    # three of four are right: ln 3 / 6 is the inverse temperature, where rows are so many that the prior says nothing
    logits, labels = torch.tensor([[6.0, 0.0]] * 4000), torch.tensor([0, 0, 0, 1] * 1000)
    assert fit_temperature(logits, labels) == pytest.approx(6 / math.log(3), rel=0.01)


@pytest.mark.parametrize("rows", [1, 10, 1000])
def test_temperature_is_bounded_without_errors(rows):
    logits = torch.tensor([[3.0, 0.0, 0.0]]).repeat(rows, 1)
    found = fit_temperature(logits, torch.zeros(rows, dtype=torch.long))
    assert math.exp(-2.5) < found < 1  # one row moves it little, a thousand not to zero


def test_temperature_is_bounded_without_correct_rows():
    found = fit_temperature(torch.tensor([[1e6, 0.0]] * 9), torch.ones(9, dtype=torch.long))
    assert found == pytest.approx(MAX_TEMPERATURE, rel=1e-3)


def test_non_finite_rows_are_ignored():
    x, y = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 3
    bad = torch.tensor([[math.nan, 0.0, 0.0], [math.inf, 0.0, 0.0]])
    assert fit_temperature(torch.cat([x, bad]), torch.cat([y, y[:2]])) == fit_temperature(x, y)
    assert fit_temperature(bad, y[:2]) == 1.0


def too_certain(**options):
    """A network whose logits are ten times too large, and data with a third of wrong labels."""
    x, y = blobs()
    y = torch.where(torch.arange(len(y)) % 9 < 3, (y + 1) % 3, y)
    model = ordinary(**options)
    fit(model, (x, y), None, TrainConfig(epochs=15, progress=False))
    with torch.no_grad():
        model.network.head.weight.mul_(10)
        model.network.head.bias.mul_(10)
    return model.fit_distance(x, y), x, y


def log_loss(model, x, y):
    return -model.predict(x).intersection[torch.arange(len(y)), y].log().mean()


@pytest.mark.parametrize("form", ["tensors", "loader", "iterator"])
def test_overconfident_model_has_temperature_above_one(form):
    model, x, y = too_certain(distance=0.0)
    before = log_loss(model, x, y)
    loader = DataLoader(TensorDataset(x[1::2], y[1::2]), 32)
    held_out = {"tensors": (x[1::2], y[1::2]), "loader": loader, "iterator": iter(loader)}[form]
    model.fit_distance(x, y, held_out=held_out)
    logits = model.network(x[1::2])
    assert float(model.temperature.value) == pytest.approx(
        fit_temperature(logits, y[1::2]), rel=1e-4
    )
    assert float(model.temperature.value) > 3
    assert log_loss(model, x, y) < 0.6 * before
    torch.testing.assert_close(
        model.predict(x).intersection, (model.network(x) / model.temperature.value).softmax(1)
    )


def test_scale_is_chosen_on_scaled_logits(monkeypatch):
    model, x, y = too_certain()
    seen = []
    monkeypatch.setattr(
        module, "fit_radius", lambda radius, train, held_out, *rest: seen.extend(held_out)
    )
    monkeypatch.setattr(module.Agreement, "warn", lambda self, stacklevel: None)
    model.fit_distance(x, y, held_out=(x[::2], y[::2]))
    assert float(model.temperature.value) > 3
    torch.testing.assert_close(
        seen[0].logits.center, model.network(x[::2]) / model.temperature.value
    )


def test_training_resets_temperature():
    model, x, y = too_certain()
    assert float(model.fit_distance(x, y).temperature.value) == 1
    model.fit_distance(x, y, held_out=(x, y))
    found = float(model.temperature.value)
    assert float(model.fit_distance(x, y).temperature.value) == found != 1
    logits = model._scaled_logits(model.network(x))
    torch.testing.assert_close(logits.center, model.network(x) / found)
    torch.testing.assert_close(
        model.train()._scaled_logits(model.network(x)).center, model.network(x)
    )
    fit(model, (x, y), None, TrainConfig(epochs=1, progress=False))
    assert float(model.temperature.value) == 1


@pytest.mark.parametrize("asked", [None, True])
def test_paper_mode_has_temperature_on_request(asked):
    torch.manual_seed(0)
    x, y = blobs()
    model = CreINN.from_options(models.mlp(4, 3, hidden=(8,)), temperature=asked)
    fit(model, (x, y), (x, y), TrainConfig(epochs=3, progress=False))
    assert model.options()["temperature"] == bool(asked)
    assert (float(model.temperature.value) != 1) == bool(asked)
    if asked:
        raw = model.norm(model.network(Interval.point(x)))
        T = float(model.temperature.value)
        losses = {}
        for factor in (0.9, 1.0, 1.1):
            model.temperature.value.fill_(T * factor)
            losses[factor] = (
                len(y) * float(log_loss(model, x, y)) + (math.log(T * factor) / DEVIATION) ** 2 / 2
            )
            torch.testing.assert_close(
                model._logits(Interval.point(x)).radius, raw.radius / (T * factor)
            )
        assert losses[1.0] < min(losses[0.9], losses[1.1])


def test_sound_scaled_sets_contain_all_members():
    torch.manual_seed(0)
    network = torch.nn.Sequential(inn.Linear(4, 8), inn.ReLU(), inn.Linear(8, 3))
    inn.scale_radii_(network, 0.2)
    model = CreINN.from_options(network, mode="sound", logit_norm=False, temperature=True).eval()
    model.temperature.value.fill_(0.3)
    x = blobs(rows=30)[0]
    prediction, logits = model(x), network(Interval.point(x))
    for share in torch.rand(50, 30, 3):
        member = logits.lower + share * (logits.upper - logits.lower)
        assert prediction.contains((member / 0.3).softmax(1)).all()


def test_save_load_and_compile(tmp_path):
    model, x, y = too_certain()
    model.fit_distance(x, y, held_out=(x, y))
    expected = model(x)
    model.save(tmp_path / "m")
    for other in (load(tmp_path / "m"), compiled(model, x)):
        torch.testing.assert_close(other(x).lower, expected.lower, atol=1e-6, rtol=1e-5)
    for _ in range(4):  # by then a compiled form is kept
        torch.testing.assert_close(model.predict(x).lower, expected.lower, atol=1e-6, rtol=1e-5)
    model.temperature.reset()
    assert (model.predict(x).lower - expected.lower).abs().max() > 0.01


@pytest.mark.parametrize("method", ["snn", "bnn"])
def test_baselines_have_temperature_on_request(method):
    torch.manual_seed(0)
    x, y = blobs()
    y = torch.where(torch.arange(len(y)) % 9 < 3, (y + 1) % 3, y)
    layers, kind = (torch.nn, SNN) if method == "snn" else (local_reparameterization, BNN)
    network = models.mlp(4, 3, hidden=(8,), layers=layers)
    model = kind.from_options(network, temperature=True)
    fit(model, (x, y), (x, y), TrainConfig(epochs=40, learning_rate=0.05, progress=False))
    assert float(model.temperature.value) != 1
    assert kind(network, **model.options()).temperature.is_on
    assert not kind(network).temperature.is_on
    with torch.no_grad():
        torch.manual_seed(1)
        found = model(x).log_samples
        torch.manual_seed(1)
        expected = (model.normed_logits(x) / model.temperature.value).log_softmax(-1)
    torch.testing.assert_close(found, expected)
