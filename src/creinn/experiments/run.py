"""Run an experiment: work out what is missing, do it in parallel by joblib, and record it piece by piece.

Running again does nothing twice. A run that was killed at any moment goes on where it was: finished pieces are
recorded, and a half-trained network goes on from its last checkpoint. A lock on each network keeps two processes from
the same work, should a worker outlive its run. Records copied from another machine count as done; where an ensemble
needs predictions that were not copied, its members are run again.
"""

import dataclasses
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from joblib.externals.loky import get_reusable_executor
from tqdm import tqdm

from creinn.allocation import keep_freed_memory
from creinn.classifier.methods import METHODS
from creinn.experiments import pieces
from creinn.experiments.definition import Arm, Experiment
from creinn.experiments.inputs import prepare_all
from creinn.experiments.pieces import Workshop
from creinn.experiments.plan import Piece, Plan, make_plan
from creinn.experiments.records import encode_image
from creinn.experiments.store import Store
from creinn.experiments.timing import measure_time
from creinn.files import write_bytes
from creinn.report.provenance import provenance

COSTS = {"creinn": 3.5, "bnn-f": 3.0, "bnn-r": 2.5, "fsvi": 1.5}
"""Time of a training step relative to the SNN, roughly: long trainings start first, so that they are better shared."""


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
    shop = Workshop(
        *(experiment, sources, store, provenance(f"creinn experiment run {experiment.name}"), device),
        threads=max(1, cores // jobs),
    )
    about = manifest(shop, plan)
    store.pack(about, plan.pieces)
    runs = outstanding_runs(plan, store)
    runs.sort(key=lambda piece: -COSTS.get(METHODS[piece.method].kind, 1))
    results: list[Result] = []
    try:
        results += _work(_do_run, shop, plan, runs, jobs, progress)
        ready = [piece for piece in plan.ensembles if not store.has_record(piece) and _has_members(piece, store)]
        results += _work(_do_ensemble, shop, plan, ready, jobs)
        timings = [piece for piece in plan.timings if not store.has_record(piece)]
        results += _work(_do_timing, dataclasses.replace(shop, threads=cores), plan, timings)
    finally:
        store.pack(about, plan.pieces)
    failed = {name: error for names, error in results if error for name in names}
    done = tuple(name for names, error in results if not error for name in names)
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


def manifest(shop: Workshop, plan: Plan) -> dict[str, Any]:
    """Which pieces the experiment consists of, for the report."""
    test = shop.sources.test.read()
    entries = [
        {
            "name": piece.name,
            "kind": piece.kind,
            "method": piece.method,
            "number": piece.number,
            "arm": plan.arms[piece.key].name if piece.key in plan.arms else None,
            "training": piece.needs[0].name if piece.kind == "evaluate" else None,
        }
        for piece in plan.pieces
    ]
    return {
        "experiment": dataclasses.asdict(shop.experiment),
        "images": {
            f"{shop.sources.train.name} (training)": list(shop.sources.train.shape),
            **{source.name: list(source.shape) for source in (shop.sources.test, *shop.sources.ood)},
        },
        "classes": list(test.classes),
        "sample": encode_image(np.asarray(test.inputs[0])),
        "pieces": entries,
    }


Result = tuple[tuple[str, ...], str | None]  # names of the pieces that were done, or of the one that failed and why


def _work(
    do: Callable[..., list[str]], shop: Workshop, plan: Plan, todo: Sequence[Piece], jobs: int = 1, shown: bool = False
) -> list[Result]:
    """Do all pieces, here or in processes of their own."""
    if not todo:
        return []
    tasks = (joblib.delayed(_attempt)(do, shop, piece, plan.arms.get(piece.key, Arm()), jobs > 1) for piece in todo)
    parallel = joblib.Parallel(n_jobs=min(jobs, len(todo)), batch_size=1, return_as="generator_unordered")
    bar = {"total": len(todo), "desc": shop.experiment.name, "unit": "network", "disable": not shown}
    threads = torch.get_num_threads()
    try:
        return list(tqdm(parallel(tasks), mininterval=1.0 if sys.stderr.isatty() else 60.0, **bar))
    except KeyboardInterrupt:
        if jobs > 1:
            get_reusable_executor().shutdown(wait=False, kill_workers=True)
        raise
    finally:
        torch.set_num_threads(threads)


def _attempt(do: Callable[..., list[str]], shop: Workshop, piece: Piece, arm: Arm, apart: bool) -> Result:
    """Do a piece, here or in a worker of its own; a failure is told, and others are done all the same."""
    if apart:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is left to the parent, which ends its workers
        keep_freed_memory()
    torch.set_num_threads(shop.threads)
    try:
        return tuple(do(shop, piece, arm)), None
    except Exception as error:
        write_bytes(shop.store.failure_path(piece), traceback.format_exc().encode())
        return (piece.name,), " ".join(str(error).split()) or type(error).__name__


def _do_run(shop: Workshop, evaluation: Piece, arm: Arm) -> list[str]:
    """Train and evaluate one network, as far as that is not done; gives the names of what was done."""
    store, done = shop.store, list[str]()
    (training,) = evaluation.needs
    for needed in (*training.needs, training):
        with store.lock(needed):
            if not (store.weights_path(needed).is_file() and store.has_record(needed)):
                pieces.train(shop, needed, arm)
                done.append(needed.name)
    with store.lock(evaluation):
        if not (store.predictions_path(evaluation).is_file() and store.has_record(evaluation)):
            pieces.evaluate(shop, evaluation, arm)
            done.append(evaluation.name)
    return done


def _do_ensemble(shop: Workshop, ensemble: Piece, arm: Arm) -> list[str]:
    pieces.combine(shop, ensemble, arm)
    return [ensemble.name]


def _do_timing(shop: Workshop, timing: Piece, arm: Arm) -> list[str]:
    measure_time(shop, timing)
    return [timing.name]


def _has_members(ensemble: Piece, store: Store) -> bool:
    return all(store.predictions_path(member).is_file() for member in ensemble.needs)
