"""Tests of ``creinn predict``: the columns, the round trip from training, and the output files."""

import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from creinn import CredalSet
from creinn.baselines import Predictive
from creinn.cli.predict import prediction_table


def test_columns_by_hand():
    prediction = CredalSet(
        torch.tensor([[0.1, 0.2, 0.3], [0.8, 0.1, 0.0]]),
        torch.tensor([[0.4, 0.5, 0.7], [0.9, 0.2, 0.1]]),
    )
    table = prediction_table(prediction, ["a", "b", "c"], {"row": [1, 2]})
    of_classes = [f"{what}_{k}" for k in "abc" for what in ("probability", "lower", "upper")]
    assert list(table.columns) == ["row", "label", *of_classes, "AU", "EU", "TU", "set"]
    np.testing.assert_allclose(
        table.filter(like="probability_"), prediction.intersection, atol=1e-6
    )
    assert table.label.tolist() == ["c", "a"]
    assert table.set.tolist() == ["a|b|c", "a"]
    np.testing.assert_allclose(table.upper_c, [0.7, 0.1], atol=1e-6)
    np.testing.assert_allclose(table.TU[0], np.log2(3), atol=1e-5)
    np.testing.assert_allclose(table.TU - table.AU, table.EU, atol=1e-6)


def test_sampled_predictions_have_no_bounds():
    table = prediction_table(Predictive(torch.tensor([[[0.9, 0.1]], [[0.5, 0.5]]])), ["a", "b"], {})
    assert list(table.columns) == ["label", "probability_a", "probability_b", "AU", "EU", "TU"]
    np.testing.assert_allclose(table.probability_a, [0.7], atol=1e-6)


def test_round_trip(run, model, wine, tmp_path):
    out = tmp_path / "p.csv"
    done = run.ok("predict", model, wine[1], "--out", out)
    assert f"wrote {out}: 54 rows" in done.out
    predicted, truth = pd.read_csv(out), pd.read_csv(wine[1])
    assert predicted.row.tolist() == list(range(1, 55))
    assert (predicted.label == truth.kind).mean() > 0.9
    lower = predicted.filter(like="lower_").to_numpy()
    upper = predicted.filter(like="upper_").to_numpy()
    assert (lower <= upper).all()
    assert (lower.sum(1) <= 1 + 1e-5).all()
    assert (upper.sum(1) >= 1 - 1e-5).all()
    pairs = zip(predicted.label, predicted.set, strict=True)
    assert all(label in names.split("|") for label, names in pairs)
    options = yaml.safe_load((tmp_path / "p.yaml").read_text())
    assert options["rule"] == "maximality"
    assert options["model"] == str(model)


def test_rule_and_batch_size(run, model, wine, tmp_path):
    for rule in ("maximality", "e-admissibility"):
        run.ok("predict", model, wine[1], f"--out {rule}.csv --rule {rule} --batch-size 7")
    wide, narrow = (
        pd.read_csv(tmp_path / f"{rule}.csv") for rule in ("maximality", "e-admissibility")
    )
    np.testing.assert_allclose(wide.TU, narrow.TU, atol=1e-5)
    assert all(
        set(n.split("|")) <= set(w.split("|")) for n, w in zip(narrow.set, wide.set, strict=True)
    )


def test_new_tables_with_missing_values_and_unknown_columns(run, model, wine, tmp_path):
    frame = pd.read_csv(wine[1]).drop(columns="kind").astype(object)
    frame.loc[2, "alcohol"] = "~"
    frame["extra"] = 1
    frame.to_csv(tmp_path / "new.csv", index=False)
    assert "new.csv row 3, column 'alcohol': '~'" in run.error(
        "predict", model, "new.csv --out p.csv"
    )
    assert list(tmp_path.iterdir()) == [tmp_path / "new.csv"]
    done = run.ok("predict", model, "new.csv --out p.csv --missing ~")
    assert "column 'alcohol': 1 missing value" in done.out
    assert "extra" in done.out
    frame.drop(columns="alcohol").to_csv(tmp_path / "less.csv", index=False)
    assert "less.csv has no column 'alcohol'" in run.error("predict", model, "less.csv --out p.csv")


def test_distant_values_are_clipped(run, model, wine, tmp_path):
    frame = pd.read_csv(wine[1])
    frame.loc[1, "alcohol"] = 1e300
    frame.to_csv(tmp_path / "new.csv", index=False)
    done = run.ok("predict", model, "new.csv --out p.csv")
    assert "column 'alcohol': 1 distant number" in done.out
    assert pd.read_csv(tmp_path / "p.csv").set[1] == "class_0|class_1|class_2"


