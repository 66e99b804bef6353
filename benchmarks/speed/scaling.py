"""Cost against the size of a network: times of a few contenders at growing depth, width or number of classes.

The log-log slope is the exponent ``p`` of ``time ~ size ** p``. Small networks spend their time on overheads, so the
slope over all sizes is smaller than the one between the two largest.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from benchmarks.speed.architectures import Architecture, perceptron, small_residual
from benchmarks.speed.contenders import ARITHMETIC, REFERENCE, Contenders
from benchmarks.speed.settings import Settings

from creinn.evaluation.timing import Budget, Timing, interleaved

SCALED = (REFERENCE, "creinn", "creinn-compiled", "relative-compiled")
"""Contenders whose growth is measured; against the classes, the credal arithmetic too."""

_ROWS = 8


def measure_growth(settings: Settings, quantity: str) -> dict[str, Any]:
    """Median seconds per call at each size of ``settings.sizes[quantity]``, and slopes, by contender."""
    names = [name for name in (*SCALED, ARITHMETIC) if name in settings.contenders]
    if quantity != "classes" and ARITHMETIC in names:
        names.remove(ARITHMETIC)
    sizes = settings.sizes[quantity]
    budget = Budget(settings.rounds, settings.seconds / len(sizes), settings.limit)
    found: dict[str, list[float | None]] = {name: [] for name in names}
    reasons: dict[str, str] = {}
    for size in sizes:
        architecture = _architecture(quantity, size)
        contenders = Contenders(architecture, settings.device)
        x = architecture.inputs(_ROWS, settings.device)
        with torch.no_grad():
            makers = {name: partial(contenders.call, name, x) for name in names}
            outcomes = interleaved(makers, budget, settings.device)
        for name, outcome in outcomes.items():
            found[name].append(outcome.median if isinstance(outcome, Timing) else None)
            if not isinstance(outcome, Timing):
                reasons[name] = f"{quantity} {size}: {outcome.reason}"
    results: dict[str, Any] = {}
    for name, seconds in found.items():
        known = [(size, s) for size, s in zip(sizes, seconds, strict=True) if s is not None]
        results[name] = {"median_s": seconds, "slope": slope(known), "last_slope": slope(known[-2:])}
        if name in reasons:
            results[name]["skipped"] = reasons[name]
    return {
        "quantity": quantity,
        "network": "resnet8" if quantity == "width" else "mlp",
        "batch": _ROWS,
        "sizes": list(sizes),
        "contenders": results,
    }


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Least-squares slope of ``log time`` over ``log size``; ``None`` for fewer than two sizes.

    Example:
        >>> slope([(1, 3.0), (2, 12.0), (4, 48.0)])  # 3 size ** 2
        2.0
    """
    if len({size for size, _ in points}) < 2:
        return None
    x, y = ([math.log2(value) for value in values] for values in zip(*points, strict=True))
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    product = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return product / sum((a - x_mean) ** 2 for a in x)


def _architecture(quantity: str, size: int) -> Architecture:
    return small_residual(size) if quantity == "width" else perceptron(**{quantity: size})
