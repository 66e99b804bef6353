"""Test the case that the library is not available."""

from pathlib import Path

import pytest
import torch

from creinn import native
from creinn.native import library, nonnegative


def test_a_library_that_was_not_built_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("CREINN_NATIVE", raising=False)
    found, reason = library.load(tmp_path)
    assert found is None
    assert "not built" in reason
    assert str(tmp_path) in reason
    assert "C++ compiler" in reason


def test_a_file_that_is_no_library_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("CREINN_NATIVE", raising=False)
    (tmp_path / library.NAME).write_text("not a library")
    found, reason = library.load(tmp_path)
    assert found is None
    assert "cannot be loaded" in reason
    assert library.NAME in reason


@pytest.mark.skipif(not native.available, reason=native.reason)
def test_a_library_of_other_sources_is_not_called(monkeypatch):
    monkeypatch.setattr(library.ctypes, "sizeof", lambda kind: 1)
    found, reason = library.load(Path(library.__file__).parent)
    assert found is None
    assert "other sources" in reason


def test_the_environment_switches_it_off(tmp_path, monkeypatch):
    monkeypatch.setenv("CREINN_NATIVE", "0")
    found, reason = library.load(tmp_path)
    assert found is None
    assert "CREINN_NATIVE=0" in reason


def test_what_is_said_is_consistent():
    assert native.available == (native.reason == "")


def test_a_product_without_the_library_says_why_there_is_none(monkeypatch):
    monkeypatch.setattr(nonnegative, "LIBRARY", None)
    monkeypatch.setattr(nonnegative, "reason", "It was not built.")
    with pytest.raises(RuntimeError, match="It was not built"):
        native.product(
            torch.ones(1, 2, 1, 1, 1),
            torch.ones(2, dtype=torch.int64),
            torch.ones(1, 4),
            native.Window(),
        )
