"""Folders of images read when needed: the pixels and labels of the reader of whole folders, one image at a time."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from creinn import CreINN, TrainConfig, fit, models
from creinn.data import LazyImages, image_folder


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(6):
            pixels = rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{i}.png")
    return tmp_path / "pets"


@pytest.mark.parametrize("channels", [1, 3])
def test_items_are_the_rows_of_the_whole_folder(folder, channels):
    whole, lazy = image_folder(folder, size=8, channels=channels), LazyImages(folder, size=8, channels=channels)
    assert (len(lazy), lazy.classes) == (12, whole.classes)
    images, labels = next(iter(DataLoader(lazy, batch_size=12)))
    assert torch.equal(labels, whole.labels)
    torch.testing.assert_close(images, whole.scaled())


def test_a_model_is_trained_and_predicts_from_the_folder(folder):
    lazy = LazyImages(folder, size=8)
    model = CreINN(models.resnet8(2, width=4, layers=torch.nn), distance=True)
    fit(model, lazy, lazy, TrainConfig(epochs=1, batch_size=4, progress=False, class_weight="balanced"))
    assert len(model.predict(lazy)) == len(model.predict(DataLoader(lazy, batch_size=5))) == 12


def test_refusals(folder):
    (folder / "dog" / "0.png").write_bytes(b"no image")
    lazy = LazyImages(folder, size=8)
    with pytest.raises(ValueError, match=r"dog/0\.png cannot be read as an image"):
        lazy[6]
    with pytest.raises(ValueError, match="unpack archives"):
        LazyImages(folder.with_suffix(".zip"), size=8)
    with pytest.raises(ValueError, match="none of the classes cat, bird"):
        LazyImages(folder, size=8, classes=("cat", "bird"))
