"""What a user gives as inputs -> batches where the model is, for training, prediction and the distance alike.

Inputs are a tensor, an array or an :class:`Interval` with one entry per row, or a dict or tuple of these, which reaches
the network as it is. Floating numbers take the dtype of the model; integers, such as tokens, stay integers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from creinn.interval import Interval
from creinn.numerics import first_index


def batches(x: Any, batch_size: int) -> Iterator[Any]:
    """Inputs in batches of rows; of an iterable of batches, each one, without the targets that may come with it."""
    if isinstance(x, TensorDataset):
        x = x.tensors[0]
    if _is_part(x) or isinstance(x, Mapping | tuple):
        yield from map(
            as_inputs, _split(as_rows(x), batch_size)
        )  # only the rows of a batch are copied
        return
    if isinstance(x, IterableDataset) or _has_rows(x):
        x = DataLoader(x, batch_size)
    if not isinstance(x, Iterable):
        raise TypeError(
            f"Expected inputs, a Dataset or an iterable of batches, got {type(x).__name__}."
        )
    for batch in x:
        yield as_inputs(batch[0] if isinstance(batch, tuple | list) and batch else batch)


def labelled_batches(data: Any, batch_size: int, name: str) -> Iterable[tuple[Any, Any]]:
    """Inputs and classes in batches, from a pair of both, a data set, or an iterable of such pairs.

    It can be gone over again, unless the data are an iterator.
    """
    if is_pair(data):
        x, y = as_rows(data[0]), _as_classes(data[1])
        if (rows := count_rows(x)) != len(y):
            raise ValueError(
                f"{name.capitalize()} have {rows} inputs but {len(y)} classes, not one for each."
            )
        return ReiterableStream(lambda: ((as_inputs(x), y) for x, y in _split((x, y), batch_size)))
    pairs = f"{name.capitalize()} must be a pair (inputs, classes), a Dataset, or batches that are such pairs"
    if isinstance(data, IterableDataset) or _has_rows(data):
        data = DataLoader(data, batch_size)
    if not isinstance(data, Iterable) or isinstance(data, Tensor | Interval):
        raise TypeError(f"{pairs}, got {type(data).__name__}.")

    def checked(batch: Any) -> tuple[Any, Any]:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise TypeError(f"{pairs}.")
        return as_inputs(batch[0]), batch[1]

    return (
        map(checked, data)
        if isinstance(data, Iterator)
        else ReiterableStream(lambda: map(checked, data))
    )


def is_pair(data: Any) -> bool:
    """Whether these are inputs and classes, not batches of both."""
    is_two = isinstance(data, tuple | list) and len(data) == 2
    return is_two and (_is_part(data[0]) or isinstance(data[0], Mapping) or _is_part(data[1]))


class ReiterableStream(Iterable[Any]):
    """What can be gone over again and again: each time ``start`` is called.

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
    """Targets as classes ``(N,)``, as many as there are rows; refuses what is none."""
    targets, what = _as_classes(targets), f"The targets of {name} must"
    if targets.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"{what} be integers, the numbers of the classes, but are {targets.dtype}.")
    if targets.ndim != 1 or rows not in (None, len(targets)):
        raise ValueError(
            f"{what} have shape ({'N' if rows is None else rows},), got {tuple(targets.shape)}."
        )
    if bool((bad := (targets < 0) | (targets >= num_classes)).any()):
        (at,) = first_index(bad)
        found = f"target {at} is {int(targets[at])}"
        raise ValueError(
            f"{what} lie in 0 .. {num_classes - 1} for {num_classes} classes, but {found}."
        )
    return targets.long()


def as_inputs(x: Any) -> Any:
    """Inputs with arrays as tensors, and any mapping as a dict; refuses what are no inputs."""
    return _converted(x, _as_tensor)


def as_rows(x: Any) -> Any:
    """The same, but memory maps, which may be larger than memory, and other arrays as they are, for :func:`take`."""
    return _converted(x, lambda part: part if isinstance(part, np.ndarray) else _as_tensor(part))


def is_mapped(x: Any) -> bool:
    """Whether a part of the inputs is a memory map, as ``numpy.load(path, mmap_mode="r")`` gives."""
    return any(isinstance(part, np.memmap) for part in pytree.tree_leaves(x))


def concatenate(batches: Sequence[Any]) -> Any:
    """Batches of the same form as one."""
    together = [torch.cat(parts) for parts in zip(*map(leaves_of, batches), strict=True)]
    return pytree.tree_unflatten(together, pytree.tree_structure(batches[0]))


def leaves_of(x: Any) -> list[Tensor]:
    """All tensors of inputs; two of an interval, unless it is a point."""
    return [
        part if isinstance(part, Tensor) else torch.as_tensor(part)
        for part in pytree.tree_leaves(x)
    ]


def count_rows(x: Any) -> int:
    """The number of rows of inputs; refuses parts that differ in it."""
    rows = _rows(x)
    if len(set(rows.values())) != 1 or None in rows.values():
        found = ", ".join(
            f"{name or 'a number'} has {count or 'none'}" for name, count in rows.items()
        )
        raise ValueError(
            f"Every part of the inputs must have the same number of rows, but {found or 'there is none'}."
        )
    return next(iter(rows.values())) or 0


