"""Measure the peak memory of ``fit_distance`` on generated rows.

Each number of rows runs in its own process, and no process keeps all rows.

    python benchmarks/memory_of_distance.py --out FILE
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from creinn import CreINN, models
from creinn.report.provenance import provenance
from experiments.store import write_json

FEATURES, CLASSES, HIDDEN, BLOCK = 64, 10, (128, 128), 1000


class Generated(IterableDataset[tuple[Tensor, int]]):
    """Data set with the same rows in each pass."""

    def __init__(self, rows: int, seed: int = 0) -> None:
        self.rows, self.seed = rows, seed

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        means = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(99))
        generator = torch.Generator().manual_seed(self.seed)
        for start in range(0, self.rows, BLOCK):
            labels = torch.arange(start, min(start + BLOCK, self.rows)) % CLASSES
            x = means[labels] + torch.randn(len(labels), FEATURES, generator=generator)
            yield from zip(x, labels.tolist(), strict=True)


def fit_one(rows: int) -> dict[str, float]:
    """Return the peak MiB before and after ``fit_distance``, and its time."""
    torch.manual_seed(0)
    model = CreINN(models.mlp(FEATURES, CLASSES, hidden=HIDDEN, layers=torch.nn), distance=True)
    before, started = _peak(), time.perf_counter()
    model.fit_distance(Generated(rows))
    return {
        "peak_mib": _peak(),
        "peak_before_mib": before,
        "seconds": time.perf_counter() - started,
    }


def _peak() -> float:
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs=2, default=(20_000, 200_000))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(fit_one(options.one)))
        return
    results = {}
    for rows in options.rows:
        command = [sys.executable, __file__, "--one", str(rows), "--out", str(options.out)]
        results[str(rows)] = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        print(f"{rows} rows: peak {results[str(rows)]['peak_mib']:.0f} MiB")
    few, many = (results[str(rows)]["peak_mib"] for rows in options.rows)
    print(f"growth {many / few - 1:.2%}")
    configuration = {"features": FEATURES, "classes": CLASSES, "hidden": list(HIDDEN)}
    command = f"python benchmarks/memory_of_distance.py --rows {' '.join(map(str, options.rows))}"
    write_json(
        options.out,
        {**provenance(command), **configuration, "results": results, "growth": many / few - 1},
    )


if __name__ == "__main__":
    main()
