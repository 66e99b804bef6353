"""Tests of fit: learning, seeds, weights of classes and rows, early stopping and files."""

import json
import random

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_wine
from torch.utils.data import DataLoader, IterableDataset

from creinn import nn as inn
from creinn.baselines.snn import SNN
from creinn.classifier.base import Classifier
from creinn.classifier.credal import Ensemble
from creinn.classifier.creinn import CreINN
from creinn.interval import Interval
from creinn.training import History, TrainConfig, fit
from creinn.training.data import Rows


def wine():
    data = load_wine()
    x = (data.data - data.data.mean(0)) / data.data.std(0)
    order = np.random.default_rng(0).permutation(len(x))
    return torch.tensor(x[order], dtype=torch.float32), torch.tensor(data.target[order])


def creinn(inputs, classes, seed=0, hidden=16, dropout=0.0):
    torch.manual_seed(seed)
    layers = (inn.Linear(inputs, hidden), inn.BatchNorm1d(hidden), inn.ReLU(), inn.Dropout(dropout))
    return CreINN(torch.nn.Sequential(*layers, inn.Linear(hidden, classes)))


def snn(inputs, classes, seed=0):
    torch.manual_seed(seed)
    return SNN(
        torch.nn.Sequential(
            torch.nn.Linear(inputs, 16), torch.nn.ReLU(), torch.nn.Linear(16, classes)
        )
    )


def settings(**changes):
    return TrainConfig(**({"epochs": 3, "batch_size": 32, "progress": False} | changes))


def same(a, b):
    first, second = a.state_dict(), b.state_dict()
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def test_learns_digits():
    data = load_digits()
    x, y = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    model, changes = (
        creinn(64, 10, hidden=32),
        {"epochs": 8, "learning_rate": 0.01, "batch_size": 64},
    )
    history = fit(model, (x[:1200], y[:1200]), (x[1200:], y[1200:]), settings(**changes))
    assert history["val_accuracy"][-1] > 0.85
    assert history["loss"][-1] < history["loss"][0] / 2
    assert 0 < history["width"][-1] < 1
    assert not model.training
    # Check that the last row of the history describes the returned model.
    prediction = model.predict(x[1200:])
    assert history["val_accuracy"][-1] == pytest.approx(
        (prediction.label == y[1200:]).double().mean().item()
    )
    assert history["val_width"][-1] == pytest.approx(
        (prediction.upper - prediction.lower).mean().item(), rel=1e-5
    )
    assert history["val_loss"][-1] == pytest.approx(
        model.loss(prediction, y[1200:]).item(), rel=1e-4
    )


def test_history_of_ordinary_network_has_no_width():
    x, y = wine()
    history = fit(snn(13, 3), (x, y), None, settings(epochs=2, milestones=(1,)))
    assert history["epoch"] == [1, 2]
    assert history["learning_rate"] == [1e-3, pytest.approx(1e-4)]
    assert history["width"] == history["val_loss"] == history["val_width"] == [None, None]
    assert history["accuracy"][0] > 0
    assert len(history) == 2
    assert history.best_epoch is None
    with pytest.raises(KeyError, match="'lss'"):
        history["lss"]


def test_seed_is_deterministic_and_generators_are_restored():
    x, y = wine()
    models = []
    for seed, noise in ((5, 1), (5, 2), (6, 1)):
        model = creinn(13, 3, dropout=0.3)
        torch.manual_seed(noise), random.seed(noise), np.random.seed(noise)  # noqa: NPY002
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
        fit(
            model,
            (x, y),
            None,
            settings(seed=seed),
            augment=lambda x, g: x + 0.1 * torch.rand(x.shape, generator=g),
        )
        after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
        assert torch.equal(before[0], after[0])
        assert before[1:] == after[1:]
        models.append(model)
    assert same(models[0], models[1])
    assert not same(models[0], models[2])


def test_projected_radii_have_gradients():
    x, y = wine()
    model = creinn(13, 3)
    fit(model, (x, y), None, settings(learning_rate=0.1))
    radii = torch.cat(
        [
            r.flatten()
            for layer in (model.network[0], model.network[4])
            for r in layer.radii().values()
        ]
    )
    assert (radii >= 0).all()
    assert (radii == 0).any()
    assert (radii > 0).any()


