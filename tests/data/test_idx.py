"""IDX files: read as written; damaged, truncated and foreign ones named."""

import gzip
import struct

import numpy as np
import pytest

from creinn.data.idx import read_idx


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def array():
    return np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(7,), (5, 4, 3), (0,)])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_reads_what_was_written(tmp_path, shape, pack):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    path = tmp_path / "a-idx"  # compression is seen in the content, not the name
    path.write_bytes(pack(idx_bytes(array)))
    np.testing.assert_array_equal(read_idx(path), array)


def test_by_hand(tmp_path):
    (tmp_path / "a").write_bytes(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 7, 9]))
    assert read_idx(tmp_path / "a").tolist() == [[7, 9]]


def test_truncated_gzip_is_named(tmp_path, array):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(array))[:-20])
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz is truncated or damaged: .*end-of-stream"):
        read_idx(path)


def test_damaged_gzip_is_named(tmp_path, array):
    raw = bytearray(gzip.compress(idx_bytes(array)))
    raw[-8] ^= 0xFF  # checksum
    (tmp_path / "a.gz").write_bytes(bytes(raw))
    with pytest.raises(ValueError, match=r"a\.gz is truncated or damaged: CRC check failed"):
        read_idx(tmp_path / "a.gz")
    (tmp_path / "b.gz").write_bytes(raw[:10] + b"\xff" * 20)
    with pytest.raises(ValueError, match=r"b\.gz is truncated or damaged"):
        read_idx(tmp_path / "b.gz")


def test_too_few_and_too_many_bytes_are_named(tmp_path, array):
    (tmp_path / "short").write_bytes(idx_bytes(array)[:-1])
    with pytest.raises(ValueError, match=r"short is truncated or damaged: its header \(5, 4, 3\) promises 60.*only 59"):
        read_idx(tmp_path / "short")
    (tmp_path / "long").write_bytes(idx_bytes(array) + b"x")
    with pytest.raises(ValueError, match=r"long is truncated or damaged: .* promises 60 values, but more follow"):
        read_idx(tmp_path / "long")
    (tmp_path / "header").write_bytes(idx_bytes(array)[:9])
    with pytest.raises(ValueError, match="header is truncated: it ends inside its header"):
        read_idx(tmp_path / "header")


def test_other_files_are_refused(tmp_path, array):
    (tmp_path / "page").write_bytes(b"<html>")
    with pytest.raises(ValueError, match="page is not an IDX file: it starts with b'<htm'"):
        read_idx(tmp_path / "page")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ValueError, match="empty is not an IDX file"):
        read_idx(tmp_path / "empty")
    raw = bytearray(idx_bytes(array))
    raw[2] = 0x0D
    (tmp_path / "float").write_bytes(bytes(raw))
    with pytest.raises(ValueError, match="float holds IDX values of type 0x0d"):
        read_idx(tmp_path / "float")
