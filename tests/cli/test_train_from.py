"""Tests of ``creinn train --from``: a trained model is the start of the training."""

import json
from functools import partial

import pandas as pd
import pytest
import torch
import yaml

from creinn import CreINN, Ensemble, load, models
from creinn.baselines import SNN
from creinn.baselines.factory import build_classifier
from creinn.classifier.methods import METHODS
from creinn.cli.options import DataOptions
from creinn.cli.sources import read_data
from creinn.graph.convert import credal
from creinn.saving import save

FORM = {"distance": False, "mode": "paper", "loss": "intersection"}


def rows(model, path):
    saved = load(model)
    options = DataOptions(data=path)
    return read_data(options, saved.preprocessing, saved.class_names)


def test_convert_ordinary_network(run, ordinary, wine, foreign, tmp_path):
    out = tmp_path / "m"
    done = run.ok("train", wine[0], "--from", ordinary, "--out", out)
    assert "scale of the distance: " in done.out
    assert "--validation-fraction" in done.out
    assert "epoch" not in done.err
    before, after = load(ordinary), load(out)
    assert type(after) is CreINN
    assert not after.is_interval
    for name, value in before.network.state_dict().items():  # not trained
        assert torch.equal(value, after.network.state_dict()[name])
    test = rows(ordinary, wine[1])
    assert torch.equal(before.predict(test.inputs).label, after.predict(test.inputs).label)
    expected = CreINN(before.network, logit_norm=False, distance=True)
    train = rows(ordinary, wine[0])
    expected.fit_distance(train.inputs, train.labels)
    torch.testing.assert_close(
        after.predict(test.inputs).upper, expected.predict(test.inputs).upper
    )
    report = ("--report", tmp_path / "r.html", "--out", tmp_path / "e.json")
    run.ok("evaluate", out, wine[1], "--ood", foreign, *report)
    record = json.loads((tmp_path / "e.json").read_text())
    assert record["ood"]["sets"][0]["EU"]["auroc"] > 0.99
    assert record["sets"]["coverage"] > 0.95
    run.ok("predict", out, foreign, "--out p.csv")
    assert pd.read_csv(tmp_path / "p.csv").EU.mean() > 1


def test_saved_options_reproduce_model(run, ordinary, wine, tmp_path):
    options = "--set distance=0.5 --target kind --missing ?"
    run.ok("train", wine[0], "--from", ordinary, options, "--out m")
    kept = yaml.safe_load((tmp_path / "m" / "train.yaml").read_text())
    assert (kept["from"], kept["train"], kept["members"]) == (str(ordinary), "nothing", 1)
    run.ok("train --config", tmp_path / "m" / "train.yaml", "--out n")
    first, again = load(tmp_path / "m"), load(tmp_path / "n")
    assert float(first.distance_radius.scale) == 0.5
    assert all(
        torch.equal(value, again.state_dict()[name]) for name, value in first.state_dict().items()
    )
    saved = load(tmp_path / "m")
    assert saved.preprocessing["marks"] == ["?"]
    assert saved.preprocessing["columns"] == load(ordinary).preprocessing["columns"]
    assert saved.class_names == ["class_0", "class_1", "class_2"]


@pytest.mark.parametrize("method", ["creinn", "creinn-d"])
def test_only_radii_are_trained(run, ordinary, wine, tmp_path, method):
    options = f"--method {method} --set train=radii {FEW}"
    done = run.ok("train", wine[0], "--from", ordinary, options, "--out", tmp_path)
    assert "trained 1 network, epochs: 3" in done.out
    before, after = load(ordinary), load(tmp_path)
    assert after.is_interval
    assert (after.distance_radius is not None) == (method == "creinn-d")
    fresh = credal(load(ordinary), FORM, needs_radii=True).network
    state = after.network.state_dict()
    for name, value in before.network.state_dict().items():
        if name.endswith("weight") and value.ndim == 2:
            assert torch.equal(value, state[name])  # centres stay
            assert not torch.equal(
                fresh.state_dict()[f"{name}_radius"], state[f"{name}_radius"]
            )  # radii do not
    x = rows(ordinary, wine[1]).inputs
    assert (before.predict(x).label == after.predict(x).label).float().mean() > 0.95


