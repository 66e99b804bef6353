"""The benchmark of a pretrained network, on features that are generated: the head, the scores, one split as a whole."""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from benchmarks import pretrained
from creinn.classifier.network import HEAD

WIDTHS = {"block1": 4, "block2": 6, HEAD: 8}


def classes(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows about a mean for each of ten classes, at every place."""
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
        np.save(tmp_path / f"{name}.npy", 6 * classes(100, 2)[0])
    (tmp_path / "places.json").write_text(json.dumps(WIDTHS))
    return tmp_path


def test_the_head_is_that_of_logistic_regression():
    x, labels = classes(400, 0)
    weight, bias = pretrained.linear_head(torch.from_numpy(x), torch.from_numpy(labels), 10, 0.01)
    z = (x - x.mean(0)) / (x.std(0, ddof=1) + 1e-6)
    expected = LogisticRegression(C=1 / (2 * 0.01 * len(x)), max_iter=1000, tol=1e-8).fit(z, labels)
    probabilities = torch.softmax(torch.from_numpy(x) @ weight.T + bias, 1)
    np.testing.assert_allclose(probabilities.numpy(), expected.predict_proba(z), atol=2e-3)


def test_one_split(work, monkeypatch):
    monkeypatch.setattr(pretrained, "HELD_OUT", 300)
    found = pretrained.one_split((0, 1), work, 0.01)
    assert found["quality"]["accuracy"] > 0.9
    assert set(found["auroc"]["CreINN-D, EU"]) == {*pretrained.FAR, "near"}
    assert found["auroc"]["CreINN-D, EU"]["SVHN"] > 0.99
    assert found["auroc"]["CreINN-D, EU"]["near"] > 0.9
    assert found["auroc"]["relative Mahalanobis"]["near"] > 0.8
    assert found["mean_set"]["SVHN"] > 2 * found["mean_set"]["test"]
    table = pretrained.averaged([found, found])
    assert table["entropy"]["near"] == {"mean": round(found["auroc"]["entropy"]["near"], 4), "std": 0.0}
    everything = pretrained.one_split((), work, None)
    assert everything["decay"] in pretrained.DECAYS
    assert "near" not in everything["auroc"]["entropy"]
