"""The tests of tools/matrix.py exist."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_tests_exist():
    for name in runpy.run_path(str(ROOT / "tools" / "matrix.py"))["TESTS"]:
        path, _, function = name.partition("::")
        assert (ROOT / path).exists(), path
        assert not function or f"def {function}(" in (ROOT / path).read_text()
