"""Run an experiment: work out what is missing, do it in parallel by joblib, and record it piece by piece.

Running again does nothing twice, and a run that was killed goes on where it was; a lock on each piece keeps a worker
that outlived its run, or was given up by its cluster, from the same work. Records from another machine count as done.
"""

import dataclasses
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from tqdm import tqdm

from creinn.classifier.methods import METHODS
from creinn.experiments import pieces
from creinn.experiments.cluster import Backend, Crew, workers
from creinn.experiments.definition import Experiment
from creinn.experiments.inputs import prepare_all
from creinn.experiments.pieces import Workshop
from creinn.experiments.plan import Piece, make_plan
from creinn.experiments.predictions import encode_image
from creinn.experiments.store import Store
from creinn.files import write_bytes
from creinn.malloc import keep_freed_memory

_COSTS = {"creinn": 3.5, "bnn-f": 3.0, "bnn-r": 2.5, "fsvi": 1.5}
"""Time of a training step relative to the SNN, roughly: long trainings start first, so that they are better shared."""

_ONE_PIECE = threading.Lock()  # at a time: seeds and numbers of threads belong to the whole process

Result = tuple[
    tuple[str, ...], str | None
]  # names of the pieces that were done, or of the one that failed and why


@dataclass(frozen=True)
class Outcome:
    """What a run did."""

    total: int  # number of pieces of the experiment
    done: tuple[str, ...]  # pieces done now
    failed: dict[str, str]  # pieces that failed, with the reason


