"""Tests of training on label distributions, and of abstention with a guaranteed error rate."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scipy.stats import beta

from creinn import load

QUICK = "--hidden 16 --epochs 8 --set learning_rate=0.02"


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
    arguments = ("--target y --out", m, "--max-error 0.1 --confidence 0.9")
    done = run.ok("train", tables / "train.csv", *arguments, QUICK)
    assert "100 rows" in done.out
    assert "0.1: " in done.out
    assert yaml.safe_load((m / "train.yaml").read_text())["max_error"] == 0.1

    run.ok("predict", m, test, "--out p.csv")
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
    arguments = ("--target y --out", m, "--max-error 0.1 --coverage 0.9")
    run.ok("train", tables / "train.csv", *arguments, QUICK)
    run.ok("predict", m, tables / "test.csv", "--out p.csv")
    assert {"accepted", "conformal_set"} <= {*pd.read_csv(tmp_path / "p.csv", nrows=1)}


def test_impossible_rate(run, tables, tmp_path):
    """An early error if there are too few rows; otherwise the model is written before the error."""
    m, arguments = tmp_path / "m", ("--target y --coverage 0.9", QUICK)
    assert "299 rows" in run.error(
        "train", tables / "train.csv", *arguments, "--out", m, "--max-error 0.01"
    )
    assert not m.exists()
    assert "100 calibration rows" in run.error(
        "train", tables / "train.csv", *arguments, "--out", m, "--max-error 0.03"
    )
    calibration = load(m).calibration
    assert calibration.abstention is None
    assert calibration.conformal.coverage == 0.9


@pytest.mark.parametrize("option", ["max-error", "confidence"])
def test_invalid_rates_raise(run, tables, tmp_path, option):
    values = {"max-error": "0.1", option: "1.5"}
    arguments = [f"--{name} {value}" for name, value in values.items()]
    out = tmp_path / "m"
    assert option.replace("-", "_") in run.error(
        "train", tables / "train.csv", "--target y --out", out, *arguments
    )
    assert not out.exists()


def test_baselines_have_no_guarantee(run, tables, tmp_path):
    arguments = ("--target y --out", tmp_path / "m", "--method snn --max-error 0.1")
    assert "max_error" in run.error("train", tables / "train.csv", *arguments)


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
    quick = f"--method snn {QUICK}"
    run.ok("train", table, "--target-columns cat,dog,fox --out", m, quick)
    model = load(m)
    assert list(model.class_names) == ["cat", "dog", "fox"]
    assert [column["name"] for column in model.preprocessing["columns"]] == ["a", "b"]

    majority = pd.read_csv(table)[["a", "b"]].assign(
        y=np.array(["cat", "dog", "fox"])[votes.argmax(1)]
    )
    majority.to_csv(tmp_path / "majority.csv", index=False)
    hard, out = tmp_path / "hard", tmp_path / "p.csv"
    run.ok("train majority.csv --target y --out", hard, quick)
    losses = []
    for directory in (m, hard):
        run.ok("predict", directory, table, "--out", out)
        found = pd.read_csv(out)[[f"probability_{name}" for name in ("cat", "dog", "fox")]]
        losses.append(-(np.log(found.to_numpy()) * votes / 7).sum(1).mean())
    assert losses[0] < 0.95 * losses[1]  # the labels of the second model are more certain

    run.ok("evaluate", m, table, "--out e.json")
    record = json.loads((tmp_path / "e.json").read_text())
    run.ok("predict", m, table, "--out", out)
    label = pd.read_csv(out).label.map({"cat": 0, "dog": 1, "fox": 2})
    assert record["accuracy"] == pytest.approx((label == votes.argmax(1)).mean())


def test_label_distributions_from_a_model(run, tables, votes, tmp_path):
    arguments = f"--target-columns cat,dog,fox {QUICK}"
    start, m = tmp_path / "start", tmp_path / "m"
    run.ok("train", tables / "votes.csv", arguments, "--method snn --out", start)
    again = ("--from", start, "--out", m)
    run.ok("train", tables / "votes.csv", *again)
    weights = [load(path).network.state_dict() for path in (start, m)]
    torch.testing.assert_close(*({k: v for k, v in w.items() if "0.weight" in k} for w in weights))
    assert "'fox'" in run.error("train", tables / "votes.csv", *again, "--target-columns cat,dog")


@pytest.mark.parametrize(
    ("votes", "arguments", "token"),
    [
        ([1, 2, 3], "--target a --target-columns p,q", "both"),
        ([1, 2, 3], "", "--target-columns"),
        ([1, -2, 3], "--target-columns p,q", "-2"),
        ([1, 0, 3], "--target-columns p,q", "row 2"),
        ([1, None, 3], "--target-columns p,q", "row 2"),
        ([1, "x", 3], "--target-columns p,q", "'x'"),
        ([1, 2, 3], "--target-columns p,r", "'r'"),
        ([1, 2, 3], "--target-columns p", "'p'"),
    ],
)
def test_invalid_votes_raise(run, tmp_path, votes, arguments, token):
    pd.DataFrame({"a": [1.5, 2, 3], "p": votes, "q": [1, 0, 2]}).to_csv(
        tmp_path / "t.csv", index=False
    )
    assert token in run.error("train t.csv", arguments, "--out m")
    assert not (tmp_path / "m").exists()
