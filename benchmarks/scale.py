"""What the paper's ResNet-50 would need on one GPU, eight and sixty-four: counted here, not run there.

Counted on a CPU: parameters, activations kept for the backward pass, and operations per image. Measured before: how
many times the ordinary network's training step an interval network takes (results/benchmarks/training.json). Assumed,
and said in the result: what one GPU does with the ordinary network, its memory, and the speed of the wires.

    python benchmarks/scale.py [--images-per-second 800] [--memory 80] [--node 200] [--between 25]
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode

from creinn import CreINN, models
from creinn import nn as inn

FLOAT = 4  # bytes
PER_PARAMETER = 4 * FLOAT  # the weight, its gradient, and Adam's two moments
GPUS_PER_NODE = 8


@dataclass(frozen=True)
class Task:
    """A data set and the schedule it is trained on."""

    name: str
    classes: int
    pixels: int
    images: int
    epochs: int
    batch: int  # of all GPUs together


TASKS = (
    Task("CIFAR-10", classes=10, pixels=32, images=41_667, epochs=150, batch=128),
    Task("ImageNet", classes=1000, pixels=224, images=1_281_167, epochs=90, batch=1024),
)
FORMS = {"ordinary network (CreINN-D)": torch.nn, "interval network": inn}


def count(task: Task, layers: Any) -> dict[str, float]:
    """Parameters, bytes kept and operations per image of a training step, numbers that batch norms exchange in it."""
    network = models.resnet50(task.classes, stem="imagenet", layers=layers)
    model = (CreINN(network) if layers is inn else CreINN(network, distance=True)).train()
    kept = [_kept(model, task, rows) for rows in (2, 3)]
    with FlopCounterMode(display=False) as counter:
        _loss(model, task, 2).backward()
    norms = [part for part in model.modules() if isinstance(part, _BatchNorm)]
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "activation_bytes_per_image": kept[1] - kept[0],
        "operations_per_image": counter.get_total_flops() / 2,
        # sums and sums of squares forward, two sums again backward, and the number of rows
        "norm_numbers_per_step": sum(4 * len(norm.running_mean) + 1 for norm in norms),
    }


def _kept(model: CreINN, task: Task, rows: int) -> int:
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        _loss(model, task, rows)
    return sum(seen.values())


def _loss(model: CreINN, task: Task, rows: int) -> Tensor:
    x = torch.rand(rows, 3, task.pixels, task.pixels)
    return model.loss(model(x), torch.arange(rows))


def plan(
    task: Task, found: dict[str, float], speed: float, gpus: int, assumed: argparse.Namespace
) -> dict[str, Any]:
    """Memory, messages and hours on so many GPUs, each of which takes ``speed`` images per second."""

    def held(rows: float) -> float:
        return PER_PARAMETER * found["parameters"] + rows * found["activation_bytes_per_image"]

    rows = task.batch / gpus
    while held(rows) > 0.9 * assumed.memory * 1e9:
        rows /= 2
    message = FLOAT * found["parameters"]
    wire = assumed.node if gpus <= GPUS_PER_NODE else assumed.between
    exchange = 2 * (gpus - 1) / gpus * message / (wire * 1e9)  # ring all-reduce
    compute = rows / speed
    steps = task.images / (rows * gpus) * task.epochs
    return {
        "data": task.name,
        "GPUs": gpus,
        "images per GPU and step": int(rows),
        "GB per GPU": held(rows) / 1e9,
        "gradient MB per step": message / 1e6,
        "batch norm KB per step": FLOAT * found["norm_numbers_per_step"] / 1e3,
        "compute ms": 1e3 * compute,
        "exchange ms": 1e3 * exchange,
        "hours": steps * (compute + exchange) / 3600,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--images-per-second", type=float, default=800, help="ordinary ResNet-50, 224 px, one GPU"
    )
    parser.add_argument("--memory", type=float, default=80, help="GB of one GPU")
    parser.add_argument("--node", type=float, default=200, help="GB/s between GPUs of a node")
    parser.add_argument("--between", type=float, default=25, help="GB/s between nodes")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    assumed = parser.parse_args()
    measured = json.loads((assumed.out / "training.json").read_text())["training"]
    step = next(row for row in measured if row["model"] == "resnet50-imagenet")["contenders"][
        "creinn"
    ]["to_snn"]["median"]
    counts = {
        task.name: {form: count(task, layers) for form, layers in FORMS.items()} for task in TASKS
    }
    ordinary = {
        name: found["ordinary network (CreINN-D)"]["operations_per_image"]
        for name, found in counts.items()
    }
    rows = []
    for task in TASKS:
        rate = (
            assumed.images_per_second * ordinary["ImageNet"] / ordinary[task.name]
        )  # the same operations per second
        for form, found in counts[task.name].items():
            ratio = step if FORMS[form] is inn else 1.0
            rows += [
                {"form": form, **plan(task, found, rate / ratio, gpus, assumed)}
                for gpus in (1, 8, 64)
            ]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], text=True, capture_output=True, check=True
    ).stdout.strip()
    about = {
        "command": " ".join(sys.argv),
        "commit": commit,
        "torch": torch.__version__,
        "step_ratio": step,
    }
    assumptions = {name: value for name, value in vars(assumed).items() if name != "out"}
    result = {**about, "assumed": assumptions, "counts": counts, "rows": rows}
    (assumed.out / "scale.json").write_text(json.dumps(result, indent=1) + "\n")
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = (
            f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()
        )
        lines.append("| " + " | ".join(cells) + " |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
