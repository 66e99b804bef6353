"""Settings of the whole test run: one thread per process, properties drawn alike in every run, tests that compute."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

# pytest-xdist runs one process per core
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
settings.register_profile("creinn", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("creinn")

WITHOUT_NUMBERS = (
    *(f"cli/test_{name}.py" for name in ("benchmark", "parsing")),
    *(f"data/test_{name}.py" for name in ("batches", "catalogue", "idx", "images", "mat", "npz", "pairs")),
    *(f"experiments/test_{name}.py" for name in ("command", "definition", "inputs", "plan", "store", "tailoring")),
    *(f"report/test_{name}.py" for name in ("images", "page", "provenance", "tables")),
    *(f"benchmarks/test_{name}.py" for name in ("memory", "speed", "study")),
    *("evaluation/test_timing.py", "data/tables/test_table.py", "training/test_config.py"),
    *("test_allocation.py", "cli/test_main.py", "graph/test_refusals.py", "test_files.py"),
)
"""Tests that read, write or draw, but compute nothing that a processor could round in another way."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all others as numeric; ``make portability`` runs these."""
    for item in items:
        if not item.path.as_posix().endswith(WITHOUT_NUMBERS):
            item.add_marker("numeric")
