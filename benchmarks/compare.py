"""Two versions of the package side by side: is the new one as fast as the old?

Each version runs in a process of its own and the two take turns call by call, so that what else the machine does falls
on both alike. Public names alone are used, so that versions far apart can be compared.

    git worktree add ../before COMMIT
    python benchmarks/compare.py ../before/src src [--rounds 15] [--threads 2] [--out results/benchmarks/compare.json]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cells() -> dict[str, Callable[[], Any]]:
    """Calls to time, by name, on the version that is imported."""
    import torch

    import creinn
    from creinn import CredalSet, CreINN, models
    from creinn import nn as inn

    torch.manual_seed(0)

    def sets(count: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
        point = torch.empty(count, classes, dtype=torch.float64).exponential_()
        point /= point.sum(-1, keepdim=True)
        down, up = torch.rand(2, count, classes, dtype=torch.float64)
        return point * (1 - 0.5 * down), (point * (1 + 1.5 * up)).clamp_max(1)

    def entropies(count: int, classes: int) -> Callable[[], Any]:
        lower, upper = sets(count, classes)
        return lambda: CredalSet(lower, upper).uncertainty("entropy")

    images = torch.rand(32, 3, 32, 32)
    interval, ordinary = (
        models.resnet18(10, layers=inn, width=32),
        models.resnet18(10, layers=torch.nn, width=32),
    )
    model = CreINN(interval).eval()
    compiled = creinn.compile(model, example=images)
    with_distance = (
        CreINN(ordinary, distance=1.0).fit_distance(images, torch.arange(32) % 10).eval()
    )
    learner = CreINN(models.resnet18(10, layers=inn, width=32)).train()
    optimizer = torch.optim.Adam(learner.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        learner.loss(learner(images), torch.arange(32) % 10).backward()
        optimizer.step()
        creinn.project_(learner)

    def predict(classifier: Any, rows: int) -> Callable[[], Any]:
        def call() -> None:
            with torch.no_grad():
                classifier(images[:rows])

        return call

    return {
        "entropies, 5,000 sets of 10 classes": entropies(5000, 10),
        "entropies, 200 sets of 1,000 classes": entropies(200, 1000),
        "forward, ResNet-18, 32 images": predict(model, 32),
        "compiled, ResNet-18, 1 image": predict(compiled, 1),
        "compiled, ResNet-18, 32 images": predict(compiled, 32),
        "CreINN-D, ResNet-18, 32 images": predict(with_distance, 32),
        "training step, ResNet-18, 32 images": step,
    }


def work() -> None:
    """Answer each line of standard input, the name of a cell, with the seconds of one call."""
    known = cells()
    print(json.dumps(list(known)), flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        known[line.strip()]()
        print(time.perf_counter() - started, flush=True)


def start(source: Path, threads: int) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(source.resolve()),
        "OMP_NUM_THREADS": str(threads),
    }
    command = [sys.executable, __file__, "--work"]
    return subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def ask(worker: subprocess.Popen[str], cell: str) -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{cell}\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def commit(source: Path) -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, cwd=source, text=True, capture_output=True, check=True
    ).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    workers = [start(source, arguments.threads) for source in (arguments.before, arguments.after)]
    names, _ = (json.loads(worker.stdout.readline()) for worker in workers)  # type: ignore[union-attr]
    results = {}
    for name in names:
        times: list[list[float]] = [[], []]
        for turn in range(-2, arguments.rounds):
            for which in (0, 1) if turn % 2 else (1, 0):
                seconds = ask(workers[which], name)
                if turn >= 0:  # two calls to warm up
                    times[which].append(seconds)
        before, after = (
            {"least": min(found), "median": statistics.median(found)} for found in times
        )
        ratios = {kind: round(after[kind] / before[kind], 3) for kind in before}
        results[name] = {"before": before, "after": after, "ratio": ratios}
        print(
            f"{name:40} {1000 * before['median']:8.1f} ms {1000 * after['median']:8.1f} ms  "
            f"ratio of medians {ratios['median']:.2f}, of least {ratios['least']:.2f}"
        )
    for worker in workers:
        worker.terminate()
    if arguments.out:
        about = {
            "command": " ".join(sys.argv),
            "rounds": arguments.rounds,
            "threads": arguments.threads,
        }
        about |= {"before": commit(arguments.before), "after": commit(arguments.after)}
        arguments.out.write_text(json.dumps(about | {"results": results}, indent=1) + "\n")


if __name__ == "__main__":
    work() if "--work" in sys.argv else main()
