"""Training data in any accepted form -> batches where the model is: the one place where batches of a run come from.

In: a pair ``(inputs, targets)``, a data set of this package, or a torch ``Dataset`` of such pairs. Out: :class:`Rows`,
checked once. What a run meets in which order then depends on the seed and the epoch alone.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from creinn.classifier.base import Inputs
from creinn.classifier.inputs import as_inputs, count_rows, find_not_finite, placed, take
from creinn.data.dataset import Dataset
from creinn.interval import Interval
from creinn.numerics import first_index

Augment = Callable[[Any, torch.Generator], Any]


class Batch(NamedTuple):
    """Labelled rows, where the model is."""

    rows: Tensor  # their numbers
    x: Inputs
    y: Tensor
    weight: Tensor | None  # in the loss: their own (N, 1), or else that of the classes (K,)


class Rows(ABC):
    """Labelled rows that can be had in batches, on the device and in the dtype of ``like``."""

    row_weights: Tensor | None = None
    class_weights: Tensor | None = None

    def __init__(self, count: int, like: Tensor, name: str) -> None:
        if count == 0:
            raise ValueError(f"{name} is empty.")
        self._count, self._like, self._name = count, like, name

    def __len__(self) -> int:
        return self._count

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """All rows, first to last."""
        return self._batches(list(torch.arange(len(self)).split(batch_size)))

    def shuffled(self, batch_size: int, seed: int, augment: Augment | None = None) -> Iterator[Batch]:
        """All rows in an order that the seed decides, as it does the augmentation."""
        generator = torch.Generator(self._like.device).manual_seed(seed)
        for batch in self._batches(shuffled(len(self), batch_size, torch.Generator().manual_seed(seed))):
            yield batch if augment is None else batch._replace(x=augment(batch.x, generator))

    def _batches(self, order: Sequence[Tensor]) -> Iterator[Batch]:
        device, dtype = self._like.device, self._like.dtype
        for index, (x, y) in zip(order, self._read(order), strict=True):
            weight = self.class_weights if self.row_weights is None else self.row_weights[index].to(device)
            yield Batch(index, placed(x, device, dtype), placed(y, device, dtype), weight)

    @abstractmethod
    def _read(self, order: Sequence[Tensor]) -> Iterator[tuple[Inputs, Tensor]]:
        """Inputs and targets of each of the lists of row numbers in ``order``."""

    @abstractmethod
    def digest(self) -> str:
        """A short text that other data are unlikely to share."""


def as_rows(data: Any, num_classes: int, like: Tensor, name: str, workers: int = 0) -> Rows:
    """Bring ``data``, as :func:`creinn.fit` takes them, into one form and check them.

    Raises:
        TypeError: If the data are of another kind, or targets not integers.
        ValueError: If data are empty, lengths differ, an input is not finite, a target is no class, or a weight is not
            positive.
    """
    if isinstance(data, Dataset):
        data = (data.inputs, data.labels)
    elif isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, tuple | list) and len(data) in (2, 3):
        rows = InMemory(_inputs(data[0], like.dtype, name), _targets(data[1], num_classes, name), like, name)
        rows.row_weights = _weights(data[2], len(rows), like.dtype, name) if len(data) == 3 else None
        return rows
    has_rows = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if has_rows and not isinstance(data, Tensor | Interval | tuple | list):
        return Loaded(data, num_classes, like, name, workers)
    raise TypeError(
        f"{name} must be a pair (inputs, targets) or a Dataset of such pairs with a length, got {type(data).__name__}."
    )


class InMemory(Rows):
    """Inputs and targets that are tensors, or inputs that are made of some."""

    def __init__(self, inputs: Inputs, targets: Tensor, like: Tensor, name: str) -> None:
        if (rows := count_rows(inputs)) != len(targets):
            raise ValueError(f"{name} has {rows} inputs but {len(targets)} targets; there must be one for each.")
        super().__init__(rows, like, name)
        self.inputs, self.targets = inputs, targets

    def _read(self, order: Sequence[Tensor]) -> Iterator[tuple[Inputs, Tensor]]:
        return (take((self.inputs, self.targets), index) for index in order)

    def digest(self) -> str:
        """See :meth:`Rows.digest`."""
        code = 0
        weights = () if self.row_weights is None else (self.row_weights,)
        for tensor in pytree.tree_leaves((self.inputs, self.targets, *weights)):
            code = zlib.crc32(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data, code)
        shape = pytree.tree_map(lambda part: list(part.shape[1:]), self.inputs)
        shape = tuple(self.inputs.shape[1:]) if isinstance(self.inputs, Tensor | Interval) else shape
        return f"{len(self)} rows of shape {shape}, checksum {code:08x}"


class Loaded(Rows):
    """Rows of a torch ``Dataset``, read when needed; targets are checked as they come."""

    def __init__(self, dataset: Any, num_classes: int, like: Tensor, name: str, workers: int) -> None:
        super().__init__(len(dataset), like, name)
        self._dataset, self._num_classes, self._workers = dataset, num_classes, workers

    def _read(self, order: Sequence[Tensor]) -> Iterator[tuple[Inputs, Tensor]]:
        sampler = [index.tolist() for index in order]
        seeds = torch.Generator().manual_seed(torch.initial_seed())  # of the workers
        for batch in DataLoader(self._dataset, batch_sampler=sampler, num_workers=self._workers, generator=seeds):
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise TypeError(f"The items of {self._name} must be pairs (input, target).")
            yield batch[0], _targets(batch[1], self._num_classes, self._name)

    def digest(self) -> str:
        """See :meth:`Rows.digest`."""
        return f"{len(self)} rows of a {type(self._dataset).__name__}"


def shuffled(rows: int, batch_size: int, generator: torch.Generator) -> list[Tensor]:
    """Row numbers of each batch of one epoch; a last batch of a single row joins the one before it.

    Example:
        >>> [len(batch) for batch in shuffled(7, 3, torch.Generator())]
        [3, 4]
    """
    batches = list(torch.randperm(rows, generator=generator).split(batch_size))
    if len(batches) > 1 and len(batches[-1]) == 1 and batch_size > 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def _inputs(inputs: Any, dtype: torch.dtype, name: str) -> Inputs:
    inputs = torch.as_tensor(inputs) if isinstance(inputs, list) else as_inputs(inputs)
    if isinstance(inputs, Tensor | Interval) and inputs.dtype.is_floating_point and inputs.ndim < 2:
        raise ValueError(f"The inputs of {name} must have shape (N, ...) with one row each, got {tuple(inputs.shape)}.")
    inputs = placed(inputs, None, dtype)
    if where := find_not_finite(inputs, f"the inputs of {name}"):
        raise ValueError(f"{where}. Impute, clip or drop such values first.")
    return inputs


def _weights(weights: Any, rows: int, dtype: torch.dtype, name: str) -> Tensor:
    weights = torch.as_tensor(weights).to(dtype)
    if weights.shape != (rows,):
        raise ValueError(f"The weights of {name} must be ({rows},), one of each row, got {tuple(weights.shape)}.")
    if bool((bad := ~((weights > 0) & weights.isfinite())).any()):
        (at,) = first_index(bad)
        raise ValueError(
            f"The weights of {name} must be positive and finite, but row {at} has {weights[at].item()}. "
            f"Leave out rows of weight 0."
        )
    return weights.unsqueeze(1)


def _targets(targets: Any, num_classes: int, name: str) -> Tensor:
    targets = torch.as_tensor(targets)
    if targets.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"The targets of {name} must be integers, the numbers of the classes, but are {targets.dtype}.")
    if targets.ndim != 1:
        raise ValueError(f"The targets of {name} must have shape (N,), got {tuple(targets.shape)}.")
    if bool((bad := (targets < 0) | (targets >= num_classes)).any()):
        (at,) = first_index(bad)
        raise ValueError(
            f"The targets of {name} must lie in 0 .. {num_classes - 1} for {num_classes} classes, "
            f"but target {at} is {int(targets[at])}."
        )
    return targets.long()
