"""Inputs of classifiers: conversion to tensors, division into batches, and checks.

Inputs are a tensor, an array or an :class:`Interval` with one entry per row, or a dict or tuple of
these. The classifier converts floating-point numbers to its dtype. Integers, such as tokens, are
not converted.
"""

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


def batches(x: Any, batch_size: int) -> Iterator[Any]:
    """Yield the inputs in batches; of pairs, only the first element is used."""
    if isinstance(x, TensorDataset):
        x = x.tensors[0]
    if _is_part(x) or isinstance(x, Mapping | tuple):
        yield from map(as_inputs, _split(as_rows(x), batch_size))  # copies one batch at a time
        return
    if isinstance(x, IterableDataset) or _is_map_dataset(x):
        x = DataLoader(x, batch_size)
    if not isinstance(x, Iterable):
        raise TypeError(
            f"Expected inputs, a Dataset or an iterable of batches, got {type(x).__name__}."
        )
    for batch in x:
        yield as_inputs(batch[0] if isinstance(batch, tuple | list) and batch else batch)


def labelled_batches(data: Any, batch_size: int, name: str) -> Iterable[tuple[Any, Any]]:
    """Return batches of inputs and targets of a pair, a dataset of pairs, or batches of pairs.

    The result can be iterated several times, unless ``data`` is an iterator.
    """
    if is_pair(data):
        x, y = as_rows(data[0]), _as_classes(data[1])
        if (rows := count_rows(x)) != len(y):
            raise ValueError(
                f"{name.capitalize()} have {rows} inputs but {len(y)} classes. Pass one per input."
            )
        return ReiterableStream(lambda: ((as_inputs(x), y) for x, y in _split((x, y), batch_size)))
    expected = (
        f"{name.capitalize()} must be a pair (inputs, classes), a Dataset of such pairs, or "
        "batches that are such pairs"
    )
    if isinstance(data, IterableDataset) or _is_map_dataset(data):
        data = DataLoader(data, batch_size)
    if not isinstance(data, Iterable) or isinstance(data, Tensor | Interval):
        raise TypeError(f"{expected}, got {type(data).__name__}.")

    def checked(batch: Any) -> tuple[Any, Any]:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise TypeError(f"{expected}, got a batch of type {type(batch).__name__}.")
        return as_inputs(batch[0]), batch[1]

    if isinstance(data, Iterator):
        return map(checked, data)
    return ReiterableStream(lambda: map(checked, data))


def is_pair(data: Any) -> bool:
    """Return whether ``data`` is a pair of inputs and classes."""
    is_two = isinstance(data, tuple | list) and len(data) == 2
    return is_two and (_is_part(data[0]) or isinstance(data[0], Mapping) or _is_part(data[1]))


class ReiterableStream(Iterable[Any]):
    """Iterable that calls ``start`` for each iteration.

    Example:
        >>> squares = ReiterableStream(lambda: (n * n for n in range(3)))
        >>> list(squares), list(squares)
        ([0, 1, 4], [0, 1, 4])
    """

    def __init__(self, start: Callable[[], Iterator[Any]]) -> None:
        self._start = start

    def __iter__(self) -> Iterator[Any]:
        return self._start()


def as_classes(targets: Any, num_classes: int, name: str, rows: int | None = None) -> Tensor:
    """Return targets as class numbers of shape ``(N,)``.

    Raises:
        TypeError: If the targets are not integers.
        ValueError: If their shape is wrong, or if one of them is not a class.
    """
    targets, subject = _as_classes(targets), f"The targets of {name} must"
    if targets.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"{subject} be integers, the numbers of the classes, got {targets.dtype}.")
    if targets.ndim != 1 or rows not in (None, len(targets)):
        expected = "N" if rows is None else rows
        raise ValueError(f"{subject} have shape ({expected},), got {tuple(targets.shape)}.")
    if bool((bad := (targets < 0) | (targets >= num_classes)).any()):
        (row,) = first_index(bad)
        found = f"target {row} is {int(targets[row])}"
        raise ValueError(
            f"{subject} lie in 0 .. {num_classes - 1} for {num_classes} classes, but {found}."
        )
    return targets.long()


def as_targets(targets: Any, num_classes: int, name: str, rows: int | None = None) -> Tensor:
    """Return targets as class numbers ``(N,)`` or as label distributions ``(N, K)``.

    Raises:
        TypeError: If the targets are neither integers nor distributions.
        ValueError: If their shape is wrong, or if one of them is not valid.
    """
    targets = _as_classes(targets)
    if targets.ndim != 2 or not targets.is_floating_point():
        return as_classes(targets, num_classes, name, rows)
    if targets.shape[1] != num_classes or rows not in (None, len(targets)):
        expected = f"({'N' if rows is None else rows}, {num_classes})"
        found = f"must have shape {expected}, got {tuple(targets.shape)}"
        raise ValueError(f"The label distributions of {name} {found}.")
    check_distributions(targets, f"target of {name}")
    return targets


def most_probable(targets: Tensor) -> Tensor:
    """Return the classes ``(N,)`` of targets, the most probable ones of distributions."""
    return targets.argmax(1) if targets.ndim == 2 else targets


def as_inputs(x: Any) -> Any:
    """Convert arrays to tensors and mappings to dicts, or raise a ``TypeError``."""
    return _converted(x, _as_tensor)


def as_rows(x: Any) -> Any:
    """Convert inputs as :func:`as_inputs`, but keep arrays, which can be memory maps."""
    return _converted(x, lambda part: part if isinstance(part, np.ndarray) else _as_tensor(part))


def is_mapped(x: Any) -> bool:
    """Return whether a part of the inputs is a memory map."""
    return any(isinstance(part, np.memmap) for part in pytree.tree_leaves(x))


