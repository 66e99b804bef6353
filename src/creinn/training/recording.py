"""What every layer of a network took and gave in a forward pass, in the order of the calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor


@dataclass(frozen=True)
class Call:
    """One call of one layer."""

    path: str
    module: torch.nn.Module
    inputs: tuple[Any, ...]
    output: Any


@contextmanager
def recording(model: torch.nn.Module) -> Iterator[list[Call]]:
    """Note every call of every layer of ``model``, in order; a layer has parameters of its own, or no parts."""
    calls: list[Call] = []
    count: dict[str, int] = {}

    def watch(path: str, module: torch.nn.Module) -> Any:
        def note(module: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            count[path] = count.get(path, 0) + 1
            calls.append(Call(path if count[path] == 1 else f"{path}#{count[path]}", module, inputs, output))

        return module.register_forward_hook(note)

    layers = {
        path: module
        for path, module in model.named_modules()
        if not any(True for _ in module.children()) or any(True for _ in module.parameters(recurse=False))
    }
    handles = [watch(path, module) for path, module in layers.items()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def is_finite(value: Any) -> bool:
    """Whether all floating tensors inside ``value`` (a tensor, an interval, a tuple of them, ...) are finite."""
    tensors = [t for t in pytree.tree_leaves(value) if isinstance(t, Tensor) and t.is_floating_point()]
    return all(bool(torch.isfinite(t).all()) for t in tensors)
