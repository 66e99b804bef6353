"""``creinn benchmark``: predictions of an untrained network of each form, timed in turns."""

import copy
from typing import Any

import torch

from creinn.baselines.snn import SNN
from creinn.classifier.creinn import CreINN
from creinn.cli.options import BenchmarkOptions
from creinn.device import choose_device
from creinn.evaluation.timing import interleaved, ratios
from creinn.graph.compile import compile
from creinn.models import BUILDERS
from creinn.report.tables import text_table

CLASSES, ROUNDS, FITTED_ON = 10, 50, 64


def benchmark(options: BenchmarkOptions) -> int:
    """Measure by ``options`` and print; returns the exit code."""
    if min(options.size, *options.batches, options.threads or 1) < 1 or options.seconds <= 0:
        raise ValueError("--size, --batches, --threads and --seconds must be positive.")
    device = choose_device(options.device)
    threads = torch.get_num_threads()
    torch.set_num_threads(options.threads or threads)
    try:
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            rows = [row for batch in options.batches for row in _rows(options, batch, device)]
    finally:
        torch.set_num_threads(threads)
    print(text_table(rows, digits=2))
    return 0


def _rows(options: BenchmarkOptions, batch: int, device: torch.device) -> list[dict[str, Any]]:
    x = torch.randn(batch, 3, options.size, options.size, device=device)
    models = _models(options, x)
    with torch.no_grad():
        calls = {name: (lambda model=model: model(x)) for name, model in models.items()}
        timings = interleaved(calls, ROUNDS, seconds=options.seconds, device=device)
    rows: list[dict[str, Any]] = []
    for name, timing in timings.items():
        found = ratios(timing, timings["SNN"])
        row = {"images": batch, "model": name, "ms, median": 1e3 * timing.median}
        rows.append({**row, "times SNN, medians": found["median"], "minima": found["least"]})
    return rows


def _models(options: BenchmarkOptions, x: torch.Tensor) -> dict[str, Any]:
    build: Any = BUILDERS[options.network]

    def network(layers: str) -> torch.nn.Module:
        return build(num_classes=CLASSES, layers=layers).to(x.device)

    ordinary, credal = network("ordinary"), CreINN(network("interval")).eval()
    distance = CreINN(copy.deepcopy(ordinary), distance=1.0)
    distance.fit_distance(
        torch.randn(FITTED_ON, *x.shape[1:], device=x.device), torch.arange(FITTED_ON) % CLASSES
    )
    models = {"SNN": SNN(ordinary).eval(), "CreINN-D": distance.eval(), "CreINN": credal}
    return {**models, "CreINN, compiled": compile(credal, example=x)}
