"""The timing harness on a clock of its own: turns, limits, what is left out and why."""

import pytest

from creinn.evaluation import timing
from creinn.evaluation.timing import Skipped, Timing, interleaved, ratios


class Clock:
    """Time that passes only in calls; a second of the wall is half a second of the processor."""

    def __init__(self):
        self.now = 0.0
        self.made, self.called = [], []

    def __call__(self, device):
        return self.now, self.now / 2

    def contender(self, name, *seconds):
        """Takes these seconds, one after the other, and then the last of them."""
        left = list(seconds)

        def call():
            self.called.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        def make():
            self.made.append(name)
            self.now += 1000  # making is not timed
            return call

        return make


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "_now", clock)
    return clock


def test_least_and_median_leave_the_warm_up_out(clock):
    contenders = {"a": clock.contender("a", 9, 5, 1, 4), "b": clock.contender("b", 0.9, 0.8, 2, 3, 7)}
    found = interleaved(contenders, 3, seconds=100, limit=50)
    # a: 9 is the warm-up; b: 0.9 and 0.8 are, for they took less than a second
    assert found == {"a": Timing(1, 4, 2, 3), "b": Timing(2, 3, 1.5, 3)}


def test_contenders_take_turns(clock):
    contenders = {name: clock.contender(name, 0.1) for name in "abc"}
    interleaved(contenders, 5, seconds=100, limit=50)
    rounds = clock.called[6:]
    assert len(rounds) == 15
    turns = [tuple(rounds[i : i + 3]) for i in range(0, 15, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len(set(turns)) > 1  # in another order


@pytest.mark.parametrize(("seconds", "rounds"), [(1, 3), (11, 6), (1000, 20)])
def test_time_ends_a_cell_but_not_before_three_rounds(clock, seconds, rounds):
    found = interleaved({"a": clock.contender("a", 2)}, 20, seconds=seconds, limit=50)
    assert found["a"].rounds == rounds


def test_a_call_above_the_limit_is_left_out_and_the_reason_said(clock):
    contenders = {name: clock.contender(name, seconds) for name, seconds in (("a", 9), ("b", 6), ("c", 4))}
    found = interleaved(contenders, 3, seconds=100, limit=5)
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
    contenders = {name: clock.contender(name, 2) for name in "abcd"}
    found = interleaved(contenders, 3, seconds=100, limit=5, smaller=smaller)
    assert found["b"] == Skipped("about 12 s a call expected, limit 5 s")
    assert found["d"] == Skipped("left out with the smaller batch already (one call took 6.0 s, limit 5 s)")
    assert found["c"] == Timing(2, 2, 1, 3)  # 6 s expected: above the limit, but not by enough to be sure
    assert clock.made == ["a", "c"]


def test_a_contender_that_fails_is_left_out_and_the_reference_may_not(clock):
    def broken():
        raise RuntimeError("no memory")

    good = clock.contender("a", 2)
    found = interleaved({"a": good, "b": broken, "c": lambda: broken}, 3, seconds=100, limit=5)
    assert found["b"] == found["c"] == Skipped("failed, RuntimeError: no memory")
    assert found["a"].median == 2
    with pytest.raises(RuntimeError, match="no memory"):
        interleaved({"b": broken, "a": good}, 3, seconds=100, limit=5)


def test_nothing_to_time():
    with pytest.raises(ValueError, match="no contenders were given"):
        interleaved({}, 3)


def test_ratios_need_both():
    assert ratios(Timing(1, 1, 1, 3), None) is None
    assert ratios(Skipped("slow"), Timing(1, 1, 1, 3)) is None
