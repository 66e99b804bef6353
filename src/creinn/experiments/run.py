"""Run an experiment: work out what is missing, do it in parallel, and record it piece by piece.

Running again does nothing twice, and several runs may share one folder, each doing what the others are not busy with.
A run that was killed at any moment goes on where it was: finished pieces are recorded, and a half-trained network goes
on from its last checkpoint. Records copied from another machine count as done; where an ensemble needs predictions that
were not copied, its members are run again.
"""

import dataclasses
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import torch
from joblib.externals.loky import get_reusable_executor
from tqdm import tqdm

from creinn.allocation import keep_freed_memory
from creinn.experiments import pieces
from creinn.experiments.definition import Arm, Experiment
from creinn.experiments.inputs import Sources, prepare_all
from creinn.experiments.pieces import Workshop
from creinn.experiments.plan import Piece, Plan, make_plan
from creinn.experiments.progress import progress_bar, training_cost
from creinn.experiments.records import encode_image
from creinn.experiments.store import Store, write_json
from creinn.experiments.timing import measure_time
from creinn.report.provenance import provenance
from creinn.tensorfile import write_bytes


@dataclass(frozen=True)
class Outcome:
    """What a run did.

    Args:
        total: Number of pieces of the experiment.
        done: Pieces done now.
        failed: Pieces that failed, with the reason.
    """

    total: int
    done: tuple[str, ...]
    failed: dict[str, str]


def run_experiment(
    experiment: Experiment,
    data: str | Path,
    out: str | Path,
    jobs: int = 1,
    device: str = "cpu",
    complete: bool = True,
    progress: bool = True,
) -> Outcome:
    """Do all of an experiment that is not yet recorded.

    Args:
        experiment: What to do.
        data: Folder of the data sets.
        out: Folder of the results; several experiments may share one, and then share their trained networks.
        jobs: Processes that work at the same time, each with its share of the cores.
        device: Where to compute, as torch names it; ``"auto"`` takes a GPU if there is one.
        complete: Whether to insist on whole copies of the published data sets.
        progress: Whether to show a progress bar.

    Returns:
        What was done; a piece that fails does not keep others from being done.

    Raises:
        FileNotFoundError: If a data set is not there; the message says what was looked for.
        ValueError: If a data set is damaged or does not fit, or ``jobs`` is less than 1.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}.")
    store = Store(Path(out))
    sources = prepare_all(experiment, Path(data), store.out / "work" / "data", complete)
    plan = make_plan(experiment, sources.identities)
    cores = torch.get_num_threads()
    threads = max(1, cores // jobs)
    origin = provenance(f"creinn experiment run {experiment.name}")
    shop = Workshop(experiment, sources, store, origin, device, threads)
    write_manifest(shop, plan)

    runs = outstanding_runs(plan, store)
    runs.sort(key=lambda piece: -training_cost(experiment, piece.needs[0], 1))  # long ones first: better shared out
    images = (sources.train.shape[0], _test_images(experiment, sources))
    tasks = {piece.name: (shop, piece, plan.arms[piece.key]) for piece in runs}
    with progress_bar(experiment, runs, store, images, progress):
        results = _work(_do_run, list(tasks.values()), jobs, threads)
        busy = [name for result in results if result.busy for name in result.names]  # another process has these
        results = [result for result in results if not result.busy]
        results += _work(_await_run, [tasks[name] for name in busy], jobs, threads)
    ready = [piece for piece in plan.ensembles if not store.has_record(piece) and _has_members(piece, store)]
    results += _work(_do_ensemble, [(shop, piece, plan.arms[piece.key]) for piece in ready], jobs, threads)
    alone = dataclasses.replace(shop, threads=cores)
    timings = [piece for piece in plan.timings if not store.has_record(piece)]
    results += _work(_do_timing, [(alone, piece, Arm()) for piece in timings], 1, alone.threads)
    failed = {name: result.error for result in results if result.error for name in result.names}
    done = tuple(name for result in results if not result.error for name in result.names)
    return Outcome(len(plan.pieces), done, failed)


def outstanding_runs(plan: Plan, store: Store) -> list[Piece]:
    """Evaluations that are to be done, or whose predictions an ensemble that is to be made lacks."""
    wanted = {member.key for piece in plan.ensembles if not store.has_record(piece) for member in piece.needs}
    return [
        piece
        for piece in plan.evaluations
        if not store.has_record(piece)
        or not store.has_record(piece.needs[0])
        or (piece.key in wanted and not store.predictions_path(piece).is_file())
    ]


def write_manifest(shop: Workshop, plan: Plan) -> None:
    """Write which pieces the experiment consists of, for the report."""
    test = shop.sources.test.read()
    entries = [
        {
            "file": f"{piece.name}.json",
            "kind": piece.kind,
            "method": piece.method,
            "number": piece.number,
            "arm": plan.arms[piece.key].name if piece.key in plan.arms else None,
            "training": f"{piece.needs[0].name}.json" if piece.kind == "evaluate" else None,
        }
        for piece in plan.pieces
    ]
    manifest = {
        "experiment": dataclasses.asdict(shop.experiment),
        "images": {
            f"{shop.sources.train.name} (training)": list(shop.sources.train.shape),
            **{source.name: list(source.shape) for source in (shop.sources.test, *shop.sources.ood)},
        },
        "classes": list(test.classes),
        "sample": encode_image(np.asarray(test.inputs[0])),
        "pieces": entries,
    }
    write_json(shop.store.manifest_path(shop.experiment.name), manifest)


class Result(NamedTuple):
    """Names of the pieces that were done, or of the one that failed or that another process is busy with."""

    names: tuple[str, ...]
    error: str | None = None
    busy: bool = False


Task = tuple[Workshop, Piece, Arm]


def _work(do: Callable[..., Result], tasks: Sequence[Task], jobs: int, threads: int) -> list[Result]:
    """Do all tasks, here or in processes of their own."""
    if not tasks:
        return []
    if jobs == 1:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return [do(*task) for task in tasks]
        finally:
            torch.set_num_threads(before)
    parallel = joblib.Parallel(n_jobs=min(jobs, len(tasks)), batch_size=1, return_as="generator_unordered")
    try:
        return list(parallel(joblib.delayed(_in_worker)(do, task, threads, os.getpid()) for task in tasks))
    except KeyboardInterrupt:
        get_reusable_executor().shutdown(wait=False, kill_workers=True)
        raise


def _in_worker(do: Callable[..., Result], task: Task, threads: int, parent: int) -> Result:
    """Do a task in a worker: Ctrl-C is left to the parent, which ends its workers; without the parent they end too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tqdm.set_lock(threading.RLock())  # its default is shared between processes, and leaks when a worker is ended
    _watch_parent(parent)
    keep_freed_memory()
    torch.set_num_threads(threads)
    return do(*task)


