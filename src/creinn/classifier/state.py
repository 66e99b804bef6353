"""State of a module: fingerprints that detect changes, and copies in eval mode.

A fingerprint compares equal to a later one while nothing has changed. Writes through
``Tensor.data`` or a NumPy view of a tensor are not counted by torch and not detected, nor are
changes inside an object that a module holds, other than a list, tuple, dict or set.
"""

import copy
import operator
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdRef

from creinn.classifier.recording import LOCK

_OF_TORCH = frozenset(vars(torch.nn.Module()))  # the mode, tensors, modules, hooks
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


def fingerprint(module: torch.nn.Module) -> tuple[Any, ...]:
    """Everything that predictions in eval mode depend on; see the functions below."""
    return structure(module), versions(module), options(module), class_attributes(module)


def structure(module: torch.nn.Module) -> tuple[Any, ...]:
    """Ordered paths and types of the parts of a module; a shared part appears under each path.

    Example:
        >>> network = torch.nn.Sequential(torch.nn.ReLU())
        >>> before = structure(network)
        >>> structure(network.append(network[0])) == before
        False
    """
    return tuple((path, type(part)) for path, part in module.named_modules(remove_duplicate=False))


def versions(module: torch.nn.Module) -> tuple[Any, ...]:
    """Identity, memory address and version counter of each parameter and buffer, in order.

    Tensors made in inference mode have no version counter; see :func:`has_versions`.

    Example:
        >>> layer = torch.nn.Linear(2, 2)
        >>> before = versions(layer)
        >>> versions(layer) == before
        True
        >>> _ = layer.load_state_dict(layer.state_dict())  # writes to the same tensors
        >>> versions(layer) == before
        False
    """
    return tuple(map(_version, tensors(module)))


def options(module: torch.nn.Module) -> tuple[Any, ...]:
    """Attributes of each part other than tensors, modules, hooks and the mode.

    Numbers, strings and containers of these are compared by value, other objects by identity.

    Example:
        >>> layer = torch.nn.BatchNorm1d(2)
        >>> before = options(layer)
        >>> layer.eps = 0.1
        >>> options(layer) == before
        False
    """
    return tuple(
        (name, _comparable(value))
        for part in module.modules()
        for name, value in vars(part).items()
        if name not in _OF_TORCH
    )


def class_attributes(module: torch.nn.Module) -> tuple[Any, ...]:
    """Methods and other attributes of the classes of all parts, compared by identity."""
    bases = {
        base: None
        for kind in {type(part): None for part in module.modules()}
        for base in kind.__mro__[: kind.__mro__.index(torch.nn.Module)]
    }
    return tuple(_ById(vars(base).values()) for base in bases)


def has_versions(module: torch.nn.Module) -> bool:
    """Whether torch counts the writes to every parameter and buffer of a module."""
    return not any(tensor.is_inference() for tensor in tensors(module))


def tensors(module: torch.nn.Module) -> list[Tensor]:
    """Return the parameters and buffers of a module, including buffers that are not saved."""
    return [
        tensor
        for part in module.modules()
        for tensor in (*part._parameters.values(), *part._buffers.values())
        if tensor is not None
    ]


def in_eval_mode(module: torch.nn.Module) -> torch.nn.Module:
    """Return a module that is in eval mode, otherwise a copy of it that is.

    The copy shares parameters, buffers and hooks with the module, whose mode is not changed: other
    threads may use it, or train it, at the same time.

    Raises:
        RuntimeError: If the module is in training mode and cannot be copied.
    """
    if not is_training(module):
        return module
    with LOCK:
        shared = {id(value): value for part in module.modules() for value in _shared(part)}
        try:
            duplicate = copy.deepcopy(module, shared)
        except Exception as error:
            raise RuntimeError(
                f"{type(module).__name__} is in training mode, and a prediction needs a copy of it "
                f"in eval mode, but it cannot be copied: {error}. Call model.eval() first."
            ) from error
    return duplicate.eval()


def is_training(module: torch.nn.Module) -> bool:
    """Whether a part of a module is in training mode."""
    return any(part.training for part in module.modules())


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


def _version(tensor: Tensor) -> tuple[Any, ...]:
    version = None if tensor.is_inference() else tensor._version
    return WeakIdRef(tensor), tensor.data_ptr(), version


def _shared(part: torch.nn.Module) -> list[Any]:
    """Tensors and hooks of a module, which a copy in eval mode has in common with it."""
    named = (part._parameters, part._buffers, part._forward_hooks, part._forward_pre_hooks)
    others = (value for value in vars(part).values() if isinstance(value, Tensor))
    return [*(value for group in named for value in group.values()), *others]
