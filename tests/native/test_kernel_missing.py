"""Test the case that the library is not available."""

from pathlib import Path

import pytest
import torch

from creinn import native
from creinn.native import kernel


def test_missing_library_raises(tmp_path, monkeypatch):
    monkeypatch.delenv("CREINN_NATIVE", raising=False)
    found, reason = kernel.load(tmp_path)
    assert found is None
    assert "not built" in reason
    assert str(tmp_path) in reason
    assert "C++ compiler" in reason


def test_invalid_library_is_ignored(tmp_path, monkeypatch):
    monkeypatch.delenv("CREINN_NATIVE", raising=False)
    (tmp_path / kernel.NAME).write_text("not a library")
    found, reason = kernel.load(tmp_path)
    assert found is None
    assert "cannot be loaded" in reason
    assert kernel.NAME in reason


@pytest.mark.skipif(not native.available, reason=native.reason)
def test_outdated_library_is_not_used(monkeypatch):
    monkeypatch.setattr(kernel.ctypes, "sizeof", lambda kind: 1)
    found, reason = kernel.load(Path(kernel.__file__).parent)
    assert found is None
    assert "other sources" in reason


def test_environment_variable_disables_library(tmp_path, monkeypatch):
    monkeypatch.setenv("CREINN_NATIVE", "0")
    found, reason = kernel.load(tmp_path)
    assert found is None
    assert "CREINN_NATIVE=0" in reason


def test_status_is_consistent():
    assert native.available == (native.reason == "")


def test_product_without_library_raises(monkeypatch):
    monkeypatch.setattr(kernel, "LIBRARY", None)
    monkeypatch.setattr(kernel, "reason", "It was not built.")
    with pytest.raises(RuntimeError, match="It was not built"):
        native.product(
            torch.ones(1, 2, 1, 1, 1),
            torch.ones(2, dtype=torch.int64),
            torch.ones(1, 4),
            native.Window(),
        )
