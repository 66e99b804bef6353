"""Contenders of the speed benchmark that are left out, on a clock of its own: which, when, and why."""

import pytest
from benchmarks.speed.limits import Skipped, timed

from clock import Clock
from creinn.evaluation import timing
from creinn.evaluation.timing import Timing


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "_now", clock)
    return clock


def test_a_call_above_the_limit_is_left_out_and_the_reason_said(clock):
    makers = {name: clock.maker(name, seconds) for name, seconds in (("a", 9), ("b", 6), ("c", 4))}
    found = timed(makers, 3, 100, 5)
    assert found["b"] == Skipped("one call took 6.0 s, limit 5 s")
    assert found["a"].median == 9  # the reference is never left out
    assert found["c"].median == 4
    assert clock.called.count("b") == 1


def test_a_smaller_batch_tells_what_to_leave_out_before_it_is_made(clock):
    smaller = {
        "a": Timing(1, 1, 1, 3),
        "b": Timing(6, 6, 6, 3),
        "c": Timing(3, 3, 3, 3),
        "d": Skipped("one call took 6.0 s, limit 5 s"),
    }
    found = timed({name: clock.maker(name, 2) for name in "abcd"}, 3, 100, 5, smaller=smaller)
    assert found["b"] == Skipped("about 12 s a call expected, limit 5 s")
    assert found["d"] == Skipped(
        "left out with the smaller batch already (one call took 6.0 s, limit 5 s)"
    )
    assert found["c"] == Timing(
        2, 2, 1, 3
    )  # 6 s expected: above the limit, but not by enough to be sure
    assert clock.made == ["a", "c"]


def test_a_contender_that_fails_is_left_out_and_the_reference_may_not(clock):
    def broken():
        raise RuntimeError("no memory")

    good = clock.maker("a", 2)
    found = timed({"a": good, "b": broken, "c": lambda: broken}, 3, 100, 5)
    assert found["b"] == found["c"] == Skipped("failed, RuntimeError: no memory")
    assert found["a"].median == 2
    with pytest.raises(RuntimeError, match="no memory"):
        timed({"b": broken, "a": good}, 3, 100, 5)
