"""Cache of compiled models, invalidated when tensors, layers or options change.

A compiled model is valid while the types and options of the layers, and
the identities and version counters of all parameters and buffers are
unchanged. Writes through ``Tensor.data`` and changes of other objects are
not detected; use :func:`clear`. The cache is safe for several threads.
"""

import threading
from collections.abc import Callable
from itertools import chain
from operator import is_, itemgetter
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules import module as torch_module
from torch.utils.weak import WeakIdRef

LOCK = threading.RLock()
"""Held while a module is copied, checked or compiled, or its hooks change."""

_PLAIN = (bool, int, float, str, tuple, type(None))
_INTERNAL = frozenset(vars(Module()))
_GLOBAL_HOOKS = torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks
_tables = itemgetter("_modules", "_parameters", "_buffers", "_forward_hooks", "_forward_pre_hooks")


class _NotPlain:
    """Equal to all values that are not plain."""

    def __eq__(self, value: object) -> bool:
        return not isinstance(value, _PLAIN)


class _CacheEntry:
    """Compiled form, and the state of the model that it is valid for."""

    def __init__(self, model: Module) -> None:
        self.compiled: Module | None = None  # if impossible
        self.hashes: dict[str, int] | None = None
        parts = [part for part in model.modules() if getattr(type(part), "_affects_output", True)]
        names = [vars(part).keys() - _INTERNAL for part in parts]
        self.readers = [itemgetter("training", *own) for own in names]  # of the options
        _, contents, options, *others = _state(parts, self.readers)
        self.state = [[*map(_comparable, options)], *others]
        self.parts, self.contents = [*map(ref, parts)], [*map(ref, contents)]

    def is_valid(self) -> bool:
        """Return whether the model has not changed."""
        try:
            is_hooked, contents, *state = _state([part() for part in self.parts], self.readers)
            is_equal = not is_hooked and self.state == state
        except Exception:  # also not valid
            return False
        return is_equal and all(map(is_, contents, [x() for x in self.contents]))


_ENTRIES: WeakKeyDictionary[Module, _CacheEntry] = WeakKeyDictionary()


def compiled_form(model: Module, x: Any, build: Callable[[Any, Any], Module | None]) -> Any:
    """Return the compiled form of a model, or ``None`` if it has none.

    ``build`` is not called if the model is in training mode, or if it has
    hooks, a ``forward`` of an instance, or tensors of inference mode.
    """
    entry = _ENTRIES.get(model)
    if entry is None or not entry.is_valid():
        if not _can_compile(model):
            invalidate(model)
            return None
        new = _CacheEntry(model)
        with LOCK:  # other threads wait for the compiled form
            entry = _ENTRIES.get(model)
            if entry is None or not entry.is_valid():
                with torch.inference_mode(False), torch.no_grad():
                    new.compiled = build(model, x)
                entry = _ENTRIES[model] = new
    return entry.compiled


def part_hashes(model: Any, renew: bool = False) -> dict[str, int]:
    """Return ``model.part_hashes()``, cached with the compiled form."""
    entry = _ENTRIES.get(model)
    if entry is None or entry.compiled is None or not entry.is_valid():
        return model.part_hashes()
    if renew or entry.hashes is None:
        entry.hashes = model.part_hashes()
    return entry.hashes


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
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(not hasattr(hook, "is_recorder") for hook in hooks)


def _can_compile(model: Module) -> bool:
    is_changed = any(_GLOBAL_HOOKS) or any(
        part.training or "forward" in vars(part) or part._compiled_call_impl or has_hooks(part)
        for part in model.modules()
    )
    return not is_changed and has_versions(model)


def _state(parts: list[Any], readers: list[Any]) -> tuple[Any, ...]:
    """Return whether there are hooks, the children and tensors, and more.

    These are options, types, names, addresses and versions.
    """
    options = [part.__dict__ for part in parts]
    modules, parameters, buffers, *hooks = zip(*map(_tables, options), strict=True)
    tables = *parameters, *buffers
    children = [x for table in modules if table for x in table.values() if x is not None]
    tensors = [x for table in tables if table for x in table.values() if x is not None]
    return (
        any(_GLOBAL_HOOKS) or (any(map(any, hooks)) and any(map(has_hooks, parts))),
        children + tensors,
        [read(values) for read, values in zip(readers, options, strict=True)],
        [len(children), *map(type, parts), *map(len, options), *map(len, tables), *chain(*modules)],
        [*map(Tensor.data_ptr, tensors)],
        [tensor._version for tensor in tensors],
    )


def _comparable(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_comparable, value))
    return value if isinstance(value, _PLAIN) else _NotPlain()


def _tensors(module: Module) -> list[Tensor]:
    tables = [table for part in module.modules() for table in (part._parameters, part._buffers)]
    return [tensor for table in tables for tensor in table.values() if tensor is not None]
