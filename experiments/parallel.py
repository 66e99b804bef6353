"""Distribution of tasks with joblib to processes or a Dask or Ray cluster.

A worker runs one task at a time. All workers must see the directory of the
results.
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
}  # restarts of a killed Ray task; Dask restarts by default
_PATIENCE = 300  # seconds to wait for the first worker of a cluster


class ParallelConfig(NamedTuple):
    """Arguments of :class:`joblib.Parallel`."""

    n_jobs: int = -1  # all workers of the cluster
    return_as: str = "generator_unordered"


def workers(
    backend: Backend, jobs: int = 1, address: str | None = None
) -> contextlib.AbstractContextManager[ParallelConfig]:
    """Connect joblib to ``jobs`` local workers or a cluster at ``address``.

    Raises:
        ImportError: If the backend is not installed.
        ValueError: If the backend is unknown, or if both a number of jobs and
            an address are given.
    """
    starts = {"loky": _loky, "dask": _dask, "ray": _ray}
    if backend not in starts:
        raise ValueError(f"There is no backend {backend!r}; there are {', '.join(starts)}.")
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}.")
    if address is not None and backend == "loky":
        raise ValueError(
            f"The backend loky has no address, got {address}. Use the backend dask or ray."
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
                why = "would block the other tasks; start workers with --nthreads 1"
                raise ValueError(
                    f"The worker {worker} of the Dask cluster has {threads} threads, which {why}."
                )
        stack.enter_context(joblib.parallel_config("dask", client=client))
        backend: Any = joblib.parallel.get_active_backend()[0]
        backend.effective_n_jobs = lambda n_jobs: (
            2
        )  # all tasks at once; joblib does not use Dask with 1
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
            yield ParallelConfig(return_as="list")  # required by ray
    finally:
        ray.shutdown()
