"""Cache of compiled models, invalidated when weights, layers or options change.

The compiled form of a model is valid while :func:`creinn.classifier.state.fingerprint` is
unchanged. A write through ``Tensor.data`` does not change it; :func:`clear` drops the form then.
The cache is not part of the model: copies, ``state_dict`` and saved files do not contain it. Several
threads may use it at the same time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from creinn.classifier.recording import LOCK, has_global_hooks, has_hooks
from creinn.classifier.state import fingerprint, has_versions


class _CacheEntry(NamedTuple):
    fingerprint: Any
    compiled: torch.nn.Module | None  # None: the model cannot be compiled


_ENTRIES: WeakKeyDictionary[torch.nn.Module, _CacheEntry] = WeakKeyDictionary()


def compiled_form(
    model: torch.nn.Module, x: Any, build: Callable[[Any, Any], torch.nn.Module | None]
) -> Any:
    """Return the compiled form of a model in eval mode, or ``None`` if it has none.

    ``build(model, x)`` compiles it, or returns ``None`` if the model cannot be compiled. The result
    is used until the model changes. Models with hooks, with a ``forward`` set on an instance or with
    tensors of inference mode are not compiled.
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
    """Drop the compiled form of a model."""
    _ENTRIES.pop(model, None)


def clear(model: torch.nn.Module) -> None:
    """Drop the compiled forms of a model and of all models that share a module with it."""
    parts = set(model.modules())
    with LOCK:
        for other in list(_ENTRIES):
            if not parts.isdisjoint(other.modules()):
                invalidate(other)


def _is_customized(model: torch.nn.Module) -> bool:
    """Whether a call may do more than the layers say, or changes of weights are not counted."""
    return (
        has_global_hooks()
        or not has_versions(model)
        or any(
            has_hooks(part) or "forward" in vars(part) or part._compiled_call_impl is not None
            for part in model.modules()
        )
    )
