"""Execution of the missing tasks of an experiment in parallel with joblib.

Tasks with a record are skipped, also if the record comes from another machine.
An interrupted run continues from its checkpoints. A lock on each task prevents
two workers from doing the same work.
"""

import dataclasses
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from tqdm import tqdm

from creinn.classifier.methods import METHODS
from creinn.files import write_bytes
from creinn.malloc import keep_freed_memory
from experiments import tasks
from experiments.definition import Experiment
from experiments.parallel import Backend, ParallelConfig, workers
from experiments.plan import Task, make_plan
from experiments.predictions import encode_image
from experiments.preparation import prepare_all
from experiments.store import Store
from experiments.tasks import RunContext

_COSTS = {"creinn": 3.5, "bnn-f": 3.0, "bnn-r": 2.5, "fsvi": 1.5}
"""Approximate relative time of a training step; long trainings start first."""

_ONE_TASK = threading.Lock()  # one run per process, because seeds are global

Result = tuple[tuple[str, ...], str | None]  # done tasks, or failed task and reason


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Settings of a run that are not part of an experiment.

    Attributes:
        jobs: Number of processes on this machine.
        backend: Backend of joblib: processes of this machine, Dask or Ray.
        address: Address of a Dask scheduler or a Ray cluster. By default, local
            workers are started.
        threads: Number of torch threads of each worker. The default is an equal
            share of the cores on this machine, and 1 on a cluster.
        device: Torch device; ``"auto"`` is a GPU if there is one.
        complete: Whether the data sets must be complete.
        progress: Whether to show a progress bar.
    """

    jobs: int = 1
    backend: Backend = "loky"
    address: str | None = None
    threads: int | None = None
    device: str = "cpu"
    complete: bool = True
    progress: bool = True


@dataclass(frozen=True)
class Outcome:
    """Result of a run."""

    total: int  # number of tasks of the experiment
    done: tuple[str, ...]  # tasks completed by this run
    failed: dict[str, str]  # tasks that failed, with the reason


def run_experiment(
    experiment: Experiment, data: str | Path, out: str | Path, config: RunConfig | None = None
) -> Outcome:
    """Run all tasks of an experiment that have no record yet.

    A task that fails does not stop the others.

    Args:
        experiment: The experiment.
        data: Directory of the data sets.
        out: Directory of the results, with the same path on all workers.
            Experiments in the same directory share their trained networks.
        config: Settings of the run; the default is :class:`RunConfig`.

    Raises:
        ChildProcessError: If workers were lost; completed records are kept.
        FileNotFoundError: If a data set is missing.
        ImportError: If the backend is not installed.
        ValueError: If a data set is damaged or does not fit, or the
            configuration is invalid.
    """
    config = RunConfig() if config is None else config
    if experiment.timing is not None:
        if config.backend != "loky":
            raise ValueError(
                f"{experiment.name} measures times and runs on this machine only: omit "
                f"backend={config.backend}."
            )
        config = replace(config, jobs=1)  # uses all cores
    start = workers(config.backend, config.jobs, config.address)
    store = Store(Path(out).absolute())  # absolute, because workers may have another directory
    sources = prepare_all(experiment, Path(data), store.out / "work" / "data", config.complete)
    plan = make_plan(experiment, sources.identities)
    command = f"python -m experiments run {experiment.name}"
    context = RunContext(experiment, sources, store, command, config.device, _threads(config))
    manifest = _manifest(context, plan)
    store.pack(manifest, plan)
    missing = [task for task in plan if not store.has("records", task)]
    if not missing:
        return Outcome(len(plan), (), {})
    try:
        with start as parallel:
            results = _work(context, _outstanding_runs(plan, store), parallel, config.progress)
            rest = [task for task in missing if task.kind in ("ensemble", "time")]
            ready = [
                task
                for task in rest
                if all(store.has("predictions", member) for member in task.needs)
            ]
            results += _work(context, ready, parallel)
    finally:
        store.pack(manifest, plan)
    return _outcome(results, missing, len(plan), store)


def _threads(config: RunConfig) -> int:
    if config.threads is not None:
        return config.threads
    return 1 if config.address is not None else max(1, torch.get_num_threads() // config.jobs)


def _outcome(
    results: Sequence[Result], missing: Sequence[Task], total: int, store: Store
) -> Outcome:
    failed = {name: error for names, error in results if error for name in names}
    lost = [task.name for task in missing if not store.has("records", task)]
    if not failed:
        reason = f"no record of it in {store.out}. Do all workers see this directory?"
        failed = dict.fromkeys(lost, reason)
    done = [name for names, error in results if not error for name in names]
    # Lost workers may have written records.
    done += [task.name for task in missing if task.name not in lost]
    return Outcome(total, tuple(dict.fromkeys(done)), failed)


def _outstanding_runs(plan: Sequence[Task], store: Store) -> list[Task]:
    """Return missing evaluations and those of ensembles, long trainings first."""
    missing = {task.key for task in plan if not store.has("records", task)}
    members = {
        m.key: m
        for task in plan
        if task.kind == "ensemble" and task.key in missing
        for m in task.needs
    }
    missing |= {key for key, member in members.items() if not store.has("predictions", member)}
    runs = [
        p
        for p in plan
        if p.kind == "evaluate" and missing & {p.key, *(needed.key for needed in p.needs)}
    ]
    return sorted(runs, key=lambda task: -_COSTS.get(METHODS[task.method].kind, 1))


def _manifest(context: RunContext, plan: Sequence[Task]) -> dict[str, Any]:
    """Return the list of tasks for the report."""
    sources, test = context.sources, context.sources.test.read()
    return {
        "experiment": _settings(context.experiment),
        "images": {
            f"{sources.train.name} (training)": list(sources.train.shape),
            **{source.name: list(source.shape) for source in (sources.test, *sources.ood)},
        },
        "classes": list(test.classes),
        "sample": encode_image(np.asarray(test.inputs[0])),
        "pieces": [
            {
                **{name: getattr(task, name) for name in ("name", "kind", "method", "number")},
                "arm": task.condition.name if task.kind in ("evaluate", "ensemble") else None,
                "training": task.needs[0].name if task.kind == "evaluate" else None,
            }
            for task in plan
        ],
    }


def _settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings for the records, which call conditions arms."""
    settings = dataclasses.asdict(experiment)
    return {("arms" if name == "conditions" else name): found for name, found in settings.items()}


