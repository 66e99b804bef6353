"""The whole benchmark: settings in, a record of plain JSON out, cell by cell.

Ratios are to the eager SNN (``"snn"``) and to the one with folded batch norm (``"snn-folded"``), of medians, of least
times and of processor times.
"""

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from benchmarks.speed.architectures import Architecture, grown
from benchmarks.speed.contenders import (
    ARITHMETIC,
    FOLDED,
    REFERENCE,
    TRAINED,
    Contenders,
    new_classifier,
    training_step,
)
from benchmarks.speed.limits import Outcome, Skipped, timed
from benchmarks.speed.memory import held_bytes, peak_bytes, saved_bytes
from benchmarks.speed.settings import Settings

from creinn.evaluation.timing import Timing, failure, ratios

Record = dict[str, Any]

SCALED = (
    REFERENCE,
    "creinn",
    "creinn-compiled",
    "relative-compiled",
)  # against the classes, the arithmetic too
SCALED_ROWS = 8


def run_benchmark(settings: Settings, tell: Callable[[str, Record], None] | None = None) -> Record:
    """Measure everything that complete settings ask for: ``configuration``, ``machine``, a list of cells for each part.

    ``tell`` is called after each cell with its name and the record so far, so that it can be kept.
    """
    record: Record = {"configuration": settings.plain(), "machine": _machine(settings.device)}
    record |= {part: [] for part in settings.parts}

    def done(part: str, name: str, cell: Record) -> None:
        record[part].append(cell)
        if tell is not None:
            tell(f"{part}: {name}", record)

    torch.manual_seed(0)
    for architecture in (
        settings.architectures if {"inference", "memory"} & set(settings.parts) else ()
    ):
        contenders = Contenders(architecture, settings.device)
        if "inference" in settings.parts:
            smaller: dict[str, Outcome] | None = None
            for batch in settings.batches:
                cell, smaller = _inference(settings, contenders, batch, smaller)
                done("inference", f"{architecture.name}, batch {batch}", cell)
        if "memory" in settings.parts:
            done("memory", architecture.name, _memory(settings, contenders))
    if "training" in settings.parts:
        for architecture in settings.architectures:
            done("training", architecture.name, _training(settings, architecture))
    if "scaling" in settings.parts:
        for quantity in settings.sizes:
            done("scaling", quantity, measure_growth(settings, quantity))
    return record


def _inference(
    settings: Settings, contenders: Contenders, batch: int, smaller: Mapping[str, Outcome] | None
) -> tuple[Record, dict[str, Outcome]]:
    architecture = contenders.architecture
    names = [name for name in settings.contenders if _applies(name, architecture)]
    outcomes = _predictions(settings, contenders, names, batch, smaller=smaller)
    cell = {"model": architecture.name, "batch": batch, "contenders": _plain(outcomes)}
    for name, outcome in outcomes.items():
        chosen = contenders.memory_format(name, batch) if isinstance(outcome, Timing) else None
        if chosen is not None:
            cell["contenders"][name]["memory_format"] = chosen
    return cell, outcomes


def _training(settings: Settings, architecture: Architecture) -> Record:
    batch = settings.training_batch
    x, target = (
        architecture.inputs(batch, settings.device),
        architecture.targets(batch, settings.device),
    )
    makers = {
        name: lambda name=name: training_step(
            new_classifier(name, architecture).to(x.device), x, target
        )
        for name in TRAINED
        if name in settings.contenders
    }
    outcomes = timed(makers, settings.rounds, settings.seconds, settings.limit, settings.device)
    return {"model": architecture.name, "batch": batch, "contenders": _plain(outcomes)}


