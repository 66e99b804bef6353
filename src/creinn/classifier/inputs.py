"""Inputs and outputs of networks: conversion, batches, and checks.

Inputs are a tensor, an array or an :class:`Interval` with one entry per
row, or a dict or tuple of these. Floating-point numbers are converted to
the dtype of the classifier; integers are not.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from creinn.credal.probability import check_distributions
from creinn.interval import Interval
from creinn.numerics import first_index

LABELS = "labels"
LOGITS_LAYER_ADVICE = " If a module computes the logits, pass its path as logits_layer='path'."


def run(network: torch.nn.Module, x: Any) -> Any:
    """Return the output of a network, or its attribute ``logits``."""
    named = as_arguments(network, x)
    output = network(x) if named is None else network(**named)
    return output if isinstance(output, Tensor | Interval) else getattr(output, "logits", output)


def as_arguments(network: torch.nn.Module, x: Any) -> dict[str, Any] | None:
    """Return a mapping as arguments of ``forward``, or ``None`` if impossible.

    The key ``labels`` is removed, so that the model computes no loss.
    """
    if not isinstance(x, Mapping) or not all(isinstance(name, str) for name in x):
        return None
    named = {name: part for name, part in x.items() if name != LABELS}
    try:
        inspect.signature(network.forward).bind(**named)
    except TypeError:
        return None
    return named


def as_logits(output: Any, count: int) -> Any:
    """Return an output ``(N, K)``, ``(N, K, 1, 1)`` or ``(N,)`` as logits."""
    if isinstance(output, Tensor | Interval):
        if output.ndim == 2:
            return output
        if output.ndim == 1 and count == 1:
            return output.unsqueeze(1)
        if output.ndim > 2 and all(size == 1 for size in output.shape[2:]):
            return output.flatten(1)
    raise ValueError(
        f"The network should return logits (N, {count}), but returns {describe(output)}."
        f"{LOGITS_LAYER_ADVICE}"
    )


def batches(x: Any, batch_size: int) -> Iterator[Any]:
    """Yield the inputs in batches; of pairs, the first element is used."""
    if isinstance(x, TensorDataset):
        x = x.tensors[0]
    if _is_part(x) or isinstance(x, Mapping | tuple):
        rows = as_inputs(x, keep_arrays=True)  # copied by batch
        yield from map(as_inputs, _split(rows, batch_size))
        return
    for batch in _as_iterable(x, batch_size, "Expected inputs, a Dataset or batches"):
        yield as_inputs(batch[0] if isinstance(batch, tuple | list) and batch else batch)


def labelled_batches(data: Any, batch_size: int, name: str) -> Iterable[tuple[Any, Any]]:
    """Return batches of inputs and targets.

    They can be iterated several times, unless ``data`` is an iterator.
    """
    expected = (
        f"{name.capitalize()} must be a pair (inputs, classes), a Dataset or batches of pairs"
    )
    if is_pair(data):
        pair = as_inputs(data[0], keep_arrays=True), _as_labels(data[1])
        stream: Any = ReiterableStream(lambda: _split(pair, batch_size))
    else:
        stream = _as_iterable(data, batch_size, expected)

    def checked(batch: Any) -> tuple[Any, Any]:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise TypeError(f"{expected}, got a batch of type {type(batch).__name__}.")
        return as_inputs(batch[0]), batch[1]

    is_iterator = isinstance(stream, Iterator)
    return map(checked, stream) if is_iterator else ReiterableStream(lambda: map(checked, stream))


def checked_batches(
    data: Any, batch_size: int, name: str, num_classes: int, like: Tensor
) -> Iterator[tuple[Any, Tensor]]:
    """Yield batches of finite inputs and valid targets."""
    first = 0
    for x, y in labelled_batches(data, batch_size, name):
        x = to_device(x, like.device, like.dtype)
        if found := find_not_finite(x, name, first):
            raise ValueError(f"{found}. Impute or drop it first.")
        y = torch.as_tensor(y)
        y = as_targets(y if y.ndim == 2 else y.long(), num_classes, name, count_rows(x))
        first += len(y)
        yield x, y.to(like.device)


def is_pair(data: Any) -> bool:
    """Return whether ``data`` is a pair of inputs and classes."""
    is_two = isinstance(data, tuple | list) and len(data) == 2
    return is_two and (_is_part(data[0]) or isinstance(data[0], Mapping) or _is_part(data[1]))


class ReiterableStream(Iterable[Any]):
    """Iterable that calls ``start`` for each iteration."""

    def __init__(self, start: Callable[[], Iterator[Any]]) -> None:
        self._start = start

    def __iter__(self) -> Iterator[Any]:
        return self._start()


def as_classes(targets: Any, num_classes: int, name: str, rows: int | None = None) -> Tensor:
    """Return targets as classes ``(N,)``, or raise an error."""
    targets, subject = _as_labels(targets), f"The targets of {name} must"
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise TypeError(f"{subject} be integers, got {targets.dtype}.")
    if targets.ndim != 1 or rows not in (None, len(targets)):
        raise ValueError(f"{subject} have shape ({rows or 'N'},), got {tuple(targets.shape)}.")
    is_wrong = (targets < 0) | (targets >= num_classes)
    if bool(is_wrong.any()):
        (row,) = first_index(is_wrong)
        raise ValueError(
            f"{subject} lie in 0 .. {num_classes - 1} for {num_classes} classes, but target {row} "
            f"is {int(targets[row])}."
        )
    return targets.long()


def as_targets(targets: Any, num_classes: int, name: str, rows: int | None = None) -> Tensor:
    """Return targets as classes or label distributions, or raise an error."""
    targets = _as_labels(targets)
    if targets.ndim != 2 or not targets.is_floating_point():
        return as_classes(targets, num_classes, name, rows)
    if targets.shape[1] != num_classes or rows not in (None, len(targets)):
        raise ValueError(
            f"The distributions of {name} must have shape ({rows or 'N'}, {num_classes}), "
            f"got {tuple(targets.shape)}."
        )
    check_distributions(targets, f"target of {name}")
    return targets


def most_probable(targets: Tensor) -> Tensor:
    """Return classes, the most probable ones of distributions."""
    return targets.argmax(1) if targets.ndim == 2 else targets


def as_inputs(x: Any, keep_arrays: bool = False) -> Any:
    """Convert arrays to tensors, and mappings to dicts."""
    if not (_is_part(x) or isinstance(x, Mapping | tuple | list)):
        kinds = "a tensor, an array, an Interval, or a dict or tuple of these"
        raise TypeError(f"Inputs must be {kinds}, got {type(x).__name__}.")

    def converted(part: Any) -> Any:
        is_kept = keep_arrays and isinstance(part, np.ndarray)
        if is_kept or isinstance(part, Tensor | Interval):
            return part
        return torch.from_numpy(np.require(part, requirements=["C", "W"]))

    return _map_parts(converted, dict(x) if isinstance(x, Mapping) else x)


def is_mapped(x: Any) -> bool:
    """Return whether a part of the inputs is a memory map."""
    return any(isinstance(part, np.memmap) for part in pytree.tree_leaves(x))


def concatenate(batches: Sequence[Any]) -> Any:
    """Concatenate batches with the same structure."""
    leaves = zip(*map(pytree.tree_leaves, batches), strict=True)
    return pytree.tree_unflatten(list(map(torch.cat, leaves)), pytree.tree_structure(batches[0]))


def count_rows(x: Any) -> int:
    """Return the number of rows, or raise a ``ValueError`` if parts differ."""
    if isinstance(x, Tensor) and x.ndim:
        return len(x)
    counts = _rows(x)
    count, *others = set(counts.values()) or [None]
    if others or count is None:
        found = [f"{name or 'a number'} has {n or 'none'}" for name, n in counts.items()]
        raise ValueError(
            f"All inputs need the same number of rows, but {', '.join(found) or 'there is none'}."
        )
    return count


def take(x: Any, rows: Any) -> Any:
    """Return rows of the inputs."""

    def taken(part: Any) -> Any:
        if not isinstance(rows, Tensor):
            return part[rows]
        return part[rows.cpu().numpy() if isinstance(part, np.ndarray) else rows.to(part.device)]

    return _map_parts(taken, x)


def first_rows(x: Any, count: int = 32) -> Any:
    """Return a copy of the first rows, if the parts have the same number."""
    if len(set(_rows(x).values())) == 1:
        x = take(x, slice(count))
    return _map_parts(lambda part: part.clone(), x)


def to_device(x: Any, device: torch.device | None, dtype: torch.dtype) -> Any:
    """Cast floating-point numbers to a dtype, and move inputs to a device."""

    def moved(part: Any) -> Any:
        if device is not None and device.type == "cuda" and part.device.type == "cpu":
            part = part.pin_memory().to(device, non_blocking=True)
        return part.to(device or part.device, dtype if part.dtype.is_floating_point else part.dtype)

    return _map_parts(moved, x)


def find_not_finite(x: Any, name: str = "the inputs", first: int = 0) -> str:
    """Describe the first number that is NaN or infinite.

    Example:
        >>> find_not_finite(torch.tensor([[0.0], [torch.nan]]), first=16)
        'row 17 of the inputs holds nan at index (17, 0)'
    """
    if all(math.isfinite(tensor.sum().item()) for tensor in floating(x)):
        return ""
    for path, part in _parts(x).items():
        for tensor in floating(part):
            missing = ~tensor.isfinite()
            if bool(missing.any()):
                row, *rest = at = first_index(missing)
                index = (first + row, *rest)
                return f"row {index[0]} of {name}{path} holds {tensor[at].item()} at index {index}"
    return ""


def rows_not_finite(x: Any) -> Tensor:
    """Return a mask of the rows with NaN or infinite numbers."""
    return torch.stack([~tensor.flatten(1).isfinite().all(1) for tensor in floating(x)]).any(0)


def nan_to_zero(x: Any) -> Any:
    """Replace NaN and infinite numbers by 0."""
    return pytree.tree_map_only(Tensor, lambda part: part.nan_to_num(0.0, 0.0, 0.0), x)


def floating(x: Any) -> list[Tensor]:
    """Return all floating-point tensors."""
    leaves = [x] if isinstance(x, Tensor) else pytree.tree_leaves(x)
    return [t for t in leaves if isinstance(t, Tensor) and t.is_floating_point()]


def describe(x: Any) -> str:
    """Describe types and shapes.

    Example:
        >>> describe({"ids": torch.zeros(2, 3, dtype=torch.long)})
        "dict: ['ids'] torch.int64 of shape (2, 3)"
    """
    words = []
    for name, part in _parts(x).items():
        text = type(part).__name__
        if isinstance(part, Tensor | Interval):
            prefix = "Interval of " if isinstance(part, Interval) else ""
            text = f"{prefix}{part.dtype} of shape {tuple(part.shape)}"
        words.append(f"{name} {text}".strip())
    return words[0] if _is_part(x) else f"{type(x).__name__}: {', '.join(words)}"


def _split(x: Any, batch_size: int) -> Iterator[Any]:
    if 0 < (rows := count_rows(x)) <= batch_size:
        return iter((x,))
    starts = range(0, rows, batch_size)
    return (take(x, slice(start, start + batch_size)) for start in starts)


def _as_iterable(data: Any, batch_size: int, expected: str) -> Any:

    is_map_dataset = hasattr(data, "__getitem__") and not hasattr(data, "__iter__")
    if isinstance(data, IterableDataset) or is_map_dataset:
        return DataLoader(data, batch_size)
    if not isinstance(data, Iterable) or isinstance(data, Tensor | Interval):
        raise TypeError(f"{expected}, got {type(data).__name__}.")
    return data


def _map_parts(function: Callable[[Any], Any], x: Any) -> Any:
    if _is_part(x):
        return function(x)
    return pytree.tree_map(
        lambda part: function(part) if _is_part(part) else part, x, is_leaf=_is_part
    )


def _parts(x: Any) -> dict[str, Any]:
    if _is_part(x):
        return {"": x}
    paths, _ = pytree.tree_flatten_with_path(x, is_leaf=_is_part)
    return {pytree.keystr(path): part for path, part in paths}


def _rows(x: Any) -> dict[str, int | None]:
    parts = _parts(x).items()
    return {name: len(part) if _is_part(part) and part.ndim else None for name, part in parts}


def _is_part(x: Any) -> bool:
    return isinstance(x, Tensor | Interval) or hasattr(x, "__array__")


def _as_labels(targets: Any) -> Tensor:
    return as_inputs(targets) if isinstance(targets, np.ndarray) else torch.as_tensor(targets)
