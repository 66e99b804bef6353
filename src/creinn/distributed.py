"""Functions for the processes of the default ``torch.distributed`` group.

Without a group, there is one process.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.utils._pytree as pytree
from torch import Tensor

if dist.is_available():
    # If it is imported after a group is created, its default arguments keep the
    # group alive, and a thread can abort the process at exit.
    import torch.distributed.nn.functional

T = TypeVar("T")
SYNC_SECONDS = 0.5  # between two synchronizations
_SINGLE_PROCESS = ContextVar("single_process", default=False)
_LOST = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "timed out")


def world_size() -> int:
    """Return the number of processes; 1 inside :func:`single_process`."""
    has_group = dist.is_available() and dist.is_initialized() and not _SINGLE_PROCESS.get()
    return dist.get_world_size() if has_group else 1


def rank() -> int:
    """Return the index of this process."""
    return dist.get_rank() if world_size() > 1 else 0


@contextmanager
def single_process() -> Iterator[None]:
    """Compute as if there is only one process."""
    token = _SINGLE_PROCESS.set(True)
    try:
        yield
    finally:
        _SINGLE_PROCESS.reset(token)


@contextmanager
def process_group(device: str = "cpu") -> Iterator[None]:
    """Join the process group of torchrun, if any, and leave it on exit.

    The backend is nccl on GPUs and gloo on CPUs. An existing group is
    kept.
    """
    if "WORLD_SIZE" not in os.environ or not dist.is_available() or dist.is_initialized():
        yield
        return
    on_gpu = torch.cuda.is_available() and device != "cpu"
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def all_sum(tensor: Tensor) -> Tensor:
    """Return the sum of the tensors of all processes, without gradient."""
    if world_size() == 1:
        return tensor
    total = tensor.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def gather(value: T) -> list[T]:
    """Return the values of all processes by rank; they must support pickle."""
    values: list[Any] = [value] * world_size()
    if world_size() > 1:
        dist.all_gather_object(values, value)
    return values


def broadcast_object(compute: Callable[[], T]) -> T:
    """Call ``compute`` on rank 0, and return its result on all processes.

    An error is raised on all processes. Rank 0 uses
    :func:`single_process`. Tensors are moved to the CPU.
    """
    if world_size() == 1:
        return compute()
    outcome: list[Any] = [None, None]
    if rank() == 0:
        try:
            with single_process():
                outcome[0] = pytree.tree_map_only(Tensor, lambda t: t.detach().cpu(), compute())
        except Exception as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome, src=0)
    if outcome[1] is not None:
        raise outcome[1]
    result: T = outcome[0]
    return result


def broadcast_state(module: torch.nn.Module) -> None:
    """Copy the parameters and buffers of rank 0 to all processes."""
    if world_size() > 1:
        module.load_state_dict(broadcast_object(module.state_dict))


def check_equal(given: dict[str, Any]) -> None:
    """Raise a ``ValueError`` if a value differs between processes."""
    first, *others = gather(given)
    for number, other in enumerate(others, 1):
        if names := [name for name, value in first.items() if other[name] != value]:
            found = f"Process {number} was given another {names[0]} than process 0"
            raise ValueError(
                f"{found}. Use the same model, data and settings; fit divides batches."
            )


class SyncTimer:
    """Choose the steps in which the host waits for the device, two per second.

    Ctrl-C stops all processes of a group at the next of these steps.
    """

    _handler: Any = None
    _has_stopped = False
    _interrupts = 0
    _interval = 1  # steps, in all processes
    _steps = 0  # since the last synchronization

    def __init__(self, device: torch.device) -> None:
        self._device, self._last = device, time.perf_counter()

    def __enter__(self) -> "SyncTimer":
        if world_size() > 1 and threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self._interrupts and not self._has_stopped and error[0] is None:
            raise KeyboardInterrupt  # received after the last step

    def _interrupt(self, *_: Any) -> None:
        self._interrupts += 1
        if self._interrupts > 2:  # from the terminal and from torchrun
            raise KeyboardInterrupt

    def is_due(self) -> bool:
        """Return whether to synchronize after this step."""
        self._steps += 1
        seconds, has_group = time.perf_counter() - self._last, world_size() > 1
        is_early = self._steps < self._interval if has_group else seconds <= SYNC_SECONDS
        if is_early:
            return False
        if has_group:
            interval = max(1, int(self._steps * SYNC_SECONDS / seconds)) if rank() == 0 else 0
            message = torch.tensor([interval, self._interrupts], device=self._device)
            self._interval, interrupts = all_sum(message).tolist()
            if interrupts:
                self._has_stopped = True
                raise KeyboardInterrupt
        self._last, self._steps = time.perf_counter(), 0
        return True


@contextmanager
def report_lost_processes(can_resume: bool) -> Iterator[None]:
    """Raise a ``ConnectionError`` with advice if torch lost a process."""
    try:
        yield
    except RuntimeError as error:
        is_known = any(sign in str(error).lower() for sign in _LOST)
        if world_size() == 1 or not (isinstance(error, dist.DistError) or is_known):
            raise
        found = f"Process {rank()} of {world_size()} lost the connection to another process"
        again = "Start all processes again to resume from the last checkpoint."
        advice = again if can_resume else "Set a checkpoint directory to be able to resume."
        reason = str(error).splitlines()[0].split(". ")[0]
        raise ConnectionError(f"{found}. {advice} ({reason})") from error
