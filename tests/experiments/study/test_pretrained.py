"""Tests of the evaluation of a pretrained network on generated features."""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from creinn.classifier.methods import TIMES
from creinn.distance.feature_layers import HEAD
from experiments.study import features, finetuned, pretrained

WIDTHS = {"block1": 4, "block2": 6, HEAD: 8}


def classes(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows around the mean of each of ten classes for every feature layer."""
    rng = np.random.default_rng(seed)
    means = 3 * np.random.default_rng(99).normal(size=(10, sum(WIDTHS.values())))
    labels = np.arange(rows) % 10
    return (means[labels] + rng.normal(size=(rows, means.shape[1]))).astype(np.float32), labels


@pytest.fixture
def work(tmp_path):
    for name, rows, seed in (("train", 1500, 0), ("test", 500, 1)):
        x, labels = classes(rows, seed)
        np.save(tmp_path / f"{name}.npy", x)
        np.save(tmp_path / f"{name}-labels.npy", labels)
    for name in pretrained.FAR:
        x, labels = classes(100, 2)
        np.save(tmp_path / f"{name}.npy", 6 * x)
        np.save(tmp_path / f"{name}-labels.npy", labels)
    (tmp_path / "places.json").write_text(json.dumps(WIDTHS))
    return tmp_path


def test_head_matches_logistic_regression():
    x, labels = classes(400, 0)
    weight, bias = features.linear_head(torch.from_numpy(x), torch.from_numpy(labels), 10, 0.01)
    z = (x - x.mean(0)) / (x.std(0, ddof=1) + 1e-6)
    expected = LogisticRegression(C=1 / (2 * 0.01 * len(x)), max_iter=1000, tol=1e-8).fit(z, labels)
    probabilities = torch.softmax(torch.from_numpy(x) @ weight.T + bias, 1)
    np.testing.assert_allclose(probabilities.numpy(), expected.predict_proba(z), atol=2e-3)


def test_single_split(work, monkeypatch):
    monkeypatch.setattr(pretrained, "HELD_OUT", 5)
    found = pretrained.one_split((0, 1), work, 0.01)
    assert found["quality"]["CreINN-D"]["accuracy"] > 0.9
    assert set(found["auroc"]["CreINN-D, EU"]) == {*pretrained.FAR, "near"}
    assert found["auroc"]["CreINN-D, EU"]["SVHN"] > 0.99
    assert found["auroc"]["CreINN-D, EU"]["near"] > 0.9
    assert found["auroc"]["relative Mahalanobis"]["near"] > 0.8
    assert found["mean_set"]["SVHN"] > 2 * found["mean_set"]["test"]
    assert (
        found["quality"]["Laplace"]["accuracy"]
        > 0.9
        < found["auarc"]["credal wrapper of Laplace, TU"]
    )
    ours, baseline = (found["conformal"][name] for name in ("distance, lower", "ordinary, lac"))
    assert ours["coverage"]["test"] > 0.9 < baseline["coverage"]["test"]
    assert ours["size"]["SVHN"] > baseline["size"]["SVHN"]
    table = features.averaged([found, found])
    assert table["entropy"]["near"] == {
        "mean": round(found["auroc"]["entropy"]["near"], 4),
        "std": 0.0,
    }
    everything = pretrained.one_split((), work, None)
    assert everything["decay"] in pretrained.DECAYS
    assert "near" not in everything["auroc"]["entropy"]


def test_credal_methods(work):
    found = pretrained.credal_split((0, 1), work, 0.01)
    assert found["rows"] == {
        **{"train": 1079, "held-out": 121, "test": 400, "near": 100},
        **dict.fromkeys(pretrained.FAR[:3], 100),
    }
    for method in ("EffCre", f"CreRL {TIMES}8", f"credal wrapper {TIMES}5", "CreINN-D"):
        assert found["quality"][method]["accuracy"] > 0.85, method
        assert found["auarc"][f"{method}, TU"] > 0.9, method


def test_x_rays_have_two_classes(work):
    for name, rows, seed in (("X-ray train", 600, 3), ("X-ray", 200, 4)):
        x, labels = classes(rows, seed)
        np.save(work / f"{name}.npy", x[labels < 2])
        np.save(work / f"{name}-labels.npy", labels[labels < 2])
    one, other = (pretrained.lungs(number, work) for number in range(2))
    assert one["quality"]["network"]["accuracy"] > 0.95
    assert set(one["auroc"]["CreINN-D, EU"]) == {"CIFAR-10", "SVHN", "MNIST", "Fashion-MNIST"}
    assert one["auroc"]["CreINN-D, EU"]["CIFAR-10"] > 0.8
    assert "Laplace, EU" not in one["auroc"]
    assert one["auroc"]["CreINN-D, TU"] != other["auroc"]["CreINN-D, TU"]  # other rows are held out


def test_fine_tuned_networks(work, monkeypatch):
    monkeypatch.setitem(finetuned.SETS, "train", features.Source("cifar10", "train", 1500))
    monkeypatch.setattr(
        features, "shuffled", lambda total: np.random.RandomState(0).permutation(1500)
    )
    monkeypatch.setattr(finetuned, "HELD_OUT", 300)
    x, y = finetuned.divided(work)
    assert [len(y[name]) for name in ("train", "held-out", "test")] == [1200, 300, 500]
    assert not set(map(tuple, x["train"].tolist())) & set(map(tuple, x["held-out"].tolist()))
    heads = [
        features.linear_head(x["train"][:, -8:], y["train"], 10, decay) for decay in (0.01, 0.1)
    ]
    members = [finetuned.measure_member(work, head) for head in heads]
    together = finetuned.ensembles([predictions for predictions, _, _ in members])
    mean = torch.stack([p["network"]["test"].probabilities for p, _, _ in members]).mean(0)
    torch.testing.assert_close(together["Deep Ensembles"]["test"].probabilities, mean)
    wrapped = together["credal wrapper of Deep Ensembles"]["test"]
    assert bool(((wrapped.lower <= mean + 1e-6) & (mean - 1e-6 <= wrapped.upper)).all())
    found = features.numbers(together, {}, y["test"])
    assert set(found["auroc"]) == {
        f"{name}, {short}" for name in together for short in ("EU", "TU")
    }
    assert found["auroc"]["CreINN-D, averaged, EU"]["SVHN"] > 0.95