def test_interval_data_with_augmentation():
    x, y = wine()
    seen = []

    def augment(batch, generator):
        shift = torch.rand(batch.shape, generator=generator)
        seen.append((batch, shifted := batch.map_monotone(lambda t: t + shift)))
        return shifted

    fit(
        creinn(13, 3),
        (Interval(x, x + 0.2), y),
        (Interval(x, x + 0.2), y),
        settings(epochs=1),
        augment=augment,
    )
    assert sum(len(before) for before, _ in seen) == len(x)
    for before, after in seen:
        torch.testing.assert_close(after.lower - before.lower, after.upper - before.upper)
        assert not torch.equal(before.lower, after.lower)


def test_order_and_augmentation_change_each_epoch():
    x, y = wine()
    x[:, 0] = torch.arange(len(x))
    seen, drawn = [], []

    def augment(batch, generator):
        seen.extend(batch[:, 0].tolist())
        drawn.append(torch.rand(1, generator=generator).item())
        return batch

    fit(snn(13, 3), (x, y), None, settings(epochs=2), augment=augment)
    first, second = seen[: len(x)], seen[len(x) :]
    assert first != second
    assert sorted(first) == sorted(second) == list(range(len(x)))
    assert len(set(drawn)) == len(drawn)


class Items(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], int(self.y[index])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_dataset_and_tensors_give_equal_training(workers):
    x, y = wine()
    in_memory, loaded = creinn(13, 3, dropout=0.2), creinn(13, 3, dropout=0.2)
    first = fit(in_memory, (x, y), (x, y), settings(epochs=2))
    second = fit(loaded, Items(x, y), Items(x, y), settings(epochs=2, workers=workers))
    torch.testing.assert_close(in_memory.state_dict(), loaded.state_dict(), rtol=1e-3, atol=1e-4)
    assert first["val_loss"] == pytest.approx(second["val_loss"], rel=1e-3)


