"""Tests of the command line with tables that have missing values or unusual formats."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch

from creinn import load
from creinn.saving import read_config

FEW = ("--hidden", "8", "--epochs", "2", "--validation-fraction", "0")


@pytest.mark.parametrize("kind", ["model", "interval_model"])
def test_missing_cells_increase_uncertainty(run, request, wine, tmp_path, kind):
    truth = pd.read_csv(wine[1])
    found = []
    for name, blank in (
        ("all", []),
        ("less", ["proline", "flavanoids"]),
        ("none", list(truth.columns[:-1])),
    ):
        truth.assign(**dict.fromkeys(blank)).to_csv(tmp_path / "t.csv", index=False)
        arguments = (
            request.getfixturevalue(kind),
            tmp_path / "t.csv",
            "--out",
            tmp_path / f"{name}.csv",
        )
        done = run("predict", *arguments)
        assert done.code == 0, done.err
        assert done.out.count("54 missing values") == len(blank)
        predicted = pd.read_csv(tmp_path / f"{name}.csv")
        sets = [names.split("|") for names in predicted.set]
        covered = np.mean([label in names for label, names in zip(truth.kind, sets, strict=True)])
        found.append((predicted.EU.mean(), np.mean([len(names) for names in sets]), covered))
        assert all(label in names for label, names in zip(predicted.label, sets, strict=True))
    uncertainty, size, coverage = zip(*found, strict=True)
    assert uncertainty[0] < uncertainty[1] < uncertainty[2]
    assert size[0] < size[1] < size[2]
    assert min(coverage) > 0.95


def test_complete_rows_do_not_depend_on_others(run, model, wine, tmp_path):
    frame = pd.read_csv(wine[1])
    for name, gap in (("all.csv", []), ("gap.csv", [1])):
        frame.loc[gap, "hue"] = None
        frame.to_csv(tmp_path / name, index=False)
        assert run("predict", model, tmp_path / name, "--out", tmp_path / f"p-{name}").code == 0
    whole, gap = (
        pd.read_csv(tmp_path / f"p-{name}").drop(index=1) for name in ("all.csv", "gap.csv")
    )
    np.testing.assert_allclose(whole.filter(like="_"), gap.filter(like="_"), atol=1e-5)


def test_missing_cells_of_intervals(run, wine, tmp_path):
    frame = pd.read_csv(wine[0])
    frame.loc[:20, "hue"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    pair = ("--lower", tmp_path / "t.csv", "--upper", tmp_path / "t.csv")
    done = run(
        "train", *pair, "--target", "kind", "--method", "creinn", "--out", tmp_path / "m", *FEW
    )
    assert done.code == 0, done.err
    assert (
        load(tmp_path / "m").network.body[0].in_features == 14
    )  # one says whether the hue is missing
    assert run("predict", tmp_path / "m", *pair, "--out", tmp_path / "p.csv").code == 0


def test_one_output_row_per_input_row(run, tmp_path):
    rows = "".join(f"{i / 10},{int(i > 0)}\n" for i in range(-30, 30))
    (tmp_path / "t.csv").write_text("x,y\n" + rows)
    assert (
        run("train", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m", *FEW).code == 0
    )
    (tmp_path / "n.csv").write_text("x\n1.5\n\n-2\n\n0.1\n")
    assert run("predict", tmp_path / "m", tmp_path / "n.csv", "--out", tmp_path / "p.csv").code == 0
    predicted = pd.read_csv(tmp_path / "p.csv")
    assert predicted.row.tolist() == [1, 2, 3, 4, 5]
    assert predicted.set[[1, 3]].tolist() == ["0|1"] * 2


def same(first, second) -> bool:
    a, b = (load(path).state_dict() for path in (first, second))
    return all(torch.equal(a[name], b[name]) for name in a)


def test_equivalent_table_formats(run, wine, tmp_path):
    frame = pd.read_csv(wine[0])
    frame.to_csv(tmp_path / "plain.csv", index=False)
    frame.to_csv(tmp_path / "index.csv")
    frame.to_csv(tmp_path / "german.csv", index=False, sep=";", decimal=",", encoding="utf-16")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.write(tmp_path / "plain.csv", "data/plain.csv")
    said = {
        "plain.csv": [],
        "index.csv": ["the first column has no name"],
        "german.csv": ["utf-16", "separated by ';'", "numbers have ',' before decimals"],
        "packed.zip": [],
    }
    for name, notes in said.items():
        done = run(
            "train", tmp_path / name, "--target", "kind", "--out", tmp_path / f"m-{name}", *FEW
        )
        assert done.code == 0, done.err
        assert done.out.count("note: ") == len(notes)
        assert all(note in done.out for note in notes)
        assert same(tmp_path / "m-plain.csv", tmp_path / f"m-{name}")
        model, out = tmp_path / "m-german.csv", tmp_path / f"p-{name}.csv"
        if (
            name != "german.csv" and model.exists()
        ):  # what is not written as in training is refused, never misread
            assert "decimal='.'" in run("predict", model, tmp_path / name, "--out", out).err
            assert run("predict", model, tmp_path / name, "--out", out, "--decimal", ".").code == 0
        elif name == "german.csv":
            assert run("predict", model, tmp_path / name, "--out", out).code == 0


def write(path, column, cells, **more):
    """Return a table of 40 rows with a column of strings and two classes."""
    frame = {column: cells, "z": np.arange(40) % 7, "y": ["a", "b"] * 20, **more}
    pd.DataFrame(frame).to_csv(path, index=False)
    return path


@pytest.fixture
def train(run, tmp_path):
    def train(path, *options):
        return run("train", path, "--target", "y", "--out", tmp_path / "m", *FEW, *options)

    return train


def test_missing_value_markers(run, train, tmp_path):
    path = write(tmp_path / "t.csv", "size", ["?", "NA", "-", "?", *map(str, range(36))])
    done = train(path)
    assert done.code == 0, done.err
    assert "'?' 2" in done.out
    assert "?" in read_config(tmp_path / "m")["preprocessing"]["marks"]
    done = run("predict", tmp_path / "m", path, "--out", tmp_path / "p.csv")
    assert "column 'size': 4 missing values" in done.out
    options = ("--out", tmp_path / "p.csv", "--missing", "-")
    assert "'?' (2)" in run("predict", tmp_path / "m", path, *options).err
    options = ("--out", tmp_path / "p.csv", "--missing", "auto,7")
    assert "5 missing values" in run("predict", tmp_path / "m", path, *options).out
    done = run("train", path, "--from", tmp_path / "m", "--out", tmp_path / "n")
    assert done.code == 0, done.err
    assert "?" in read_config(tmp_path / "n")["preprocessing"]["marks"]


def test_frequent_marker_requires_option(train, tmp_path):
    path = write(tmp_path / "t.csv", "garage", ["None", "built in"] * 20)
    done = train(path)
    assert done.code == 1
    assert "missing='auto,None'" in done.err
    done = train(path, "--missing", "NA,?")
    assert done.code == 0, done.err
    done = train(path, "--missing", "auto,None")
    assert "'built in' in all rows" in done.out


@pytest.mark.parametrize(
    ("cells", "option", "token"),
    [
        ([f"{i % 12 + 1:02}/03/2021" for i in range(40)], ("--set", "dayfirst=true"), "dayfirst"),
        ([f"{i % 12 + 1:02}/03/2021" for i in range(40)], ("--set", "dayfirst=false"), "dayfirst"),
        (["12.30 €", "9.99 €"] * 20, ("--set", "categorical=x"), "Convert"),
        (["1", "k.A.", "2", "defekt"] * 10, ("--missing", "k.A.,defekt"), "'defekt' (10)"),
        (["1,5", "2.5", "3.5", "4.5"] * 10, ("--set", "categorical=x"), "decimal=','"),
    ],
)
def test_ambiguous_columns_raise(train, tmp_path, cells, option, token):
    path = write(tmp_path / "t.csv", "x", cells)
    done = train(path)
    assert done.code == 1
    assert token in done.err
    assert done.err.count("\n") == 1
    assert train(path, *option).code == 0


@pytest.mark.parametrize(
    ("cells", "token"),
    [
        (["01067", "10115"] * 20, "'01067'"),
        (["1e30", *map(str, range(39))], "1 outlier"),
        ([f"2021-03-01T{i % 24:02}:00:00+02:00" for i in range(40)], "UTC"),
    ],
)
def test_decisions_are_printed(train, tmp_path, cells, token):
    done = train(write(tmp_path / "t.csv", "x", cells))
    assert done.code == 0, done.err
    assert token in done.out


def test_outlier_does_not_change_scaling(run, tmp_path):
    """A class that follows from the sign is learnt although one cell is 1e30."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    frame = pd.DataFrame({"x": x, "z": rng.normal(size=300), "y": np.where(x > 0, "p", "n")})
    frame.loc[0, "x"] = 1e30
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ("--hidden", "16", "--epochs", "30", "--set", "learning_rate=0.01")
    path, model = tmp_path / "t.csv", tmp_path / "m"
    assert run("train", path, "--target", "y", "--out", model, *options).code == 0
    assert run("predict", model, path, "--out", tmp_path / "p.csv").code == 0
    assert (pd.read_csv(tmp_path / "p.csv").label == frame.y).mean() > 0.95


