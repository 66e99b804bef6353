"""Times of several calls, taken in turns in one process: what disturbs one of them disturbs all.

In: contenders by name, the first of them the reference. Out: for each its least and its median time, or why it was
left out.
"""

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

LEAST_ROUNDS = 3
_SECOND_WARM_UP = 1.0  # seconds; a call that takes longer is warm after one
_TICK = 1e-9  # of the clock: a call that takes less, by it, takes this
_DOUBT = 2.0  # what is expected to take this many times the limit is not even tried


@dataclass(frozen=True)
class Timing:
    """Seconds per call over so many rounds: least and median, and the median of the processor time of all threads.

    A busy machine spoils the first two more than the last, which in turn does not see what threads gain.
    """

    least: float
    median: float
    processor: float
    rounds: int


@dataclass(frozen=True)
class Skipped:
    """A contender that was left out, and why."""

    reason: str


Outcome = Timing | Skipped
Call = Callable[[], Any]
Clock = Callable[[], tuple[float, float]]


def seconds_now() -> tuple[float, float]:
    """Time of the wall and of the processor."""
    return time.perf_counter(), time.process_time()


@dataclass(frozen=True)
class Budget:
    """How much is measured: rounds at most, seconds after which no further round begins, longest call in seconds."""

    rounds: int
    seconds: float
    limit: float


def interleaved(
    contenders: Mapping[str, Callable[[], Call]],
    budget: Budget,
    device: torch.device | str = "cpu",
    smaller: Mapping[str, Outcome] | None = None,
    clock: Clock = seconds_now,
) -> dict[str, Outcome]:
    """Time calls in turns, in an order that is drawn anew in every round.

    A contender that fails before the first round is left out, with its error as the reason.

    Warm-up calls are not counted: one of each, two of those that take less than a second. Three rounds are made even
    if time is up.

    Args:
        contenders: Functions that make the calls, by name; making them is not timed. The first is the reference, which
            is never left out.
        budget: Rounds, seconds, and the longest call; what takes longer at its first call is left out.
        device: Device whose work is waited for.
        smaller: Outcomes of the same contenders with a smaller batch. What was left out there is left out here, and
            so is what would take more than twice the limit if it grew as the reference did: neither is made at all.
        clock: Gives seconds of the wall and of the processor.

    Raises:
        ValueError: If there are no contenders.
    """
    if not contenders:
        raise ValueError("There is nothing to time: no contenders were given.")
    device = torch.device(device)
    reference = next(iter(contenders))
    outcomes: dict[str, Outcome] = {}
    calls: dict[str, Call] = {}
    times: dict[str, list[tuple[float, float]]] = {}
    first: dict[str, float] = {}
    for name, make in contenders.items():
        expected = _expected(name, reference, first.get(reference), smaller)
        if isinstance(expected, float) and expected > _DOUBT * budget.limit:
            expected = Skipped(f"about {expected:.0f} s a call expected, limit {budget.limit:g} s")
        if isinstance(expected, Skipped):
            outcomes[name] = expected
            continue
        try:
            call = make()
            first[name] = _seconds(call, device, clock)[0]
        except Exception as error:  # a contender that fails, for want of memory say, leaves the others their turns
            if name == reference:
                raise
            outcomes[name] = failure(error)
            continue
        if first[name] > budget.limit and name != reference:
            outcomes[name] = Skipped(f"one call took {first[name]:.1f} s, limit {budget.limit:g} s")
            continue
        calls[name], times[name] = call, []
        if first[name] < _SECOND_WARM_UP:
            first[name] = min(first[name], _seconds(call, device, clock)[0])
    order, shuffle, started = list(times), random.Random(0).shuffle, clock()[0]
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for done in range(budget.rounds):
            if done >= LEAST_ROUNDS and clock()[0] - started > budget.seconds:
                break
            shuffle(order)
            for name in order:
                times[name].append(_seconds(calls[name], device, clock))
    finally:
        if collecting:
            gc.enable()
    for name, found in times.items():
        wall, processor = zip(*found, strict=True)
        outcomes[name] = Timing(min(wall), statistics.median(wall), statistics.median(processor), len(found))
    return {name: outcomes[name] for name in contenders}


def ratios(outcome: Outcome, reference: Outcome | None) -> dict[str, float] | None:
    """Times as multiples of the reference's, each kind by itself; ``None`` if one of the two was left out.

    Example:
        >>> ratios(Timing(3.0, 8.0, 9.0, 5), Timing(1.0, 2.0, 2.0, 5))
        {'median': 4.0, 'least': 3.0, 'processor': 4.5}
    """
    if not isinstance(outcome, Timing) or not isinstance(reference, Timing):
        return None
    kinds = ("median", "least", "processor")
    return {kind: getattr(outcome, kind) / max(getattr(reference, kind), _TICK) for kind in kinds}


def failure(error: Exception) -> Skipped:
    """The outcome of a contender that raised an error.

    Example:
        >>> failure(ValueError("too   wide"))
        Skipped(reason='failed, ValueError: too wide')
    """
    return Skipped(f"failed, {type(error).__name__}: {' '.join(str(error).split())}")


def _expected(
    name: str, reference: str, first: float | None, smaller: Mapping[str, Outcome] | None
) -> float | Skipped | None:
    """Seconds that a call may take, judged by a smaller batch."""
    before = (smaller or {}).get(name)
    base = (smaller or {}).get(reference)
    if isinstance(before, Skipped):
        return Skipped(f"left out with the smaller batch already ({before.reason})")
    if before is None or first is None or not isinstance(base, Timing):
        return None
    return before.least * first / base.least


def _seconds(call: Call, device: torch.device, clock: Clock) -> tuple[float, float]:
    _wait(device)
    started = clock()
    call()
    _wait(device)
    ended = clock()
    return ended[0] - started[0], ended[1] - started[1]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
