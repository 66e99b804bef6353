"""Processes that compute together, as torchrun starts them: which one this is, sums over all, what the first one says.

Each is a *rank* of torch's process group. Without a group there is one, and nothing here does or costs anything.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.utils._pytree as pytree
from torch import Tensor

T = TypeVar("T")
_ALONE = ContextVar("alone", default=False)
_PARTING = 0.2
"""Seconds before Python may end. Threads of gloo outlive their group, as DistributedDataParallel holds it, and one that
gives back its last tensor while Python ends aborts the process."""


def world() -> int:
    """How many ranks compute together; 1 without a process group, and inside :func:`alone`."""
    return (
        dist.get_world_size()
        if dist.is_available() and dist.is_initialized() and not _ALONE.get()
        else 1
    )


def rank() -> int:
    """Number of this process among them, from 0."""
    return dist.get_rank() if world() > 1 else 0


@contextmanager
def alone() -> Iterator[None]:
    """Compute for a while as if there were no other rank: no message is sent, none is waited for."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def all_sum(tensor: Tensor) -> Tensor:
    """Sum of the tensors of all ranks, on every rank; differentiable, for a loss that is the sum of all ranks' losses.

    Every rank must call it, in the same order and with the same shape and dtype.

    Example:
        >>> all_sum(torch.ones(2))   # of one rank
        tensor([1., 1.])
    """
    if world() == 1:
        return tensor
    result: Tensor = _AllSum.apply(tensor)
    return result


class _AllSum(torch.autograd.Function):
    """The derivative of a sum over ranks is one too: of what each rank's loss says of it."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _AllSum.apply(gradient)


def gather(value: T) -> list[T]:
    """The values of all ranks, in their order, on every rank; anything that can be pickled."""
    if world() == 1:
        return [value]
    values: list[Any] = [None] * world()
    dist.all_gather_object(values, value)
    return values


def from_first(compute: Callable[[], T]) -> T:
    """What ``compute()`` gives on rank 0, which computes :func:`alone`, on every rank; or the error that it raises.

    Its tensors come on the CPU. Every rank must call it.
    """
    if world() == 1:
        return compute()
    outcome: list[Any] = [None, None]
    if rank() == 0:
        try:
            with alone():
                outcome[0] = pytree.tree_map_only(
                    Tensor, lambda tensor: tensor.detach().cpu(), compute()
                )
        except Exception as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome, src=0)
    if outcome[1] is not None:
        raise outcome[1]
    found: T = outcome[0]
    return found


@contextmanager
def joined(device: str = "cpu") -> Iterator[None]:
    """Join the process group that torchrun's environment variables speak of, if there are any, and leave it at last."""
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
        time.sleep(_PARTING)
