"""Processes that train together; ``processes.py`` runs these scenarios.

Processes are forked before torch computes anything, and meet by a file.
"""

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from creinn import distributed, models
from creinn import nn as inn
from creinn.baselines.snn import SNN
from creinn.classifier.creinn import CreINN
from creinn.training import TrainConfig, fit

ROWS = 36  # five batches of eight rows; the last has four
CASES = {  # options of the training
    "class weights": {"class_weight": "balanced"},
    "row weights": {},
    "radii": {"train": "radii"},
    "distance": {},
    "float32": {},
}


def data(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(ROWS, 4, dtype=dtype), torch.arange(ROWS) % 3, torch.rand(ROWS) + 0.5


def settings(**changes: object) -> TrainConfig:
    size = {"batch_size": 8 // distributed.world_size(), "progress": False}
    return TrainConfig(**size | changes)


def network(case: str = "") -> CreINN:
    """A network without batch norm."""
    torch.manual_seed(0)
    layers = torch.nn if case == "distance" else inn
    parts = layers.Linear(4, 8), layers.ReLU(), layers.Linear(8, 3)
    distance = case == "distance" or None
    return CreINN(torch.nn.Sequential(*parts), distance=distance, logit_norm=False)


def trained(case: str) -> dict[str, torch.Tensor]:
    """Return state, predictions and history after twenty steps."""
    dtype = torch.float32 if case == "float32" else torch.float64
    x, y, weights = data(dtype)
    model = network(case).to(dtype)
    rows = (x, y, weights) if case == "row weights" else (x, y)
    history = fit(model, rows, (x[:9], y[:9]), settings(epochs=4, **CASES[case]))
    state = {name: value for name, value in model.state_dict().items() if value.numel()}
    names = ("loss", "accuracy", "val_loss", "val_accuracy")
    numbers = torch.tensor([row[name] for row in history.rows for name in names], dtype=dtype)
    kept = {  # directions have no sign
        name: value
        for name, value in state.items()
        if value.is_floating_point() and not name.endswith((".means", "directions"))
    }
    return {**kept, "lower": model.predict(x).lower, "history": numbers}


def trained_with_norms() -> list[dict[str, torch.Tensor]]:
    """Train networks with batch norm, interval and ordinary; return their states."""
    x, y, _ = data()
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    found = [CreINN(models.mlp(4, 3, hidden=(8,))), SNN(torch.nn.Sequential(*layers))]
    for model in found:
        fit(model.double(), (x[:35], y[:35]), (x[:9], y[:9]), settings(epochs=2))
    return [dict(model.state_dict()) for model in found]


def errors(root: Path) -> dict[str, str]:
    """Return the messages of runs that fail."""
    x, y, _ = data()
    model = network().double()

    def message(*arguments: object, **changes: object) -> str:
        try:
            fit(model, *arguments, config=settings(**changes))
        except (ValueError, FloatingPointError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return "no error"

    found = {
        "too few": message((x[:1], y[:1])),
        "other data": message((x + distributed.rank(), y)),
        "disk": message((x, y), directory=root / "a file"),
    }
    with torch.no_grad():
        model.network[2].weight[0, 0] = float("inf")
    return {**found, "failure": message((x, y))}


def others() -> dict[str, object]:
    """Train from a stream, stop on the signal of one process, exchange values."""
    x, y, _ = data()
    model = network().double()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 7, shuffle=True)
    fit(model, loader, None, settings(epochs=2))
    stream = model.network[0].weight.tolist()

    def stop(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if distributed.rank() == distributed.world_size() - 1:
            signal.raise_signal(signal.SIGINT)
        return x

    history = fit(model, (x, y), None, settings(epochs=5), stop)
    weights = distributed.gather(model.network[0].weight.tolist())
    total = distributed.all_sum(torch.tensor([1.0, float(distributed.rank())]))
    first = distributed.broadcast_object(lambda: [distributed.world_size(), os.getpid()])
    with distributed.single_process():
        single = [distributed.world_size(), distributed.rank()]
    return {
        "stream": stream,
        "stopped": [history.interrupted, all(w == weights[0] for w in weights)],
        "sum": total.tolist(),
        "ranks": distributed.gather(distributed.rank()),
        "first": first,
        "single": single,
    }


def start(root: Path, rank: int, work: Callable[[], object], world_size: int = 2) -> int:
    """Fork a process that saves the result of ``work()``; return its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        root.mkdir(parents=True, exist_ok=True)
        if world_size > 1:
            # Sometimes gloo does not notice a killed process while it sends; the time limit does.
            meeting, limit = f"file://{root}/meeting", timedelta(seconds=30)
            group = {"rank": rank, "world_size": world_size, "timeout": limit}
            dist.init_process_group("gloo", init_method=meeting, **group)
        torch.save(work(), root / f"{rank}.pt")
        code = 0
    except ConnectionError as error:
        (root / f"{rank}.txt").write_text(str(error))
        code = 3
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def finish(*children: int) -> list[int]:
    """Wait for processes; return their exit codes, negative for a signal."""
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def compared(root: Path) -> dict:
    """Compare the results of two processes with the results of one process."""

    def work() -> object:
        return {case: trained(case) for case in CASES}, trained_with_norms(), errors(root), others()

    root.mkdir()
    (root / "a file").write_text("a file where a directory should be")
    children = [start(root / "two", rank, work) for rank in range(2)]
    assert finish(*children, start(root / "one", 0, work, world_size=1)) == [0, 0, 0]
    first, second, one = (torch.load(root / name) for name in ("two/0.pt", "two/1.pt", "one/0.pt"))

    def difference(case: str, name: str) -> float:
        expected = one[0][case][name]
        found = torch.stack([first[0][case][name], second[0][case][name]])
        return float((found - expected).abs().max() / expected.abs().max().clamp_min(1))

    return {
        "differences": {
            case: {name: difference(case, name) for name in state} for case, state in one[0].items()
        },
        "same norms": [
            all(torch.equal(a[name], b[name]) for name in a)
            for a, b in zip(first[1], second[1], strict=True)
        ],
        "errors": [found[2] for found in (one, first, second)],
        "others": [found[3] for found in (one, first, second)],
    }


def lost(root: Path) -> dict:
    """Kill one of two processes. Resume with two processes, and then with one."""

    def work(epochs: int) -> Callable[[], object]:
        def train() -> object:
            x, y, _ = data()
            model = network().double()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                config = settings(epochs=epochs, directory=root / "run")
                history = fit(model, (x, y), None, config)
            return model.state_dict(), len(history), [str(warning.message) for warning in caught]

        return train

    children = [start(root / "before", rank, work(100_000)) for rank in range(2)]
    history = root / "run" / "history.jsonl"
    while not history.is_file() or len(history.read_text().splitlines()) < 3:
        time.sleep(0.001)
    os.kill(children[1], signal.SIGKILL)
    codes = finish(*children)
    done = len(history.read_text().splitlines())
    epochs = done + 3
    again = finish(*(start(root / "again", rank, work(epochs)) for rank in range(2)))
    fewer = finish(start(root / "fewer", 0, work(epochs + 2), world_size=1))
    resumed = torch.load(root / "again/0.pt"), torch.load(root / "fewer/0.pt")
    (root / "run").rename(root / "broken")
    whole = finish(start(root / "whole", 0, work(epochs + 2), world_size=1))
    expected = torch.load(root / "whole/0.pt")[0]
    differences = [
        float((resumed[1][0][name] - value).abs().max())
        for name, value in expected.items()
        if value.numel()
    ]
    return {
        "codes": [codes, again, fewer, whole],
        "message": (root / "before" / "0.txt").read_text(),
        "epochs": [done, resumed[0][1], resumed[1][1]],
        "warnings": [resumed[0][2], resumed[1][2]],
        "difference": max(differences),
    }
