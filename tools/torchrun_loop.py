"""Count the exit codes of a distributed training script.

``python tools/torchrun_loop.py 50`` starts the script of docs/scale.md fifty times with torchrun on
two processes. A script that calls ``fit`` and ``destroy_process_group`` should end with exit code 0
every time. ``--plain`` runs a script with torch's DistributedDataParallel alone, for comparison.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

FIT = """
import torch
from creinn import CreINN, TrainConfig, fit, models

torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.arange(64) % 3
model = CreINN(models.mlp(4, 3, hidden=(8,)))
fit(model, (x, y), (x, y), TrainConfig(epochs=3, batch_size=8, progress=False))
torch.distributed.destroy_process_group()
"""

PLAIN = """
import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.arange(64) % 3
model = DistributedDataParallel(torch.nn.Linear(4, 3))
optimizer = torch.optim.Adam(model.parameters(), fused=True)
for epoch in range(12):
    total = torch.zeros(5)
    torch.distributed.all_reduce(total)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
torch.distributed.destroy_process_group()
"""


def torchrun(script: str) -> list[int]:
    """Run a script on two processes with torchrun; return its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.py"
        path.write_text(script)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command = [*launcher, "--nproc-per-node=2", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
        return [done.returncode]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, help="number of runs")
    parser.add_argument("--plain", action="store_true", help="use torch alone")
    arguments = parser.parse_args()
    counts: Counter[int] = Counter()
    for _ in range(arguments.runs):
        counts.update(torchrun(PLAIN if arguments.plain else FIT))
    print(", ".join(f"exit code {code}: {count}" for code, count in sorted(counts.items())))
    sys.exit(set(counts) != {0})
