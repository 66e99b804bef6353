"""Timing of functions in alternation, so that other load affects all of them."""

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
_SECOND_WARM_UP = 1.0  # longest first call before a second warm-up call
_TICK = 1e-9  # resolution of the clock in seconds

Call = Callable[[], Any]


@dataclass(frozen=True)
class Timing:
    """Time in seconds.

    Attributes:
        least: Minimum over the rounds.
        median: Median over the rounds.
        processor: Median of the processor time of all threads, which other load
            affects less, but which does not show the gain of threads.
        rounds: Number of rounds.
    """

    least: float
    median: float
    processor: float
    rounds: int


def interleaved(
    calls: Mapping[str, Call],
    rounds: int,
    *,
    seconds: float = math.inf,
    device: torch.device | str = "cpu",
) -> dict[str, Timing]:
    """Measure the times of several functions in alternation.

    Each function is called once or twice before the first round. The order is
    random in each round.

    Args:
        calls: Functions by name.
        rounds: Maximum number of rounds.
        seconds: Time after which no new round starts, except the first three.
        device: Device that is synchronized before each measurement.

    Raises:
        ValueError: If there are no functions, or if one raises an error.
    """
    if not calls:
        raise ValueError("There are no functions to measure.")
    for name, call in calls.items():
        try:
            if seconds_of(call, device)[0] < _SECOND_WARM_UP:
                call()
        except Exception as error:
            raise ValueError(f"{name}: {failure(error)}") from error
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
                times[name].append(seconds_of(calls[name], device))
    finally:
        if collecting:
            gc.enable()
    found = {}
    for name, pairs in times.items():
        wall, processor = zip(*pairs, strict=True)
        found[name] = Timing(
            min(wall), statistics.median(wall), statistics.median(processor), len(pairs)
        )
    return found


def ratios(timing: Timing, reference: Timing) -> dict[str, float]:
    """Divide the times by those of the reference.

    Example:
        >>> ratios(Timing(3.0, 8.0, 9.0, 5), Timing(1.0, 2.0, 2.0, 5))
        {'median': 4.0, 'least': 3.0, 'processor': 4.5}
    """
    kinds = ("median", "least", "processor")
    return {kind: getattr(timing, kind) / max(getattr(reference, kind), _TICK) for kind in kinds}


def failure(error: Exception) -> str:
    """Return the error as text.

    Example:
        >>> failure(ValueError("too   wide"))
        'failed, ValueError: too wide'
    """
    return f"failed, {type(error).__name__}: {' '.join(str(error).split())}"


def seconds_of(call: Call, device: torch.device | str = "cpu") -> tuple[float, float]:
    """Return the wall and processor time of one call."""
    started = _now(device)
    call()
    ended = _now(device)
    return ended[0] - started[0], ended[1] - started[1]


def _now(device: torch.device | str) -> tuple[float, float]:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter(), time.process_time()
