"""``creinn train --network efficientnet-lite0`` on small images, with random weights."""

import json
import os

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from creinn import load, models
from creinn.cli import photographs
from creinn.training.frozen_features import Extractor

PRETRAINED = "--network efficientnet-lite0 --size 32 --epochs 3"


@pytest.fixture(scope="module")
def random_weights():
    torch.manual_seed(0)
    network = models.efficientnet_lite0(1000)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0
    network(torch.rand(8, 3, 64, 64) * 2 - 1)  # statistics of the batch norms
    return network.state_dict()


@pytest.fixture(autouse=True)
def weights(random_weights, monkeypatch):
    found = random_weights
    monkeypatch.setattr(models.efficientnet, "imagenet_weights", lambda: found)
    return found


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for k, name in enumerate(("cat", "dog", "cow")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(80 * k, 80 * k + 60, (30 + i, 45 + i, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


@pytest.fixture
def no_extraction(monkeypatch):
    def refuse(self, x):
        raise AssertionError("the features are computed again")

    return lambda: monkeypatch.setattr(Extractor, "__call__", refuse)


def test_train_predict_evaluate_and_export(run, photos, tmp_path, weights):
    done = run.ok("train", photos, PRETRAINED, "--coverage 0.5 --out m")
    assert "36 rows of 1664 numbers" in done.out
    model = load(tmp_path / "m")
    assert model.preprocessing["crop"] == 0.875
    assert model.preprocessing["size"] == [32, 32]
    torch.testing.assert_close(model.network.conv_stem.weight, weights["conv_stem.weight"])
    assert model.distance_is_current
    assert model.calibration_is_current
    run.ok("predict m", photos, "--out p.csv")
    with Image.open(photos / "cow" / "11.png") as image:  # 56 x 41
        half = 0.875 * 41 / 2
        box = (28 - half, 20.5 - half, 28 + half, 20.5 + half)
        pixels = np.array(image.resize((32, 32), Image.Resampling.BICUBIC, box=box))
    x = (torch.from_numpy(pixels).permute(2, 0, 1)[None].float() - 127) / 128
    rows = pd.read_csv(tmp_path / "p.csv").set_index("file")
    expected = model.predict(x).lower[0, 1].item()
    assert rows.lower_cow["cow/11.png"] == pytest.approx(expected, abs=1e-4)
    report = ("--report", tmp_path / "r.html", "--out", tmp_path / "e.json")
    run.ok("evaluate m", photos, "--ood", photos / "cow", *report)
    assert json.loads((tmp_path / "e.json").read_text())["rows"] == 36
    run.ok("export m --out m.pt2")


def test_features_are_computed_once(run, photos, tmp_path, no_extraction):
    command = ("train", photos, PRETRAINED, "--out", tmp_path / "m")
    first = run.ok(*command)
    no_extraction()
    again = run(*command)
    assert again.out == first.out
    os.utime(photos / "cat" / "0.png", (0, 0))
    with pytest.raises(AssertionError, match="again"):
        run(*command)


def test_ensemble_of_heads(run, photos, tmp_path):
    method = "--method deep-ensemble --members 2"
    run.ok("train", photos, PRETRAINED, method, "--out m")
    assert len(load(tmp_path / "m").members) == 2


def test_finetune_trains_all_layers(run, photos, tmp_path, weights):
    options = f"{PRETRAINED} --epochs 1 --finetune --set augment=true"
    run.ok("train", photos, options, "--out m")
    assert not (tmp_path / "m" / photographs.FEATURES).exists()
    model = load(tmp_path / "m")
    change = (model.network.conv_stem.weight - weights["conv_stem.weight"]).abs().max()
    assert 0 < change < 0.01
    assert model.preprocessing["std"] == [128 / 255] * 3


def test_network_is_recommended_for_few_images(run, photos):
    done = run("train", photos, "--size 8 --epochs 1 --out m")
    assert "note: there are only 36 images; --network efficientnet-lite0" in done.out
    chosen = "--network resnet8 --size 8 --epochs 1"
    done = run("train", photos, chosen, "--out n")
    assert "efficientnet" not in done.out


@pytest.mark.parametrize(
    ("options", "token"),
    [
        ("--method creinn", "creinn-d"),
        ("--set augment=true", "finetune"),
        ("--set width=4", "width"),
        ("--network resnet8 --finetune", "efficientnet-lite0"),
    ],
)
def test_conflicting_options_raise(run, photos, options, token):
    assert token in run.error("train", photos, PRETRAINED, options, "--out m")


def test_tables_raise(run, wine):
    assert "folder of images" in run.error("train", wine[0], PRETRAINED, "--target kind --out m")
