"""Tests of the timing harness with an artificial clock."""

import pytest

from benchmarks import timing
from benchmarks.timing import Timing, interleaved
from clock import Clock


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "_now", clock)
    return clock


def test_warm_up_is_excluded(clock):
    found = interleaved(
        {"a": clock.call("a", 9, 5, 1, 4), "b": clock.call("b", 0.5, 0.75, 2, 3, 7)}, 3
    )
    # a: 9 is the warm-up; b: 0.5 and 0.75 are, for the first took less than a second
    assert found == {"a": Timing(1, 4, 2, 3), "b": Timing(2, 3, 1.5, 3)}


def test_calls_alternate(clock):
    interleaved({name: clock.call(name, 0.1) for name in "abc"}, 5)
    rounds = clock.called[6:]
    assert len(rounds) == 15
    turns = [tuple(rounds[i : i + 3]) for i in range(0, 15, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len(set(turns)) > 1  # in another order


@pytest.mark.parametrize(("seconds", "rounds"), [(1, 3), (11, 6), (1000, 20)])
def test_at_least_three_rounds(clock, seconds, rounds):
    assert interleaved({"a": clock.call("a", 2)}, 20, seconds=seconds)["a"].rounds == rounds


def test_failing_call_raises(clock):
    def broken():
        raise RuntimeError("no\n memory")

    with pytest.raises(ValueError, match=r"^b: failed, RuntimeError: no memory$"):
        interleaved({"a": clock.call("a", 2), "b": broken}, 3)


def test_no_calls_raise():
    with pytest.raises(ValueError, match="functions"):
        interleaved({}, 3)