def test_rows_without_a_class(run, train, tmp_path):
    classes = ["a", "b"] * 18 + ["", "NA", "", "?"]
    path = write(tmp_path / "t.csv", "x", list(map(str, range(40))), y=classes)
    done = train(path)
    assert done.code == 1
    assert "4 of 40 rows" in done.err
    assert "drop_unlabelled" in done.err
    done = train(path, "--set", "drop_unlabelled=true")
    assert done.code == 0, done.err
    assert "36 rows of" in done.out
    evaluate = ("evaluate", tmp_path / "m", path, "--out", tmp_path / "e.json")
    assert "drop_unlabelled" in run(*evaluate).err
    done = run(*evaluate, "--drop-unlabelled", "--batch-size", "7")
    assert done.code == 0, done.err
    assert "4 rows without a class" in done.out
    assert json.loads((tmp_path / "e.json").read_text())["rows"] == 36


def test_suspicious_data_print_notes(run, train, tmp_path):
    classes = ["ja", "nein"] * 19 + ["ja", "vielleicht"]
    path = write(tmp_path / "t.csv", "x", list(map(str, range(40))), y=classes)
    done = train(path)
    assert "vielleicht" in done.out
    done = run("evaluate", tmp_path / "m", path, "--out", tmp_path / "e.json")
    assert done.code == 0, done.err
    assert f"note: the model was trained on {path}" in done.out


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("x,y\n1,a\n", "learn from"),
        ("x,y\n1,a\n2\n", "line 3"),
        ("x,y\n1,a\n2,b,c\n", "separator="),
        ("# by hand\nx,y\n1,a\n2,b\n", "comment="),
        ('[{"x": 1, "y": "a"}]', "JSON"),
    ],
)
def test_invalid_files_raise(train, tmp_path, text, token):
    (tmp_path / "t.csv").write_text(text)
    done = train(tmp_path / "t.csv")
    assert done.code == 1
    assert token in done.err


