"""Tests of training on label distributions, and of abstention with a guaranteed error rate."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scipy.stats import beta

from creinn import load

QUICK = ("--hidden", "16", "--epochs", "8", "--set", "learning_rate=0.02")


def make_table(path, seed: int, count: int = 600) -> pd.DataFrame:
    """Write two numbers, and the class by the sign of the first one, with 10 % wrong labels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2))
    is_wrong = rng.random(count) < 0.3 * (abs(x[:, 0]) < 0.4)
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(
        y=np.where((x[:, 0] > 0) ^ is_wrong, "p", "n")
    )
    frame.to_csv(path, index=False)
    return frame


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarantees")
    for seed, name in enumerate(("train", "test")):
        make_table(folder / f"{name}.csv", seed)
    return folder


def test_max_error(run, tables, tmp_path):
    m, test = tmp_path / "m", tables / "test.csv"
    arguments = ("--target", "y", "--out", m, "--max-error", "0.1", "--confidence", "0.9")
    done = run("train", tables / "train.csv", *arguments, *QUICK)
    assert done.code == 0, done.err
    assert "100 rows" in done.out
    assert "0.1: " in done.out
    assert yaml.safe_load((m / "train.yaml").read_text())["max_error"] == 0.1

    assert run("predict", m, test, "--out", tmp_path / "p.csv").code == 0
    found, truth = pd.read_csv(tmp_path / "p.csv"), pd.read_csv(test).y
    limit = load(m).calibration.abstention.limits[0]
    assert found.accepted.dtype == bool
    assert 0.3 < found.accepted.mean() < 1
    found_clearly = found[(found.TU - limit).abs() > 1e-4]  # rounding can decide the others
    np.testing.assert_array_equal(found_clearly.accepted, limit >= found_clearly.TU)
    assert "conformal_set" not in found

    out, page = tmp_path / "e.json", tmp_path / "r.html"
    done = run("evaluate", m, test, "--out", out, "--report", page)
    record = json.loads(out.read_text())["acceptance"]
    assert (record["by"], record["max_error"], record["confidence"]) == ("total", 0.1, 0.9)
    wrong = (found.label != truth)[found.accepted]
    assert record["accepted"]["share"] == pytest.approx(found.accepted.mean())
    k, n = wrong.sum(), len(wrong)
    bounds = beta.ppf([0.025, 0.975], [k, k + 1], [n - k + 1, n - k])  # Clopper-Pearson
    errors = record["errors"]
    assert (errors["rows"], errors["share"]) == (n, pytest.approx(wrong.mean()))
    assert (errors["low"], errors["high"]) == pytest.approx(tuple(bounds))
    line = f"accepted {found.accepted.mean():.4f} of the rows, error rate among them {k / n:.4f}"
    assert line in done.out
    assert line in page.read_text()


def test_max_error_with_coverage(run, tables, tmp_path):
    m = tmp_path / "m"
    arguments = ("--target", "y", "--out", m, "--max-error", "0.1", "--coverage", "0.9")
    assert run("train", tables / "train.csv", *arguments, *QUICK).code == 0
    assert run("predict", m, tables / "test.csv", "--out", tmp_path / "p.csv").code == 0
    assert {"accepted", "conformal_set"} <= {*pd.read_csv(tmp_path / "p.csv", nrows=1)}


def test_impossible_rate(run, tables, tmp_path):
    """An early error if there are too few rows; otherwise the model is written before the error."""
    m, arguments = tmp_path / "m", ("--target", "y", "--coverage", "0.9", *QUICK)
    done = run("train", tables / "train.csv", *arguments, "--out", m, "--max-error", "0.01")
    assert done.code == 1
    assert "299 rows" in done.err
    assert not m.exists()
    done = run("train", tables / "train.csv", *arguments, "--out", m, "--max-error", "0.03")
    assert done.code == 1
    assert "smallest" in done.err
    calibration = load(m).calibration
    assert calibration.abstention is None
    assert calibration.conformal.coverage == 0.9


@pytest.mark.parametrize("option", ["max-error", "confidence"])
def test_invalid_rates_raise(run, tables, tmp_path, option):
    values = {"max-error": "0.1", option: "1.5"}
    arguments = [text for name, value in values.items() for text in (f"--{name}", value)]
    out = tmp_path / "m"
    done = run("train", tables / "train.csv", "--target", "y", "--out", out, *arguments)
    assert done.code == 1
    assert option.replace("-", "_") in done.err
    assert not out.exists()


