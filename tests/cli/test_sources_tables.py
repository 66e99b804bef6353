"""Tables as people have them: cells missing, other signs and encodings, packed, with keys and without names."""

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
def test_missing_cells_make_predictions_less_sure(run, request, wine, tmp_path, kind):
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
        assert done.out.count(
            "54 missing values, for which values of the training table are tried"
        ) == len(blank)
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


def test_every_line_gives_a_line(run, tmp_path):
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


def test_other_ways_of_writing_the_same_table(run, wine, tmp_path):
    frame = pd.read_csv(wine[0])
    frame.to_csv(tmp_path / "plain.csv", index=False)
    frame.to_csv(tmp_path / "index.csv")
    frame.to_csv(tmp_path / "german.csv", index=False, sep=";", decimal=",", encoding="utf-16")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.write(tmp_path / "plain.csv", "data/plain.csv")
    said = {
        "plain.csv": [],
        "index.csv": ["the first column has no name and numbers the rows, so it is left out"],
        "german.csv": ["read as utf-16", "parted by ';'", "numbers have ',' before decimals: '"],
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
            assert "is not a number" in run("predict", model, tmp_path / name, "--out", out).err
            assert run("predict", model, tmp_path / name, "--out", out, "--decimal", ".").code == 0
        elif name == "german.csv":
            assert run("predict", model, tmp_path / name, "--out", out).code == 0


def test_marks_of_missing_values(run, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    frame = pd.DataFrame(
        {"garage": np.array(["None", "built in"])[y], "size": rng.normal(size=200).round(2), "y": y}
    )
    frame["size"] = frame["size"].astype(str).where(rng.random(200) > 0.1, "?")
    frame.to_csv(tmp_path / "t.csv", index=False)
    arguments = ("train", tmp_path / "t.csv", "--target", "y", "--hidden", "8", "--epochs", "20")
    done = run(*arguments, "--out", tmp_path / "m")
    assert done.code == 1
    assert "'?' is not a number" in done.err
    assert "(--missing)" in done.err
    done = run(*arguments, "--out", tmp_path / "m", "--missing", "NA,?", "--learning-rate", "0.01")
    assert done.code == 0, done.err
    assert "column 'garage': 'None' (" in done.out
    assert "is a category; if it marks missing values, say --missing None" in done.out
    assert "validation accuracy 1.0000" in done.out
    assert read_config(tmp_path / "m")["preprocessing"]["marks"] == ["NA", "?"]
    done = run("predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    assert done.code == 0, done.err
    assert "column 'size'" in done.out
    again = ("train", tmp_path / "t.csv", "--from", tmp_path / "m", "--out", tmp_path / "n")
    assert run(*again).code == 0
    assert read_config(tmp_path / "n")["preprocessing"]["marks"] == ["NA", "?"]
    done = run(
        "predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv", "--missing", "-"
    )
    assert "'?' is not a number" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            (),
            "The target 'y' has 80 different numbers in 80 rows. Was regression meant? Here each number is a class",
        ),
        (("--max-classes", "70"), "The target 'y' has 80 classes, more than 70."),
        (("--max-classes", "80"), None),
        (
            ("--max-classes", "80", "--max-categories", "1"),
            "at least 2 categories, but at most 1 are asked for",
        ),
        (("--decimal", ";"), "The decimal sign must be '.', ',' or auto, got ';'."),
        (("--encoding", "klingon"), "There is no encoding 'klingon'"),
    ],
)
def test_targets_and_options_that_are_refused(run, tmp_path, options, message):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{i % 7},{i / 8}\n" for i in range(80)))
    done = run("train", path, "--target", "y", "--out", tmp_path / "m", *FEW, *options)
    if message is None:
        assert done.code == 0, done.err
    else:
        assert done.code == 1
        assert message in done.err
        assert done.err.count("\n") == 1


def test_models_of_older_versions_are_refused(run, model, wine, tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    for path in model.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    del config["preprocessing"]["marks"]
    (folder / "config.json").write_text(json.dumps(config))
    done = run("predict", folder, wine[1], "--out", tmp_path / "p.csv")
    assert done.code == 1
    assert (
        "saved by an older creinn, which took missing values for known ones. Train it again."
        in done.err
    )
