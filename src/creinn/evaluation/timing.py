"""Times of several calls, taken in turns in one process: what disturbs one of them disturbs all."""

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

Call = Callable[[], Any]


@dataclass(frozen=True)
class Timing:
    """Seconds per call over so many rounds."""

    least: float
    median: float
    processor: float  # median over all threads: a busy machine spoils it less, but it does not see what threads gain
    rounds: int


def interleaved(
    calls: Mapping[str, Call],
    rounds: int,
    *,
    seconds: float = math.inf,
    device: torch.device | str = "cpu",
) -> dict[str, Timing]:
    """Time calls in turns, in an order that is drawn anew in every round, after one or two warm-up calls of each.

    After so many ``seconds`` no further round begins, though three are made even so. The device's work is waited for.

    Raises:
        ValueError: If there is nothing to time, or a call fails when it warms up.
    """
    if not calls:
        raise ValueError("There is nothing to time: no calls were given.")
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
    """Times as multiples of the reference's, each kind by itself.

    Example:
        >>> ratios(Timing(3.0, 8.0, 9.0, 5), Timing(1.0, 2.0, 2.0, 5))
        {'median': 4.0, 'least': 3.0, 'processor': 4.5}
    """
    kinds = ("median", "least", "processor")
    return {kind: getattr(timing, kind) / max(getattr(reference, kind), _TICK) for kind in kinds}


def failure(error: Exception) -> str:
    """An error in one line.

    Example:
        >>> failure(ValueError("too   wide"))
        'failed, ValueError: too wide'
    """
    return f"failed, {type(error).__name__}: {' '.join(str(error).split())}"


def seconds_of(call: Call, device: torch.device | str = "cpu") -> tuple[float, float]:
    """Seconds of one call, by the wall and by the processor."""
    started = _now(device)
    call()
    ended = _now(device)
    return ended[0] - started[0], ended[1] - started[1]


def _now(device: torch.device | str) -> tuple[float, float]:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter(), time.process_time()
