"""Tests of the command line with folders of images, single images and pairs of folders."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode

from creinn import load
from creinn.cli import sources
from creinn.cli.main import main
from creinn.data import LazyImages, image_folder, normalize


def write_images(folder, rng, count, size=12):
    """Write dark and bright images to two folders, with a hidden file."""
    for name, level in (("bright", 180), ("dark", 40)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.normal(level, 30, (size, size, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    (folder / "dark" / ".hidden").write_text("x")


def test_image_round_trip(run, tmp_path):
    rng = np.random.default_rng(0)
    write_images(tmp_path / "train", rng, 16)
    write_images(tmp_path / "test", rng, 5, size=15)  # stretched to the size of the training images
    m, p, e = tmp_path / "m", tmp_path / "p.csv", tmp_path / "e.json"
    done = run(
        *(
            "train",
            tmp_path / "train",
            "--out",
            m,
            "--size",
            "8",
            "--set",
            "width=4",
            "--epochs",
            "6",
            "--set",
            "augment=true",
        ),
        *("--set", "learning_rate=0.01", "--batch-size", "8"),
    )
    assert done.code == 0, done.err
    assert "32 rows of 3 x 8 x 8 numbers; 2 classes: bright (16), dark (16)" in done.out
    assert run("predict", m, tmp_path / "test", "--out", p).code == 0
    predicted = pd.read_csv(p)
    assert predicted.file.tolist()[:2] == ["bright/0.png", "bright/1.png"]
    assert (predicted.label == predicted.file.str.split("/").str[0]).mean() > 0.9
    done = run("evaluate", m, tmp_path / "test", "--ood", tmp_path / "train" / "dark", "--out", e)
    assert done.code == 0, done.err
    assert json.loads(e.read_text())["accuracy"] > 0.9
    assert json.loads(e.read_text())["ood"]["sets"][0]["rows"] == 16
    done = run("train", tmp_path / "train", "--out", tmp_path / "n", "--network", "mlp")
    assert done.code == 2
    assert "'resnet8', 'resnet14'" in done.err


QUICK = ("--set", "width=4", "--epochs", "6", "--set", "learning_rate=0.01", "--batch-size", "8")


@pytest.fixture
def photos(tmp_path):
    write_images(tmp_path / "train", np.random.default_rng(0), 16)
    return tmp_path / "train"


@pytest.fixture
def model(run, photos, tmp_path):
    """Trained on images of 12 x 12 pixels, without a word on their size."""
    done = run("train", photos, "--out", tmp_path / "m", *QUICK)
    assert done.code == 0, done.err
    return tmp_path / "m"


def test_image_size_is_saved(run, model, tmp_path):
    write_images(tmp_path / "large", np.random.default_rng(1), 5, size=36)
    Image.new("RGB", (36, 48)).save(tmp_path / "large" / "dark" / "0.png")
    for file in (tmp_path / "large").rglob("*.png"):
        copy = tmp_path / "small" / file.parent.name / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(file) as image:
            image.resize((12, 12), Image.Resampling.BILINEAR).save(copy)
    for name in ("small", "large"):
        done = run("predict", model, tmp_path / name, "--out", tmp_path / f"{name}.csv")
        assert done.code == 0, done.err
    note = f"note: {tmp_path / 'large'}: 10 images stretched to 12 x 12 pixels: 9 of 36 x 36, 1 of 36 x 48\n"
    assert note in done.out
    small, large = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("small", "large"))
    np.testing.assert_allclose(small.probability_dark, large.probability_dark, atol=1e-5)
    done = run("predict", model, tmp_path / "small", "--out", tmp_path / "p.csv", "--size", "9")
    assert done.code == 1
    assert "12 x 12" in done.err


class Largest(TorchDispatchMode):
    """The most images of 3 x 12 x 12 that were in one tensor."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.shape[-3:] == (3, 12, 12):
                self.count = max(self.count, tensor.numel() // (3 * 12 * 12))
        return result


@pytest.mark.parametrize("packed", [False, True])
def test_at_most_one_batch_in_memory(run, tmp_path, monkeypatch, packed):
    rng = np.random.default_rng(0)
    write_images(tmp_path / "train", rng, 40)
    photos = tmp_path / "train"
    if packed:
        photos = shutil.make_archive(str(photos), "zip", photos)
    kept = []
    monkeypatch.setattr(sources, "IMAGES", 8)
    monkeypatch.setattr(sources, "KEPT", 5000)
    pixels = LazyImages._pixels
    monkeypatch.setattr(
        LazyImages,
        "_pixels",
        lambda self, files: (kept.append(len(self._kept)), pixels(self, files))[1],
    )
    m = tmp_path / "m"
    few = ("--batch-size", "8")
    commands = (
        (
            "train",
            photos,
            "--out",
            m,
            *QUICK[:3],
            "2",
            *few,
            "--set",
            "augment=true",
            *("--set", "class_weight=balanced"),
        ),
        ("train", photos, "--from", m, "--out", tmp_path / "n", *few),
        ("evaluate", m, photos, "--ood", photos, "--out", tmp_path / "e.json"),
    )
    with Largest() as largest:
        for arguments in commands:
            done = run(*arguments)
            assert done.code == 0, done.err
            assert ("GiB of images stay in memory\n" in done.out) == (arguments[0] == "train")
    assert 8 <= largest.count <= 9  # the last row is part of the previous batch
    assert max(kept) == 5000 // (3 * 12 * 12)
    assert json.loads((tmp_path / "e.json").read_text())["rows"] == 80


def test_lazy_training_equals_in_memory_training(run, photos, tmp_path, monkeypatch):
    write_images(tmp_path / "test", np.random.default_rng(1), 8)
    arguments = ("train", photos, *QUICK, "--set", "augment=true", "--validation-fraction", "0.25")
    done = run(*arguments, "--out", tmp_path / "lazy")
    assert done.code == 0, done.err
    monkeypatch.setattr(
        LazyImages,
        "normalized",
        lambda self, mean, std: normalize(image_folder(photos).scaled(), mean, std),
    )
    whole = run(*arguments, "--out", tmp_path / "whole")
    assert whole.out.replace("whole", "lazy") == done.out
    monkeypatch.undo()
    x = image_folder(tmp_path / "test").scaled()
    settings = json.loads((tmp_path / "lazy" / "config.json").read_text())["preprocessing"]
    pixels = image_folder(photos).scaled().double()
    np.testing.assert_allclose(settings["mean"], pixels.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(settings["std"], pixels.std((0, 2, 3), correction=0), rtol=1e-6)
    one, other = (
        load(tmp_path / name).predict(normalize(x, settings["mean"], settings["std"]))
        for name in ("lazy", "whole")
    )
    torch.testing.assert_close(one.lower, other.lower, rtol=0, atol=2e-3)
    assert one.width.mean() > 1e-3


@pytest.mark.filterwarnings("always::UserWarning")
def test_sixteen_bit_images_and_empty_folder_give_notes(run, photos, tmp_path):
    for name, level in (("bright", 50_000), ("dark", 9000)):
        Image.fromarray(np.full((12, 12), level, np.uint16)).save(photos / name / "deep.png")
    (photos / "grey").mkdir()
    done = run("train", photos, "--out", tmp_path / "m", *QUICK)
    assert done.code == 0, done.err
    notes = (done.out + done.err).splitlines()
    assert sum("2 images" in note and "65535" in note for note in notes) == 1
    assert sum("'grey'" in note for note in notes) == 1
    assert "2 classes" in done.out


def test_unreadable_files_are_reported(run, model, photos, tmp_path):
    (photos / "dark" / "3.png").write_bytes(b"x")
    (photos / "dark" / "4.png").write_bytes((photos / "dark" / "4.png").read_bytes()[:100])
    (photos / "notes.txt").write_text("x")
    (photos / "bright" / "a.heic").write_text("x")
    commands = {
        "predict": ("predict", model, photos, "--out", tmp_path / "p.csv"),
        "evaluate": ("evaluate", model, photos, "--out", tmp_path / "e.json"),
        "train": ("train", photos, "--out", tmp_path / "n", *QUICK[:3], "1"),
    }
    for arguments in commands.values():
        done = run(*arguments, "--set", "strict=true")
        assert done.code == 1
        assert (
            f"{photos}: dark/3.png cannot be read as an image: cannot identify image file."
            in done.err
        )
        done = run(*arguments)
        assert done.code == 0, done.err
        assert (
            f"{photos}: 2 files (dark/3.png, dark/4.png) left out, being unreadable\n" in done.out
        )
        assert (
            f"{photos}: 2 files (bright/a.heic, notes.txt) left out, being no image by the suffix\n"
            in done.out
        )
        lines = done.err.splitlines()
        assert [line.split(" cannot")[0] for line in lines] == [
            f"left out: {photos}: dark/{number}.png" for number in (3, 4)
        ]
    assert len(pd.read_csv(tmp_path / "p.csv")) == 30
    assert json.loads((tmp_path / "e.json").read_text())["rows"] == 30
    for file in (photos / "dark").glob("*.png"):
        file.write_bytes(b"x")
    done = run(*commands["train"])
    assert done.code == 1
    assert "no image of the class 'dark' can be read" in done.err
    done = run("predict", model, photos / "dark", "--out", tmp_path / "q.csv")
    assert done.code == 1
    assert "no image can be read, 16 files in all." in done.err
    assert not (tmp_path / "q.csv").exists()


def test_one_image(run, model, photos, tmp_path):
    image = photos / "dark" / "0.png"
    done = run("predict", model, image, "--out", tmp_path / "p.csv")
    assert done.code == 0, done.err
    assert pd.read_csv(tmp_path / "p.csv")[["file", "label"]].to_numpy().tolist() == [
        ["0.png", "dark"]
    ]
    for arguments in (("train", image), ("evaluate", model, image)):
        done = run(*arguments, "--out", tmp_path / "n")
        assert done.code == 1
        assert f"{image} is one image." in done.err
    done = run("predict", model, image, "--out", tmp_path / "q.csv", "--keep", "id")
    assert done.code == 1
    assert "--keep is for columns of a table" in done.err


# Two folders, of lower and upper bounds.


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
    settings = [
        "--method",
        "creinn",
        "--set",
        "channels=1",
        "--set",
        "width=2",
        "--epochs",
        "30",
        "--batch-size",
        "4",
    ]
    assert (
        main(["train", *pair(folders), *settings, "--set", "learning_rate=0.01", "--out", model])
        == 0
    )
    assert (
        "12 rows of 1 x 8 x 8 intervals; 2 classes: bright (6), dark (6)" in capsys.readouterr().out
    )
    out = folders / "predictions.csv"
    assert main(["predict", model, *pair(folders), "--out", str(out)]) == 0
    table = pd.read_csv(out)
    assert table["file"].tolist()[:2] == ["bright/0.png", "bright/1.png"]
    assert (table["lower_bright"] < table["upper_bright"]).any()
    assert main(["evaluate", model, *pair(folders), "--out", str(folders / "e.json")]) == 0
    assert "12 rows" in capsys.readouterr().out


def test_mixed_pairs_raise(folders, capsys):
    table = folders / "upper.csv"
    table.write_text("a,y\n1,x\n")
    arguments = [
        "--lower",
        str(folders / "lower"),
        "--upper",
        str(table),
        "--out",
        str(folders / "model"),
    ]
    assert main(["train", *arguments, "--target", "y"]) != 0
    assert "must both be tables or both be folders of images" in capsys.readouterr().err


def test_unknown_class_raises(folders, capsys):
    model = str(folders / "model")
    assert main(["train", *pair(folders), "--method", "creinn", "--set", "channels=1", "--set", "width=2",
                 "--epochs", "1", "--out", model]) == 0  # fmt: skip
    for bound in ("lower", "upper"):
        (folders / bound / "dark").rename(folders / bound / "grey")
    assert main(["evaluate", model, *pair(folders)]) != 0
    assert "has a folder 'grey', none of the classes bright, dark" in capsys.readouterr().err
