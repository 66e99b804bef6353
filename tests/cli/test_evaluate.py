"""Tests of ``creinn evaluate``: the numbers are compared with those of the predictions."""

import json
import sys
from datetime import datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from creinn.cli.evaluate import terminal_text
from creinn.evaluation import accuracy_rejection, auarc, ood_detection
from creinn.report.tables import NO_VALUE


@pytest.fixture
def labelled(wine, tmp_path):
    """The test table with some wrong labels, so that the accuracy is less than 1."""
    frame = pd.read_csv(wine[1])
    frame.loc[::7, "kind"] = frame.kind[::7].map(
        {"class_0": "class_1", "class_1": "class_2", "class_2": "class_0"}
    )
    frame.to_csv(tmp_path / "labelled.csv", index=False)
    return tmp_path / "labelled.csv"


@pytest.fixture
def predictions(run, model, wine, foreign, tmp_path):
    """The predictions that are written by the command."""
    run.ok("predict", model, wine[1], "--out id.csv")
    run.ok("predict", model, foreign, "--out ood.csv")
    return pd.read_csv(tmp_path / "id.csv"), pd.read_csv(tmp_path / "ood.csv")


def test_metrics_match_predictions(run, model, labelled, foreign, tmp_path, predictions):
    inside, outside = predictions
    out = tmp_path / "e.json"
    done = run.ok("evaluate", model, labelled, "--ood", foreign, "--out", out)
    record = json.loads(out.read_text())
    truth = pd.read_csv(labelled).kind
    correct = (inside.label == truth).to_numpy()
    assert record["rows"] == 54
    assert record["accuracy"] == pytest.approx(correct.mean())
    assert 0.7 < record["accuracy"] < 0.95
    for name in ("AU", "EU", "TU"):
        assert record["auarc"][name] == pytest.approx(auarc(inside[name], correct), abs=1e-6)
        expected = ood_detection(inside[name], outside[name])
        assert record["ood"]["sets"][0][name] == pytest.approx(expected._asdict(), abs=1e-6)
        curve = accuracy_rejection(inside[name], correct)
        np.testing.assert_allclose(record["curves"][name]["accuracy"], curve.accuracy, atol=1e-6)
        np.testing.assert_allclose(record["curves"][name]["rejection"], curve.rejection)
    assert record["ood"]["sets"][0]["EU"]["base_rate"] == 0.5
    assert record["ood"]["sets"][0]["EU"]["auroc"] > 0.9
    sets = [names.split("|") for names in inside.set]
    assert record["sets"]["mean_size"] == pytest.approx(np.mean([len(names) for names in sets]))
    assert record["sets"]["coverage"] == pytest.approx(
        np.mean([label in names for label, names in zip(truth, sets, strict=True)])
    )
    assert f"accuracy {record['accuracy']:.4f}" in done.out
    assert f"AU           {record['auarc']['AU']:.4f}" in done.out
    assert yaml.safe_load((tmp_path / "e.yaml").read_text())["ood"] == [str(foreign)]


def test_metrics_of_classes_and_probabilities(run, model, labelled, tmp_path, predictions):
    inside, _ = predictions
    out = tmp_path / "e.json"
    done = run("evaluate", model, labelled, "--out", out)
    record = json.loads(out.read_text())
    truth = pd.read_csv(labelled).kind
    names = ["class_0", "class_1", "class_2"]
    assert record["classes"] == names
    counts = [[int(((truth == t) & (inside.label == f)).sum()) for f in names] for t in names]
    assert record["confusion"] == counts
    assert record["recall"] == pytest.approx(
        {t: (inside.label == t)[truth == t].mean() for t in names}
    )
    p = inside[[f"probability_{name}" for name in names]].to_numpy()
    hit = (truth.to_numpy()[:, None] == names).astype(float)
    assert record["log_loss"] == pytest.approx(-(np.log(p) * hit).sum(1).mean(), rel=1e-5)
    assert record["brier"] == pytest.approx(((p - hit) ** 2).sum(1).mean(), rel=1e-5)
    bins = record["reliability"]
    assert sum(bins["rows"]) == record["rows"]
    filled = [b for b in range(15) if bins["rows"][b]]
    gaps = [bins["rows"][b] * abs(bins["accuracy"][b] - bins["confidence"][b]) for b in filled]
    assert record["expected_calibration_error"] == pytest.approx(sum(gaps) / record["rows"])
    assert (
        bins["accuracy"][0] is None
    )  # the bin is empty, because one of three classes has at least 1/3
    for said in ("log loss", "Brier score", "calibration error", "coverage", "set size"):
        assert f"\n{said} " in done.out
    assert "15 bins" in done.out
    assert "most often taken for" in done.out