def test_baselines_have_no_guarantee(run, tables, tmp_path):
    arguments = ("--target", "y", "--out", tmp_path / "m", "--method", "snn", "--max-error", "0.1")
    done = run("train", tables / "train.csv", *arguments)
    assert done.code == 1
    assert "max_error" in done.err


@pytest.fixture(scope="module")
def votes(tables):
    """Seven votes for each row, of three classes that depend on the numbers."""
    frame = pd.read_csv(tables / "train.csv").drop(columns="y")
    rng, x = np.random.default_rng(0), frame.to_numpy()
    logits = np.stack([3 * x[:, 0], 3 * x[:, 1], np.zeros(len(x))], 1)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    counts = np.stack([rng.multinomial(7, q) for q in p])
    frame[["cat", "dog", "fox"]] = counts
    frame.to_csv(tables / "votes.csv", index=False)
    return counts


def test_label_distributions(run, tables, votes, tmp_path):
    m, table = tmp_path / "m", tables / "votes.csv"
    arguments = ("--target-columns", "cat,dog,fox", "--method", "snn", *QUICK)
    assert run("train", table, *arguments, "--out", m).code == 0
    model = load(m)
    assert list(model.class_names) == ["cat", "dog", "fox"]
    assert [column["name"] for column in model.preprocessing["columns"]] == ["a", "b"]

    majority = pd.read_csv(table)[["a", "b"]].assign(
        y=np.array(["cat", "dog", "fox"])[votes.argmax(1)]
    )
    majority.to_csv(tmp_path / "majority.csv", index=False)
    hard, out = tmp_path / "hard", tmp_path / "p.csv"
    assert (
        run("train", tmp_path / "majority.csv", "--target", "y", "--out", hard, *arguments[2:]).code
        == 0
    )
    losses = []
    for directory in (m, hard):
        assert run("predict", directory, table, "--out", out).code == 0
        found = pd.read_csv(out)[[f"probability_{name}" for name in ("cat", "dog", "fox")]]
        losses.append(-(np.log(found.to_numpy()) * votes / 7).sum(1).mean())
    assert losses[0] < 0.95 * losses[1]  # the labels of the second model are more certain

    done = run("evaluate", m, table, "--out", tmp_path / "e.json")
    assert done.code == 0, done.err
    record = json.loads((tmp_path / "e.json").read_text())
    assert run("predict", m, table, "--out", out).code == 0
    label = pd.read_csv(out).label.map({"cat": 0, "dog": 1, "fox": 2})
    assert record["accuracy"] == pytest.approx((label == votes.argmax(1)).mean())


def test_label_distributions_from_a_model(run, tables, votes, tmp_path):
    arguments = ("--target-columns", "cat,dog,fox", *QUICK)
    start, m = tmp_path / "start", tmp_path / "m"
    assert (
        run("train", tables / "votes.csv", *arguments, "--method", "snn", "--out", start).code == 0
    )
    again = ("--from", start, "--out", m)
    assert run("train", tables / "votes.csv", *again).code == 0
    weights = [load(path).network.state_dict() for path in (start, m)]
    torch.testing.assert_close(*({k: v for k, v in w.items() if "0.weight" in k} for w in weights))
    done = run("train", tables / "votes.csv", *again, "--target-columns", "cat,dog")
    assert done.code == 1
    assert "'fox'" in done.err


@pytest.mark.parametrize(
    ("votes", "arguments", "token"),
    [
        ([1, 2, 3], ("--target", "a"), "both"),
        ([1, 2, 3], (), "--target-columns"),
        ([1, -2, 3], ("--target-columns", "p,q"), "-2"),
        ([1, 0, 3], ("--target-columns", "p,q"), "row 2"),
        ([1, None, 3], ("--target-columns", "p,q"), "row 2"),
        ([1, "x", 3], ("--target-columns", "p,q"), "'x'"),
        ([1, 2, 3], ("--target-columns", "p,r"), "'r'"),
        ([1, 2, 3], ("--target-columns", "p"), "'p'"),
    ],
)
def test_invalid_votes_raise(run, tmp_path, votes, arguments, token):
    if arguments[:1] == ("--target",):
        arguments += ("--target-columns", "p,q")
    pd.DataFrame({"a": [1.5, 2, 3], "p": votes, "q": [1, 0, 2]}).to_csv(
        tmp_path / "t.csv", index=False
    )
    done = run("train", tmp_path / "t.csv", *arguments, "--out", tmp_path / "m")
    assert done.code == 1
    assert token in done.err
    assert not (tmp_path / "m").exists()
