"""Where tasks are worked on: processes of this machine (loky), or the workers of a Dask or Ray cluster; all by joblib.

A worker does one task at a time. All of them must see the folder of results, through which tasks reach each other.
"""

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import joblib

Backend = Literal["loky", "dask", "ray"]
_RETRIES = {
    "max_restarts": 3,
    "max_task_retries": 3,
}  # of a worker of Ray that was killed, as Dask does by itself
_PATIENCE = 300  # seconds, in which the first worker of a cluster must come


class ParallelConfig(NamedTuple):
    """What :class:`joblib.Parallel` is told."""

    n_jobs: int = -1  # all workers that there are
    return_as: str = "generator_unordered"


def workers(
    backend: Backend, jobs: int = 1, address: str | None = None
) -> contextlib.AbstractContextManager[ParallelConfig]:
    """What joblib works with while the context is open: ``jobs`` local workers, or those of the cluster at ``address``.

    Raises:
        ImportError: If the backend is not installed; the message says how to get it.
        ValueError: If the backend is unknown, or a number of jobs and an address do not go together.
    """
    starts = {"loky": _loky, "dask": _dask, "ray": _ray}
    if backend not in starts:
        raise ValueError(f"There is no backend {backend!r}; there are {', '.join(starts)}.")
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}.")
    if address is not None and backend == "loky":
        raise ValueError(
            f"The backend loky works on this machine alone: for {address} choose the backend dask or ray."
        )
    if address is not None and jobs > 1:
        raise ValueError(
            f"All workers of the cluster at {address} are used: leave jobs={jobs} out."
        )
    package = {"dask": "distributed"}.get(backend, backend)
    if backend != "loky" and find_spec(package) is None:
        needs = f"The backend {backend} needs {package}, which is not installed"
        raise ImportError(f"{needs}. Install it with: pip install creinn[{backend}]")
    return starts[backend](jobs, address)


@contextlib.contextmanager
def _loky(jobs: int, _: str | None) -> Iterator[ParallelConfig]:
    with joblib.parallel_config("loky"):
        yield ParallelConfig(jobs)


@contextlib.contextmanager
def _dask(jobs: int, address: str | None) -> Iterator[ParallelConfig]:
    from distributed import Client, LocalCluster

    local: dict[str, Any] = {"n_workers": jobs, "threads_per_worker": 1, "memory_limit": 0}
    local |= {"dashboard_address": ":0", "silence_logs": "ERROR"}
    with contextlib.ExitStack() as stack:
        where = address or stack.enter_context(LocalCluster(**local))
        client = stack.enter_context(Client(where, set_as_default=False))
        client.wait_for_workers(1, timeout=_PATIENCE)
        for worker, threads in client.nthreads().items():
            if threads > 1:
                why = "would work on one task alone, with the others waiting: start workers with --nthreads 1"
                raise ValueError(
                    f"The worker {worker} of the Dask cluster has {threads} threads, which {why}."
                )
        stack.enter_context(joblib.parallel_config("dask", client=client))
        backend: Any = joblib.parallel.get_active_backend()[0]
        backend.effective_n_jobs = lambda n_jobs: (
            2
        )  # all is handed out at once; of 1 joblib would make no use of Dask
        yield ParallelConfig()


@contextlib.contextmanager
def _ray(jobs: int, address: str | None) -> Iterator[ParallelConfig]:
    import ray
    from ray.util.joblib import register_ray

    register_ray()
    local: dict[str, Any] = (
        {"num_cpus": jobs, "include_dashboard": False} if address is None else {}
    )
    ray.init(address or "local", log_to_driver=False, logging_level="ERROR", **local)
    try:
        with joblib.parallel_config("ray", ray_remote_args=_RETRIES):
            yield ParallelConfig(
                return_as="list"
            )  # it has no other, so that progress shows at the end
    finally:
        ray.shutdown()