class Flow(IterableDataset):
    """Stream of rows that has no length."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __iter__(self):
        yield from zip(self.x, self.y.tolist(), strict=True)


@pytest.mark.parametrize("form", ["loader", "loader without a length", "rows without a length"])
def test_stream_determines_batches(form):
    """With a single batch, a network has the same weights as after training with tensors."""
    x, y = wine()
    streams = {
        "loader": DataLoader(Items(x, y), batch_size=200, shuffle=True),
        "loader without a length": DataLoader(Flow(x, y), batch_size=200),
        "rows without a length": Flow(x, y),
    }
    expected, found = snn(13, 3).double(), snn(13, 3).double()
    first = fit(
        expected, (x, y), (x, y), settings(batch_size=200, class_weight="balanced", milestones=(2,))
    )
    size = 200 if form == "rows without a length" else 16
    config = settings(batch_size=size, class_weight="balanced", milestones=(2,))
    second = fit(found, streams[form], streams[form], config)
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=1e-6, atol=1e-6)
    assert first["val_loss"] == pytest.approx(second["val_loss"], rel=1e-6)


def test_resume_with_data_loader(tmp_path):
    x, y = wine()
    whole, halves = creinn(13, 3), creinn(13, 3)
    stream = DataLoader(
        Items(x, y), batch_size=32, shuffle=True
    )  # the order is torch's, hence the seed's
    fit(whole, stream, None, settings(epochs=4))
    fit(halves, stream, None, settings(epochs=2, directory=tmp_path))
    fit(halves, stream, None, settings(epochs=4, directory=tmp_path, progress=True))
    torch.testing.assert_close(halves.state_dict(), whole.state_dict())
    with pytest.raises(ValueError, match="train_data"):
        fit(halves, Flow(x, y), None, settings(epochs=4, directory=tmp_path))


def test_exhausted_stream_raises():
    x, y = wine()

    class Once(IterableDataset):
        rows = zip(x, y.tolist(), strict=True)

        def __iter__(self):
            return self.rows

    with pytest.raises(ValueError, match="empty"):
        fit(creinn(13, 3), Once(), None, settings())


def test_last_batch_of_one_row():
    x, y = wine()
    for data in ((x[:33], y[:33]), Flow(x[:33], y[:33])):
        history = fit(creinn(13, 3), data, data, settings(batch_size=16))
        assert all(
            torch.isfinite(torch.tensor(history[name])).all() for name in ("loss", "val_loss")
        )


def test_memory_map_is_read_in_batches(tmp_path):
    x, y = wine()
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "y.npy", y.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r"), np.load(tmp_path / "y.npy", mmap_mode="r")
    rows = Rows(mapped, 3, torch.zeros(()), "train_data")
    assert rows.in_memory is None
    assert isinstance(rows._pair[0], np.memmap)
    expected, found = creinn(13, 3), creinn(13, 3)
    fit(expected, (x, y), None, settings())
    fit(found, mapped, None, settings())
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=1e-3, atol=1e-4)


def test_double_precision_and_binary_models():
    x, y = wine()
    model = CreINN(torch.nn.Sequential(inn.Linear(13, 8), inn.ReLU(), inn.Linear(8, 1))).double()
    history = fit(model, (x, (y == 0).long()), None, settings(epochs=5, learning_rate=0.01))
    assert model.network[0].weight.dtype == torch.float64
    assert history["accuracy"][-1] > 0.7


def test_class_weights():
    x, y = wine()
    keep = torch.cat(
        [(y == 0).nonzero()[:, 0], (y == 1).nonzero()[:10, 0], (y == 2).nonzero()[:20, 0]]
    )
    x, y = x[keep], y[keep]
    counts = torch.bincount(y)
    balanced, given, plain = creinn(13, 3), creinn(13, 3), creinn(13, 3)
    history = fit(balanced, (x, y), (x, y), settings(class_weight="balanced"))
    fit(given, (x, y), None, settings(class_weight=[len(y) / (3 * c) for c in counts.tolist()]))
    fit(plain, (x, y), None, settings())
    assert same(balanced, given)
    assert not same(balanced, plain)
    weight = len(y) / (3 * counts)
    assert history["val_loss"][-1] == pytest.approx(
        balanced.loss(balanced.predict(x), y, weight).item(), rel=1e-4
    )


@pytest.mark.parametrize("build", [creinn, snn])
def test_sample_weights(build):
    x, y = wine()
    of_classes = torch.tensor([1.0, 5.0, 0.5])
    by_class, by_row, plain = (build(13, 3) for _ in range(3))
    expected = fit(by_class, (x, y), (x, y), settings(class_weight=of_classes.tolist()))
    history = fit(by_row, (x, y, of_classes[y]), (x, y, of_classes[y].double()), settings())
    fit(plain, (x, y), None, settings())
    assert history["loss"] == pytest.approx(expected["loss"], rel=0.01)
    assert history["val_loss"] == pytest.approx(expected["val_loss"], rel=0.01)
    torch.testing.assert_close(
        by_row.predict(x).probabilities, by_class.predict(x).probabilities, atol=0.02, rtol=0
    )
    assert not torch.allclose(
        by_row.predict(x).probabilities, plain.predict(x).probabilities, atol=0.05
    )


@pytest.mark.parametrize("build", [creinn, snn])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_one_hot_distributions_train_like_classes(build, class_weight):
    x, y = wine()
    one_hot = torch.nn.functional.one_hot(y).float()
    models = build(13, 3), build(13, 3)
    for model, targets in zip(models, (y, one_hot), strict=True):
        config = settings(class_weight=class_weight)
        model.history = fit(model, (x, targets), (x[:40], targets[:40]), config)
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    for name in ("loss", "val_loss", "accuracy"):
        assert models[0].history[name] == pytest.approx(models[1].history[name], rel=1e-4)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"\(178,\), got \(1,\)"),
        ([0.0] * 178, "positive and finite, but row 0 has 0.0. Leave out rows of weight 0"),
        ([1.0, float("nan")] * 89, "row 1 has nan"),
    ],
)
def test_invalid_sample_weights_raise(weights, message):
    x, y = wine()
    with pytest.raises(ValueError, match=message):
        fit(creinn(13, 3), (x, y, weights), None, settings())
    with pytest.raises(ValueError, match="class_weight"):
        fit(creinn(13, 3), (x, y, torch.ones(178)), None, settings(class_weight="balanced"))


def overfitting():
    """Return a few rows with random labels, for which the validation loss increases."""
    g = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(40, 5, generator=g), torch.randint(3, (40,), generator=g)) for _ in range(2)
    ]
    return (snn(5, 3), *data, {"batch_size": 8, "learning_rate": 0.05})


def test_patience_stops_and_restores_best_weights():
    model, train, val, changes = overfitting()
    history = fit(model, train, val, settings(epochs=60, patience=4, keep="best", **changes))
    losses = history["val_loss"]
    assert history.best_epoch == 1 + losses.index(min(losses))
    assert len(history) == history.best_epoch + 4 < 60
    assert model.loss(model.predict(val[0]), val[1]).item() == pytest.approx(min(losses), rel=1e-5)
    again, *_ = overfitting()
    fit(again, train, val, settings(epochs=history.best_epoch, **changes))
    assert same(model, again)


def test_last_weights_by_default():
    model, train, val, changes = overfitting()
    history = fit(model, train, val, settings(epochs=15, **changes))
    assert history.best_epoch < 15
    assert model.loss(model.predict(val[0]), val[1]).item() == pytest.approx(
        history["val_loss"][-1], rel=1e-5
    )


def test_deterministic_algorithms_setting_is_restored():
    x, y = wine()
    asked = []

    def augment(batch, generator):
        asked.append(torch.are_deterministic_algorithms_enabled())
        return batch

    fit(creinn(13, 3), (x, y), None, settings(epochs=1, deterministic=True), augment=augment)
    assert all(asked)
    assert not torch.are_deterministic_algorithms_enabled()


def test_files_of_a_run(tmp_path):
    x, y = wine()
    history = fit(creinn(13, 3), (x, y), (x, y), settings(directory=tmp_path / "new" / "run"))
    assert sorted(p.name for p in (tmp_path / "new" / "run").iterdir()) == [
        "best.safetensors",
        "history.jsonl",
        "last.safetensors",
    ]
    lines = (tmp_path / "new" / "run" / "history.jsonl").read_text().splitlines()
    assert History(tuple(json.loads(line) for line in lines)) == history


class Hooks(SNN):
    """Writes down what it is told."""

    told = ()

    def before_training(self, data, epochs):
        self.told = (*self.told, ("before", [len(x) for x, _ in data], epochs))

    def after_training(self, data, held_out=None):
        rows = None if held_out is None else sum(len(y) for _, y in held_out)
        count = sum(len(y) for _, y in data)
        self.told = (*self.told, ("after", count, self.training, rows))


def test_prepare_and_finish_receive_training_data():
    x, y = wine()
    model = Hooks(torch.nn.Linear(13, 3))
    for data in ((x, y), Items(x, y), DataLoader(Items(x, y), batch_size=60, shuffle=True)):
        model.told = ()
        fit(model, data, None, settings(epochs=4, batch_size=60))
        assert model.told == (("before", [60, 60, 58], 4), ("after", 178, False, None))
    model.told = ()
    fit(model, (x, y), (x[:50], y[:50]), settings(epochs=4, batch_size=60))
    assert model.told[-1] == ("after", 178, False, 50)


def test_models_without_loss_raise():
    x, y = wine()
    with pytest.raises(TypeError, match="Linear"):
        fit(inn.Linear(13, 3), (x, y))
    with pytest.raises(TypeError, match="Ensemble has no loss"):
        fit(Ensemble([creinn(13, 3)]), (x, y))
    model = snn(13, 3).requires_grad_(False)
    with pytest.raises(ValueError, match="gradient"):
        fit(model, (x, y))
    assert issubclass(Ensemble, Classifier)


def test_invalid_plans_raise():
    x, y = wine()
    model = creinn(13, 3)
    for changes, message in (
        ({"patience": 3}, "patience needs val_data"),
        ({"keep": "best"}, "keep='best' needs val_data"),
        ({"batch_size": 1}, "Batch norm .* batch_size is 1"),
        ({"class_weight": (1.0, 2.0)}, "class_weight has 2 weights for 3 classes"),
        ({"device": "gpu"}, r"The device 'gpu' cannot be used: .* Choose 'cpu' or 'auto'"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(model, (x, y), None, settings(**changes))
    with pytest.raises(ValueError, match="train_data has 1 row"):
        fit(model, (x[:1], y[:1]), None, settings())
    with pytest.raises(ValueError, match="val_data has 178 inputs but 3 targets"):
        fit(model, (x, y), (x, y[:3]), settings())
    fit(snn(13, 3), (x[:3], y[:3]), None, settings(batch_size=1))


def test_auto_device():
    x, y = wine()
    model = creinn(13, 3)
    fit(model, (x, y), None, settings(epochs=1, device="auto"))
    expected = (
        "cuda"
        if torch.cuda.is_available()
        else "mps"
        if torch.backends.mps.is_available()
        else "cpu"
    )
    assert next(model.parameters()).device.type == expected
