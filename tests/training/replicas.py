"""Real processes that train together; run by ``test_distributed.py``.

``python replicas.py DIRECTORY`` prints what happened as JSON. Torch is imported once; ranks are forked before torch has
computed anything, and meet by a file.
"""

import json
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
import torch._dynamo  # optimisers import it when first used, which takes seconds
import torch.distributed as dist

from creinn import models, ranks
from creinn import nn as inn
from creinn.baselines.snn import SNN
from creinn.classifier.creinn import CreINN
from creinn.training import TrainConfig, fit

ROWS = 37  # with batches of eight: five steps, the last of five rows, three and two
CASES = ("paper", "scaled", "sound", "distance", "paper radii", "scaled radii", "sound radii")


def data(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(ROWS, 1, 6, 6, dtype=dtype), torch.arange(ROWS) % 3, torch.rand(ROWS) + 0.5


def network(case: str) -> CreINN:
    """A narrow ResNet-8, or where radii alone are trained a small network, with batch norm on the logits."""
    torch.manual_seed(0)
    layers = torch.nn if case == "distance" else inn
    if "radii" in case:
        flat = (
            inn.Flatten(),
            inn.Linear(36, 8, bias=False),
            inn.BatchNorm1d(8),
            inn.ReLU(),
            inn.Linear(8, 3),
        )
        made = torch.nn.Sequential(*flat)
    else:
        made = models.resnet8(3, in_channels=1, width=2, layers=layers)
    mode = next((mode for mode in ("scaled", "sound") if mode in case), "paper")
    model = CreINN(made, mode=mode, distance=case == "distance" or None, logit_norm=True)
    inn.scale_radii_(model, 0.01)
    return model


def trained(case: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Weights, statistics and predictions after twenty steps."""
    x, y, weights = data(dtype)
    model = network(case).to(dtype)
    is_weighted, part = case == "scaled", "radii" if "radii" in case else "all"
    config = {"epochs": 4, "batch_size": 8 // ranks.world(), "train": part, "progress": False}
    config["class_weight"] = "balanced" if case == "paper" else None
    rows = (x, y, weights) if is_weighted else (x, y)
    history = fit(model, rows, (x[:9], y[:9]), TrainConfig(**config))
    found = {
        k: v
        for k, v in model.state_dict().items()
        if v.is_floating_point() and "directions" not in k
    }
    found = {
        k: v for k, v in found.items() if not k.endswith(".means")
    }  # these and directions up to signs
    prediction = model.predict(x)
    numbers = [
        row[name]
        for row in history.rows
        for name in ("loss", "accuracy", "val_loss", "val_accuracy")
    ]
    numbers = torch.tensor(numbers, dtype=dtype)
    return {**found, "lower": prediction.lower, "upper": prediction.upper, "history": numbers}


def all_cases() -> dict[str, torch.Tensor]:
    cases = [(case, torch.float64) for case in CASES] + [
        (case, torch.float32) for case in ("paper", "distance")
    ]
    return {
        f"{case} {dtype} {k}": v for case, dtype in cases for k, v in trained(case, dtype).items()
    }


def others(root: Path) -> dict[str, object]:
    """What else ranks do together: streams, errors that all of them see, a stop that one was asked for, sums."""
    x, y, _ = data()
    quiet = {"progress": False, "batch_size": 8 // ranks.world()}
    found: dict[str, object] = {}
    torch.manual_seed(0)
    linear, norm = torch.nn.Linear(36, 4, bias=False), torch.nn.BatchNorm1d(4)
    plain = torch.nn.Sequential(torch.nn.Flatten(), linear, norm, torch.nn.Linear(4, 3))
    model = SNN(plain.double())
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 8, shuffle=True)
    fit(model, loader, None, TrainConfig(epochs=2, **quiet))
    found["stream"] = linear.weight.tolist()

    def message(*arguments: object, **changes: object) -> str:
        try:
            fit(SNN(plain), *arguments, config=TrainConfig(**quiet | changes))
        except (ValueError, FloatingPointError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return "no error"

    found["too few"] = message((x[:1], y[:1]), batch_size=2)
    found["other data"] = message((x + ranks.rank(), y))
    found["disk"] = message((x, y), directory=root / "a file")
    with torch.no_grad():
        plain[3].weight[0, 0] = float("inf")
    found["failure"] = message((x, y))
    torch.manual_seed(0)
    model = SNN(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3)).double())

    def stop(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if ranks.rank() == ranks.world() - 1:
            signal.raise_signal(signal.SIGINT)
        return x

    history = fit(model, (x, y), None, TrainConfig(epochs=5, **quiet), stop)
    weights = [w.tolist() for w in ranks.gather(model.network[1].weight.detach())]
    found["stopped"] = [history.interrupted, all(w == weights[0] for w in weights)]
    total = ranks.all_sum(torch.tensor([1.0, float(ranks.rank())]))
    found["sums"] = [
        total.tolist(),
        ranks.gather(ranks.rank()),
        ranks.from_first(lambda: [ranks.world(), os.getpid()]),
    ]
    with ranks.alone():
        found["alone"] = [ranks.world(), ranks.rank()]
    return found


def start(root: Path, rank: int, work: Callable[[], object], world: int = 2) -> int:
    """Fork a rank, which leaves what ``work()`` gives; its process."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        root.mkdir(parents=True, exist_ok=True)
        if world > 1:
            # Now and then gloo does not notice that a partner was killed while it sends; the time limit does.
            meeting, limit = f"file://{root}/meeting", timedelta(seconds=30)
            dist.init_process_group(
                "gloo", init_method=meeting, rank=rank, world_size=world, timeout=limit
            )
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
    """Exit codes of processes, negative for the signal that ended them."""
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def compared(root: Path) -> dict:
    """The same runs by two ranks and by one."""

    def work() -> object:
        return all_cases(), others(root)

    root.mkdir()
    (root / "a file").write_text("where a directory should be")
    children = [start(root / "two", rank, work) for rank in range(2)]
    assert finish(*children, start(root / "one", 0, work, world=1)) == [0, 0, 0]
    first, second, one = (torch.load(root / name) for name in ("two/0.pt", "two/1.pt", "one/0.pt"))
    apart = {
        name: [
            float((part[0][name] - value).abs().max() / value.abs().max().clamp_min(1))
            for part in (first, second)
        ]
        for name, value in one[0].items()
    }
    return {"apart": apart, "first": first[1], "second": second[1], "one": one[1]}


def killed(root: Path) -> dict:
    """A rank is killed; the run goes on on two ranks, and on one."""

    def work(epochs: int) -> Callable[[], object]:
        def train() -> object:
            x, y, _ = data()
            torch.manual_seed(0)
            layers = (
                torch.nn.Flatten(),
                inn.Linear(36, 8, bias=False),
                inn.BatchNorm1d(8),
                inn.ReLU(),
                inn.Linear(8, 3),
            )
            model = CreINN(torch.nn.Sequential(*layers).double(), logit_norm=False)
            size = 8 // ranks.world()
            config = TrainConfig(
                epochs=epochs, batch_size=size, directory=root / "run", progress=False
            )
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                history = fit(model, (x, y), None, config)
            return model.state_dict(), len(history), [str(warning.message) for warning in said]

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
    alone = finish(start(root / "alone", 0, work(epochs + 2), world=1))
    resumed = torch.load(root / "again/0.pt"), torch.load(root / "alone/0.pt")
    (root / "run").rename(root / "broken")
    whole = finish(start(root / "whole", 0, work(epochs + 2), world=1))
    expected = torch.load(root / "whole/0.pt")[0]
    return {
        "codes": [codes, again, alone, whole],
        "message": (root / "before" / "0.txt").read_text(),
        "epochs": [done, resumed[0][1], resumed[1][1]],
        "warnings": [resumed[0][2], resumed[1][2]],
        "apart": max(
            float((resumed[1][0][name] - v).abs().max())
            for name, v in expected.items()
            if v.numel()
        ),
    }


if __name__ == "__main__":
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell that runs the tests in the background ignores it
    torch.set_num_threads(1)
    scenarios = (killed, compared)
    print(
        json.dumps(
            {
                scenario.__name__: scenario(Path(sys.argv[1]) / scenario.__name__)
                for scenario in scenarios
            }
        )
    )