def _work(
    context: RunContext, todo: Sequence[Task], how: ParallelConfig, shown: bool = False
) -> list[Result]:
    """Run all tasks in this process or in workers."""
    if not todo:
        return []
    calls = (joblib.delayed(_attempt)(context, task, os.getpid()) for task in todo)
    n_jobs = min(how.n_jobs, len(todo))
    parallel = joblib.Parallel(n_jobs, return_as=how.return_as, batch_size=1, pre_dispatch="all")
    bar = {
        "total": len(todo),
        "desc": context.experiment.name,
        "unit": "network",
        "disable": not shown,
    }
    threads = torch.get_num_threads()
    try:
        return list(tqdm(parallel(calls), mininterval=1.0 if sys.stderr.isatty() else 60.0, **bar))
    except Exception as error:  # an error outside of a task
        found = f"The run was stopped by {type(error).__name__}: {' '.join(str(error).split())}"
        raise ChildProcessError(f"{found} What is recorded is kept: run again to go on.") from error
    finally:
        torch.set_num_threads(threads)


def _attempt(context: RunContext, last: Task, parent: int) -> Result:
    """Run a task after its trainings; return the done and failed tasks."""
    if os.getpid() != parent:
        keep_freed_memory()
        if threading.current_thread() is threading.main_thread():
            signal.signal(
                signal.SIGINT, signal.SIG_IGN
            )  # the parent handles Ctrl-C and stops its workers
    with _ONE_TASK:
        torch.set_num_threads(context.threads)
        return _do(context, last)


def _do(context: RunContext, last: Task) -> Result:
    work = {
        "train": ("weights", tasks.train),
        "evaluate": ("predictions", tasks.evaluate),
        "ensemble": ("records", tasks.combine),
        "time": ("records", tasks.measure_time),
    }
    trainings = last.needs if last.kind == "evaluate" else ()
    done = []
    try:
        for task in (
            *(start for training in trainings for start in training.needs),
            *trainings,
            last,
        ):
            result, do = work[task.kind]
            with context.store.lock(task):
                if not (context.store.has(result, task) and context.store.has("records", task)):
                    do(context, task)
                    done.append(task.name)
    except Exception as error:
        write_bytes(context.store.path("failures", last), traceback.format_exc().encode())
        return (last.name,), " ".join(str(error).split()) or type(error).__name__
    return tuple(done), None