FEW = "--epochs 3"


def test_creinn_trains_radii_by_default(run, ordinary, wine, bounds_of, tmp_path):
    run.ok("train", wine[0], "--from", ordinary, "--method creinn", FEW, "--out m")
    assert yaml.safe_load((tmp_path / "m" / "train.yaml").read_text())["train"] == "radii"
    # the inputs of an interval network can be intervals
    pair = bounds_of(wine[0])
    run.ok("train", *pair, "--from", ordinary, "--method creinn", FEW, "--out n")
    run.ok("predict n", *pair, "--out p.csv")
    assert "--method creinn" in run.error("train", *pair, "--from", ordinary, "--out o")


@pytest.fixture
def bounds_of(tmp_path):
    def write(path):
        frame = pd.read_csv(path)
        paths = [tmp_path / f"{path.stem}-{side}.csv" for side in ("lower", "upper")]
        for where, sign in zip(paths, (-1, 1), strict=True):
            (frame.drop(columns="kind") + sign * 0.01).assign(kind=frame.kind).to_csv(
                where, index=False
            )
        return "--lower", paths[0], "--upper", paths[1]

    return write


def test_continue_training(run, model, wine, tmp_path):
    done = run.ok("train", wine[0], "--from", model, "--set train=all --epochs 2 --out", tmp_path)
    assert "trained 1 network, epochs: 2" in done.out
    before, after = load(model), load(tmp_path)
    first, then = (saved.network.head.weight for saved in (before, after))
    assert not torch.equal(first, then)
    assert (first - then).abs().max() < 0.1  # the training starts from the weights of the model
    assert bool(after.distance_radius.fitted)


def test_add_distance_to_interval_network(run, interval_model, wine, tmp_path):
    run.ok("train", wine[0], "--from", interval_model, "--out m")
    before, after = load(interval_model), load(tmp_path / "m")
    assert after.is_interval
    x = rows(interval_model, wine[1]).inputs
    narrow, wide = before.predict(x), after.predict(x)
    assert bool((wide.lower <= narrow.lower + 1e-6).all())
    assert wide.width.mean() > narrow.width.mean()
    assert "mode='paper'" in run.error(
        "train", wine[0], "--from", interval_model, "--set mode=scaled --out n"
    )


def test_ensemble_members_are_preserved(run, wine, train_wine, tmp_path):
    start = train_wine("deep", "--method", "deep-ensemble", "--members", "2", "--epochs", "2")
    run.ok("train", wine[0], "--from", start, "--set combine=envelope --out m")
    before, after = load(start), load(tmp_path / "m")
    assert type(after) is Ensemble
    assert after.combine == "envelope"
    assert len(after.members) == 2
    for old, new in zip(before.members, after.members, strict=True):
        assert torch.equal(old.network.head.weight, new.network.head.weight)
    assert "--members" in run.error("train", wine[0], "--from", start, "--members 3 --out n")


def test_incompatible_models_raise(run, ordinary, wine, train_wine, tmp_path):
    assert "'kind'" in run.error("train", wine[0], "--from", ordinary, "--target alcohol --out m")
    bayesian = train_wine("bayesian", "--method", "bnn-r", "--epochs", "1")
    assert "BNN" in run.error("train", wine[0], "--from", bayesian, "--out m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("logit_norm", [False, True])
def test_converted_centres_predict_as_before(logit_norm, tmp_path):
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    architecture = partial(models.mlp, in_features=3, num_classes=3, hidden=(8,))
    model = build_classifier(METHODS["snn"], architecture, logit_norm=logit_norm)
    assert isinstance(model, SNN)
    model.train()(x)  # statistics of their own
    model.eval()
    made = credal(model, FORM, needs_radii=True)
    expected = model.norm(model.network(x))
    torch.testing.assert_close(
        made.network(x).center, expected, atol=5e-3, rtol=0
    )  # but for ReLU near 0
    with_distance = credal(model, FORM | {"distance": True}, needs_radii=False)
    torch.testing.assert_close(with_distance.norm(with_distance.network(x)), expected)
    save(made.eval(), tmp_path)
    torch.testing.assert_close(load(tmp_path)(x).upper, made(x).upper)
