"""Count the exit codes of a distributed training script.

``python tools/torchrun_loop.py 50`` starts the script of docs/scale.md fifty times with torchrun on
two processes. A script that calls ``fit`` and ``destroy_process_group`` should end with exit code 0
every time. ``--plain`` runs a script with torch's DistributedDataParallel alone, for comparison.
``--out`` writes the counts to a file after each run.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from creinn.files import write_bytes
from creinn.report.provenance import provenance

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


def torchrun(script: Path) -> int:
    """Run a script on two processes with torchrun; return the first exit code that is not 0."""
    try:
        run.main(["--standalone", "--nproc-per-node=2", str(script)])
    except ChildFailedError as error:
        return next(failure.exitcode for failure in error.failures.values())
    return 0


def main() -> int:
    """Start the script several times and count its exit codes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, help="number of runs")
    parser.add_argument("--plain", action="store_true", help="use torch alone")
    parser.add_argument("--out", type=Path, help="JSON file for the counts")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    result = provenance(" ".join(["python", *sys.argv]))
    counts: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(PLAIN if arguments.plain else FIT)
        for number in range(1, arguments.runs + 1):
            counts[torchrun(script)] += 1
            print(f"{number} runs:", dict(counts), flush=True)
            if arguments.out:
                exit_codes = {str(code): count for code, count in sorted(counts.items())}
                record = {**result, "runs": number, "processes": 2, "exit codes": exit_codes}
                write_bytes(arguments.out, (json.dumps(record, indent=2) + "\n").encode())
    return int(set(counts) != {0})


if __name__ == "__main__":
    sys.exit(main())