def test_provenance(run, model, wine, tmp_path):
    out, page = tmp_path / "e.json", tmp_path / "a page.html"
    run.ok("evaluate", model, wine[1], "--out", out, "--report", page, "--batch-size 7")
    record = json.loads(out.read_text())
    origin = record["provenance"]
    assert (record["model"], record["data"]) == (str(model), str(wine[1]))
    line = f"creinn evaluate {model} {wine[1]} --out {out} --report '{page}' --batch-size 7"
    assert origin["command"] == line
    assert abs(datetime.now(timezone.utc) - datetime.fromisoformat(origin["date"])) < timedelta(
        hours=1
    )
    assert origin["versions"]["torch"] == torch.__version__
    assert "commit" in origin
    text = page.read_text()
    for fact in (
        origin["date"],
        f"torch {torch.__version__}",
        "--batch-size 7",
        str(model),
        str(wine[1]),
    ):
        assert fact in text


def test_single_row(run, model, wine, tmp_path):
    pd.read_csv(wine[1])[:1].to_csv(tmp_path / "one.csv", index=False)
    done = run.ok("evaluate", model, "one.csv --out e.json --report r.html")
    assert "1 row of" in done.out
    assert "1 row of" in (tmp_path / "r.html").read_text()
    assert json.loads((tmp_path / "e.json").read_text())["recall"]["class_2"] is None


def test_worst_classes_are_printed():
    names = [f"c{k}" for k in range(12)]
    counts = np.diag(np.full(12, 4))
    counts[7] = [0, 0, 0, 0, 0, 0, 0, 1, 2, 1, 0, 0]
    counts[3] = 0
    record = {
        **{"classes": names, "rows": 44, "data": "x.csv", "unit": "bits", "auarc": {"TU": 0.9}},
        **dict.fromkeys(("accuracy", "log_loss", "brier", "expected_calibration_error"), 0.5),
        **{"confusion": counts.tolist(), "reliability": {"rows": [44]}},
        "recall": {name: 0.25 if name == "c7" else None if name == "c3" else 1.0 for name in names},
    }
    text = terminal_text(record)
    lines = text[text.index("\nclass ") + 1 :].splitlines()
    assert lines[2].split() == ["c7", "4", "0.2500", "c8", "(2)"]
    assert lines[3].split() == ["c0", "4", "1.0000", NO_VALUE]
    assert not any(line.startswith("c3 ") for line in lines)
    assert "10 of 12 classes" in text


def test_breast_cancer_round_trip_with_a_deep_ensemble(run, breast_cancer, tmp_path):
    m, out = tmp_path / "m", tmp_path / "e.json"
    train, test = breast_cancer
    quick = "--hidden 16 --epochs 8 --set learning_rate=0.01"
    page = tmp_path / "r.html"
    run.ok("train", train, "--target kind --out", m, quick)
    done = run.ok("evaluate", m, test, "--out", out, "--report", page)
    record = json.loads(out.read_text())
    assert record["accuracy"] > 0.93
    assert "ood" not in record
    assert record["unit"] == "probability"  # the binary measures
    assert "bits" not in done.out
    assert '"text":"uncertainty (probability)"' in page.read_text()
    assert "(bits)" not in page.read_text()
    run.ok("train", train, "--target kind --out", m, quick, "--method deep-ensemble")
    run.ok("evaluate", m, test, "--out", out)
    record = json.loads(out.read_text())
    assert record["accuracy"] > 0.93
    assert "sets" not in record
    assert record["unit"] == "bits"  # entropies


