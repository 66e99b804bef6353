"""MATLAB files of SVHN: axes and labels, truncated and foreign files named."""

import numpy as np
import pytest
from scipy.io import savemat

from creinn.data.mat import read_mat


def save(path, n=6, *, compress=True, **change):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (32, 32, 3, n), dtype=np.uint8)
    labels = (np.arange(n, dtype=np.uint8) % 10 + 1)[:, None]
    fields = {"X": images, "y": labels, **change}
    savemat(path, {k: v for k, v in fields.items() if v is not None}, do_compression=compress)
    return images


@pytest.mark.parametrize("compress", [True, False])
def test_item_axis_comes_first_and_ten_is_zero(tmp_path, compress):
    stored = save(tmp_path / "test_32x32.mat", 12, compress=compress)
    images, labels = read_mat(tmp_path / "test_32x32.mat")
    assert images.shape == (12, 3, 32, 32)
    assert images.dtype == np.uint8
    assert images.flags.c_contiguous
    np.testing.assert_array_equal(images[5, 2], stored[:, :, 2, 5])
    assert labels.dtype == np.int64
    assert labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("keep", [0, 100, 0.5, -30])
def test_truncated_files_are_named(tmp_path, compress, keep):
    path = tmp_path / "train_32x32.mat"
    save(path, compress=compress)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(
        ValueError, match=r"train_32x32\.mat (cannot be read as a MATLAB file|holds no variable).*truncated"
    ):
        read_mat(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros((6, 32, 32, 3), np.uint8)}, r"X must be bytes of shape \(32, 32, 3, N\), but is uint8 of \(6,"),
        ({"X": np.zeros((32, 32, 3, 6))}, "but is float64"),
        ({"y": None}, "holds no variable y"),
        ({"y": np.ones((5, 1), np.uint8)}, "holds 5 labels for 6 images"),
        ({"y": np.array([1, 2, 0, 4, 5, 6], np.uint8)}, "label 2 is 0, but SVHN labels run from 1 to 10"),
        ({"y": np.array([1, 2, 11, 4, 5, 6], np.uint8)}, "label 2 is 11"),
    ],
)
def test_other_contents_are_refused(tmp_path, change, message):
    save(tmp_path / "test_32x32.mat", **change)
    with pytest.raises(ValueError, match=rf"test_32x32\.mat.*{message}"):
        read_mat(tmp_path / "test_32x32.mat")


def test_real_sample(real_data):
    images, labels = read_mat(real_data / "samples" / "sample_test_32x32.mat")
    assert images.shape == (200, 3, 32, 32)
    assert labels[:5].tolist() == [5, 2, 1, 0, 6]