@pytest.mark.parametrize("place", ["absent", "empty", "foreign", "truncated"])
def test_invalid_model_directories(run, model, wine, tmp_path, place):
    folder = tmp_path / place
    if place != "absent":
        folder.mkdir()
    if place == "foreign":
        (folder / "config.json").write_text("{}")
    if place == "truncated":
        (folder / "config.json").write_bytes((model / "config.json").read_bytes())
        (folder / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:500])
    done = run("predict", folder, wine[1], "--out p.csv")
    assert done.code == 1
    assert done.err.count("\n") == 1
    expected = dict.fromkeys(("absent", "empty"), "no saved model in")
    expected |= {"foreign": "not part of a model", "truncated": "truncated"}
    assert expected[place] in done.err


def test_unwritable_output(run, model, wine, tmp_path):
    (tmp_path / "p.csv").mkdir()
    assert "is a directory" in run.error("predict", model, wine[1], "--out p.csv")


def contents(*folders):
    paths = [path for folder in folders for path in folder.rglob("*")]
    return {path: path.read_bytes() for path in paths if path.is_file()}


def test_inputs_and_model_are_never_overwritten(run, model, wine, tmp_path):
    data, kept = tmp_path / "data.csv", tmp_path / "model"
    data.write_bytes(wine[1].read_bytes())
    shutil.copytree(model, kept)
    (tmp_path / "link.csv").symlink_to(data)
    before = contents(tmp_path)
    for out in (
        data,
        tmp_path / "link.csv",
        kept / "config.json",
        kept / "model.safetensors",
        kept / "train.csv",
    ):
        assert "input" in run.error("predict", kept, data, "--out", out, "--force")
        assert contents(tmp_path) == before
    done = run("evaluate", kept, data, "--out e.json --report", data, "--force")
    assert str(data) in done.err
    assert contents(tmp_path) == before
    done = run("predict", kept, data, "--out p.yaml")
    assert "p.yaml" in done.err


def test_force_overwrites_other_files(run, model, wine, tmp_path):
    out, options = tmp_path / "p.csv", tmp_path / "p.yaml"
    for mine in (out, options):
        mine.write_text("mine")
        assert f"{mine} exists" in run.error("predict", model, wine[1], "--out", out)
        assert contents(tmp_path) == {mine: b"mine"}
        mine.unlink()
    out.write_text("mine")
    done = run.ok("predict", model, wine[1], "--out", out, "--force")
    assert f"note: {out} exists" in done.out
    run.ok("predict", model, wine[1], "--out", out)  # now it is ours
    assert run("evaluate", model, wine[1], "--out", out).code == 1  # an output of another command
    assert run("predict", model, out, "--out", out).code == 1  # the output is also the input


def test_columns_are_kept(run, model, interval_model, wine, tmp_path):
    frame = pd.read_csv(wine[1])
    frame.insert(0, "id", [f"00{i}" for i in range(len(frame))])
    frame.insert(3, "name", ["", *["Łódź, 1.0"] * (len(frame) - 1)])
    frame.to_csv(tmp_path / "new.csv", index=False)
    done = run.ok("predict", model, "new.csv --out p.csv --keep id,name,kind")
    predicted = pd.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False)
    assert list(predicted.columns)[:5] == ["row", "id", "name", "kind", "label"]
    assert predicted.id.tolist() == frame.id.tolist()
    assert predicted.name.tolist() == frame.name.tolist()
    pair = ("--lower", tmp_path / "new.csv", "--upper", tmp_path / "new.csv")
    run.ok("predict", interval_model, *pair, "--out q.csv --keep id")
    for column, message in (("key", "has no column 'key'; its columns are id"), ("row", "'row'")):
        assert message in run.error("predict", model, "new.csv --out r.csv --keep", column)
    frame.rename(columns={"id": "label"}).to_csv(tmp_path / "new.csv", index=False)
    done = run("predict", model, "new.csv --out r.csv --keep label")
    assert "--keep label" in done.err


def test_single_row(run, model, wine, tmp_path):
    pd.read_csv(wine[1])[:1].to_csv(tmp_path / "new.csv", index=False)
    done = run("predict", model, "new.csv --out p.csv")
    assert done.out.endswith("p.csv: 1 row\n")
    done = run("evaluate", model, "new.csv --ood new.csv --out e.json")
    assert done.out.startswith("1 row of ")
    assert "OOD: 1 row of " in done.out


UNUSED = ("creinn.training", "creinn.baselines", "creinn.report", "creinn.sklearn", "creinn.demo")
UNUSED += ("plotly", "matplotlib", "jinja2", "onnx", "sklearn", "scipy.stats")


def test_prediction_imports_only_what_it_needs(model, wine, tmp_path):
    arguments = ["predict", str(model), str(wine[1]), "--out", str(tmp_path / "predictions.csv")]
    code = f"""
import sys
from creinn.cli.main import main
assert main({arguments}) == 0
print(*(name for name in sys.modules if name.startswith({UNUSED})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
