"""Tests of the readers of file formats."""

import gzip
import io
import os
import pickle
import struct
import tarfile
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from experiments.datasets.formats import (
    read_batches,
    read_batches_archive,
    read_idx,
    read_mat,
    read_sheet,
)


def idx_bytes(array):
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


@pytest.fixture
def array():
    return np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(7,), (5, 4, 3), (0,)])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_idx_round_trip(tmp_path, shape, pack):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    path = tmp_path / "a-idx"  # compression is detected by the content
    path.write_bytes(pack(idx_bytes(array)))
    np.testing.assert_array_equal(read_idx(path), array)


def test_idx_by_hand(tmp_path):
    (tmp_path / "a").write_bytes(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 7, 9]))
    assert read_idx(tmp_path / "a").tolist() == [[7, 9]]


def test_truncated_gzip_raises(tmp_path, array):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(array))[:-20])
    with pytest.raises(ValueError, match="end-of-stream"):
        read_idx(path)


def test_damaged_gzip_raises(tmp_path, array):
    raw = bytearray(gzip.compress(idx_bytes(array)))
    raw[-8] ^= 0xFF  # checksum
    (tmp_path / "a.gz").write_bytes(bytes(raw))
    with pytest.raises(ValueError, match="CRC"):
        read_idx(tmp_path / "a.gz")
    (tmp_path / "b.gz").write_bytes(raw[:10] + b"\xff" * 20)
    with pytest.raises(ValueError, match=r"b\.gz"):
        read_idx(tmp_path / "b.gz")


def test_wrong_number_of_bytes_raises(tmp_path, array):
    (tmp_path / "short").write_bytes(idx_bytes(array)[:-1])
    with pytest.raises(ValueError, match="59"):
        read_idx(tmp_path / "short")
    (tmp_path / "long").write_bytes(idx_bytes(array) + b"x")
    with pytest.raises(ValueError, match="60"):
        read_idx(tmp_path / "long")
    (tmp_path / "header").write_bytes(idx_bytes(array)[:9])
    with pytest.raises(ValueError, match="header"):
        read_idx(tmp_path / "header")


def test_other_files_raise(tmp_path, array):
    (tmp_path / "page").write_bytes(b"<html>")
    with pytest.raises(ValueError, match="<htm"):
        read_idx(tmp_path / "page")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ValueError, match="empty is not an IDX file"):
        read_idx(tmp_path / "empty")
    raw = bytearray(idx_bytes(array))
    raw[2] = 0x0D
    (tmp_path / "float").write_bytes(bytes(raw))
    with pytest.raises(ValueError, match="0x0d"):
        read_idx(tmp_path / "float")