def test_report(run, model, wine, foreign, tmp_path):
    page = tmp_path / "r.html"
    done = run.ok("evaluate", model, wine[1], "--ood", foreign, "--report", page, "--out e.json")
    assert f"wrote {page}" in done.out
    text = page.read_text()
    assert "AUARC" in text
    assert "epistemic uncertainty" in text
    assert 'src="http' not in text


def test_report_without_plotly_raises_early(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert "plotly" in run.error("evaluate absent absent.csv --report r.html --out e.json")
    assert list(tmp_path.iterdir()) == []


def test_unknown_labels(run, model, wine, tmp_path):
    frame = pd.read_csv(wine[1])
    frame.loc[3, "kind"] = "riesling"
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected = "t.csv row 4, column 'kind': the model has no class 'riesling'"
    assert expected in run.error("evaluate", model, "t.csv --out e.json")
    frame.drop(columns="kind").to_csv(tmp_path / "t.csv", index=False)
    assert "t.csv has no column 'kind'; its columns are" in run.error(
        "evaluate", model, "t.csv --out e.json"
    )
    assert not (tmp_path / "e.json").exists()


def test_foreign_pairs(run, model, interval_model, wine, foreign, tmp_path):
    assert "--ood-lower and --ood-upper" in run.error(
        "evaluate", model, wine[1], "--ood-lower", foreign, "--out e.json"
    )
    pair = ("--ood-lower", foreign, "--ood-upper", foreign)
    run.ok("evaluate", interval_model, wine[1], *pair, "--out e.json")
    assert "--method creinn" in run.error("evaluate", model, wine[1], *pair, "--out f.json")
    assert not (tmp_path / "f.json").exists()


def test_groups_of_foreign_data(run, model, wine, foreign, predictions, tmp_path):
    """The measures of each set, and their means in each group."""
    inside, outside = predictions
    half = pd.read_csv(foreign)[::2]
    half.to_csv(tmp_path / "far=half.csv", index=False)  # an existing path, not a group
    half.iloc[:9].to_csv(tmp_path / "few.csv", index=False)
    paths = [f"near={foreign}", tmp_path / "far=half.csv", f"far={tmp_path / 'few.csv'}"]
    paths.append(f"far={foreign}")
    options = [text for path in paths for text in ("--ood", path)]
    out, page = tmp_path / "e.json", tmp_path / "r.html"
    done = run.ok("evaluate", model, wine[1], *options, "--out", out, "--report", page)
    record = json.loads(out.read_text())["ood"]
    assert [(one["group"], one["rows"]) for one in record["sets"]] == [
        *(("near", 54), ("", 27), ("far", 9), ("far", 54))
    ]
    for one, foreign_rows in zip(
        record["sets"], (outside, outside[::2], outside[::2][:9], outside), strict=True
    ):
        for name in ("EU", "TU"):
            expected = ood_detection(inside[name], foreign_rows[name])
            assert one[name] == pytest.approx(expected._asdict(), abs=1e-6)
    assert list(record["means"]) == ["near", "far"]
    few, all_rows = record["sets"][2:]
    for key in ("auroc", "auprc", "fpr95", "base_rate"):
        expected = (few["TU"][key] + all_rows["TU"][key]) / 2
        assert record["means"]["far"]["TU"][key] == pytest.approx(expected)
    lines = [line.split() for line in done.out.splitlines()]
    mean = [f"{few['EU'][k] / 2 + all_rows['EU'][k] / 2:.4f}" for k in ("auroc", "auprc", "fpr95")]
    assert ["far:", "mean", "EU", *mean, f"{(9 / 63 + 0.5) / 2:.4f}"] in lines
    assert "far: mean" in page.read_text()


def test_absent_foreign_data_raises_before_the_prediction(run, model, wine, tmp_path):
    out = tmp_path / "e.json"
    assert "none.csv" in run.error(
        "evaluate", model, wine[1], "--ood", f"near={tmp_path / 'none.csv'}", "--out", out
    )
    assert not out.exists()
