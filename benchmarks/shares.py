"""Where the time of a training step and of a prediction goes: shares of each kind of operation, by torch's profiler.

Networks: the ordinary one, CreINN, and CreINN compiled (prediction only); ResNet-50 with the authors' stem, 32 x 32
images. Run on a quiet machine:

    python benchmarks/shares.py --out results/benchmarks/shares.json
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import creinn
from creinn import CreINN, models
from creinn import nn as inn
from creinn.baselines import SNN
from creinn.experiments.store import write_json
from creinn.report.provenance import provenance

KINDS = {
    "convolution": ("conv", "mm", "addmm"),
    "batch norm": ("batch_norm",),
    "copies": ("cat", "copy_", "stack", "clone", "contiguous"),
    "optimiser": ("sqrt", "addcdiv_", "addcmul_", "lerp_"),
}
WARM_UP, ROUNDS = 2, 5


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/shares.json"))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()
    torch.manual_seed(0)
    x, y = torch.randn(options.batch, 3, 32, 32), torch.randint(10, (options.batch,))
    snn = SNN(models.resnet50(10, stem="imagenet", width=options.width, layers=torch.nn))
    interval = CreINN(models.resnet50(10, stem="imagenet", width=options.width, layers=inn))
    found = {
        "training step, SNN": shares(training(snn, x, y)),
        "training step, CreINN": shares(training(interval, x, y)),
        "prediction, SNN": shares(prediction(snn, x)),
        "prediction, CreINN": shares(prediction(interval, x)),
        "prediction, CreINN compiled": shares(prediction(creinn.compile(interval, example=x), x)),
    }
    for name, parts in found.items():
        print(name, parts)
    command = f"python benchmarks/shares.py --batch {options.batch} --width {options.width}"
    record = {
        **provenance(command),
        "threads": torch.get_num_threads(),
        "batch": options.batch,
        "shares": found,
    }
    write_json(options.out, record)


def training(model: Any, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    """A whole step: forward, loss, backward, Adam."""
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> None:
        model.train()
        optimizer.zero_grad()
        model.loss(model(x), y).backward()
        optimizer.step()
        model.after_step()

    return step


def prediction(model: Any, x: torch.Tensor) -> Callable[[], None]:
    """Bounds or samples of a batch."""

    def call() -> None:
        with torch.no_grad():
            model.eval()(x)

    return call


def shares(call: Callable[[], None]) -> dict[str, float]:
    """Milliseconds per call, and the share of each kind of operation in percent."""
    for _ in range(WARM_UP):
        call()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(ROUNDS):
            call()
    times: dict[str, float] = dict.fromkeys((*KINDS, "other"), 0.0)
    for event in recorded.key_averages():
        name = event.key.removeprefix("aten::")
        kind = next(
            (kind for kind, parts in KINDS.items() if any(part in name for part in parts)), "other"
        )
        times[kind] += event.self_cpu_time_total
    total = sum(times.values())
    return {"ms": round(total / ROUNDS / 1000, 1)} | {
        kind: round(100 * t / total, 1) for kind, t in times.items()
    }


if __name__ == "__main__":
    main()
