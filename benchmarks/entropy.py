"""Compare the time of upper and lower entropy with SLSQP of SciPy.

For each kind of set and number of classes, the script prints the sets per
second, the ratio to SLSQP and the share of SLSQP results that are not the
minimum. For difficult sets, it prints the milliseconds of the lower entropy on
one thread, the slowest single call, and the share and the size of gaps. Wall
times are minima and processor times are medians over the repeats.

    python benchmarks/entropy.py [--classes 10 100 1000]
        [--sets 100000 10000 2000] [--repeats 3] [--threads 2]
        [--slsqp-seconds 10] [--hard-sets 16] [--out FILE]
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from benchmarks.timing import interleaved
from creinn import CreINN, models
from creinn import nn as inn
from creinn.credal.entropy import lower_entropy, upper_entropy
from creinn.credal.probability import intersection_probability, interval_softmax, reachable
from creinn.files import write_bytes
from creinn.report.provenance import provenance
from creinn.report.tables import Cell, text_table

Bounds = tuple[Tensor, Tensor]
WRONG = 1e-6  # bits above the certified minimum that make an answer of SLSQP wrong


def softmax_sets(count: int, classes: int, radius: float) -> Bounds:
    """Return the Interval SoftMax of random logits."""
    center = 2 * torch.randn(count, classes, dtype=torch.float64)
    half = radius * torch.rand(count, classes, dtype=torch.float64)
    return reachable(*interval_softmax(center - half, center + half))


def boxes(count: int, classes: int, share: float) -> Bounds:
    """Return the random intervals ``[p (1 - s u), p (1 + 3 s v)]``."""
    point = torch.empty(count, classes, dtype=torch.float64).exponential_()
    point = point / point.sum(-1, keepdim=True)
    down, up = torch.rand(2, count, classes, dtype=torch.float64)
    return reachable(point * (1 - share * down), (point * (1 + 3 * share * up)).clamp_max(1))


def equal_slopes(count: int, classes: int) -> Bounds:
    """Build sets where all chords of ``-q log q`` have the same slope."""
    lower = (0.1 + 0.8 * torch.rand(count, classes, dtype=torch.float64)) / classes

    def excess(q: Tensor) -> Tensor:
        return q - q * (q * classes).log()

    low, high = torch.full_like(lower, 1 / classes), torch.full_like(lower, np.e / classes)
    for _ in range(60):
        middle = (low + high) / 2
        above = excess(middle) > excess(lower)
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return lower, high


def untrained_network(count: int, classes: int) -> Bounds:
    """Return wide similar intervals of an untrained MLP in scaled mode."""
    model = CreINN(
        models.mlp(20, hidden=(64, 64), num_classes=classes, layers=inn), mode="scaled"
    ).eval()
    with torch.no_grad():
        found = model(torch.randn(count, 20))
    return found.lower.double(), found.upper.double()


def concentric(count: int, classes: int) -> Bounds:
    """Build intervals around 1/K with different widths."""
    radius = torch.rand(count, classes, dtype=torch.float64) / classes
    return reachable(1 / classes - radius, 1 / classes + radius)


def ties(count: int, classes: int) -> Bounds:
    """Build concentric intervals with four widths."""
    radius = (
        torch.rand(count, 4, dtype=torch.float64).gather(1, torch.randint(4, (count, classes)))
        / classes
    )
    return reachable(1 / classes - radius, 1 / classes + radius)


HARD: list[tuple[str, Callable[[int, int], Bounds], list[int]]] = [
    ("equal chord slopes", equal_slopes, [20, 28, 30, 100, 1000]),
    ("untrained network, scaled", untrained_network, [1000]),
    ("concentric", concentric, [60, 200, 1000]),
    ("ties", ties, [20, 100, 1000]),
]
KINDS: dict[str, Callable[[int, int], Bounds]] = {
    "softmax, logit radius <= 0.1": lambda n, k: softmax_sets(n, k, 0.1),
    "softmax, logit radius <= 1": lambda n, k: softmax_sets(n, k, 1.0),
    "softmax, logit radius <= 4": lambda n, k: softmax_sets(n, k, 4.0),
    "boxes, 10 %": lambda n, k: boxes(n, k, 0.1),
    "boxes, 100 %": lambda n, k: boxes(n, k, 1.0),
}


def lower_with_gap(lower: Tensor, upper: Tensor) -> tuple[Tensor, ...]:
    return tuple(lower_entropy(lower, upper, return_gap=True))


def slsqp(
    lower: np.ndarray, upper: np.ndarray, start: np.ndarray, sign: float, deadline: float
) -> tuple[float, bool]:
    """Minimise ``sign * H`` with SLSQP from the intersection probability.

    Returns the entropy and whether the search converged.

    Raises:
        TimeoutError: If the deadline has passed.
    """

    def objective(q: np.ndarray) -> float:
        if time.perf_counter() > deadline:
            raise TimeoutError
        return -sign * float((q * np.log2(np.maximum(q, 1e-300))).sum())

    def gradient(q: np.ndarray) -> np.ndarray:
        return -sign * (np.log2(np.maximum(q, 1e-300)) + 1 / np.log(2))

    found = minimize(
        objective,
        start,
        jac=gradient,
        bounds=np.stack([lower, upper], 1),
        constraints={"type": "eq", "fun": lambda q: q.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"maxiter": 200, "ftol": 1e-10},
    )
    return sign * float(found.fun), bool(found.success)


def baseline(bounds: Bounds, seconds: float, most: int = 500) -> dict[str, Any]:
    """Compute both entropies with SLSQP until the time limit."""
    lower, upper = (x[:most] for x in bounds)
    exact = lower_with_gap(lower, upper)[0].tolist()
    start = intersection_probability(lower, upper).numpy()
    begin = time.perf_counter()
    excess, converged = [], []
    try:
        for n in range(len(lower)):
            one = lower[n].numpy(), upper[n].numpy(), start[n]
            value, success = slsqp(*one, 1.0, begin + seconds)
            slsqp(*one, -1.0, begin + seconds)
            excess.append(value - exact[n])
            converged.append(success)
    except TimeoutError:
        pass
    done = len(excess)
    record: dict[str, Any] = {
        "sets": done,
        "sets_per_s": max(done, 1) / (time.perf_counter() - begin),
    }
    if done:
        record["not_minimum_share"] = float(np.mean(np.array(excess) > WRONG))
        record["not_converged_share"] = float(1 - np.mean(converged))
        record["mean_excess_bits"] = float(np.mean(excess))
    return record


def gap_of(lower: Tensor, upper: Tensor) -> dict[str, float]:
    gap = lower_with_gap(lower, upper)[1]
    return {
        "unproven_share": (gap > 0).double().mean().item(),
        "largest_gap_bits": gap.max().item(),
        "mean_gap_bits": gap.mean().item(),
    }


def measure(kind: str, classes: int, count: int, repeats: int, seconds: float) -> dict[str, Any]:
    torch.manual_seed(0)
    bounds = KINDS[kind](count, classes)
    times = interleaved(
        {"upper": lambda: upper_entropy(*bounds), "lower": lambda: lower_with_gap(*bounds)}, repeats
    )
    both = sum(found.least for found in times.values())
    record: dict[str, Any] = {"kind": kind, "classes": classes, "sets": count}
    for name, found in times.items():
        rate = count / found.least
        record[name] = {"wall_s": found.least, "processor_s": found.processor, "sets_per_s": rate}
    record |= {
        "both_wall_s": both,
        "both_processor_s": sum(found.processor for found in times.values()),
    }
    record |= gap_of(*bounds)
    if seconds > 0:
        record["slsqp"] = baseline(bounds, seconds)
        record["times_slsqp"] = count / both / record["slsqp"]["sets_per_s"]
    return record


def measure_hard(
    kind: str, make: Callable[[int, int], Bounds], classes: int, count: int
) -> dict[str, Any]:
    torch.manual_seed(0)
    lower, upper = make(count, classes)
    calls = {"together": lambda: lower_with_gap(lower, upper)}
    calls |= {
        str(n): lambda n=n: lower_with_gap(lower[n : n + 1], upper[n : n + 1]) for n in range(count)
    }
    times = interleaved(calls, 1)
    together = times.pop("together")
    return {
        "kind": kind,
        "classes": classes,
        "sets": count,
        "wall_ms_per_set": 1e3 * together.least / count,
        "processor_ms_per_set": 1e3 * together.processor / count,
        "slowest_call_wall_ms": 1e3 * max(found.least for found in times.values()),
        "slowest_call_processor_ms": 1e3 * max(found.processor for found in times.values()),
        **gap_of(lower, upper),
    }


def row(record: dict[str, Any]) -> dict[str, Cell]:
    cells: dict[str, Cell] = {name: record[name] for name in ("classes", "kind", "sets")}
    cells |= {f"{name}/s": round(record[name]["sets_per_s"]) for name in ("upper", "lower")}
    cells |= {"wall s": record["both_wall_s"], "processor s": record["both_processor_s"]}
    if found := record.get("slsqp"):
        less, more = ("", "") if found["sets"] else ("< ", "> ")
        wrong = (
            f"{100 * found['not_minimum_share']:.0f} % of {found['sets']}"
            if found["sets"]
            else "none done"
        )
        cells |= {
            "SLSQP/s": f"{less}{found['sets_per_s']:.2g}",
            "times": f"{more}{record['times_slsqp']:.0f}",
        }
        cells["not minimum"] = wrong
    return cells


def hard_row(record: dict[str, Any]) -> dict[str, Cell]:
    cells: dict[str, Cell] = {name: record[name] for name in ("classes", "kind", "sets")}
    cells |= {
        "ms/set": record["processor_ms_per_set"],
        "ms/call": record["slowest_call_processor_ms"],
    }
    gap = f"{record['largest_gap_bits']:.1e}"
    return {**cells, "unproven": f"{100 * record['unproven_share']:.0f} %", "largest gap": gap}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument(
        "--sets", type=int, nargs="+", default=[100_000, 10_000, 2_000], help="one number per K"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--slsqp-seconds", type=float, default=10.0, help="per kind; 0 leaves SLSQP out"
    )
    parser.add_argument("--hard-sets", type=int, default=16, help="of each hard kind")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/entropy.json"))
    options = parser.parse_args()
    if len(options.classes) != len(options.sets):
        parser.error(
            f"--sets needs one number for each of the {len(options.classes)} numbers of classes"
        )
    torch.set_num_threads(options.threads)

    records = []
    for classes, count in zip(options.classes, options.sets, strict=True):
        found = [
            measure(kind, classes, count, options.repeats, options.slsqp_seconds) for kind in KINDS
        ]
        print(text_table([row(record) for record in found], digits=2), end="\n\n", flush=True)
        records += found
    torch.set_num_threads(1)
    hard = [
        measure_hard(kind, make, k, options.hard_sets) for kind, make, all_k in HARD for k in all_k
    ]
    print(text_table([hard_row(record) for record in hard], digits=1))
    content = {
        **provenance(" ".join(["python", *sys.argv])),
        "configuration": vars(options) | {"out": str(options.out)},
        "seed": 0,
        "dtype": "float64",
        "wrong_if_bits_above_minimum": WRONG,
        "load_average": os.getloadavg(),
        "records": records,
        "hard_on_one_thread": hard,
    }
    write_bytes(options.out, (json.dumps(content, indent=2) + "\n").encode())
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