def take(x: Any, rows: Any) -> Any:
    """Some rows of inputs, by their numbers or as a slice."""

    def taken(part: Any) -> Any:
        if not isinstance(rows, Tensor):
            return part[rows]
        return part[rows.cpu().numpy() if isinstance(part, np.ndarray) else rows.to(part.device)]

    return _each(taken, x)


def first_rows(x: Any, count: int = 32) -> Any:
    """A copy of the first rows of a batch; of all of it, if its parts differ in their numbers of rows."""
    if len(set(_rows(x).values())) == 1:
        x = take(x, slice(count))
    return _each(lambda part: part.clone(), x)


def to_device(x: Any, device: torch.device | None, dtype: torch.dtype) -> Any:
    """Inputs on a device, by default where they are, the floating ones in a dtype."""

    def place(part: Any) -> Any:
        if device is not None and device.type == "cuda" and part.device.type == "cpu":
            part = part.pin_memory().to(device, non_blocking=True)
        return part.to(device or part.device, dtype if part.dtype.is_floating_point else part.dtype)

    return _each(place, x)


def find_not_finite(x: Any, name: str = "the inputs", first: int = 0) -> str:
    """Where inputs hold NaN or an infinite number, in words; nothing if they do not. ``first``: number of their row 0.

    Example:
        >>> find_not_finite(torch.tensor([[0.0, 1.0], [2.0, torch.nan]]), first=16)
        'row 17 of the inputs holds nan at index (17, 1)'
    """
    for path, part in _parts(x).items():
        for tensor in floating(part):
            # a sum is quicker, and finite only if all that is added is
            if not bool(tensor.sum().isfinite()) and not bool(tensor.isfinite().all()):
                row, *rest = at = first_index(~tensor.isfinite())
                where = (first + row, *rest)
                return (
                    f"row {first + row} of {name}{path} holds {tensor[at].item()} at index {where}"
                )
    return ""


def rows_not_finite(x: Any) -> Tensor:
    """Which rows hold NaN or an infinite number."""
    return torch.stack([~tensor.flatten(1).isfinite().all(1) for tensor in floating(x)]).any(0)


def nan_to_zero(x: Any) -> Any:
    """Inputs with 0 where they hold NaN or an infinite number."""
    return _each(
        lambda part: part.nan_to_num(0.0, 0.0, 0.0) if isinstance(part, Tensor) else part, x
    )


def describe(x: Any) -> str:
    """What inputs or outputs are.

    Example:
        >>> describe({"ids": torch.zeros(2, 3, dtype=torch.long)})
        "dict: ['ids'] torch.int64 of shape (2, 3)"
    """
    words = []
    for name, part in _parts(x).items():
        numbers = (
            f"{part.dtype} of shape {tuple(part.shape)}"
            if isinstance(part, Tensor | Interval)
            else ""
        )
        what = (
            f"Interval of {numbers}"
            if isinstance(part, Interval)
            else numbers or type(part).__name__
        )
        words.append(f"{name} {what}".strip())
    return words[0] if _is_part(x) else f"{type(x).__name__}: {', '.join(words)}"


def _split(x: Any, batch_size: int) -> Iterator[Any]:
    return (
        take(x, slice(start, start + batch_size)) for start in range(0, count_rows(x), batch_size)
    )


def _each(function: Callable[[Any], Any], x: Any) -> Any:
    """Every tensor and interval of inputs changed; what else a dict or tuple may hold stays."""
    return pytree.tree_map(
        lambda part: function(part) if _is_part(part) else part, x, is_leaf=_is_part
    )


def _parts(x: Any) -> dict[str, Any]:
    """Tensors, intervals and whatever else inputs are made of, by their places."""
    return {
        pytree.keystr(path): part
        for path, part in pytree.tree_flatten_with_path(x, is_leaf=_is_part)[0]
    }


def _rows(x: Any) -> dict[str, int | None]:
    """Numbers of rows of all parts; none of what has no rows."""
    return {
        name: len(part) if _is_part(part) and part.ndim else None
        for name, part in _parts(x).items()
    }


def floating(x: Any) -> list[Tensor]:
    """All tensors of floating numbers inside ``x``; two of an interval."""
    return [t for t in pytree.tree_leaves(x) if isinstance(t, Tensor) and t.is_floating_point()]


def _is_part(x: Any) -> bool:
    return isinstance(x, Tensor | Interval) or hasattr(x, "__array__")


def _as_tensor(part: Any) -> Any:
    return (
        part
        if isinstance(part, Tensor | Interval)
        else torch.from_numpy(np.require(part, requirements=["C", "W"]))
    )


def _as_classes(targets: Any) -> Tensor:
    return _as_tensor(targets) if isinstance(targets, np.ndarray) else torch.as_tensor(targets)


def _converted(x: Any, convert: Callable[[Any], Any]) -> Any:
    if not (_is_part(x) or isinstance(x, Mapping | tuple | list)):
        found = type(x).__name__
        raise TypeError(
            f"Inputs are a tensor, an array or an Interval, or a dict or tuple of these, got {found}."
        )
    return _each(convert, dict(x) if isinstance(x, Mapping) else x)


def _has_rows(x: Any) -> bool:
    """Whether it is a map-style data set, which has rows but cannot be gone through without their numbers."""
    return hasattr(x, "__getitem__") and hasattr(x, "__len__") and not hasattr(x, "__iter__")