def _watch_parent(parent: int) -> None:
    if any(thread.name == "watch-parent" for thread in threading.enumerate()):
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)  # whatever was under way goes on from its last checkpoint

    if os.getppid() == parent:
        threading.Thread(target=watch, name="watch-parent", daemon=True).start()


def _do_run(shop: Workshop, evaluation: Piece, arm: Arm, wait: bool = False) -> Result:
    """Train and evaluate one network, as far as that is not done."""
    (training,) = evaluation.needs
    store, done = shop.store, []
    try:
        with store.lock(training, wait) as held:
            if not held:
                return Result((evaluation.name,), busy=True)
            for needed in training.needs:
                with store.lock(needed):
                    done += _train(shop, needed, arm)
            done += _train(shop, training, arm)
            if not (store.predictions_path(evaluation).is_file() and store.has_record(evaluation)):
                pieces.evaluate(shop, evaluation, arm)
                done.append(evaluation.name)
    except Exception as error:  # others shall be done all the same
        return Result((evaluation.name,), _failure(store, evaluation, error))
    return Result(tuple(done))


def _train(shop: Workshop, training: Piece, arm: Arm) -> list[str]:
    """Train a network if that is not done; gives the name of what was done."""
    if shop.store.weights_path(training).is_file() and shop.store.has_record(training):
        return []
    pieces.train(shop, training, arm)
    return [training.name]


def _await_run(shop: Workshop, evaluation: Piece, arm: Arm) -> Result:
    return _do_run(shop, evaluation, arm, wait=True)


def _do_ensemble(shop: Workshop, ensemble: Piece, arm: Arm) -> Result:
    return _do_one(lambda: pieces.combine(shop, ensemble, arm), shop.store, ensemble)


def _do_timing(shop: Workshop, timing: Piece, arm: Arm) -> Result:
    return _do_one(lambda: measure_time(shop, timing), shop.store, timing)


def _do_one(do: Callable[[], None], store: Store, piece: Piece) -> Result:
    try:
        with store.lock(piece):
            if store.has_record(piece):
                return Result(())
            do()
    except Exception as error:  # others shall be done all the same
        return Result((piece.name,), _failure(store, piece, error))
    return Result((piece.name,))


def _failure(store: Store, piece: Piece, error: Exception) -> str:
    write_bytes(store.failure_path(piece), traceback.format_exc().encode())
    return " ".join(str(error).split()) or type(error).__name__


def _has_members(ensemble: Piece, store: Store) -> bool:
    return all(store.predictions_path(member).is_file() for member in ensemble.needs)


def _test_images(experiment: Experiment, sources: Sources) -> int:
    tests: Any = sum(len(arm.tests) for arm in experiment.arms) / max(1, len(experiment.arms))
    return int(tests * sources.test.shape[0]) + sum(source.shape[0] for source in sources.ood)
