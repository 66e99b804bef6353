"""Functions for several processes, based on ``torch.distributed``.

The functions use the default process group, which is started by torchrun. If there is no group,
there is one process, and no messages are sent.
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
from torch.nn.parallel import DistributedDataParallel

T = TypeVar("T")
SYNC_SECONDS = 0.5  # the time between two synchronizations of the host with the device
_SINGLE_PROCESS = ContextVar("single_process", default=False)
_LOST = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "timed out")


def world_size() -> int:
    """Return the number of processes, which is 1 inside :func:`single_process`."""
    has_group = dist.is_available() and dist.is_initialized() and not _SINGLE_PROCESS.get()
    return dist.get_world_size() if has_group else 1


def rank() -> int:
    """Return the index of this process."""
    return dist.get_rank() if world_size() > 1 else 0


@contextmanager
def single_process() -> Iterator[None]:
    """Compute as if there is only one process, without messages to the others."""
    token = _SINGLE_PROCESS.set(True)
    try:
        yield
    finally:
        _SINGLE_PROCESS.reset(token)


@contextmanager
def process_group(device: str = "cpu") -> Iterator[None]:
    """Join the process group of the environment variables of torchrun, and leave it.

    If there are no such variables, nothing is done. The backend is nccl on GPUs and gloo on CPUs.
    If there is already a group, it is used.
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
    """Return the sum of the tensors of all processes, without gradient.

    It must be called by all processes in the same order and with the same shape and dtype.

    Example:
        >>> all_sum(torch.ones(2))  # one process
        tensor([1., 1.])
    """
    if world_size() == 1:
        return tensor
    total = tensor.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def gather(value: T) -> list[T]:
    """Return the values of all processes by rank; the values must support pickle."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def broadcast_object(compute: Callable[[], T]) -> T:
    """Call ``compute`` on rank 0, and return its result on all processes.

    An error is also raised on all processes. Rank 0 uses :func:`single_process`. Tensors are moved
    to the CPU.
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
    """Copy the parameters and buffers of rank 0 to all processes in place."""
    if world_size() > 1:
        module.load_state_dict(broadcast_object(module.state_dict))


def broadcast_buffers(module: torch.nn.Module) -> None:
    """Copy the buffers of rank 0 to all processes, as in DistributedDataParallel."""
    if world_size() > 1:
        values = broadcast_object(lambda: list(module.buffers()))
        for buffer, value in zip(module.buffers(), values, strict=True):
            buffer.data.copy_(value)


def check_equal(given: dict[str, Any]) -> None:
    """Check that the plain values in ``given`` are the same in all processes.

    Raises:
        ValueError: If a value is not the same as on rank 0. The error is raised on all processes
            and contains the name of the first such value.
    """
    first, *others = gather(given)
    for number, other in enumerate(others, 1):
        for name, value in first.items():
            if other[name] != value:
                raise ValueError(
                    f"Process {number} was given another {name} than process 0. Give every process "
                    "the same model, data and settings; fit divides the batches."
                )


def use_device(device: torch.device) -> None:
    """Use ``device`` for the messages of this process.

    Raises:
        ValueError: If the device is not supported by the backend of the process group.
    """
    if world_size() > 1 and device.type == "cuda":
        torch.cuda.set_device(device)
    elif world_size() > 1 and dist.get_backend() == "nccl":
        raise ValueError(
            f"The backend nccl needs a GPU, but the device is {device}. Use the backend gloo, or "
            "device='auto'."
        )


def data_parallel(module: torch.nn.Module) -> torch.nn.Module:
    """Wrap a module in ``DistributedDataParallel`` if there are several processes.

    The wrapper contains a reference to the process group. It must be deleted, with a call of
    :func:`gc.collect`, before ``destroy_process_group``. Otherwise a thread of the group can abort
    the process at the end.
    """
    if world_size() == 1:
        return module
    return DistributedDataParallel(module, find_unused_parameters=True)


class SyncTimer:
    """Choose the steps in which the host waits for the device, about two per second.

    The steps are the same in all processes. If there are several processes, Ctrl-C in this context
    stops all of them at the next of these steps.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._last, self._steps, self._interval = device, time.perf_counter(), 0, 1
        self._interrupts, self._stopped = 0, False
        self._handler: Any = None

    def __enter__(self) -> "SyncTimer":
        if world_size() > 1 and threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self._interrupts and not self._stopped and error[0] is None:
            raise KeyboardInterrupt  # it was received after the last step

    def _interrupt(self, *_: Any) -> None:
        self._interrupts += 1  # one from the terminal and one from torchrun
        if self._interrupts > 2:
            raise KeyboardInterrupt

    def is_due(self) -> bool:
        """Return whether to synchronize after this step.

        Raises:
            KeyboardInterrupt: If one of the processes was interrupted.
        """
        self._steps += 1
        seconds = time.perf_counter() - self._last
        if seconds <= SYNC_SECONDS if world_size() == 1 else self._steps < self._interval:
            return False
        if world_size() > 1:
            interval = max(1, int(self._steps * SYNC_SECONDS / seconds)) if rank() == 0 else 0
            message = torch.tensor([interval, self._interrupts], device=self._device)
            self._interval, interrupts = all_sum(message).tolist()
            if interrupts:
                self._stopped = True
                raise KeyboardInterrupt
        self._last, self._steps = time.perf_counter(), 0
        return True


@contextmanager
def report_lost_processes(can_resume: bool) -> Iterator[None]:
    """Raise a ``ConnectionError`` with advice if torch has lost a process."""
    try:
        yield
    except RuntimeError as error:
        is_known = any(sign in str(error).lower() for sign in _LOST)
        if world_size() == 1 or not (isinstance(error, dist.DistError) or is_known):
            raise
        advice = "Start all processes again: training resumes from the last checkpoint."
        if not can_resume:
            advice = "Set a directory for checkpoints to be able to resume."
        reason = str(error).splitlines()[0].split(". ")[0]
        raise ConnectionError(
            f"Process {rank()} of {world_size()} lost the connection to another process, which "
            f"ended or cannot be reached. {advice} ({reason})"
        ) from error
