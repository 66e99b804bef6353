"""Compare the CPU seconds of two checkouts, each with its native library.

The processes alternate and have one thread.

    python -m benchmarks.restructure NEW OLD
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

import creinn
from creinn import CredalSet, CreINN, models
from creinn.credal.probability import interval_softmax

NUM_CELLS, ROUNDS = 9, 7


def cells() -> dict:
    """Return the calls and their repetitions."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, rows = torch.rand(64, 3, 32, 32), torch.randn(1000, 20)
    native = creinn.compile(CreINN(models.resnet18(10)).eval(), images[:32])
    deep = creinn.compile(CreINN(models.resnet50(10)).eval(), images[:8])
    mlp, trained = CreINN(models.mlp(20, 3, hidden=(64, 64))).eval(), CreINN(models.resnet8(10))
    optimizer = torch.optim.Adam(trained.parameters())

    def step() -> None:
        optimizer.zero_grad()
        creinn.cross_entropy(trained(images), torch.arange(64) % 10).backward()
        optimizer.step()

    found = {
        "native ResNet-18, 32 rows": (lambda: native.predict(images[:32]), 1),
        "native ResNet-50, 8 rows": (lambda: deep.predict(images[:8]), 1),
        "predict of an MLP, 1 row": (lambda: mlp.predict(rows[:1]), 150),
        "predict of an MLP, 1000 rows": (lambda: mlp.predict(rows), 60),
        "training step of ResNet-8, 64 rows": (step, 2),
    }
    for count, classes in ((1000, 10), (100, 1000)):
        center, radius = 2 * torch.randn(count, classes), torch.rand(count, classes)
        sets = CredalSet(*interval_softmax(center - radius, center + radius))
        found[f"lower entropy, {count} x {classes}"] = sets.lower_entropy, 4
        found[f"upper entropy, {count} x {classes}"] = sets.upper_entropy, 20
    return found


def work() -> None:
    """Print the seconds of all cells for each line of the input."""
    for name, (call, count) in [*cells().items()] * ROUNDS:
        sys.stdin.readline()
        begun = time.process_time()
        for _ in range(count):
            call()
        print(json.dumps([name, (time.process_time() - begun) / count]), flush=True)


def main(folders: list[str]) -> None:
    """Measure all cells, and write the seconds and the ratios."""
    commits, processes, times = [], [], {}
    for folder in folders:
        git, own = ["git", "-C", folder, "rev-parse", "HEAD"], [sys.executable, __file__]
        commits.append(subprocess.check_output(git, text=True)[:7])
        path = os.environ | {"PYTHONPATH": f"{folder}/src"}
        processes.append(subprocess.Popen(own, env=path, text=True, stdin=-1, stdout=-1))
    for _ in range(NUM_CELLS * ROUNDS):
        for process in processes:
            print(file=process.stdin, flush=True)
            name, seconds = json.loads(process.stdout.readline())
            times.setdefault(name, []).append(seconds)
    found = {"command": sys.argv, "commits": commits, "CPU seconds": times}
    found["ratios"] = {name: min(t[::2]) / min(t[1::2]) for name, t in times.items()}
    Path("results/benchmarks/restructure.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:]) if sys.argv[1:] else work()
