"""Settings of the whole test run: threads, properties drawn alike in every run, checked shapes, tests that compute."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import config, install_import_hook

# The shapes that annotations promise, checked in every module that has any; an int will do for a float.
SOURCES = Path(__file__).parents[1] / "src"
install_import_hook(
    [
        ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        for path in SOURCES.rglob("*.py")
        if "from jaxtyping import" in path.read_text(encoding="utf-8")
    ],
    "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))",
)

# pytest-xdist runs one process per core
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
settings.register_profile(
    "creinn", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("creinn")

WITHOUT_NUMBERS = (
    *(f"cli/test_{name}.py" for name in ("parsing",)),
    *(f"data/test_{name}.py" for name in ("images", "table")),
    *(
        f"experiments/test_{name}.py"
        for name in ("command", "definition", "preparation", "plan", "records", "store")
    ),
    *(f"report/test_{name}.py" for name in ("explorer_browser", "page", "provenance", "tables")),
    *(f"benchmarks/test_{name}.py" for name in ("memory", "timing")),
    *("training/test_config.py"),
    *(
        "training/test_allocation.py",
        "cli/test_main.py",
        "graph/test_trace.py",
        "test_docs.py",
        "test_files.py",
    ),
)
"""Tests that read, write or draw, but compute nothing that a processor could round in another way."""


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real data: the environment variable CREINN_DATA, or ../shared/data beside the repository."""
    path = Path(
        os.environ.get("CREINN_DATA") or Path(__file__).parents[1].parent / "shared" / "data"
    )
    if not path.is_dir():
        pytest.skip("no real data here; set CREINN_DATA to a folder of it")
    return path


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Shapes are not checked before the function itself can say what is wrong with its input."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


def pytest_runtest_setup() -> None:
    """Let numbers that a test draws without a seed of its own be the same in every run."""
    torch.manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all others as numeric; ``make portability`` runs these."""
    for item in items:
        if not item.path.as_posix().endswith(WITHOUT_NUMBERS):
            item.add_marker("numeric")