def run_experiment(
    experiment: Experiment,
    data: str | Path,
    out: str | Path,
    jobs: int = 1,
    device: str = "cpu",
    complete: bool = True,
    progress: bool = True,
    resumable: bool = True,
    backend: Backend = "loky",
    address: str | None = None,
    threads: int | None = None,
) -> Outcome:
    """Do all of an experiment that is not yet recorded; a piece that fails does not keep others from being done.

    Args:
        experiment: What to do.
        data: Folder of the data sets.
        out: Folder of the results; several experiments may share one, and then share their trained networks. All
            workers of a cluster must see it, under the same path.
        jobs: Processes of this machine that work at the same time.
        device: Where to compute, as torch names it; ``"auto"`` takes a GPU if there is one.
        complete: Whether to insist on whole copies of the published data sets.
        progress: Whether to show a progress bar.
        resumable: Whether a training that is killed can go on from a checkpoint; takes time where networks are small.
        backend: What joblib runs on: processes of this machine, or Dask or Ray.
        address: Of a Dask scheduler or a Ray cluster, all of whose workers are used; local ones are started without.
        threads: Of torch in each worker; its share of the cores here, and 1 on a cluster, if not given.

    Raises:
        ChildProcessError: If workers were lost for good; what was recorded is kept.
        FileNotFoundError: If a data set is not there; the message says what was looked for.
        ImportError: If the backend is not installed.
        ValueError: If a data set is damaged or does not fit, or ``jobs``, ``backend`` and ``address`` do not.
    """
    if experiment.timing is not None:
        if backend != "loky":
            raise ValueError(
                f"{experiment.name} takes times, on this machine and alone: leave backend={backend} out."
            )
        jobs = 1  # with all cores
    start = workers(backend, jobs, address)
    threads = threads or (max(1, torch.get_num_threads() // jobs) if address is None else 1)
    store = Store(Path(out).absolute())  # workers may stand elsewhere
    sources = prepare_all(experiment, Path(data), store.out / "work" / "data", complete)
    plan = make_plan(experiment, sources.identities)
    command = f"creinn experiment run {experiment.name}"
    shop = Workshop(experiment, sources, store, command, device, threads, resumable)
    manifest = _manifest(shop, plan)
    store.pack(manifest, plan)
    missing = [piece for piece in plan if not store.has("records", piece)]
    if not missing:
        return Outcome(len(plan), (), {})
    try:
        with start as crew:
            results = _work(shop, _outstanding_runs(plan, store), crew, progress)
            rest = [piece for piece in missing if piece.kind in ("ensemble", "time")]
            ready = [
                piece
                for piece in rest
                if all(store.has("predictions", member) for member in piece.needs)
            ]
            results += _work(shop, ready, crew)
    finally:
        store.pack(manifest, plan)
    failed = {name: error for names, error in results if error for name in names}
    lost = [piece.name for piece in missing if not store.has("records", piece)]
    if not failed:
        failed = dict.fromkeys(
            lost, f"no record of it in {store.out}. Do all workers see this folder?"
        )
    done = [name for names, error in results if not error for name in names]
    done += [
        piece.name for piece in missing if piece.name not in lost
    ]  # also by workers that did not live to tell
    return Outcome(len(plan), tuple(dict.fromkeys(done)), failed)


def _outstanding_runs(plan: Sequence[Piece], store: Store) -> list[Piece]:
    """Evaluations to be done, or whose predictions an ensemble that is to be made lacks; long trainings first."""
    missing = {piece.key for piece in plan if not store.has("records", piece)}
    members = {
        m.key: m
        for piece in plan
        if piece.kind == "ensemble" and piece.key in missing
        for m in piece.needs
    }
    missing |= {key for key, member in members.items() if not store.has("predictions", member)}
    runs = [
        p
        for p in plan
        if p.kind == "evaluate" and missing & {p.key, *(needed.key for needed in p.needs)}
    ]
    return sorted(runs, key=lambda piece: -_COSTS.get(METHODS[piece.method].kind, 1))


def _manifest(shop: Workshop, plan: Sequence[Piece]) -> dict[str, Any]:
    """Which pieces the experiment consists of, for the report."""
    sources, test = shop.sources, shop.sources.test.read()
    return {
        "experiment": dataclasses.asdict(shop.experiment),
        "images": {
            f"{sources.train.name} (training)": list(sources.train.shape),
            **{source.name: list(source.shape) for source in (sources.test, *sources.ood)},
        },
        "classes": list(test.classes),
        "sample": encode_image(np.asarray(test.inputs[0])),
        "pieces": [
            {
                **{name: getattr(piece, name) for name in ("name", "kind", "method", "number")},
                "arm": piece.arm.name if piece.kind in ("evaluate", "ensemble") else None,
                "training": piece.needs[0].name if piece.kind == "evaluate" else None,
            }
            for piece in plan
        ],
    }


def _work(shop: Workshop, todo: Sequence[Piece], crew: Crew, shown: bool = False) -> list[Result]:
    """Do all pieces, here or in processes of their own; workers that come later find all that is left to do."""
    if not todo:
        return []
    tasks = (joblib.delayed(_attempt)(shop, piece, os.getpid()) for piece in todo)
    n_jobs = min(crew.n_jobs, len(todo))
    parallel = joblib.Parallel(n_jobs, return_as=crew.return_as, batch_size=1, pre_dispatch="all")
    bar = {
        "total": len(todo),
        "desc": shop.experiment.name,
        "unit": "network",
        "disable": not shown,
    }
    threads = torch.get_num_threads()
    try:
        return list(tqdm(parallel(tasks), mininterval=1.0 if sys.stderr.isatty() else 60.0, **bar))
    except Exception as error:  # not of a piece, which would be told
        found = f"The run was stopped by {type(error).__name__}: {' '.join(str(error).split())}"
        raise ChildProcessError(f"{found} What is recorded is kept: run again to go on.") from error
    finally:
        torch.set_num_threads(threads)


def _attempt(shop: Workshop, last: Piece, parent: int) -> Result:
    """Do a piece and, before an evaluation, its trainings, as far as not done; a failure is told."""
    if os.getpid() != parent:
        keep_freed_memory()
        if threading.current_thread() is threading.main_thread():
            signal.signal(
                signal.SIGINT, signal.SIG_IGN
            )  # Ctrl-C is left to the parent, which ends its workers
    with _ONE_PIECE:
        torch.set_num_threads(shop.threads)
        return _do(shop, last)


def _do(shop: Workshop, last: Piece) -> Result:
    work = {
        "train": ("weights", pieces.train),
        "evaluate": ("predictions", pieces.evaluate),
        "ensemble": ("records", pieces.combine),
        "time": ("records", pieces.measure_time),
    }
    trainings = last.needs if last.kind == "evaluate" else ()
    done = []
    try:
        for piece in (
            *(start for training in trainings for start in training.needs),
            *trainings,
            last,
        ):
            result, do = work[piece.kind]
            with shop.store.lock(piece):
                if not (shop.store.has(result, piece) and shop.store.has("records", piece)):
                    do(shop, piece)
                    done.append(piece.name)
    except Exception as error:
        write_bytes(shop.store.path("failures", last), traceback.format_exc().encode())
        return (last.name,), " ".join(str(error).split()) or type(error).__name__
    return tuple(done), None
