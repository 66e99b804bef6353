"""The whole benchmark: settings in, a record of plain JSON out, cell by cell."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from benchmarks.speed.architectures import Architecture
from benchmarks.speed.contenders import (
    ARITHMETIC,
    FOLDED,
    REFERENCE,
    TRAINED,
    Contenders,
    new_classifier,
    training_step,
)
from benchmarks.speed.memory import held_bytes, peak_bytes, saved_bytes
from benchmarks.speed.scaling import measure_growth
from benchmarks.speed.settings import Settings

from creinn.evaluation.timing import Budget, Call, Outcome, Skipped, Timing, failure, interleaved, ratios

Record = dict[str, Any]


def run_benchmark(settings: Settings, tell: Callable[[str, Record], None] | None = None) -> Record:
    """Measure everything that the settings ask for.

    Args:
        settings: What to measure.
        tell: Called after each cell with its name and the record so far, so that it can be kept.

    Returns:
        ``configuration``, ``machine`` and one list of cells for each part. Ratios are to the eager SNN (``"snn"``) and
        to the one with folded batch norm (``"snn-folded"``), of medians, of least times and
        of processor times.
    """
    record: Record = {
        "configuration": settings.plain(),
        "machine": _machine(settings.device),
        **{part: [] for part in settings.parts},
    }

    def done(part: str, name: str, cell: Record) -> None:
        record[part].append(cell)
        if tell is not None:
            tell(f"{part}: {name}", record)

    torch.manual_seed(0)
    for name in settings.architectures if {"inference", "memory"} & set(settings.parts) else ():
        architecture = settings.architecture(name)
        contenders = Contenders(architecture, settings.device)
        if "inference" in settings.parts:
            smaller: dict[str, Outcome] | None = None
            for batch in settings.batches:
                cell, smaller = _inference(settings, contenders, batch, smaller)
                done("inference", f"{name}, batch {batch}", cell)
        if "memory" in settings.parts:
            done("memory", name, _memory(settings, contenders))
    if "training" in settings.parts:
        for name in settings.architectures:
            done("training", name, _training(settings, settings.architecture(name)))
    if "scaling" in settings.parts:
        for quantity in settings.sizes:
            done("scaling", quantity, measure_growth(settings, quantity))
    return record


def _inference(
    settings: Settings, contenders: Contenders, batch: int, smaller: Mapping[str, Outcome] | None
) -> tuple[Record, dict[str, Outcome]]:
    architecture = contenders.architecture
    x = architecture.inputs(batch, settings.device)
    names = [name for name in settings.contenders if _applies(name, architecture)]
    with torch.no_grad():
        makers = {name: partial(contenders.call, name, x) for name in names}
        outcomes = interleaved(makers, _budget(settings), settings.device, smaller)
    cell: Record = {"model": architecture.name, "batch": batch, "contenders": _plain(outcomes)}
    for name, outcome in outcomes.items():
        chosen = contenders.memory_format(name, batch) if isinstance(outcome, Timing) else None
        if chosen is not None:
            cell["contenders"][name]["memory_format"] = chosen
    return cell, outcomes


def _training(settings: Settings, architecture: Architecture) -> Record:
    batch = settings.training_batch
    x = architecture.inputs(batch, settings.device)
    target = torch.arange(batch, device=x.device) % architecture.classes

    def make(name: str) -> Call:
        return training_step(new_classifier(name, architecture).to(x.device), x, target)

    makers = {name: partial(make, name) for name in TRAINED if name in settings.contenders}
    outcomes = interleaved(makers, _budget(settings), settings.device)
    return {"model": architecture.name, "batch": batch, "contenders": _plain(outcomes)}


def _memory(settings: Settings, contenders: Contenders) -> Record:
    """Bytes held, at most alive in an inference call, kept for the backward pass, at most alive in a training step."""
    architecture, batch = contenders.architecture, settings.memory_batch
    x = architecture.inputs(2 * batch, settings.device)
    target = torch.arange(2 * batch, device=x.device) % architecture.classes
    results: dict[str, Record] = {}
    for name in settings.contenders:
        if name == ARITHMETIC or not _applies(name, architecture):
            continue
        try:
            with torch.no_grad():
                call = contenders.call(name, x)
                results[name] = {
                    "held_bytes": held_bytes(contenders.model(name, len(x))),
                    "inference_peak_bytes": peak_bytes(call, settings.device),
                }
        except Exception as error:
            results[name] = {"skipped": failure(error).reason}
            continue
        if name in TRAINED:
            model = new_classifier(name, architecture).to(x.device)
            results[name] |= _training_memory(model, x, target, batch)
    return {"model": architecture.name, "batch": 2 * batch, "contenders": results}


def _training_memory(model: Any, x: torch.Tensor, target: torch.Tensor, batch: int) -> Record:
    step = training_step(model, x, target)
    peak = peak_bytes(step, x.device)  # the first step: gradients and Adam's moments are among it
    kept = []
    for rows in (batch, 2 * batch):
        part, wanted = x[:rows], target[:rows]
        known = [*model.parameters(), *model.buffers(), x, target]
        kept.append(saved_bytes(partial(_loss, model, part, wanted), known))
    per_row = (kept[1] - kept[0]) / batch
    return {
        "training_peak_bytes": peak,
        "saved_bytes_per_row": per_row,
        "saved_bytes_fixed": kept[0] - batch * per_row,
    }


def _loss(model: Any, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return model.loss(model(x), target)


def _plain(outcomes: Mapping[str, Outcome]) -> dict[str, Record]:
    """Outcomes as JSON, with their ratios."""
    result: dict[str, Record] = {}
    for name, outcome in outcomes.items():
        if isinstance(outcome, Skipped):
            result[name] = {"skipped": outcome.reason}
            continue
        result[name] = {
            "median_s": outcome.median,
            "least_s": outcome.least,
            "processor_s": outcome.processor,
            "rounds": outcome.rounds,
        }
        for base in (REFERENCE, FOLDED):
            found = ratios(outcome, outcomes.get(base))
            if found is not None:
                result[name][f"to_{base}"] = found
    return result


def _applies(name: str, architecture: Architecture) -> bool:
    """Memory formats are of images alone."""
    return name != "snn-folded-channels-last" or len(architecture.shape) == 3


def _budget(settings: Settings) -> Budget:
    return Budget(settings.rounds, settings.seconds, settings.limit)


def _machine(device: str) -> Record:
    """What times depend on. The load is that of the minute before: more than a fraction of a core disturbs them."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "threads": torch.get_num_threads(),
        "processors": os.cpu_count(),
        "load_before": load,
        "device": torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device,
        "torch": torch.__version__,
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
    }