def concatenate(batches: Sequence[Any]) -> Any:
    """Concatenate batches with the same structure."""
    leaves = zip(*map(pytree.tree_leaves, batches), strict=True)
    return pytree.tree_unflatten(list(map(torch.cat, leaves)), pytree.tree_structure(batches[0]))


def count_rows(x: Any) -> int:
    """Return the number of rows, or raise a ``ValueError`` if it differs between the parts."""
    rows = _rows(x)
    if len(set(rows.values())) != 1 or None in rows.values():
        found = ", ".join(
            f"{name or 'a number'} has {count or 'none'}" for name, count in rows.items()
        )
        raise ValueError(
            "Every part of the inputs must have the same number of rows, but "
            f"{found or 'there is none'}."
        )
    return next(iter(rows.values())) or 0


def take(x: Any, rows: Any) -> Any:
    """Return the rows of the inputs that a slice or a tensor of indices selects."""

    def taken(part: Any) -> Any:
        if not isinstance(rows, Tensor):
            return part[rows]
        return part[rows.cpu().numpy() if isinstance(part, np.ndarray) else rows.to(part.device)]

    return _map_parts(taken, x)


def first_rows(x: Any, count: int = 32) -> Any:
    """Return a copy of the first rows, or of all if the parts have different numbers of rows."""
    if len(set(_rows(x).values())) == 1:
        x = take(x, slice(count))
    return _map_parts(lambda part: part.clone(), x)


def to_device(x: Any, device: torch.device | None, dtype: torch.dtype) -> Any:
    """Cast floating-point numbers to a dtype, and move inputs to a device unless it is ``None``."""

    def moved(part: Any) -> Any:
        if device is not None and device.type == "cuda" and part.device.type == "cpu":
            part = part.pin_memory().to(device, non_blocking=True)
        return part.to(device or part.device, dtype if part.dtype.is_floating_point else part.dtype)

    return _map_parts(moved, x)


def find_not_finite(x: Any, name: str = "the inputs", first: int = 0) -> str:
    """Describe the first number that is NaN or infinite, if there is one.

    Args:
        x: The inputs.
        name: Their name.
        first: The number of their first row.

    Example:
        >>> find_not_finite(torch.tensor([[0.0, 1.0], [2.0, torch.nan]]), first=16)
        'row 17 of the inputs holds nan at index (17, 1)'
    """
    for path, part in _parts(x).items():
        for tensor in floating(part):
            # the sum is faster, and it is finite only if all numbers are
            if not bool(tensor.sum().isfinite()) and not bool(tensor.isfinite().all()):
                row, *rest = at = first_index(~tensor.isfinite())
                index = (first + row, *rest)
                return f"row {index[0]} of {name}{path} holds {tensor[at].item()} at index {index}"
    return ""


def rows_not_finite(x: Any) -> Tensor:
    """Return a mask of the rows with a number that is NaN or infinite."""
    return torch.stack([~tensor.flatten(1).isfinite().all(1) for tensor in floating(x)]).any(0)


def nan_to_zero(x: Any) -> Any:
    """Replace NaN and infinite numbers by 0."""
    return _map_parts(
        lambda part: part.nan_to_num(0.0, 0.0, 0.0) if isinstance(part, Tensor) else part, x
    )


def floating(x: Any) -> list[Tensor]:
    """Return all floating-point tensors of inputs; an interval has two of them."""
    return [t for t in pytree.tree_leaves(x) if isinstance(t, Tensor) and t.is_floating_point()]


def describe(x: Any) -> str:
    """Describe the types and shapes of inputs or outputs.

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
    starts = range(0, count_rows(x), batch_size)
    return (take(x, slice(start, start + batch_size)) for start in starts)


def _map_parts(function: Callable[[Any], Any], x: Any) -> Any:
    """Apply a function to all tensors, arrays and intervals of inputs."""
    if _is_part(x):
        return function(x)
    return pytree.tree_map(
        lambda part: function(part) if _is_part(part) else part, x, is_leaf=_is_part
    )


def _parts(x: Any) -> dict[str, Any]:
    """Return the tensors and other parts of the inputs by their paths."""
    paths, _ = pytree.tree_flatten_with_path(x, is_leaf=_is_part)
    return {pytree.keystr(path): part for path, part in paths}


def _rows(x: Any) -> dict[str, int | None]:
    """Return the numbers of rows of all parts, ``None`` for parts without rows."""
    return {
        name: len(part) if _is_part(part) and part.ndim else None
        for name, part in _parts(x).items()
    }


def _is_part(x: Any) -> bool:
    return isinstance(x, Tensor | Interval) or hasattr(x, "__array__")


def _as_tensor(part: Any) -> Any:
    if isinstance(part, Tensor | Interval):
        return part
    return torch.from_numpy(np.require(part, requirements=["C", "W"]))


def _as_classes(targets: Any) -> Tensor:
    return _as_tensor(targets) if isinstance(targets, np.ndarray) else torch.as_tensor(targets)


def _converted(x: Any, convert: Callable[[Any], Any]) -> Any:
    if not (_is_part(x) or isinstance(x, Mapping | tuple | list)):
        raise TypeError(
            "Inputs must be a tensor, an array or an Interval, or a dict or tuple of these, got "
            f"{type(x).__name__}."
        )
    return _map_parts(convert, dict(x) if isinstance(x, Mapping) else x)


def _is_map_dataset(x: Any) -> bool:
    """Return whether ``x`` is a map-style dataset, which has rows but no iterator."""
    return hasattr(x, "__getitem__") and hasattr(x, "__len__") and not hasattr(x, "__iter__")
