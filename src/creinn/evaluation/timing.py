"""Times of several calls, taken in turns in one process: what disturbs one of them disturbs all.

In: contenders by name, the first of them the reference. Out: for each its times, or why it was left out.
"""

import gc
import math
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
    """Seconds per call over so many rounds."""

    least: float
    median: float
    processor: float  # median over all threads: a busy machine spoils it less, but it does not see what threads gain
    rounds: int


@dataclass(frozen=True)
class Skipped:
    """A contender that was left out, and why."""

    reason: str


Outcome = Timing | Skipped
Call = Callable[[], Any]


def interleaved(
    contenders: Mapping[str, Callable[[], Call]],
    rounds: int,
    *,
    seconds: float = math.inf,
    limit: float = math.inf,
    device: torch.device | str = "cpu",
    smaller: Mapping[str, Outcome] | None = None,
) -> dict[str, Outcome]:
    """Time calls in turns, in an order that is drawn anew in every round.

    Warm-up calls are not counted: one of each, two of those that take less than a second. What fails, or takes longer
    than the limit, at its first call is left out; the reference never is: its errors are raised.

    Args:
        contenders: Functions that make the calls, by name; making them is not timed.
        rounds: Rounds at most.
        seconds: Time after which no further round begins; three are made even so.
        limit: Longest call, in seconds.
        device: Device whose work is waited for.
        smaller: Outcomes with a smaller batch. What was left out there, or would take more than twice the limit if it
            grew as the reference did, is not even made.

    Raises:
        ValueError: If there are no contenders.
    """
    if not contenders:
        raise ValueError("There is nothing to time: no contenders were given.")
    device, smaller = torch.device(device), smaller or {}
    reference = next(iter(contenders))
    calls: dict[str, Call] = {}
    outcomes: dict[str, Outcome] = {}
    growth = 0.0  # of the reference's time since the smaller batch
    for name, make in contenders.items():
        before = smaller.get(name)
        try:
            found = _prepared(make, device, math.inf if name == reference else limit, before, growth)
        except Exception as error:  # a contender that fails, for want of memory say, leaves the others their turns
            if name == reference:
                raise
            found = failure(error)
        if isinstance(found, Skipped):
            outcomes[name] = found
            continue
        calls[name], least = found
        if name == reference and isinstance(before, Timing):
            growth = least / before.least
    outcomes |= _in_turns(calls, rounds, seconds, device)
    return {name: outcomes[name] for name in contenders}


def ratios(outcome: Outcome, reference: Outcome | None) -> dict[str, float] | None:
    """Times as multiples of the reference's, each kind by itself; ``None`` if one of the two was left out.

    >>> ratios(Timing(3.0, 8.0, 9.0, 5), Timing(1.0, 2.0, 2.0, 5))
    {'median': 4.0, 'least': 3.0, 'processor': 4.5}
    """
    if not isinstance(outcome, Timing) or not isinstance(reference, Timing):
        return None
    kinds = ("median", "least", "processor")
    return {kind: getattr(outcome, kind) / max(getattr(reference, kind), _TICK) for kind in kinds}


def failure(error: Exception) -> Skipped:
    """The outcome of a contender that raised an error."""
    return Skipped(f"failed, {type(error).__name__}: {' '.join(str(error).split())}")


def _prepared(
    make: Callable[[], Call], device: torch.device, limit: float, smaller: Outcome | None, growth: float
) -> tuple[Call, float] | Skipped:
    """A call that is warm, and its least time so far; or why it is left out."""
    if isinstance(smaller, Skipped):
        return Skipped(f"left out with the smaller batch already ({smaller.reason})")
    expected = smaller.least * growth if smaller else 0.0
    if expected > _DOUBT * limit:
        return Skipped(f"about {expected:.0f} s a call expected, limit {limit:g} s")
    call = make()
    least, _ = _seconds(call, device)
    if least > limit:
        return Skipped(f"one call took {least:.1f} s, limit {limit:g} s")
    return call, min(least, _seconds(call, device)[0]) if least < _SECOND_WARM_UP else least


def _in_turns(calls: Mapping[str, Call], rounds: int, seconds: float, device: torch.device) -> dict[str, Timing]:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    order, shuffle, started = list(calls), random.Random(0).shuffle, _now(device)[0]
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for done in range(rounds):
            if done >= LEAST_ROUNDS and _now(device)[0] - started > seconds:
                break
            shuffle(order)
            for name in order:
                times[name].append(_seconds(calls[name], device))
    finally:
        if collecting:
            gc.enable()
    found = {}
    for name, pairs in times.items():
        wall, processor = zip(*pairs, strict=True)
        found[name] = Timing(min(wall), statistics.median(wall), statistics.median(processor), len(pairs))
    return found


def _seconds(call: Call, device: torch.device) -> tuple[float, float]:
    started = _now(device)
    call()
    ended = _now(device)
    return ended[0] - started[0], ended[1] - started[1]


def _now(device: torch.device) -> tuple[float, float]:
    """Time of the wall and of the processor, once the device has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter(), time.process_time()