def test_comments(run, train, tmp_path):
    rows = "".join(f"{i % 7},{'ab'[i % 2]}\n" for i in range(40))
    (tmp_path / "t.csv").write_text("# by hand\nx,y\n" + rows)
    done = train(tmp_path / "t.csv", "--set", "comment=#")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("options", "token"),
    [
        ((), "max_classes=80"),
        (("--set", "max_classes=70"), "more than 70"),
        (("--set", "max_classes=80"), None),
        (("--set", "max_classes=80", "--set", "max_categories=1"), "max_categories"),
        (("--decimal", ";"), "got ';'"),
        (("--set", "encoding=klingon"), "klingon"),
    ],
)
def test_invalid_targets_and_options(train, tmp_path, options, token):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{i % 7},{i / 8}\n" for i in range(80)))
    done = train(path, *options)
    if token is None:
        assert done.code == 0, done.err
    else:
        assert done.code == 1
        assert token in done.err
        assert done.err.count("\n") == 1


def test_classes_that_never_have_the_most_votes(run, tmp_path):
    rows = "".join(f"{i % 7},3,{i % 2}\n" for i in range(30))
    (tmp_path / "t.csv").write_text("x,p,q\n" + rows)
    done = run(
        "train", tmp_path / "t.csv", "--target-columns", "p,q", "--out", tmp_path / "m", *FEW
    )
    assert done.code == 0, done.err


def test_bounds_with_other_numbers_of_rows(run, tmp_path):
    for name, count in (("lower", 3), ("upper", 2)):
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "1,u\n2,v\n3,u\n"[: 4 * count])
    pair = ("--lower", tmp_path / "lower.csv", "--upper", tmp_path / "upper.csv")
    done = run("train", *pair, "--target", "y", "--method", "creinn", "--out", tmp_path / "m")
    assert done.code == 1
    assert "different numbers of rows" in done.err