class Python2Pickler(pickle._Pickler):
    """Pickler that writes protocol 2 with byte strings, as Python 2 did."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, text):
        raw = text if isinstance(text, bytes) else text.encode("latin1")
        self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)
        self.memoize(text)

    dispatch[bytes] = dispatch[str] = save_string

    def save_global(self, obj, name=None):
        module = "numpy.core.multiarray" if obj.__name__ == "_reconstruct" else "numpy"
        self.write(pickle.GLOBAL + f"{module}\n{obj.__name__}\n".encode())
        self.memoize(obj)

    dispatch[type(np.dtype)] = dispatch[type(np.empty)] = save_global


def python2_pickle(content):
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol=2).dump(content)
    return buffer.getvalue()


def content(n=4, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "batch_label": "training batch 1 of 5",
        "labels": rng.integers(0, 10, n).tolist(),
        "data": rng.integers(0, 256, (n, 3072), dtype=np.uint8),
        "filenames": [f"{i}.png" for i in range(n)],
    }


@pytest.fixture
def write(tmp_path):
    def to(name, raw):
        (tmp_path / name).write_bytes(raw if isinstance(raw, bytes) else python2_pickle(raw))
        return tmp_path / name

    return to


def test_test_writer_matches_original_layout():
    raw = python2_pickle(content())
    assert raw.startswith(b"\x80\x02}")
    assert b"cnumpy.core.multiarray\n_reconstruct\n" in raw
    assert b"cnumpy\ndtype\n" in raw


def test_concatenate_batches(write):
    first, second = content(4), content(3, seed=1)
    images, labels = read_batches(write("data_batch_1", first), write("data_batch_2", second))
    assert images.shape == (7, 3, 32, 32)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert labels.tolist() == first["labels"] + second["labels"]
    np.testing.assert_array_equal(images[5].reshape(-1), second["data"][1])
    # Red, green, blue planes of 32 rows each: row 2, column 3 of the green plane.
    assert images[0, 1, 2, 3] == first["data"][0, 1024 + 2 * 32 + 3]


@pytest.mark.parametrize("protocol", [3, 4])
def test_batches_saved_by_python_3(write, protocol):
    saved = {
        key.encode(): value for key, value in content().items()
    }  # as loaded with encoding="bytes"
    images, _ = read_batches(write("data_batch_1", pickle.dumps(saved, protocol)))
    np.testing.assert_array_equal(images.reshape(4, -1), content()["data"])


class Evil:
    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_malicious_pickle_raises(write, tmp_path, protocol):
    proof = tmp_path / "proof"
    bad = {**content(), "labels": Evil(os.system, f"touch {proof}")}
    path = write("data_batch_1", pickle.dumps(bad, protocol))
    with pytest.raises(
        ValueError, match=rf"data_batch_1 cannot be read .*asks for {os.name}\.system"
    ):
        read_batches(path)
    assert not proof.exists()
    pickle.loads(path.read_bytes())  # pickle itself executes it
    assert proof.exists()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (eval, "builtins.eval"),
        (getattr, "builtins.getattr"),
        (np.load, "numpy.load"),
        (np.fromfile, "numpy.*fromfile"),
    ],
)
def test_other_numpy_names_raise(write, function, name):
    with pytest.raises(ValueError, match=f"asks for {name}"):
        read_batches(write("data_batch_1", pickle.dumps(Evil(function, "x"), 4)))


def test_dotted_names_raise(write):
    raw = b"\x80\x04" + b"\x8c\x05numpy" + b"\x8c\x0endarray.tofile" + b"\x93."
    with pytest.raises(ValueError, match=r"asks for numpy\.ndarray\.tofile"):
        read_batches(write("data_batch_1", raw))


@pytest.mark.parametrize("keep", [0, 1, 50, 5000, -1])
def test_truncated_batches_raise(write, keep):
    with pytest.raises(ValueError, match="data_batch_3"):
        read_batches(write("data_batch_3", python2_pickle(content())[:keep]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"data": np.zeros((4, 3000), np.uint8)},
            r"'data' must be bytes of shape \(N, 3072\), not uint8 of shape \(4, 3000\)",
        ),
        ({"data": np.zeros((4, 3072), np.float32)}, "not float32 of shape"),
        ({"data": None}, "'data' must be .* not NoneType"),
        ({"labels": [1, 2, 3]}, "'labels' must be a list of 4, not a list of 3"),
        ({"labels": [1, 2, 3, 10]}, "label 3 is 10, not a class from 0 to 9"),
        ({"labels": [1, 2.0, 3, 4]}, r"label 1 is 2\.0"),
    ],
)
def test_other_pickled_contents_raise(write, change, message):
    raw = pickle.dumps({**content(), **change}, 4)
    with pytest.raises(ValueError, match=f"test_batch is not a CIFAR-10 batch: .*{message}"):
        read_batches(write("test_batch", raw))


def test_pickle_without_dictionary_raises(write):
    with pytest.raises(ValueError, match="it holds a list, not a dictionary"):
        read_batches(write("test_batch", pickle.dumps([1])))


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for i in (1, 2):
            raw = python2_pickle(content(2, seed=i))
            member = tarfile.TarInfo(f"cifar-10-batches-py/data_batch_{i}")
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    return path


def test_archive_order(archive):
    images, labels = read_batches_archive(archive, ["data_batch_2", "data_batch_1"])
    assert labels.tolist() == content(2, seed=2)["labels"] + content(2, seed=1)["labels"]
    np.testing.assert_array_equal(images[0].reshape(-1), content(2, seed=2)["data"][0])


def test_incomplete_archive_raises(archive):
    with pytest.raises(ValueError, match="data_batch_3"):
        read_batches_archive(archive, ["data_batch_1", "data_batch_3"])
    archive.write_bytes(archive.read_bytes()[:-3000])
    with pytest.raises(ValueError, match="truncated"):
        read_batches_archive(archive, ["data_batch_1", "data_batch_2"])


def test_real_cifar10_samples(real_data):
    folder = real_data / "samples" / "cifar-10-batches-py"
    images, labels = read_batches(folder / "data_batch_1", folder / "test_batch")
    assert images.shape == (400, 3, 32, 32)
    assert labels[:5].tolist() == [6, 9, 9, 4, 1]
    assert labels[200:205].tolist() == [3, 8, 8, 0, 6]
    assert images[0, :, 0, 0].tolist() == [59, 62, 63]


def save_mat(path, n=6, *, compress=True, **change):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (32, 32, 3, n), dtype=np.uint8)
    labels = (np.arange(n, dtype=np.uint8) % 10 + 1)[:, None]
    fields = {"X": images, "y": labels, **change}
    savemat(path, {k: v for k, v in fields.items() if v is not None}, do_compression=compress)
    return images


@pytest.mark.parametrize("compress", [True, False])
def test_svhn_axes_and_labels(tmp_path, compress):
    stored = save_mat(tmp_path / "test_32x32.mat", 12, compress=compress)
    images, labels = read_mat(tmp_path / "test_32x32.mat")
    assert images.shape == (12, 3, 32, 32)
    assert images.dtype == np.uint8
    assert images.flags.c_contiguous
    np.testing.assert_array_equal(images[5, 2], stored[:, :, 2, 5])
    assert labels.dtype == np.int64
    assert labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("keep", [0, 100, 0.5, -30])
def test_truncated_matlab_files_raise(tmp_path, compress, keep):
    path = tmp_path / "train_32x32.mat"
    save_mat(path, compress=compress)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(ValueError, match="train_32x32"):
        read_mat(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"X": np.zeros((6, 32, 32, 3), np.uint8)},
            r"uint8 \(6,",
        ),
        ({"X": np.zeros((32, 32, 3, 6))}, "float64"),
        ({"y": None}, "variable y"),
        ({"y": np.ones((5, 1), np.uint8)}, "holds 5 labels for 6 images"),
        (
            {"y": np.array([1, 2, 0, 4, 5, 6], np.uint8)},
            "label 2 is 0, but SVHN labels run from 1 to 10",
        ),
        ({"y": np.array([1, 2, 11, 4, 5, 6], np.uint8)}, "label 2 is 11"),
    ],
)
def test_other_matlab_contents_raise(tmp_path, change, message):
    save_mat(tmp_path / "test_32x32.mat", **change)
    with pytest.raises(ValueError, match=rf"test_32x32\.mat.*{message}"):
        read_mat(tmp_path / "test_32x32.mat")


def test_real_svhn_sample(real_data):
    images, labels = read_mat(real_data / "samples" / "sample_test_32x32.mat")
    assert images.shape == (200, 3, 32, 32)
    assert labels[:5].tolist() == [5, 2, 1, 0, 6]


def sheet(path, rows, columns, tile=32):
    pixels = np.random.default_rng(0).integers(
        0, 256, (rows * tile, columns * tile, 3), dtype=np.uint8
    )
    Image.fromarray(pixels).save(path, lossless=True)
    return pixels


def test_tiles_are_taken_row_by_row(tmp_path):
    pixels = sheet(tmp_path / "a.webp", 2, 3)
    tiles = read_sheet(tmp_path / "a.webp", 5)
    assert tiles.shape == (5, 3, 32, 32)
    np.testing.assert_array_equal(tiles[4].transpose(1, 2, 0), pixels[32:64, 32:64])
    sheet(tmp_path / "a.webp", 2, 1)
    assert read_sheet(
        tmp_path / "a.webp", 2
    ).flags.writeable  # torch expects a writable array, even if the data were not copied


def test_invalid_sheets_raise(tmp_path):
    path = tmp_path / "test_batch.webp"
    sheet(path, 2, 2)
    with pytest.raises(ValueError, match=r"64 x 64"):
        read_sheet(path, 5)
    Image.new("RGB", (64, 60)).save(path)
    with pytest.raises(ValueError, match="64 x 60"):
        read_sheet(path, 2)
    sheet(path, 2, 2)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="test_batch"):
        read_sheet(path, 4)
