"""Fixture with the result of a small demo."""

import pytest

from creinn.demo.training import DemoConfig, run_demo


@pytest.fixture(scope="session")
def demo_result():
    """Run the demo with networks of width 2 and two epochs."""
    return run_demo(DemoConfig(members=1, epochs=2, width=2, jobs=1, progress=False))
