"""Two folders of images, lower and upper bounds, through the command line."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from creinn.cli.main import main


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Dark and bright grey images; the bounds are 20 levels apart."""
    monkeypatch.chdir(tmp_path)  # evaluate writes there
    rng = np.random.default_rng(0)
    for kind, level in (("bright", 180), ("dark", 40)):
        for number in range(6):
            pixels = (level + rng.integers(0, 30, (8, 8))).astype(np.uint8)
            for bound, shift in (("lower", 0), ("upper", 20)):
                folder = tmp_path / bound / kind
                folder.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels + np.uint8(shift)).save(folder / f"{number}.png")
    return tmp_path


def pair(folders):
    return ["--lower", str(folders / "lower"), "--upper", str(folders / "upper")]


def test_train_predict_and_evaluate(folders, capsys):
    model = str(folders / "model")
    settings = ["--method", "creinn", "--channels", "1", "--width", "2", "--epochs", "30", "--batch-size", "4"]
    assert main(["train", *pair(folders), *settings, "--learning-rate", "0.01", "--out", model]) == 0
    assert "12 rows of 1 x 8 x 8 intervals; 2 classes: bright (6), dark (6)" in capsys.readouterr().out
    out = folders / "predictions.csv"
    assert main(["predict", model, *pair(folders), "--out", str(out)]) == 0
    table = pd.read_csv(out)
    assert table["file"].tolist()[:2] == ["bright/0.png", "bright/1.png"]
    assert (table["lower_bright"] < table["upper_bright"]).any()
    assert main(["evaluate", model, *pair(folders), "--out", str(folders / "e.json")]) == 0
    assert "12 rows" in capsys.readouterr().out


def test_pairs_of_different_kinds_are_refused(folders, capsys):
    table = folders / "upper.csv"
    table.write_text("a,y\n1,x\n")
    arguments = ["--lower", str(folders / "lower"), "--upper", str(table), "--out", str(folders / "model")]
    assert main(["train", *arguments, "--target", "y"]) != 0
    assert "must both be tables or both be folders of images" in capsys.readouterr().err


def test_a_class_that_the_model_does_not_know_is_refused(folders, capsys):
    model = str(folders / "model")
    assert main(["train", *pair(folders), "--method", "creinn", "--channels", "1", "--width", "2", "--epochs", "1",
                 "--out", model]) == 0  # fmt: skip
    for bound in ("lower", "upper"):
        (folders / bound / "dark").rename(folders / bound / "grey")
    assert main(["evaluate", model, *pair(folders)]) != 0
    assert "has a folder 'grey', which is none of the classes bright, dark" in capsys.readouterr().err
