"""CIFAR's pickled batches: read without running anything, or refused by name."""

import io
import os
import pickle
import struct
import tarfile
from typing import ClassVar

import numpy as np
import pytest

from creinn.data.batches import read_batches, read_batches_archive


class Python2Pickler(pickle._Pickler):
    """Writes as Python 2 did: protocol 2, byte strings as BINSTRING, and the old name of NumPy's module."""

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


def test_writer_of_these_tests_has_the_layout_of_the_original():
    raw = python2_pickle(content())
    assert raw.startswith(b"\x80\x02}")
    assert b"cnumpy.core.multiarray\n_reconstruct\n" in raw
    assert b"cnumpy\ndtype\n" in raw


def test_reads_and_joins_batches(write):
    first, second = content(4), content(3, seed=1)
    images, labels = read_batches([write("data_batch_1", first), write("data_batch_2", second)])
    assert images.shape == (7, 3, 32, 32)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert labels.tolist() == first["labels"] + second["labels"]
    np.testing.assert_array_equal(images[5].reshape(-1), second["data"][1])
    # Red, green, blue planes of 32 rows each: row 2, column 3 of the green plane.
    assert images[0, 1, 2, 3] == first["data"][0, 1024 + 2 * 32 + 3]


@pytest.mark.parametrize("protocol", [3, 4])
def test_reads_batches_saved_again_by_python_3(write, protocol):
    saved = {key.encode(): value for key, value in content().items()}  # as loaded with encoding="bytes"
    images, _ = read_batches([write("data_batch_1", pickle.dumps(saved, protocol))])
    np.testing.assert_array_equal(images.reshape(4, -1), content()["data"])


class Evil:
    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_a_pickle_that_would_run_a_command_is_refused_and_nothing_runs(write, tmp_path, protocol):
    proof = tmp_path / "proof"
    bad = {**content(), "labels": Evil(os.system, f"touch {proof}")}
    path = write("data_batch_1", pickle.dumps(bad, protocol))
    with pytest.raises(ValueError, match=rf"data_batch_1 cannot be read .*asks for {os.name}\.system"):
        read_batches([path])
    assert not proof.exists()
    pickle.loads(path.read_bytes())  # the ordinary way does run it: the test could fail
    assert proof.exists()


@pytest.mark.parametrize(
    ("function", "name"),
    [(eval, "builtins.eval"), (getattr, "builtins.getattr"), (np.load, "numpy.load"), (np.fromfile, "numpy.*fromfile")],
)
def test_other_names_are_refused_even_of_numpy(write, function, name):
    with pytest.raises(ValueError, match=f"asks for {name}"):
        read_batches([write("data_batch_1", pickle.dumps(Evil(function, "x"), 4))])


def test_dotted_names_cannot_reach_through_an_allowed_one(write):
    raw = b"\x80\x04" + b"\x8c\x05numpy" + b"\x8c\x0endarray.tofile" + b"\x93."
    with pytest.raises(ValueError, match=r"asks for numpy\.ndarray\.tofile"):
        read_batches([write("data_batch_1", raw)])


@pytest.mark.parametrize("keep", [0, 1, 50, 5000, -1])
def test_truncated_batches_are_named(write, keep):
    with pytest.raises(ValueError, match=r"data_batch_3 cannot be read as a CIFAR-10 batch: .+ download it again"):
        read_batches([write("data_batch_3", python2_pickle(content())[:keep])])


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
def test_other_contents_are_refused(write, change, message):
    raw = pickle.dumps({**content(), **change}, 4)
    with pytest.raises(ValueError, match=f"test_batch is not a CIFAR-10 batch: .*{message}"):
        read_batches([write("test_batch", raw)])


def test_a_pickle_that_is_no_dictionary_is_refused(write):
    with pytest.raises(ValueError, match="it holds a list, not a dictionary"):
        read_batches([write("test_batch", pickle.dumps([1]))])


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


def test_archive_is_read_in_the_order_asked_for(archive):
    images, labels = read_batches_archive(archive, ["data_batch_2", "data_batch_1"])
    assert labels.tolist() == content(2, seed=2)["labels"] + content(2, seed=1)["labels"]
    np.testing.assert_array_equal(images[0].reshape(-1), content(2, seed=2)["data"][0])


def test_archive_without_a_batch_and_truncated_archive_are_named(archive):
    with pytest.raises(ValueError, match=r"cifar-10-python\.tar\.gz holds no cifar-10-batches-py/data_batch_3"):
        read_batches_archive(archive, ["data_batch_1", "data_batch_3"])
    archive.write_bytes(archive.read_bytes()[:-3000])
    with pytest.raises(ValueError, match=r"cifar-10-python\.tar\.gz (is|holds no).* truncated"):
        read_batches_archive(archive, ["data_batch_1", "data_batch_2"])


def test_real_samples(real_data):
    folder = real_data / "samples" / "cifar-10-batches-py"
    images, labels = read_batches([folder / "data_batch_1", folder / "test_batch"])
    assert images.shape == (400, 3, 32, 32)
    assert labels[:5].tolist() == [6, 9, 9, 4, 1]
    assert labels[200:205].tolist() == [3, 8, 8, 0, 6]
    assert images[0, :, 0, 0].tolist() == [59, 62, 63]
