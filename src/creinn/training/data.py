"""Training data in any accepted form -> batches where the model is: the one place where batches of a run come from.

In: a pair ``(inputs, targets)``, a data set of this package, or a torch ``Dataset`` of such pairs. Out: :class:`Rows`,
checked once. What a run meets in which order then depends on the seed and the epoch alone.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from creinn.classifier.base import Inputs
from creinn.classifier.inputs import as_classes, as_inputs, count_rows, find_not_finite, placed, take
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


class Rows:
    """Labelled rows in batches, on the device and in the dtype of ``like``; ``data`` are as :func:`creinn.fit` takes.

    Rows in memory are checked at once; of a ``Dataset``, whose rows are read when needed, the targets as they come.

    Raises:
        TypeError: If the data are of another kind, or targets not integers.
        ValueError: If data are empty, lengths differ, an input is not finite, a target is no class, or a weight is not
            positive.
    """

    def __init__(self, data: Any, num_classes: int, like: Tensor, name: str, workers: int = 0) -> None:
        self._num_classes, self._like, self._name, self._workers = num_classes, like, name, workers
        self.in_memory: tuple[Inputs, Tensor] | None = None
        self.row_weights: Tensor | None = None
        self.class_weights: Tensor | None = None
        if isinstance(data, Dataset):
            data = (data.inputs, data.labels)
        elif isinstance(data, TensorDataset):
            data = data.tensors
        if isinstance(data, tuple | list) and len(data) in (2, 3):
            self.in_memory = self._check_inputs(data[0]), as_classes(data[1], num_classes, name)
            rows, targets = count_rows(self.in_memory[0]), len(self.in_memory[1])
            if rows != targets:
                raise ValueError(f"{name} has {rows} inputs but {targets} targets; there must be one for each.")
            self.row_weights = self._check_weights(data[2], rows) if len(data) == 3 else None
            data = self.in_memory[1]
        elif isinstance(data, Tensor | Interval | tuple | list) or not _has_rows(data):
            pairs = "a pair (inputs, targets) or a Dataset of such pairs with a length"
            raise TypeError(f"{name} must be {pairs}, got {type(data).__name__}.")
        if len(data) == 0:
            raise ValueError(f"{name} is empty.")
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """All rows, first to last."""
        return self._batches(torch.arange(len(self)).split(batch_size))

    def shuffled(self, batch_size: int, seed: int, augment: Augment | None = None) -> Iterator[Batch]:
        """All rows in an order that the seed decides, as it does the augmentation."""
        generator = torch.Generator(self._like.device).manual_seed(seed)
        for batch in self._batches(shuffled(len(self), batch_size, torch.Generator().manual_seed(seed))):
            yield batch if augment is None else batch._replace(x=augment(batch.x, generator))

    def digest(self) -> str:
        """A short text that other data are unlikely to share."""
        if self.in_memory is None:
            return f"{len(self)} rows of a {type(self._data).__name__}"
        code = 0
        weights = () if self.row_weights is None else (self.row_weights,)
        for tensor in pytree.tree_leaves((*self.in_memory, *weights)):
            code = zlib.crc32(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data, code)
        inputs = self.in_memory[0]
        shape = pytree.tree_map(lambda part: list(part.shape[1:]), inputs)
        shape = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor | Interval) else shape
        return f"{len(self)} rows of shape {shape}, checksum {code:08x}"

    def _batches(self, order: Sequence[Tensor]) -> Iterator[Batch]:
        device, dtype = self._like.device, self._like.dtype
        for index, (x, y) in zip(order, self._read(order), strict=True):
            weight = self.class_weights if self.row_weights is None else self.row_weights[index].to(device)
            yield Batch(index, placed(x, device, dtype), placed(y, device, dtype), weight)

    def _read(self, order: Sequence[Tensor]) -> Iterator[tuple[Inputs, Tensor]]:
        """Inputs and targets of each of the lists of row numbers in ``order``."""
        if self.in_memory is not None:
            yield from (take(self.in_memory, index) for index in order)
            return
        sampler = [index.tolist() for index in order]
        seeds = torch.Generator().manual_seed(torch.initial_seed())  # of the workers
        for batch in DataLoader(self._data, batch_sampler=sampler, num_workers=self._workers, generator=seeds):
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise TypeError(f"The items of {self._name} must be pairs (input, target).")
            yield batch[0], as_classes(batch[1], self._num_classes, self._name)

    def _check_inputs(self, inputs: Any) -> Inputs:
        inputs = torch.as_tensor(inputs) if isinstance(inputs, list) else as_inputs(inputs)
        if isinstance(inputs, Tensor | Interval) and inputs.dtype.is_floating_point and inputs.ndim < 2:
            found = tuple(inputs.shape)
            raise ValueError(f"The inputs of {self._name} must have shape (N, ...) with one row each, got {found}.")
        inputs = placed(inputs, None, self._like.dtype)
        if where := find_not_finite(inputs, f"the inputs of {self._name}"):
            raise ValueError(f"{where}. Impute, clip or drop such values first.")
        return inputs

    def _check_weights(self, weights: Any, rows: int) -> Tensor:
        weights, what = torch.as_tensor(weights).to(self._like.dtype), f"The weights of {self._name} must be"
        if weights.shape != (rows,):
            raise ValueError(f"{what} ({rows},), one of each row, got {tuple(weights.shape)}.")
        if bool((bad := ~((weights > 0) & weights.isfinite())).any()):
            (at,) = first_index(bad)
            found = f"row {at} has {weights[at].item()}"
            raise ValueError(f"{what} positive and finite, but {found}. Leave out rows of weight 0.")
        return weights.unsqueeze(1)


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


def _has_rows(data: Any) -> bool:
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")
