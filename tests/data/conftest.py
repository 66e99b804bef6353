"""The folder of real data, where there is one."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real data: the environment variable CREINN_DATA, or ../shared/data beside the repository."""
    path = Path(
        os.environ.get("CREINN_DATA") or Path(__file__).parents[2].parent / "shared" / "data"
    )
    if not path.is_dir():
        pytest.skip("no real data here; set CREINN_DATA to a folder of it")
    return path
