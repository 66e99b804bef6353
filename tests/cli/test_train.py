"""Tests of ``creinn train``: the output, the methods, the validation rows and the errors."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from creinn import CreINN, Ensemble, load
from creinn.baselines import SNN, DeepEnsemble
from creinn.cli import train as train_module
from creinn.cli.options import DataOptions, MethodName, TrainOptions
from creinn.cli.sources import read_data
from creinn.cli.train import train_val_split
from creinn.data import Dataset
from creinn.saving import read_config, save
from creinn.training import progress
from creinn.training.data import Rows as TrainingRows

FEW = "--hidden 8 --epochs 2"


@pytest.fixture
def table(tmp_path):
    """Write a small table with strings, missing values, a constant column, an empty column and a key."""
    rng = np.random.default_rng(0)
    n = 60
    y = np.arange(n) % 3
    frame = pd.DataFrame(
        {
            "key": [f"k{i}" for i in range(n)],
            "size": y + rng.normal(scale=0.3, size=n).round(3),
            "colour": np.array(["red", "green", "blue"])[y],
            "constant": 1,
            "empty": None,
            "y": y,
        }
    )
    frame.loc[[3, 4], "size"] = None
    frame.loc[5, "colour"] = None
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    return path


def test_output_and_files(run, table, tmp_path):
    out = tmp_path / "model"
    done = run.ok(
        "train", table, "--target y --drop key --out", out, FEW, "--validation-fraction 0.2"
    )
    assert f"note: {table}, column 'size': 2 missing values" in done.out
    assert f"note: {table}, column 'colour': 1 missing value" in done.out
    assert f"note: {table}, column 'constant': it is 1" in done.out
    assert f"note: {table}, column 'empty': it is empty" in done.out
    assert "60 rows of 4 numbers; 3 classes: 0 (20), 1 (20), 2 (20)" in done.out
    assert "validation accuracy" in done.out
    assert "of 12 rows)" in done.out
    config = read_config(out)
    assert config["classes"] == ["0", "1", "2"]
    assert [c["name"] for c in config["preprocessing"]["columns"]] == ["size", "colour"]
    files = {path.name for path in out.iterdir()}
    assert files == {"config.json", "model.safetensors", "train.yaml"}
    options = yaml.safe_load((out / "train.yaml").read_text())
    assert options["members"] == 1
    assert options["learning_rate"] == 0.002
    assert options["drop"] == ["key"]


def test_progress_without_terminal(run, table, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)
    options = ("train", table, "--target y --out", tmp_path / "model", FEW)
    done = run(*options)
    assert "epoch 2/2, step 1/1, loss " in done.err
    assert run(*options, "--set progress=false").err == ""


def test_missing_value_markers_are_saved(run, table):
    table.write_text(table.read_text().replace("k7,", "k7,?").replace("k8,", "k8,?"))
    lines = [line.split(",") for line in table.read_text().splitlines()]
    for line in lines:
        line[1] = "?" if line[1].startswith("?") else line[1]
    table.write_text("\n".join(",".join(line) for line in lines))
    done = run.ok("train", table, "--target y --out m", FEW, "--missing ?,-")
    assert "column 'size': 4 missing values" in done.out
    done = run.ok("predict m", table, "--out p.csv")
    assert "column 'size': 4 missing values" in done.out


def test_saved_options_reproduce_model(run, table, tmp_path):
    first, again = tmp_path / "first", tmp_path / "again"
    run.ok("train", table, "--target y --out", first, FEW, "--seed 3")
    run.ok("train --config", first / "train.yaml", "--out", again)
    run.ok("train --config", first / "train.yaml", "--out other --seed 4")
    a, b, c = (load(path).state_dict() for path in (first, again, tmp_path / "other"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)


@pytest.mark.parametrize(
    ("options", "kind", "members"),
    [
        ("", CreINN, None),
        ("--method creinn", CreINN, None),
        ("--members 2 --set combine=envelope", Ensemble, 2),
        ("--method creinn --members 2 --set mode=sound", Ensemble, 2),
        ("--method snn", SNN, None),
        ("--method deep-ensemble", DeepEnsemble, 5),
        ("--method snn --members 2", DeepEnsemble, 2),
    ],
)
def test_methods(run, table, tmp_path, options, kind, members):
    run.ok("train", table, "--target y --out m", FEW, options)
    model = load(tmp_path / "m")
    assert type(model) is kind
    if members:
        assert len(model.members) == members
        first, second = (next(member.parameters()) for member in model.members[:2])
        assert not torch.equal(first, second)
    if "mode=sound" in options:
        assert model.members[0].mode == "sound"
    if kind is Ensemble:
        assert model.combine == ("envelope" if "combine=envelope" in options else "average")


def test_default_is_the_recommended_form(run, wine, tmp_path):
    arguments = ("train", wine[0], "--target kind", FEW)
    done = run(*arguments, "--out m")
    model = load(tmp_path / "m")
    found = (model.is_interval, model.distance, model.mode, model.logit_norm)
    assert found == (False, True, "paper", False)
    assert f"scale of the distance: {float(model.distance_radius.scale):.3g}\n" in done.out
    assert f"temperature: {float(model.temperature.value):.3g}\n" in done.out
    assert float(model.temperature.value) != 1
    assert "width" not in done.out
    kept = yaml.safe_load((tmp_path / "m" / "train.yaml").read_text())
    expected = {"method": "creinn-d", "distance": True, "train": "all", "from": None}
    assert kept.items() >= expected.items()


def test_options_of_credal_methods(run, wine, tmp_path):
    arguments = ("train", wine[0], "--target kind", FEW, "--out", tmp_path / "m")
    run.ok(*arguments, "--set distance=0.25 --set loss=bounds")
    model = load(tmp_path / "m")
    assert (model.is_interval, model.options()["loss"]) == (False, "bounds")
    assert float(model.distance_radius.scale) == 0.25
    run.ok(*arguments, "--method creinn --set distance=true --set mode=scaled")
    model = load(tmp_path / "m")
    assert (model.is_interval, model.distance, model.mode, bool(model.distance_radius.fitted)) == (
        *(True, True, "scaled", True),
    )
    run.ok(*arguments, "--method creinn")
    assert load(tmp_path / "m").distance_radius is None


@pytest.mark.parametrize("start", [False, True])
def test_scale_is_chosen_on_held_out_rows(run, wine, ordinary, monkeypatch, start):
    seen = []
    fit_distance = CreINN._fit_distance

    def rows(data):
        return len(data[1]) if isinstance(data, tuple) else sum(len(labels) for _, labels in data)

    def spy(self, *given):
        given = [list(part) if isinstance(part, Iterator) else part for part in given]
        seen.append((rows(given[0]), rows(given[1])))
        fit_distance(self, *(iter(part) if isinstance(part, list) else part for part in given))

    monkeypatch.setattr(CreINN, "_fit_distance", spy)
    arguments = ("--from", ordinary) if start else ("--target kind", FEW)
    done = run.ok("train", wine[0], *arguments, "--validation-fraction 0.25 --out m")
    assert "of 31 rows" in done.out
    assert seen == [(93, 31)]


@pytest.mark.parametrize(
    "method", sorted({*get_args(MethodName)} - {"creinn-d", "creinn", "snn", "deep-ensemble"})
)
def test_output_is_deterministic(run, table, tmp_path, method):
    run.ok("train", table, "--target y --out m", FEW, "--method", method)
    for name in ("a.csv", "b.csv"):
        run.ok("predict m", table, "--out", tmp_path / name)
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


def test_two_classes_use_single_logit(run, breast_cancer, tmp_path):
    run.ok("train", breast_cancer[0], "--target kind --out m", FEW)
    assert load(tmp_path / "m").num_logits == 1


def test_zero_width_intervals_are_reported(run, wine, monkeypatch):
    arguments = ("train", wine[0], "--target kind", FEW, "--method creinn")
    done = run(*arguments, "--out m")
    assert "mean width of the probability intervals in training: 0." in done.out
    assert "almost points" not in done.out
    monkeypatch.setattr(train_module, "POINT_WIDTH", 1.0)
    assert "almost points" in run(*arguments, "--out m").out
    done = run(*arguments, "--out m --set distance=true")
    assert "mean width" in done.out  # the distance is a source of epistemic uncertainty
    assert "almost points" not in done.out
    assert "mean width" not in run(*arguments, "--method snn --out n").out


def test_early_stopping_restores_best_weights(run, wine):
    options = "--set patience=2 --validation-fraction 0.3 --set class_weight=balanced"
    quick = "--target kind --hidden 8 --epochs 300 --set learning_rate=0.05"
    done = run.ok("train", wine[0], quick, options, "--out m")
    epochs = int(done.out.split("epochs: ")[1].split()[0])
    assert 3 <= epochs < 300


def test_default_validation_split(run, wine, tmp_path):
    arguments = ("train", wine[0], "--target kind --hidden 8 --set learning_rate=0.05 --epochs")
    done = run.ok(*arguments, "300 --out m")
    last, best = map(int, re.search(r"epochs: (\d+) \(best, and kept: (\d+)\)", done.out).groups())
    assert last == best + 10 < 300
    model = load(tmp_path / "m")
    options = DataOptions(data=wine[0])
    rows = read_data(options, model.preprocessing, model.class_names)
    trained, apart = train_val_split(rows, TrainOptions(out=Path("m")))
    x, y = apart.inputs, apart.labels
    assert (len(y), len(trained.labels)) == (21, 103)
    sets = model.predict(x)
    classes = sets.classes("maximality")
    sizes, covered = classes.sum(1), classes[torch.arange(21), y]
    loss = -sets.intersection[torch.arange(21), y].log().mean()
    assert f"validation accuracy {(sets.label == y).double().mean():.4f} (" in done.out
    assert f"validation log loss {loss:.4f}\n" in done.out
    assert f"coverage {covered.double().mean():.4f}, size {sizes.double().mean():.2f}" in done.out
    assert "the epoch, temperature, scale of the distance" in done.out
    kept = yaml.safe_load((tmp_path / "m" / "train.yaml").read_text())
    assert (kept["validation_fraction"], kept["patience"]) == (1 / 6, 10)
    fixed = "--set patience=0 --set distance=1 --set temperature=false"
    done = run(*arguments, "15 --out n", fixed)
    assert "trained 1 network, epochs: 15\n" in done.out
    assert "validation accuracy" in done.out
    assert "also selected" not in done.out
    done = run(*arguments, "2 --out n --validation-fraction 0")
    assert "validation accuracy" not in done.out


def test_few_rows_are_not_split(run, table, tmp_path):
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:58], "k,0.5,red,1,,rare"]))  # 58 rows
    done = run.ok("train", table, "--target y --out m", FEW)
    assert "58 rows" in done.out
    assert "validation accuracy" not in done.out
    kept = yaml.safe_load((tmp_path / "m" / "train.yaml").read_text())
    assert (kept["validation_fraction"], kept["patience"]) == (0, 0)


def test_each_class_has_a_training_row(capsys):
    labels = torch.cat([torch.arange(6), torch.full((114,), 6)])
    data = Dataset("data", torch.arange(120.0)[:, None], labels, list("abcdefg"))
    kept, apart = train_val_split(data, TrainOptions(out=Path("m")))
    assert sorted(torch.cat([kept.inputs, apart.inputs])[:, 0].tolist()) == list(range(120))
    assert set(kept.labels.tolist()) == set(range(7))
    assert apart.labels.tolist() == [6] * 19
    assert "(a)" in capsys.readouterr().out
    singles = Dataset("data", torch.zeros(100, 1), torch.arange(100), [str(i) for i in range(100)])
    assert train_val_split(singles, TrainOptions(out=Path("m")))[1] is None
    assert "17 names (" in capsys.readouterr().out


def test_resume_from_checkpoint(run, table, tmp_path):
    arguments = ("train", table, "--target y --hidden 8 --members 2")
    checkpoints = ("--set", f"checkpoints={tmp_path / 'c'}")
    run.ok(*arguments, "--epochs 4 --out whole")
    run.ok(*arguments, "--epochs 2 --out half", *checkpoints)
    run.ok(*arguments, "--epochs 4 --out resumed", *checkpoints)
    whole, resumed = load(tmp_path / "whole").state_dict(), load(tmp_path / "resumed").state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_interrupt_writes_no_model(run, table, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainingRows, "shuffled", interrupt)
    done = run("train", table, "--target y --out m", FEW)
    assert done.code == 130
    assert "stopped; no model was written" in done.err
    assert not (tmp_path / "m").exists()


def test_failed_training_preserves_previous_model(run, table, tmp_path):
    out = tmp_path / "m"
    run.ok("train", table, "--target y --out", out, FEW)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "must be at least 1, got 0" in run.error(
        "train", table, "--target y --out", out, "--epochs 2 --hidden 0"
    )
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("absent.csv --target y", "There is no file or folder absent.csv."),
        ("{table}", "--target"),
        (
            "{table} --target z",
            "{table} has no column 'z'; its columns are key, size, colour, constant, empty, y.",
        ),
        ("{table} --target constant", "'1'"),
        ("--target y", "neither"),
        ("--target y --lower {table}", "--lower and --upper"),
        ("{table} --target y --lower {table} --upper {table}", "both"),
        ("{table} --target y --epochs 0", "epochs must be at least 1, got 0."),
        ("{table} --target y --set patience=3 --validation-fraction 0", "patience"),
        ("{table} --target y --validation-fraction 1", "--validation-fraction"),
        ("{table} --target y --set device=abacus", "abacus"),
        ("{table} --target y --set augment=true", "augment"),
        (
            "{table} --target y --set separator=;",
            "has no column 'y'; its columns are key,size,colour",
        ),
        ("--lower {table} --upper {table} --target y --method snn", "--method creinn"),
        ("--lower {table} --upper {table} --target y", "--method creinn"),
        ("{table} --target y --method snn --set mode=sound", "mode"),
        ("{table} --target y --method bnn-r --from m", "from"),
        ("{table} --target y --set distance=false", "distance"),
        ("{table} --target y --set distance=-1", "distance must be a finite number >= 0"),
        ("{table} --target y --set train=radii", "train=radii"),
        ("{table} --target y --set train=nothing", "train=nothing"),
        ("{table} --from absent", "There is no saved model in absent"),
        ("{table} --from absent --hidden 4", "hidden"),
    ],
)
def test_user_errors_write_nothing(run, table, tmp_path, arguments, message):
    hidden = "" if "--from" in arguments else "--hidden 8"
    few = "" if "--epochs" in arguments else "--epochs 2"
    filled = arguments.replace("{table}", str(table))
    error = run.error("train", filled, "--out m", hidden, few)
    assert error.startswith("creinn train: ")
    assert message.replace("{table}", str(table)) in error
    assert error.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_invalid_output_directories(run, table, tmp_path):
    (tmp_path / "file").write_text("x")
    assert "is a file" in run.error("train", table, "--target y --out file", FEW)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"mine": 1}))
    assert "config.json" in run.error("train", table, "--target y --out other", FEW)
    assert json.loads((tmp_path / "other" / "config.json").read_text()) == {"mine": 1}


# Pairs of tables.


@pytest.fixture(scope="module")
def bounds(wine, tmp_path_factory):
    """The wines as intervals: lower and upper tables for training, and for testing."""
    folder = tmp_path_factory.mktemp("bounds")
    paths = []
    for part, path in zip(("train", "test"), wine, strict=True):
        frame = pd.read_csv(path)
        numbers = frame.drop(columns="kind")
        for side, sign in (("lower", -1), ("upper", 1)):
            shifted = numbers + sign * 0.1 * numbers.std()
            paths.append(folder / f"{part}-{side}.csv")
            shifted.assign(kind=frame.kind, place="x").assign(place=frame.kind.str[-1]).to_csv(
                paths[-1], index=False
            )
    return paths


def test_pair_round_trip(run, bounds, tmp_path):
    lower, upper, test_lower, test_upper = bounds
    m, p, e = tmp_path / "m", tmp_path / "p.csv", tmp_path / "e.json"
    quick = "--method creinn --hidden 16 --epochs 30 --set learning_rate=0.01"
    columns = "--target kind --drop place"
    done = run.ok("train --lower", lower, "--upper", upper, columns, quick, "--out", m)
    assert "124 rows of 13 intervals" in done.out
    run.ok("predict", m, "--lower", test_lower, "--upper", test_upper, "--out", p)
    predicted = pd.read_csv(p)
    assert (predicted.label == pd.read_csv(test_lower).kind).mean() > 0.9
    run.ok("evaluate", m, "--lower", test_lower, "--upper", test_upper, "--out", e)
    assert json.loads(e.read_text())["accuracy"] == pytest.approx(
        (predicted.label == pd.read_csv(test_lower).kind).mean()
    )
    swapped = run("predict", m, "--lower", test_upper, "--upper", test_lower, "--out q.csv")
    assert swapped.code == 1
    assert "row 1, column 'alcohol' is" in swapped.err
    assert "upper bound" in swapped.err
    assert not (tmp_path / "q.csv").exists()


def test_mismatched_model_and_data(run, model, wine, tmp_path):
    (tmp_path / "folder").mkdir()
    assert "images" in run.error("predict", model, "folder --out p.csv")
    bare = load(model)
    bare.preprocessing = None
    save(bare, tmp_path / "bare")
    assert "creinn.load" in run.error("predict bare", wine[1], "--out p.csv")


def test_torchrun_trains_on_two_processes(run, wine, tmp_path):
    options = f"train {wine[0]} --target kind --hidden 8 --epochs 3 --method snn"
    launch = "-m torch.distributed.run --standalone --nproc-per-node=2 -m creinn"
    words = f"{launch} {options} --batch-size 16 --out {tmp_path / 'two'}".split()
    command = [sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    one = run(options, "--batch-size 32 --out one")
    assert len(done.stdout.splitlines()) == len(one.out.splitlines())  # one process prints
    first, second = (load(tmp_path / name).state_dict() for name in ("one", "two"))
    assert {name: value.shape for name, value in first.items()} == {
        name: value.shape for name, value in second.items()
    }  # values differ: batch norm has the statistics of each process


def test_coverage_guarantee(run, tmp_path):
    rng = np.random.default_rng(0)
    codes = np.arange(900) % 3
    columns = rng.normal(size=(900, 3)) + 1.2 * np.eye(3)[codes]
    frame = pd.DataFrame(columns, columns=list("abc")).assign(kind=np.array(["x", "y", "z"])[codes])
    frame.loc[::9, "a"] = np.nan
    for name, part in (("train", frame[:600]), ("test", frame[600:])):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    options = ("--target kind --out", tmp_path / "m", "--coverage 0.9", FEW)
    done = run.ok("train train.csv", *options)
    assert "calibrated on 100 rows" in done.out
    assert "guaranteed" in done.out
    conformal = load(tmp_path / "m").calibration.conformal
    assert (len(conformal.scores), conformal.coverage, conformal.by) == (100, 0.9, None)
    done = run("predict m test.csv --out p.csv")
    found = pd.read_csv(tmp_path / "p.csv", keep_default_na=False)
    truth = frame.kind[600:].tolist()
    covered = [
        label in said.split("|") for label, said in zip(truth, found["conformal_set"], strict=True)
    ]
    assert np.mean(covered) == pytest.approx(0.9, abs=0.08)
    report = ("--report", tmp_path / "r.html", "--out", tmp_path / "e.json")
    done = run.ok("evaluate m test.csv --ood train.csv", *report)
    record = json.loads((tmp_path / "e.json").read_text())["conformal"]
    assert record["coverage"] == pytest.approx(np.mean(covered))
    assert (record["nominal"], record["calibration_rows"], record["rows"]) == (0.9, 100, 300)
    assert record["low"] < record["coverage"] < record["high"]
    assert sum(share["rows"] for share in record["by_size"].values()) == 300
    assert list(record["by_class"]) == ["x", "y", "z"]
    assert [point["nominal"] for point in record["curve"]] == [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]
    assert f"coverage is {record['coverage']:.4f}" in " ".join(done.out.split())
    page = (tmp_path / "r.html").read_text()
    assert "Sets with a guarantee" in page
    assert "nominal coverage" in page


def test_too_few_rows_for_coverage_raise_before_training(run, wine):
    done = run("train", wine[0], "--target kind --out m --coverage 0.99")
    assert done.code != 0
    assert "--coverage 0.99 needs 99 rows" in done.err
    done = run("train", wine[0], "--target kind --out m --coverage 0.9 --method snn")
    assert "coverage" in done.err
