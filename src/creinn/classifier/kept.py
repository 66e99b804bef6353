"""The compiled form of a model, kept beside it for as long as its weights stay as they are: quick without being asked.

In: a model and a batch. Out: what the model gives, up to rounding, by :func:`creinn.compile`. A model that is met for
the first time is compiled at once. Weights that changed since are compiled when they are met again, so that a model in
training is not compiled after every step. Nothing is kept in the model itself: copies, ``state_dict`` and saved files
do not know of it.
"""

import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from creinn.classifier.recording import has_hooks

_SAMPLE = 64  # numbers of each tensor that are looked at in every call

Build = Callable[[Any, Any], torch.nn.Module]


@dataclass
class _Kept:
    state: list[Any] | None  # None: the model was trained since
    form: Any = None  # the compiled model, if there is one
    refused: bool = False
    views: list[list[Tensor]] = field(
        default_factory=list
    )  # into the weights: numbers that change with them
    numbers: list[Tensor] = field(default_factory=list)  # what these were


_KEPT: WeakKeyDictionary[torch.nn.Module, _Kept] = WeakKeyDictionary()


def call(model: torch.nn.Module, x: Any, build: Build) -> Any:
    """``model(x)``, in eval mode and without gradients, by the form ``build(model, x)`` where one is kept.

    The form is dropped if a parameter or buffer is another tensor or was written to, if a layer or one of its options
    is another, or if one of about 64 numbers spread over each tensor is. These are for writes through ``.data``, which
    torch does not count; such a write that leaves all of them alone is not seen, nor is a change inside of an option,
    such as an entry of a list: :func:`forget` the form then. Hooks on modules, and a ``forward`` that one of them has
    for itself, keep the model from being compiled. Where it cannot be, or its form fails, the model itself is called.
    """
    kept = _look_up(model, x, build)
    if kept is not None and kept.form is not None:
        with suppress(Exception):  # the model itself says what is wrong with the inputs
            return kept.form(x)
    try:
        prediction = model(x)
    except Exception:
        if kept is not None and kept.form is None:
            forget(model)  # it may have been these inputs that it could not be compiled for
        raise
    if kept is not None and kept.form is not None:
        kept.form, kept.refused = None, True
    return prediction


def forget(model: torch.nn.Module) -> None:
    """Drop what is kept of a model, which is then as if it were new."""
    _KEPT.pop(model, None)


def outdate(model: torch.nn.Module) -> None:
    """Drop the form of a model that is trained; if there was one, the next weights must be met twice for another."""
    if model in _KEPT:
        _KEPT[model] = _Kept(None)


def _look_up(model: torch.nn.Module, x: Any, build: Build) -> _Kept | None:
    """What is kept of these weights; nothing if they are others than the last time."""
    kept = _KEPT.get(model)
    try:
        state = _state(model)
        is_known = kept is not None and kept.state == state and _is_untouched(kept)
    except (
        RuntimeError,
        ValueError,
    ):  # tensors of inference mode, whose writes are not counted; arrays as options
        state, is_known = None, False
    if state is None:
        forget(model)
        return None
    if kept is None or not is_known:
        has_changed = kept is not None
        kept = _KEPT[model] = _Kept(state)
        if has_changed:
            return None
    if kept.form is None and not kept.refused:
        kept.refused = True
        with (
            suppress(Exception),
            torch.inference_mode(False),
            torch.no_grad(),
        ):  # refused: the model is right, if slow
            form = build(model, x)
            kept.views = _views(itertools.chain(model.parameters(), model.buffers()))
            kept.numbers = list(map(torch.cat, kept.views))
            kept.form, kept.refused = form, False
    return kept


def _state(model: torch.nn.Module) -> list[Any] | None:
    """What the results depend on, layer by layer, weights by their marks; ``None`` if they may depend on more."""
    state: list[Any] = []
    for module in model.modules():
        own = vars(module)
        if has_hooks(module) or "forward" in own or "_compiled_call_impl" in own:
            return None
        state += type(module), own.copy()
        for tensor in (*own["_parameters"].values(), *own["_buffers"].values()):
            if tensor is not None:
                state += id(tensor), tensor._version, tensor.data_ptr(), tensor.dtype, tensor.device
    return state


def _is_untouched(kept: _Kept) -> bool:
    return all(map(torch.equal, kept.numbers, map(torch.cat, kept.views)))


def _views(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Some numbers of each tensor from its beginning to its end in memory, grouped by what can be joined."""
    groups: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        size = min(
            tensor.numel(),
            tensor.untyped_storage().nbytes() // tensor.itemsize - tensor.storage_offset(),
        )
        step = max(1, size // _SAMPLE) | 1  # odd, so as not to meet the same column of every row
        view = tensor.detach().as_strided((-(-size // step),), (step,))
        groups.setdefault((tensor.device, tensor.dtype), []).append(view)
    return list(groups.values())
