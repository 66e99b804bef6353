"""Memory of a call: peak bytes of tensors, and bytes for the backward pass.

On a CPU, the bytes of tensors are counted without the workspaces of kernels. On
a GPU, the numbers are those of the allocator.
"""

import gc
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


def peak_bytes(call: Callable[[], Any], device: torch.device | str = "cpu") -> int:
    """Return the peak bytes of tensors that ``call`` creates.

    Example:
        >>> x = torch.ones(100)
        >>> peak_bytes(lambda: ((x + 1) * 2).sum())  # two tensors
        800
    """
    device = torch.device(device)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with _Counter() as counter:
        result = call()
        del result
    return counter.peak


def saved_bytes(call: Callable[[], Any], known: Iterable[Tensor]) -> int:
    """Return the bytes for the backward pass, without the tensors ``known``.

    Tensors that share memory count once, with their whole storage.

    Example:
        >>> w = torch.ones(100, requires_grad=True)
        >>> saved_bytes(lambda: (2 * w).exp().sum(), [w])  # result of exp
        400
    """
    outside = {_address(tensor) for tensor in known}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if _address(tensor) not in outside:
            kept[_address(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = call()
    total = sum(kept.values())
    del result
    return total


def held_bytes(model: torch.nn.Module) -> int:
    """Return the bytes of parameters and buffers."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum({_address(t): t.untyped_storage().nbytes() for t in tensors}.values())


class _Counter(TorchDispatchMode):
    """Counter of the memory of tensors until they are deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in _tensors((args, kwargs)):
            self._follow(tensor, ours=False)
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            self._follow(tensor, ours=True)
        return result

    def _follow(self, tensor: Tensor, ours: bool) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        size = storage.nbytes() if ours else 0
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, key, size).atexit = False

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
