"""Tests of files of tensors, and of errors during the writing."""

import os

import pytest
import torch
from safetensors.torch import save_file

from creinn.files import read_tensors, write_bytes, write_tensors


def test_round_trip(tmp_path):
    base = torch.arange(6.0)
    tensors = {
        "a": base,
        "view": base[2:4],  # shares memory with a
        "same": base,
        "transposed": torch.arange(6).reshape(2, 3).T,
        "scalar": torch.tensor(True),
        "empty": torch.zeros(0, 3),
        "empty too": torch.zeros(0, 3),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "parameter": torch.nn.Parameter(torch.ones(1, dtype=torch.float64)),
    }
    header = {"list": [1, None, "ä"], "nested": {"x": 0.1}}
    write_tensors(tmp_path / "deep" / "file", tensors, header)
    found, again = read_tensors(tmp_path / "deep" / "file")
    assert again == header
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert torch.equal(found[name], value.detach())
        assert found[name].dtype == value.dtype
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]


def test_header_must_be_json(tmp_path):
    with pytest.raises(TypeError, match="JSON"):
        write_tensors(tmp_path / "file", {}, {"a": object()})
    with pytest.raises(ValueError, match="JSON"):
        write_tensors(tmp_path / "file", {}, {"a": float("nan")})
    assert not list(tmp_path.iterdir())


def test_foreign_files_raise(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        read_tensors(tmp_path / "none")
    (tmp_path / "text").write_text("hello, this is not a file of tensors")
    with pytest.raises(ValueError, match="text"):
        read_tensors(tmp_path / "text")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign")
    with pytest.raises(ValueError, match="foreign"):
        read_tensors(tmp_path / "foreign")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_full_disk_preserves_existing_file(tmp_path):
    write_bytes(tmp_path / "file", b"before")
    os.symlink("/dev/full", tmp_path / "file.tmp")
    with pytest.raises(OSError, match="space"):
        write_bytes(tmp_path / "file", b"after")
    assert (tmp_path / "file").read_bytes() == b"before"
    assert not (tmp_path / "file.tmp").is_symlink()
    write_bytes(tmp_path / "file", b"after")
    assert (tmp_path / "file").read_bytes() == b"after"


def test_directory_as_target_raises(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_bytes(tmp_path / "file", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
