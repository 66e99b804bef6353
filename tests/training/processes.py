"""Training processes that are killed, interrupted, or run out of disk; ``test_loop_processes.py`` runs it.

``python processes.py DIRECTORY`` prints the results as JSON. Torch is imported once for all
scenarios; each run is a process that is forked before torch computes anything.
"""

import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo  # optimisers import it when first used, which takes seconds
from sklearn.datasets import load_digits

from creinn import nn as inn
from creinn.classifier.creinn import CreINN
from creinn.interval import Interval
from creinn.training import TrainConfig, fit
from creinn.training.checkpoint import read_checkpoint

EPOCHS = 40  # more than can be completed before a signal arrives on a slow machine
DATA = load_digits()


def train(directory: Path, epochs: int = EPOCHS, rows: int = 400, **changes) -> None:
    """Train with dropout and augmentation, on intervals; writes what came of it beside the checkpoints."""
    x, y = (
        torch.tensor(DATA.data[:rows] / 16, dtype=torch.float32),
        torch.tensor(DATA.target[:rows]),
    )
    torch.manual_seed(0)
    layers = (
        inn.Linear(64, 256),
        inn.BatchNorm1d(256),
        inn.ReLU(),
        inn.Dropout(0.2),
        inn.Linear(256, 10),
    )
    model = CreINN(torch.nn.Sequential(*layers))
    config = TrainConfig(
        epochs=epochs, batch_size=64, seed=3, directory=directory, progress=False, **changes
    )

    def augment(x, generator):
        shift = 0.05 * torch.rand(x.shape, generator=generator)
        return x.map_monotone(lambda t: t + shift)

    history = fit(
        model, (Interval(x, x + 0.1), y), (Interval(x[:64], x[:64] + 0.1), y[:64]), config, augment
    )
    weights = {name: value.tolist() for name, value in model.state_dict().items()}
    outcome = {"interrupted": history.interrupted, "epochs": len(history), "weights": weights}
    directory.with_suffix(".json").write_text(json.dumps(outcome))


def start(directory: Path, limit: int | None = None, **kwargs) -> int:
    """Fork a training process and return its number. Its files have at most ``limit`` bytes."""
    child = os.fork()
    if child:
        return child
    try:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        train(directory, **kwargs)
    except OSError as error:
        directory.with_suffix(".json").write_text(json.dumps({"error": str(error)}))
        os._exit(3)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def finish(child: int) -> int:
    """Return the exit code of a process, which is negative if a signal ended the process."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome(directory: Path) -> dict:
    return json.loads(directory.with_suffix(".json").read_text())


def epochs_done(directory: Path) -> int:
    path = directory / "last.safetensors"
    return len(read_checkpoint(path).rows) if path.is_file() else -1


def kill_when(child: int, is_time: Callable[[], bool]) -> bool:
    """Kill a process with SIGKILL as soon as ``is_time()``. Return false if it ended before."""
    while not is_time():
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return False
    os.kill(child, signal.SIGKILL)
    return finish(child) == -signal.SIGKILL


def killed(root: Path) -> dict:
    """Kill a run several times: at random times, while a checkpoint is written, and after a checkpoint."""
    whole, broken = root / "whole", root / "broken"
    assert finish(start(whole)) == 0
    chance = random.Random(0)
    kills = during_write = 0
    while kills < 9 or (during_write == 0 and kills < 15):
        child, begun, before = start(broken), time.monotonic(), epochs_done(broken)
        wait = chance.uniform(0, 0.3)
        moments = (
            lambda begun=begun, wait=wait: time.monotonic() > begun + wait,
            lambda: any(broken.glob("*.safetensors.tmp")),
            lambda before=before: epochs_done(broken) > before,
        )
        if not kill_when(child, moments[kills % 3 if kills < 9 else 1]):
            break
        kills += 1
        during_write += any(broken.glob("*.safetensors.tmp"))
    done = epochs_done(broken)
    assert finish(start(broken)) == 0
    best = [read_checkpoint(folder / "best.safetensors").weights for folder in (whole, broken)]
    return {
        "kills": kills,
        "during_write": during_write,
        "done": done,
        "total": EPOCHS,
        "same": outcome(whole)["weights"] == outcome(broken)["weights"],
        "same_best": all(torch.equal(best[0][name], best[1][name]) for name in best[0]),
        "epochs": outcome(broken)["epochs"],
        "lines": len((broken / "history.jsonl").read_text().splitlines()),
        "left": sorted(path.name for path in broken.iterdir()),
    }


def interrupted(root: Path) -> dict:
    """Interrupt by SIGINT in the middle, with a checkpoint only every 100 epochs, then go on."""
    whole, broken = root / "whole", root / "broken"
    assert finish(start(whole)) == 0
    child = start(broken, checkpoint_every=100)
    history = broken / "history.jsonl"
    while not history.is_file() or len(history.read_text().splitlines()) < 4:
        time.sleep(0.001)
    os.kill(child, signal.SIGINT)
    code = finish(child)
    first, done = outcome(broken), epochs_done(broken)
    assert finish(start(broken)) == 0
    return {
        "code": code,
        "interrupted": first["interrupted"],
        "epochs": first["epochs"],
        "saved": done,
        "same": outcome(whole)["weights"] == outcome(broken)["weights"],
    }


def full(root: Path) -> dict:
    """Limit the size of the files of a run, as on a full disk."""
    run = root / "run"
    assert finish(start(run, epochs=2)) == 0
    code = finish(start(run, epochs=4, limit=20_000))
    error, done, left = (
        outcome(run)["error"],
        epochs_done(run),
        sorted(path.name for path in run.iterdir()),
    )
    assert finish(start(run, epochs=4)) == 0
    return {"code": code, "error": error, "saved": done, "left": left, "after": epochs_done(run)}


def mixed(root: Path) -> dict:
    """Train in bfloat16 and in float32."""
    for name, half in (("half", True), ("whole", False)):
        assert finish(start(root / name, epochs=3, mixed_precision=half)) == 0
    rows = [
        read_checkpoint(root / name / "last.safetensors").rows[-1] for name in ("half", "whole")
    ]
    dtypes = {
        str(t.dtype) for t in read_checkpoint(root / "half" / "last.safetensors").weights.values()
    }
    same = outcome(root / "half")["weights"] == outcome(root / "whole")["weights"]
    return {"losses": [row["loss"] for row in rows], "same": same, "dtypes": sorted(dtypes)}


if __name__ == "__main__":
    from distributed_processes import compared, lost  # beside this script

    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell that runs the tests in the background ignores it
    torch.set_num_threads(1)
    scenarios = (lost, compared, killed, interrupted, full, mixed)
    print(
        json.dumps(
            {
                scenario.__name__: scenario(Path(sys.argv[1]) / scenario.__name__)
                for scenario in scenarios
            }
        )
    )
