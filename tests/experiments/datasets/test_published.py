"""Tests of published data sets by name."""

import gzip
import pickle
import shutil
import struct
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from experiments.datasets import available, load
from experiments.datasets.published import _KNOWN


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write_batches(folder, n=4):
    folder.mkdir(parents=True, exist_ok=True)
    images = pixels(6 * n, 3072)
    for i, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        batch = {"labels": [(i + j) % 10 for j in range(n)], "data": images[i * n : (i + 1) * n]}
        (folder / name).write_bytes(pickle.dumps(batch, 4))
    return images.reshape(-1, 3, 32, 32)


def write_idx(path, array, pack=gzip.compress):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(pack(header + array.tobytes()))


def write_sheet(path, images, columns):
    cells = np.zeros((-(-len(images) // columns) * columns, 32, 32, 3), np.uint8)
    cells[: len(images)] = images.transpose(0, 2, 3, 1)
    sheet = (
        cells.reshape(-1, columns, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, columns * 32, 3)
    )
    Image.fromarray(sheet).save(path, lossless=True)


def write_chest(folder, splits=("train", "val", "test")):
    for split in splits:
        for k, name in enumerate(["NORMAL", "PNEUMONIA"]):
            place = folder / split / name
            place.mkdir(parents=True)
            (place / ".DS_Store").write_bytes(b"x")
            Image.fromarray(pixels(30, 40, seed=k)).save(place / "grey.jpeg")
            if k:
                Image.fromarray(pixels(50, 20, 3, seed=2)).save(place / "rgb.jpeg")


@pytest.mark.parametrize("place", ["", "cifar10", "CIFAR10"])
@pytest.mark.parametrize("inner", ["cifar-10-batches-py", "."])
def test_cifar10_batches(tmp_path, place, inner):
    images = write_batches(tmp_path / place / inner)
    train, test = (load("cifar10", tmp_path, split, complete=False) for split in ("train", "test"))
    np.testing.assert_array_equal(train.inputs, images[:20])
    np.testing.assert_array_equal(test.inputs, images[20:])
    assert train.labels[:5].tolist() == [0, 1, 2, 3, 1]
    assert (train.name, train.split, train.classes[3]) == ("cifar10", "train", "cat")
    assert available(tmp_path) == {"cifar10": ("train", "test")}


def test_cifar10_archive(tmp_path):
    images = write_batches(tmp_path / "x" / "cifar-10-batches-py")
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "x" / "cifar-10-batches-py", "cifar-10-batches-py")
    np.testing.assert_array_equal(load("cifar10", tmp_path, complete=False).inputs, images[:20])


def test_cifar10_sheets(tmp_path):
    images, labels = pixels(24, 3, 32, 32), np.arange(24, dtype=np.uint8) % 10
    (tmp_path / "cifar10").mkdir()
    for i in range(5):
        write_sheet(tmp_path / "cifar10" / f"data_batch_{i + 1}.webp", images[4 * i : 4 * i + 4], 2)
    write_sheet(tmp_path / "cifar10" / "test_batch.webp", images[20:], 3)
    np.savez(tmp_path / "cifar10" / "labels.npz", train=labels[:20], test=labels[20:])
    train, test = (load("cifar10", tmp_path, split, complete=False) for split in ("train", "test"))
    np.testing.assert_array_equal(train.inputs, images[:20])
    np.testing.assert_array_equal(test.inputs, images[20:])
    assert test.labels.tolist() == labels[20:].tolist()
    np.savez(tmp_path / "cifar10" / "labels.npz", train=labels[:19])
    with pytest.raises(ValueError, match="19"):
        load("cifar10", tmp_path, complete=False)
    with pytest.raises(ValueError, match=r"'test'"):
        load("cifar10", tmp_path, "test", complete=False)
    path = tmp_path / "cifar10" / "labels.npz"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match="truncated"):
        load("cifar10", tmp_path, complete=False)
    np.savez(path, train=np.array([{}] * 20, dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        load("cifar10", tmp_path, complete=False)


def test_svhn_formats(tmp_path):
    images, labels = pixels(12, 3, 32, 32), np.arange(1, 13, dtype=np.uint8)
    labels[10:] = 10
    savemat(tmp_path / "test_32x32.mat", {"X": images.transpose(2, 3, 1, 0), "y": labels[:, None]})
    data = load("svhn", tmp_path, "test", complete=False)
    np.testing.assert_array_equal(data.inputs, images)
    assert data.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0]
    (tmp_path / "compact" / "svhn").mkdir(parents=True)
    write_sheet(tmp_path / "compact" / "svhn" / "test_32x32.webp", images, 5)
    np.savez(tmp_path / "compact" / "svhn" / "test_labels.npz", y=labels)
    same = load("svhn", tmp_path / "compact", "test", complete=False)
    assert torch.equal(same.inputs, data.inputs)
    assert torch.equal(same.labels, data.labels)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("mnist", "."),
        ("fashion-mnist", "fashion_mnist"),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_idx_sets(tmp_path, name, place, packed):
    images, labels = pixels(6, 28, 28), np.array([0, 9, 3, 3, 1, 2], np.uint8)
    end, pack = (".gz", gzip.compress) if packed else ("", bytes)
    for prefix, some in (("train", slice(4)), ("t10k", slice(4, 6))):
        write_idx(tmp_path / place / f"{prefix}-images-idx3-ubyte{end}", images[some], pack)
        write_idx(tmp_path / place / f"{prefix}-labels-idx1-ubyte{end}", labels[some], pack)
    train, test = (load(name, tmp_path, split, complete=False) for split in ("train", "test"))
    assert train.inputs.shape == (4, 1, 28, 28)
    np.testing.assert_array_equal(test.inputs[:, 0], images[4:])
    assert train.labels.tolist() == [0, 9, 3, 3]


def test_mismatched_labels_raise(tmp_path):
    folder = tmp_path / "fashion_mnist"
    write_idx(folder / "train20k-images-idx3-ubyte.gz", pixels(3, 28, 28))
    write_idx(folder / "train20k-labels-idx1-ubyte.gz", np.array([0, 9, 1], np.uint8))
    assert load("fashion-mnist", tmp_path, complete=False).classes[9] == "Ankle boot"
    write_idx(folder / "train20k-labels-idx1-ubyte.gz", np.array([0, 9], np.uint8))
    with pytest.raises(ValueError, match=r"\(3, 28, 28\)"):
        load("fashion-mnist", tmp_path, complete=False)
    write_idx(folder / "train20k-labels-idx1-ubyte.gz", np.array([0, 10, 1], np.uint8))
    with pytest.raises(ValueError, match="10 classes"):
        load("fashion-mnist", tmp_path, complete=False)


@pytest.mark.parametrize("place", ["chest_xray", "chest_xray/chest_xray", "."])
def test_chest_folders(tmp_path, place):
    write_chest(tmp_path / "data" / place)
    data = load("chest-xray", tmp_path / "data", "val", size=16, complete=False)
    assert data.inputs.shape == (3, 1, 16, 16)
    assert data.labels.tolist() == [0, 1, 1]
    assert data.classes == ("NORMAL", "PNEUMONIA")
    assert load("chest-xray", tmp_path / "data", channels=3, complete=False).inputs.shape == (
        3,
        3,
        224,
        224,
    )


def test_chest_archive(tmp_path):
    write_chest(tmp_path / "chest_xray")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for file in sorted((tmp_path / "chest_xray").rglob("*")):
            inside = file.relative_to(tmp_path).as_posix()
            archive.write(file, inside)
            if (
                file.name != "rgb.jpeg"
            ):  # the deeper copy differs, so that it shows which one was read
                archive.write(file, f"chest_xray/{inside}")
            if file.is_file():
                archive.writestr(f"chest_xray/__MACOSX/{inside}", b"x")
                archive.writestr(f"__MACOSX/{inside}", b"x")
    folder = load("chest-xray", tmp_path, size=16, complete=False)
    shutil.rmtree(tmp_path / "chest_xray")
    archive = load("chest-xray", tmp_path, size=16, complete=False)
    assert torch.equal(archive.inputs, folder.inputs)
    assert torch.equal(archive.labels, folder.labels)


def test_macos_files_in_archive_are_ignored(tmp_path):
    write_chest(tmp_path / "x" / "chest_xray")
    with zipfile.ZipFile(tmp_path / "chest_xray.zip", "w") as archive:
        for file in sorted((tmp_path / "x" / "chest_xray").rglob("*.jpeg")):
            inside = file.relative_to(tmp_path / "x" / "chest_xray").as_posix()
            archive.write(file, f"downloads/chest_xray/{inside}")
            archive.writestr(f"__MACOSX/{inside}", b"x")
    assert load("chest-xray", tmp_path, size=16, complete=False).counts == (1, 2)


def test_unrelated_chest_archive_raises(tmp_path):
    with zipfile.ZipFile(tmp_path / "chest_xray.zip", "w") as archive:
        archive.writestr("x/train/NORMAL/a.jpeg", b"x")
        archive.writestr("y/train/PNEUMONIA/a.jpeg", b"x")
    with pytest.raises(ValueError, match="PNEUMONIA"):
        load("chest-xray", tmp_path)


def test_size_and_channels(tmp_path):
    write_batches(tmp_path)
    assert load("cifar10", tmp_path, size=28, channels=1, complete=False).inputs.shape == (
        20,
        1,
        28,
        28,
    )
    write_idx(tmp_path / "t10k-images-idx3-ubyte", pixels(2, 28, 28), bytes)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte", np.zeros(2, np.uint8), bytes)
    assert load("mnist", tmp_path, "test", size=32, channels=3, complete=False).inputs.shape == (
        2,
        3,
        32,
        32,
    )


def test_missing_files_raise(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load("cifar10", tmp_path, "test")
    message = str(caught.value)
    assert f"Found no cifar10 (test) in {tmp_path}. Looked there for one of:" in message
    for file in [
        "cifar-10-batches-py/test_batch",
        "cifar-10-python.tar.gz",
        "cifar10/test_batch.webp, cifar10/labels.npz",
    ]:
        assert f"\n  {file}\n" in f"{message}\n"
    assert "missing" not in message.replace(str(tmp_path), "")
    with pytest.raises(FileNotFoundError, match="t10k-labels"):
        load("mnist", tmp_path, "test")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load("svhn", tmp_path / "nowhere")
    assert available(tmp_path) == {}


def test_missing_batch_raises(tmp_path):
    write_batches(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_4"):
        load("cifar10", tmp_path)
    assert len(load("cifar10", tmp_path, complete=False)) == 16
    assert available(tmp_path) == {"cifar10": ("test",)}


def test_incomplete_copies_raise(tmp_path, monkeypatch):
    write_batches(tmp_path)
    with pytest.raises(ValueError, match=r"\(0, 0, 0, 0, 0, 1, 1, 1, 1,"):
        load("cifar10", tmp_path, "test")
    edition = {"counts": [0, 0, 0, 0, 0, 1, 1, 1, 1, 0]}
    monkeypatch.setitem(
        _KNOWN["cifar10"]["parts"]["test"], "editions", [{**edition, "sha256": "0" * 64}]
    )
    with pytest.raises(ValueError, match="cifar10"):
        load("cifar10", tmp_path, "test")
    monkeypatch.setitem(_KNOWN["cifar10"]["parts"]["test"], "editions", [edition])
    assert len(load("cifar10", tmp_path, "test")) == 4


def test_unknown_names_raise(tmp_path):
    with pytest.raises(ValueError, match="'cifar'"):
        load("cifar", tmp_path)
    with pytest.raises(ValueError, match="'val'"):
        load("svhn", tmp_path, "val")
    with pytest.raises(ValueError, match="channels, not 2"):
        load("svhn", tmp_path, channels=2)


def test_truncated_files_raise(tmp_path):
    write_idx(tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz", pixels(9, 28, 28))
    write_idx(tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz", np.zeros(9, np.uint8))
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(
        ValueError, match=rf"{tmp_path}/mnist/t10k-images-idx3-ubyte\.gz cannot .* truncated"
    ):
        load("mnist", tmp_path, "test")


def test_real_samples_match_compact_copy(real_data):
    for split in ("train", "test"):
        sample = load("cifar10", real_data / "samples", split, complete=False)
        assert len(sample) == 200
    chest = load(
        "chest-xray", real_data / "samples" / "chest_xray_original", "test", size=64, complete=False
    )
    assert chest.counts == (3, 3)
    if (real_data / "cifar10" / "test_batch.webp").exists():
        whole = load("cifar10", real_data, "test")
        assert torch.equal(whole.inputs[:200], sample.inputs)
        assert torch.equal(whole.labels[:200], sample.labels)


@pytest.mark.parametrize(
    ("name", "split"), [(name, split) for name in _KNOWN for split in _KNOWN[name]["parts"]]
)
def test_real_data_are_complete(real_data, name, split):
    if split not in available(real_data).get(name, ()) or (name, split) == ("chest-xray", "train"):
        pytest.skip(f"no {name} ({split}) there, or too many")
    data = load(name, real_data, split, size=32 if name == "chest-xray" else None)
    assert 0.05 < data.scaled().mean() < 0.6
