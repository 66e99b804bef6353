"""Recording of the inputs and outputs of modules during a forward pass.

Hooks write to a store of the current context only. So several threads may run the same modules at
the same time, and each sees its own calls. ``LOCK`` is held while hooks are added or removed, and
while a module is copied, checked or compiled.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch.nn.modules import module as torch_module

LOCK = threading.RLock()
_LAST_CALLS: ContextVar["LastCalls | None"] = ContextVar("last_calls", default=None)
_RECORDINGS: ContextVar[tuple["list[Call]", ...]] = ContextVar("recordings", default=())


class Call(NamedTuple):
    """Inputs and output of one call of a module."""

    module: torch.nn.Module
    inputs: tuple[Any, ...]
    output: Any


class LastCalls:
    """The last call of each module, ``None`` for a module that did not run.

    ``torch.export`` replaces modules by proxies that share their attributes. So modules with the
    same attributes count as one.
    """

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self.modules = tuple(modules)
        self._calls: dict[int, Call | None] = dict.fromkeys(map(_key, self.modules))

    def __getitem__(self, module: torch.nn.Module) -> Call | None:
        return self._calls[_key(module)]

    def add(self, call: Call) -> None:
        """Replace the last call of a module, if it is one of these."""
        if _key(call.module) in self._calls:
            self._calls[_key(call.module)] = call


@contextmanager
def recording(modules: Iterable[torch.nn.Module]) -> Iterator[list[Call]]:
    """Record every call of these modules, in order, by hooks that are removed afterwards."""
    calls: list[Call] = []

    def note(module: torch.nn.Module, inputs: tuple[Any, ...], *rest: Any) -> None:
        if any(calls is active for active in _RECORDINGS.get()):
            calls.append(_call(module, inputs, rest))

    note.is_recorder = True  # type: ignore[attr-defined]
    with LOCK:
        handles = [module.register_forward_hook(note, with_kwargs=True) for module in modules]
    token = _RECORDINGS.set((*_RECORDINGS.get(), calls))
    try:
        yield calls
    finally:
        _RECORDINGS.reset(token)
        with LOCK:
            for handle in handles:
                handle.remove()


@contextmanager
def last_calls(
    modules: Iterable[torch.nn.Module],
) -> Iterator[LastCalls]:
    """Record the last call of each of these modules.

    For repeated use: the hooks stay, because other threads may run the modules while a hook is
    added or removed.
    """
    calls = LastCalls(modules)
    for module in calls.modules:
        _add_hook(module)
    token = _LAST_CALLS.set(calls)
    try:
        yield calls
    finally:
        _LAST_CALLS.reset(token)


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether calls of a module run forward hooks other than those of this file."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(not hasattr(hook, "is_recorder") for hook in hooks)


def has_global_hooks() -> bool:
    """Whether calls of every module run forward hooks."""
    return bool(torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks)


def _key(module: torch.nn.Module) -> int:
    return id(vars(module))


def _add_hook(module: torch.nn.Module) -> None:
    if _note_last not in module._forward_hooks.values():
        with LOCK:
            if _note_last not in module._forward_hooks.values():
                module.register_forward_hook(_note_last, with_kwargs=True)


def _note_last(module: torch.nn.Module, inputs: tuple[Any, ...], *rest: Any) -> None:
    calls = _LAST_CALLS.get()
    if calls is not None:
        calls.add(_call(module, inputs, rest))


_note_last.is_recorder = True  # type: ignore[attr-defined]


def _call(module: torch.nn.Module, inputs: tuple[Any, ...], rest: tuple[Any, ...]) -> Call:
    """Join the arguments of a hook; those by name are missing while torch adds or removes it."""
    *named, output = rest
    values = named[0].values() if named else ()
    return Call(module, (*inputs, *values), output)
