"""Settings of all tests: threads, seeds, checks of shapes and the marker of numeric tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import config, install_import_hook

# Check the shapes in the annotations of all modules. An int is accepted for a float.
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
    *(f"cli/test_{name}.py" for name in ("main", "parsing")),
    *(f"data/test_{name}.py" for name in ("images", "table")),
    *(
        f"experiments/test_{name}.py"
        for name in ("command", "definition", "preparation", "plan", "records", "store")
    ),
    *(f"report/test_{name}.py" for name in ("explorer_browser", "page", "provenance", "tables")),
    *(f"benchmarks/test_{name}.py" for name in ("memory", "timing")),
    *("training/test_config.py", "graph/test_trace.py"),
    *("test_distributed.py", "test_docs.py", "test_files.py", "test_malloc.py"),
)
"""Tests without results that depend on the rounding of the processor."""


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
    """Disable the checks of shapes, so that the function raises its own error."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


def pytest_runtest_setup() -> None:
    """Set the seed of torch, so that the random numbers of a test are the same in each run."""
    torch.manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all others as numeric; ``make portability`` runs these."""
    for item in items:
        if not item.path.as_posix().endswith(WITHOUT_NUMBERS):
            item.add_marker("numeric")
