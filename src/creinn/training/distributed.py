"""One run on several ranks: replicas of the model, steps at which all look at the numbers or stop, ranks that are lost.

With one rank each of these is what a single process needs, or nothing.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from creinn.nn._over_ranks import OrdinaryNorms
from creinn.ranks import all_sum, from_first, gather, rank, world

REFRESH_SECONDS = 0.5  # how often the host asks the device for numbers
_LOST = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "timed out")


def check_backend(device: torch.device) -> None:
    """Make ``device`` that of this rank's messages; refuse one that its process group cannot send from."""
    if world() > 1 and device.type == "cuda":
        torch.cuda.set_device(device)
    elif world() > 1 and dist.get_backend() == "nccl":
        raise ValueError(
            f"The backend nccl sends from GPUs only, but the device is {device}. Take gloo, or 'auto'."
        )


def replicated(step: torch.nn.Module, optimizer: Any, scaler: Any) -> torch.nn.Module:
    """``step`` with the weights and the moments of rank 0, so that its backward pass averages gradients over ranks."""
    if world() == 1:
        return step
    for part in (optimizer, scaler):
        part.load_state_dict(from_first(part.state_dict))
    buffers = {"forward_sync_buffers", "broadcast_buffers"} & set(
        signature(DistributedDataParallel).parameters
    )
    alike: dict[str, Any] = {
        max(buffers): False
    }  # all ranks compute the same statistics; torch 2.13 renames this
    return DistributedDataParallel(step, find_unused_parameters=True, **alike)


def norms_over_ranks() -> AbstractContextManager[Any]:
    """Inside it ordinary batch norms take the batch of all ranks, as interval batch norms do by themselves."""
    return OrdinaryNorms() if world() > 1 else nullcontext()


def check_alike(found: dict[str, Any]) -> None:
    """Refuse ranks that were given something else than rank 0; ``found`` says in plain values what this one was given.

    Raises:
        ValueError: On all ranks alike.
    """
    first, *others = gather(found)
    for number, other in enumerate(others, 1):
        for name, value in first.items():
            if other[name] != value:
                raise ValueError(
                    f"Rank {number} was given another {name} than rank 0. Give every rank the same model, data and "
                    "settings: it takes its share of each batch by itself."
                )


class Pace:
    """Says at which steps to look at the numbers: about twice a second, and on all ranks at the same ones.

    There the ranks also agree to stop: inside this context Ctrl-C, on several ranks, waits for the next such step.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._last, self._done, self._ahead = device, time.perf_counter(), 0, 1
        self._interrupts, self._stopped = 0, False
        self._handler: Any = None

    def __enter__(self) -> "Pace":
        if world() > 1 and threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *error: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self._interrupts and not self._stopped and error[0] is None:
            raise KeyboardInterrupt  # too late for this run, in time for the next

    def _interrupted(self, *_: Any) -> None:
        self._interrupts += 1  # once from the terminal, once from torchrun
        if self._interrupts > 2:
            raise KeyboardInterrupt

    def is_due(self) -> bool:
        """Whether to look after this step; ``KeyboardInterrupt`` if a rank was stopped."""
        self._done += 1
        passed = time.perf_counter() - self._last
        if passed <= REFRESH_SECONDS if world() == 1 else self._done < self._ahead:
            return False
        if world() > 1:
            ahead = max(1, int(self._done * REFRESH_SECONDS / passed)) if rank() == 0 else 0
            asked = torch.tensor([ahead, self._interrupts], device=self._device)
            self._ahead, interrupts = all_sum(asked).tolist()
            if interrupts:
                self._stopped = True
                raise KeyboardInterrupt
        self._last, self._done = time.perf_counter(), 0
        return True


@contextmanager
def telling_lost_ranks(can_resume: bool) -> Iterator[None]:
    """Turn what torch raises when another rank is gone into a ``ConnectionError`` that says so."""
    try:
        yield
    except RuntimeError as error:
        if world() == 1 or not (
            isinstance(error, dist.DistError) or any(sign in str(error).lower() for sign in _LOST)
        ):
            raise
        advice = "Start all ranks again: the run goes on from its last checkpoint."
        if not can_resume:
            advice = (
                "With a directory for checkpoints a run can go on from there; this one had none."
            )
        reason = str(error).splitlines()[0].split(". ")[0]
        raise ConnectionError(
            f"Rank {rank()} of {world()} has lost another one, which ended or cannot be reached; its own message says "
            f"why. {advice} ({reason})"
        ) from error
