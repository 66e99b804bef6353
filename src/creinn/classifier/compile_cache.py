"""Cache of compiled models, invalidated when weights, layers or options change.

A compiled model is valid while :func:`fingerprint` is unchanged. A write through ``Tensor.data`` or
a NumPy view, or inside an object other than a list, tuple, dict or set, does not change it;
:func:`clear` removes the compiled model then. Copies, ``state_dict`` and saved files do not contain
the cache. Several threads may use it at the same time.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakIdRef

from creinn.classifier.network import LOCK, has_global_hooks, has_hooks

_MODULE_ATTRIBUTES = frozenset(vars(torch.nn.Module()))  # mode, tensors, modules and hooks
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


class _CacheEntry(NamedTuple):
    fingerprint: Any
    compiled: torch.nn.Module | None  # None: the model cannot be compiled


_ENTRIES: WeakKeyDictionary[torch.nn.Module, _CacheEntry] = WeakKeyDictionary()


def compiled_form(
    model: torch.nn.Module, x: Any, build: Callable[[Any, Any], torch.nn.Module | None]
) -> Any:
    """Return the compiled form of a model in eval mode, or ``None`` if it has none.

    Models with hooks, with a ``forward`` that is set on an instance, or with tensors of inference
    mode are not compiled.

    Args:
        model: The model.
        x: The inputs of the first call.
        build: A function of both that compiles the model, or returns ``None`` if it cannot.
    """
    if _is_customized(model):
        invalidate(model)
        return None
    current = fingerprint(model)
    entry = _ENTRIES.get(model)
    if entry is None or entry.fingerprint != current:
        with LOCK:  # other threads wait for the compiled form
            entry = _ENTRIES.get(model)
            if entry is None or entry.fingerprint != current:
                with torch.inference_mode(False), torch.no_grad():
                    entry = _CacheEntry(current, build(model, x))
                _ENTRIES[model] = entry
    return entry.compiled


def invalidate(model: torch.nn.Module) -> None:
    """Remove the compiled form of a model."""
    _ENTRIES.pop(model, None)


def clear(model: torch.nn.Module) -> None:
    """Remove the compiled forms of a model and of models that share a module with it."""
    parts = set(model.modules())
    with LOCK:
        for other in list(_ENTRIES):
            if not parts.isdisjoint(other.modules()):
                invalidate(other)


def fingerprint(module: torch.nn.Module) -> tuple[Any, ...]:
    """Return a value that changes if predictions in eval mode can change.

    The docstring of this module describes the exceptions.
    """
    return structure(module), versions(module), _options(module), _class_attributes(module)


def structure(module: torch.nn.Module) -> tuple[Any, ...]:
    """Return the ordered paths and types of the parts of a module.

    Example:
        >>> network = torch.nn.Sequential(torch.nn.ReLU())
        >>> before = structure(network)
        >>> structure(network.append(network[0])) == before
        False
    """
    return tuple((path, type(part)) for path, part in module.named_modules(remove_duplicate=False))


def versions(module: torch.nn.Module) -> tuple[Any, ...]:
    """Return the identity, address and version counter of each parameter and buffer.

    Example:
        >>> layer = torch.nn.Linear(2, 2)
        >>> before = versions(layer)
        >>> versions(layer) == before
        True
        >>> _ = layer.load_state_dict(layer.state_dict())  # writes to the same tensors
        >>> versions(layer) == before
        False
    """
    return tuple(map(_version, _tensors(module)))


def has_versions(module: torch.nn.Module) -> bool:
    """Return whether all parameters and buffers have version counters.

    Tensors that were created in inference mode do not have a version counter.
    """
    return not any(tensor.is_inference() for tensor in _tensors(module))


def _options(module: torch.nn.Module) -> tuple[Any, ...]:
    """Return the attributes of all parts.

    Tensors, modules, hooks and the mode are excluded. Numbers, strings and containers of these are
    compared by value, other objects by identity.
    """
    return tuple(
        (name, _comparable(value))
        for part in module.modules()
        for name, value in vars(part).items()
        if name not in _MODULE_ATTRIBUTES
    )


def _class_attributes(module: torch.nn.Module) -> tuple[Any, ...]:
    """Return the class attributes of all parts, including methods.

    The attributes are compared by identity.
    """
    bases = {
        base: None
        for kind in {type(part): None for part in module.modules()}
        for base in kind.__mro__[: kind.__mro__.index(torch.nn.Module)]
    }
    return tuple(_ById(vars(base).values()) for base in bases)


class _ById(tuple[Any, ...]):
    """Tuple whose entries are compared by identity."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _ById)
        return len(self) == len(other) and all(map(operator.is_, self, other))


def _comparable(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, Tensor):
        return _version(value)
    if isinstance(value, list | tuple | set | frozenset):
        return kind, *map(_comparable, value)
    if isinstance(value, dict):
        return kind, *((key, _comparable(entry)) for key, entry in value.items())
    try:
        return WeakIdRef(value)
    except TypeError:  # objects without weak references, such as dtypes
        return kind, id(value)


def _tensors(module: torch.nn.Module) -> list[Tensor]:
    """Return the parameters and buffers, including buffers that are not saved."""
    return [
        tensor
        for part in module.modules()
        for tensor in (*part._parameters.values(), *part._buffers.values())
        if tensor is not None
    ]


def _version(tensor: Tensor) -> tuple[Any, ...]:
    version = None if tensor.is_inference() else tensor._version
    return WeakIdRef(tensor), tensor.data_ptr(), version


def _is_customized(model: torch.nn.Module) -> bool:
    """Return whether a model has properties that prevent compilation.

    These are hooks, a ``forward`` that is set on an instance, a call of ``Module.compile``, and
    tensors without a version counter.
    """
    return (
        has_global_hooks()
        or not has_versions(model)
        or any(
            has_hooks(part) or "forward" in vars(part) or part._compiled_call_impl is not None
            for part in model.modules()
        )
    )
