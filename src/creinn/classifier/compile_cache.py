"""Cache of compiled models, invalidated when tensors, layers or options change.

A compiled model is valid while the types and options of the layers, and
the identities and version counters of all parameters and buffers are
unchanged. Writes through ``Tensor.data`` and changes of other objects are
not detected; use :func:`clear`. The cache is safe for several threads.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules import module as torch_module
from torch.utils.weak import WeakIdRef

LOCK = threading.RLock()
"""Held while a module is copied, checked or compiled, or its hooks change."""

_PLAIN = (bool, int, float, str, type(None))
_INTERNAL = frozenset(vars(Module()))


class _CacheEntry(NamedTuple):
    fingerprint: Any
    tensors: list[Any]  # weak references; only live identities are unique
    compiled: Module | None  # None if impossible

    def is_valid(self, current: list[Any] | None) -> bool:
        is_alive = all(tensor() is not None for tensor in self.tensors)
        return is_alive and self.fingerprint == current


_ENTRIES: WeakKeyDictionary[Module, _CacheEntry] = WeakKeyDictionary()


def compiled_form(model: Module, x: Any, build: Callable[[Any, Any], Module | None]) -> Any:
    """Return the compiled form of a model, or ``None`` if it has none.

    ``build`` is not called if the model is in training mode, or if it has
    hooks, a ``forward`` of an instance, or tensors of inference mode.
    """
    current = fingerprint(model)
    if current is None:
        invalidate(model)
        return None
    entry = _ENTRIES.get(model)
    if entry is None or not entry.is_valid(current):
        with LOCK:  # other threads wait for the compiled form
            entry = _ENTRIES.get(model)
            if entry is None or not entry.is_valid(current):
                with torch.inference_mode(False), torch.no_grad():
                    compiled = build(model, x)
                entry = _CacheEntry(current, list(map(weakref.ref, _tensors(model))), compiled)
                _ENTRIES[model] = entry
    return entry.compiled


def invalidate(model: Module) -> None:
    """Remove the compiled form of a model."""
    _ENTRIES.pop(model, None)


def clear(model: Module) -> None:
    """Remove the compiled forms of all models that share a module."""
    parts = set(model.modules())
    with LOCK:
        for other in list(_ENTRIES):
            if not parts.isdisjoint(other.modules()):
                invalidate(other)


def fingerprint(model: Module) -> list[Any] | None:
    """Return the state of a compiled form, or ``None`` if there is none."""
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        return None
    state: list[Any] = []
    for part in model.modules():
        options = vars(part)
        if part.training or "forward" in options or part._compiled_call_impl or has_hooks(part):
            return None
        state += type(part), *part._modules
        state += [
            (name, value)
            for name, value in options.items()
            if name not in _INTERNAL and _is_plain(value)
        ]
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            if tensor is not None:
                if tensor.is_inference():
                    return None
                state += id(tensor), tensor.data_ptr(), tensor._version
    return state


def structure(module: Module) -> tuple[Any, ...]:
    """Return the paths and the types of all modules."""
    return tuple((path, type(part)) for path, part in module.named_modules(remove_duplicate=False))


def versions(module: Module) -> tuple[Any, ...]:
    """Return the identity, address and version counter of each tensor."""
    return tuple(
        (WeakIdRef(tensor), tensor.data_ptr(), None if tensor.is_inference() else tensor._version)
        for tensor in _tensors(module)
    )


def has_versions(module: Module) -> bool:
    """Return whether all tensors have version counters."""
    return not any(tensor.is_inference() for tensor in _tensors(module))


def has_hooks(module: Module) -> bool:
    """Return whether there are forward hooks that do not record calls."""
    if not (module._forward_hooks or module._forward_pre_hooks):
        return False
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(not hasattr(hook, "is_recorder") for hook in hooks)


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(map(_is_plain, value)))


def _tensors(module: Module) -> list[Tensor]:
    return [
        tensor
        for part in module.modules()
        for tensor in (*part._parameters.values(), *part._buffers.values())
        if tensor is not None
    ]
