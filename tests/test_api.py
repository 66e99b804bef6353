"""Calls that users rely on: their names may gain arguments, but do not disappear."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import creinn
from creinn import CredalSet, CreINN, Ensemble, Interval, TrainConfig, fit, load, models, report
from creinn import nn as inn
from creinn.baselines import flipout, local_reparameterization
from creinn.cli.main import main
from creinn.evaluation import accuracy_rejection, auarc, ood_detection, relative_increase
from creinn.sklearn import CreINNClassifier

X = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(120) % 3
X[:, :3] += 6 * F.one_hot(Y, 3)
IMAGES = torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LOWER, UPPER = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.4, 0.5, 0.9])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3, bias=False)
    )
    network[0].weight.data = torch.eye(8, 4)
    network[2].weight.data = torch.eye(3, 8)
    return CreINN(network, distance=True).fit_distance(X, Y)


def test_credal_sets():
    s = CredalSet(LOWER, UPPER)
    assert s.upper[2] == pytest.approx(0.7)
    assert (s.intersection.argmax(), s.label) == (2, 2)
    assert s.total - s.aleatoric == pytest.approx(s.epistemic)
    assert len(s.uncertainty("entropy")) == 3
    assert CredalSet([0.25, 0.5], [0.5, 0.75]).uncertainty("interval").epistemic == 0.25
    for value, member in (s.upper_entropy(True), s.lower_entropy(return_distribution=True)):
        assert s.contains(member)
        assert value >= s.lower_entropy() - 1e-6
    assert s.classes("dominance").shape == s.classes("e-admissibility").shape == (3,)
    assert s.contains(s.vertices()).all()
    assert CredalSet.binary(torch.tensor([0.2]), torch.tensor([0.4])).shape == (1, 2)
    assert CredalSet.average([s, s, s]).shape == (3,)
    assert CredalSet.from_samples(torch.rand(5, 4, 3).softmax(2)).shape == (4, 3)
    with pytest.raises(ValueError, match=r"1\.2"):
        CredalSet([0.4, 0.4, 0.4], [0.5, 0.5, 0.5])


def test_plots(model):
    s = model.predict(X)
    assert s[:2].plot().figure
    _, ax = plt.subplots()
    assert s[0].plot(ax) is ax
    drawn = report.plot_rejection(s, Y), report.plot_ood(s, s), report.plot_reliability(s, Y)
    assert all(axes.figure for axes in drawn)
    plt.close("all")


def test_intervals():
    x = Interval(IMAGES[:4], IMAGES[:4] + 0.1)
    assert torch.equal(Interval.point(LOWER).lower, LOWER)
    assert Interval.from_center_radius(UPPER, LOWER).lower[0] == pytest.approx(0.3)
    for part in (x.lower, x.upper, x.center, x.radius, x.width, x[0:4], x + x, -x, 2 * x):
        assert part.shape == x.shape
    net = torch.nn.Sequential(
        inn.Conv2d(3, 16, 3, padding=1), inn.BatchNorm2d(16), inn.ReLU(),
        inn.AdaptiveAvgPool2d(1), inn.Flatten(), inn.Linear(16, 10), inn.BatchNorm1d(10),
    )  # fmt: skip
    assert isinstance(net(x.to("cpu")), Interval)
    assert isinstance(net(IMAGES), Interval)
    assert isinstance(F.relu(torch.cat([x, x])).mean((2, 3)), Interval)
    assert isinstance(inn.GELU()(inn.SiLU()(x)), Interval)
    for mode in ("zeros", "reflect", "replicate", "circular"):
        options = {"padding": 1, "groups": 3, "padding_mode": mode}
        assert inn.Conv1d(3, 3, 3, stride=2, **options)(x[:, :, 0]).shape == (4, 3, 4)
        assert inn.Conv2d(3, 3, 2, dilation=2, **options)(x).shape == x.shape


@pytest.mark.parametrize("layers", [torch.nn, inn, local_reparameterization, flipout])
def test_one_architecture_for_all_layers(layers):
    for name in ("resnet8", "resnet14", "resnet20"):
        assert getattr(models, name)(num_classes=3, layers=layers, in_channels=1, width=4)
    for name in ("resnet18", "resnet34", "resnet50"):
        network = getattr(models, name)(num_classes=3, layers=layers, stem="imagenet", width=4)
        assert network.config
    assert models.mlp(4, 3, hidden=(8,), layers=layers)
    assert models.efficientnet_lite0(3, layers=torch.nn)


def test_interval_networks(tmp_path):
    interval_model = CreINN(models.mlp(4, 3, hidden=(8,)))
    s = interval_model(X)
    creinn.cross_entropy(s, Y).backward()
    creinn.project_(interval_model)
    interval_model(Interval(X, X + 0.1))
    assert CreINN(models.mlp(4, 3, hidden=(8,)), mode="sound").mode == "sound"
    assert isinstance(Ensemble([interval_model, interval_model])(X), CredalSet)
    point = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    assert CreINN(creinn.convert(point, radius=0.01))(X).shape == (120, 3)
    assert creinn.diagnose(interval_model, X).layers
    config = TrainConfig(epochs=2, milestones=(1,), progress=False)
    assert fit(interval_model, (X, Y), (X, Y), config)["epoch"] == [1, 2]
    interval_model.save(tmp_path / "model")
    fast = creinn.compile(load(tmp_path / "model"))
    assert isinstance(fast(X), CredalSet)


def test_estimator(tmp_path):
    options = {"hidden_layer_sizes": (8, 8), "max_iter": 2, "random_state": 0}
    clf = CreINNClassifier(**options, n_estimators=2).fit(X.numpy(), Y.numpy())
    assert clf.predict(X).shape == (120,)
    assert clf.predict_proba(X).shape == (120, 3)
    assert clf.predict_interval(X).shape == (120, 3, 2)
    assert list(clf.uncertainty(X)) == ["total", "aleatoric", "epistemic"]
    assert clf.predict_set(X, rule="maximality").dtype == bool
    clf.calibrate(X, Y, coverage=0.9)
    assert clf.predict_set(X, coverage=0.95).shape == (120, 3)
    clf.save(tmp_path / "clf")
    assert np.array_equal(CreINNClassifier.load(tmp_path / "clf").predict(X), clf.predict(X))
    low, high = X.numpy(), X.numpy() + 0.1
    assert CreINNClassifier(**options).fit(Interval(low, high), Y.numpy()).score(low, Y) > 0


def test_evaluation():
    score, correct = np.arange(50) / 50, np.arange(50) < 40
    assert auarc(score, correct) > 0.9
    assert accuracy_rejection(score, correct).accuracy[0] == pytest.approx(0.8)
    found = ood_detection(score, score + 1)
    assert (found.auroc, found.base_rate) == (1, 0.5)
    assert found.auprc == pytest.approx(1)
    assert relative_increase([1.5, 1.5], [1, 1])


def test_wrapped_networks(model):
    loader = DataLoader(TensorDataset(IMAGES, torch.arange(40) % 10), batch_size=20)
    wrapped = CreINN(models.resnet18(10, layers=torch.nn, width=4), distance=True)
    assert not wrapped.fit_distance(loader).training
    assert wrapped.feature_layers[-1] == "<head>"
    named = torch.nn.Sequential()
    for name in ("layer2", "layer4"):
        named.add_module(name, torch.nn.Conv2d(3, 3, 3))
    named.add_module("flat", torch.nn.Flatten())
    named.add_module("fc", torch.nn.Linear(48, 10))
    layers = {"feature_layers": ("layer2", "layer4"), "logits_layer": "fc", "num_logits": 10}
    CreINN(named, distance=True, **layers).fit_distance(loader)
    assert [len(s) for s in wrapped.predict_batches(loader)] == [20, 20]
    wrapped.clear_cache()


def test_guarantees(model):
    for by in (None, "class"):
        model.calibrate(X, Y, coverage=0.95, by=by)
        assert model.predict(X).classes("conformal").shape == (120, 3)
    model.calibrate(X, 0.8 * F.one_hot(Y, 3) + 0.2 / 3, coverage=0.9)
    s = model.predict(X)
    assert (s.widened().width >= s.width - 1e-6).all()
    model.calibrate(X, Y, max_error=0.1, confidence=0.95)
    assert model.predict(X).accepted.dtype == torch.bool


def test_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [",".join([*map(str, x), "abc"[y]]) for x, y in zip(X.tolist(), Y.tolist(), strict=True)]
    for name in ("data.csv", "test.csv"):
        (tmp_path / name).write_text("\n".join(["a,b,c,d,y", *rows]))
    train = "train data.csv --target y --out model/ --epochs 3 --coverage 0.9 --max-error 0.6"
    for command in (
        f"{train} --decimal . --missing NA,?",
        "predict model/ test.csv --out predictions.csv",
        "evaluate model/ test.csv --ood near=test.csv --ood far=data.csv --report report.html",
    ):
        assert main(command.split()) == 0, capsys.readouterr()
    header = (tmp_path / "predictions.csv").read_text().splitlines()[0]
    expected = {"label", "lower_a", "upper_a", "AU", "EU", "TU", "set", "conformal_set", "accepted"}
    assert expected <= set(header.split(","))
