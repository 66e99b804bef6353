"""Folders of images read when needed: the pixels and labels of the reader of whole folders, one image at a time."""

import pickle
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader

from creinn import CreINN, Interval, TrainConfig, fit, models
from creinn.data import LazyImages, image_folder, normalize
from creinn.data import lazy_images as readers
from creinn.data.images import read_images
from creinn.data.transforms import ChannelStats
from creinn.training.data import Rows


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
def test_items_equal_eager_reading(folder, channels):
    whole, images = (
        image_folder(folder, size=8, channels=channels),
        LazyImages(folder, size=8, channels=channels),
    )
    assert (len(images), images.classes, images.shape) == (12, whole.classes, (12, channels, 8, 8))
    x, labels = next(iter(DataLoader(images, batch_size=12)))
    assert torch.equal(labels, whole.labels)
    torch.testing.assert_close(x, whole.scaled())
    some = images.take(torch.tensor([7, 2])).normalized([0.5] * channels, [0.25] * channels)
    x, labels = next(iter(DataLoader(some, batch_size=12)))
    assert labels.tolist() == [1, 0]
    torch.testing.assert_close(x, normalize(whole.scaled()[[7, 2]], 0.5, 0.25))
    torch.testing.assert_close(some[1][0], x[1])


def test_archive_equals_folder_in_workers(folder):
    archive = shutil.make_archive(str(folder), "zip", folder)
    expected = LazyImages(folder, size=8)
    images = LazyImages(archive, size=8)
    assert images.files == expected.files
    images[0]
    for rows in (images, pickle.loads(pickle.dumps(images))):
        for workers in (0, 2):
            found = torch.cat([x for x, _ in DataLoader(rows, batch_size=5, num_workers=workers)])
            assert torch.equal(found, torch.stack([x for x, _ in expected]))


def test_two_folders_give_intervals(folder, tmp_path):
    for file in folder.rglob("*.png"):
        above = tmp_path / "above" / file.relative_to(folder)
        above.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(file) as image:
            Image.fromarray(np.maximum(np.asarray(image), 200)).save(above)
    images = LazyImages(folder, upper=tmp_path / "above", size=(6, 8))
    ((whole, _, _),) = read_images([folder, tmp_path / "above"], size=(6, 8))
    x, _ = next(iter(DataLoader(images.normalized(0.5, 0.5), batch_size=12)))
    assert isinstance(x, Interval)
    assert images.is_interval
    expected = normalize(whole, 0.5, 0.5)
    torch.testing.assert_close(x.lower, expected.lower)
    torch.testing.assert_close(x.upper, expected.upper)


@pytest.mark.parametrize(("room", "decoded"), [(0, 36), (5, 5 + 3 * 7), (12, 12)])
def test_cache_size(folder, monkeypatch, room, decoded):
    counts, decode_all = [], readers.decode_all
    monkeypatch.setattr(
        readers,
        "decode_all",
        lambda files, *rest: counts.append(len(files)) or decode_all(files, *rest),
    )
    images = LazyImages(folder, size=8, keep=room * 3 * 8 * 8)
    assert images.fits == (room == 12)
    first = [x for x, _ in images]
    even, odd = (images.take(torch.arange(at, 12, 2)) for at in range(2))
    parts = even, odd.normalized(0.0, 1.0)  # share what is kept
    for _ in range(2):
        again = [x for part in parts for x, _ in DataLoader(part, batch_size=None)]
        torch.testing.assert_close(again, first[::2] + first[1::2])
    assert sum(counts) == decoded
    assert len(images._kept) == room
    assert sum(pixels.nbytes for pixels in images._kept.values()) == room * 3 * 8 * 8


def test_digest_depends_on_names_labels_and_mode(folder):
    like = torch.zeros(1)
    images = LazyImages(folder, size=8).normalized(0.5, 0.25)
    others = [
        images.take(torch.arange(11, -1, -1)),
        images.normalized(0.5, 0.26),
        LazyImages(folder, size=9),
    ]
    known, *found = (Rows(data, 2, like, "train_data").digest() for data in (images, *others))
    assert (
        known
        == Rows(LazyImages(folder, size=8).normalized(0.5, 0.25), 2, like, "train_data").digest()
    )
    assert known.startswith("12 rows of a LazyImages, checksum ")
    assert known not in found


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=3), st.integers(0, 2**32 - 1), st.booleans()
)
def test_color_mode_of_all_images(parts, seed, is_interval):
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 256, (sum(parts) + 1, 3, 4, 5), dtype=np.uint8)
    low[:, 1] = low[0, 1, 0, 0]  # of one colour
    high = np.maximum(low, rng.integers(0, 256, (), dtype=np.uint8)) if is_interval else low
    below, above = (torch.from_numpy(pixels).float() / 255 for pixels in (low, high))
    x = Interval(below, above) if is_interval else below
    stats, start = ChannelStats(), 0
    for size in (*parts, 1):
        stats.add(x[start : start + size])
        start += size
    centers = (low.astype(float) + high) / 510
    mean, std = stats.mean_and_std()
    np.testing.assert_allclose(mean, centers.mean((0, 2, 3)), rtol=1e-12)
    expected = centers.std((0, 2, 3))
    np.testing.assert_allclose(std, np.where(expected > 1e-12, expected, 1), rtol=1e-9)


def test_train_and_predict_from_folder(folder):
    images = LazyImages(folder, size=8)
    model = CreINN(models.resnet8(2, width=4, layers=torch.nn), distance=True)
    fit(
        model,
        images,
        images,
        TrainConfig(epochs=1, batch_size=4, progress=False, class_weight="balanced"),
    )
    assert len(model.predict(images)) == len(model.predict(DataLoader(images, batch_size=5))) == 12


def test_invalid_arguments_raise(folder):
    (folder / "dog" / "0.png").write_bytes(b"no image")
    images = LazyImages(folder, size=8)
    with pytest.raises(ValueError, match=r"dog/0\.png cannot be read as an image"):
        images[6]
    with pytest.raises(FileNotFoundError, match="neither a folder nor a zip archive"):
        LazyImages(folder.with_suffix(".zip"), size=8)
    with pytest.raises(ValueError, match="none of the classes cat, bird"):
        LazyImages(folder, size=8, classes=("cat", "bird"))
