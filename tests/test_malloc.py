"""Freed memory is kept for the next step, where the allocator is known."""

import platform
import subprocess
import sys

import pytest

from creinn import malloc

FAULTS = """
import resource, sys, torch
from creinn.malloc import keep_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def work():
    a, b = torch.ones(100 << 18), torch.ones(40 << 18)
    return a.sum() + b.sum()
for _ in range(3):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_reused():
    """Pages that the kernel hands out while 100 and 40 MiB are taken and freed 20 times."""
    faults = [
        int(subprocess.check_output([sys.executable, "-c", FAULTS, how]))
        for how in ("plain", "keep")
    ]
    assert faults[1] < faults[0] / 5


def test_other_libraries_are_not_changed(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda *_: pytest.fail("the library was loaded"))
    assert malloc.keep_freed_memory() is False