def measure_growth(settings: Settings, quantity: str) -> Record:
    """Median seconds per call at each size of ``settings.sizes[quantity]``, and slopes, by contender.

    The log-log slope is the exponent ``p`` of ``time ~ size ** p``. Small networks spend their time on overheads, so
    the slope over all sizes is smaller than the one between the two largest.
    """
    wanted = (*SCALED, ARITHMETIC) if quantity == "classes" else SCALED
    names = [name for name in wanted if name in settings.contenders]
    sizes = settings.sizes[quantity]
    results: dict[str, Record] = {name: {"median_s": []} for name in names}
    for size in sizes:
        contenders = Contenders(grown(quantity, size), settings.device)
        outcomes = _predictions(
            settings, contenders, names, SCALED_ROWS, settings.seconds / len(sizes)
        )
        for name, outcome in outcomes.items():
            results[name]["median_s"].append(
                outcome.median if isinstance(outcome, Timing) else None
            )
            if isinstance(outcome, Skipped):
                results[name]["skipped"] = f"{quantity} {size}: {outcome.reason}"
    for found in results.values():
        known = [
            (size, seconds)
            for size, seconds in zip(sizes, found["median_s"], strict=True)
            if seconds is not None
        ]
        found |= {"slope": slope(known), "last_slope": slope(known[-2:])}
    network = "resnet8" if quantity == "width" else "mlp"
    cell = {"quantity": quantity, "network": network, "batch": SCALED_ROWS, "sizes": list(sizes)}
    return {**cell, "contenders": results}


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Least-squares slope of ``log time`` over ``log size``; ``None`` for fewer than two sizes.

    Example:
        >>> slope([(1, 3.0), (2, 12.0), (4, 48.0)])  # 3 size ** 2
        2.0
    """
    if len({size for size, _ in points}) < 2:
        return None
    x, y = ([math.log2(value) for value in values] for values in zip(*points, strict=True))
    return statistics.linear_regression(x, y).slope


def _predictions(
    settings: Settings,
    contenders: Contenders,
    names: Sequence[str],
    rows: int,
    seconds: float | None = None,
    smaller: Mapping[str, Outcome] | None = None,
) -> dict[str, Outcome]:
    """Times of predictions for a batch of so many rows."""
    x = contenders.architecture.inputs(rows, settings.device)
    with torch.no_grad():
        makers = {name: partial(contenders.call, name, x) for name in names}
        seconds = seconds or settings.seconds
        return timed(makers, settings.rounds, seconds, settings.limit, settings.device, smaller)


def _memory(settings: Settings, contenders: Contenders) -> Record:
    """Bytes held, at most alive in an inference call, kept for the backward pass, at most alive in a training step."""
    architecture, batch = contenders.architecture, 2 * settings.memory_batch
    x, target = (
        architecture.inputs(batch, settings.device),
        architecture.targets(batch, settings.device),
    )
    results: dict[str, Record] = {}
    for name in settings.contenders:
        if name == ARITHMETIC or not _applies(name, architecture):
            continue
        try:
            with torch.no_grad():
                call = contenders.call(name, x)
                held = held_bytes(contenders.model(name, len(x)))
                results[name] = {
                    "held_bytes": held,
                    "inference_peak_bytes": peak_bytes(call, settings.device),
                }
        except Exception as error:
            results[name] = {"skipped": failure(error)}
            continue
        if name in TRAINED:
            results[name] |= _training_memory(
                new_classifier(name, architecture).to(x.device), x, target
            )
    return {"model": architecture.name, "batch": batch, "contenders": results}


def _training_memory(model: Any, x: torch.Tensor, target: torch.Tensor) -> Record:
    """Of a step, and what it keeps for the backward pass: a part for each row, and one for any number of them."""
    peak = peak_bytes(
        training_step(model, x, target), x.device
    )  # the first: with gradients and Adam's moments
    known, half = [*model.parameters(), *model.buffers(), x, target], len(x) // 2

    def kept(rows: int) -> int:
        return saved_bytes(lambda: model.loss(model(x[:rows]), target[:rows]), known)

    fewer = kept(half)
    per_row = (kept(2 * half) - fewer) / half
    return {
        "training_peak_bytes": peak,
        "saved_bytes_per_row": per_row,
        "saved_bytes_fixed": fewer - half * per_row,
    }


def _plain(outcomes: Mapping[str, Outcome]) -> dict[str, Record]:
    """Outcomes as JSON, with their ratios."""
    result: dict[str, Record] = {}
    for name, outcome in outcomes.items():
        if isinstance(outcome, Skipped):
            result[name] = {"skipped": outcome.reason}
            continue
        seconds = {f"{kind}_s": getattr(outcome, kind) for kind in ("median", "least", "processor")}
        bases = {f"to_{base}": outcomes.get(base) for base in (REFERENCE, FOLDED)}
        known = {
            key: ratios(outcome, base) for key, base in bases.items() if isinstance(base, Timing)
        }
        result[name] = {**seconds, "rounds": outcome.rounds, **known}
    return result


def _applies(name: str, architecture: Architecture) -> bool:
    """Memory formats are of images alone."""
    return name != "snn-folded-channels-last" or len(architecture.shape) == 3


def _machine(device: str) -> Record:
    """What times depend on. The load is that of the minute before: more than a fraction of a core disturbs them."""
    return {
        "threads": torch.get_num_threads(),
        "processors": os.cpu_count(),
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "device": torch.cuda.get_device_name(device)
        if torch.device(device).type == "cuda"
        else device,
        "torch": torch.__version__,
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
    }
