"""Batches of training data on the device of the model.

A stream is a DataLoader or an ``IterableDataset``, whose order is not
changed. The order of other data depends only on the seed and the epoch.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from creinn.classifier.base import Inputs
from creinn.classifier.inputs import (
    ReiterableStream,
    as_inputs,
    as_targets,
    concatenate,
    count_rows,
    describe,
    find_not_finite,
    is_mapped,
    take,
    to_device,
)
from creinn.data.dataset import Dataset
from creinn.data.lazy_images import LazyImages
from creinn.distributed import all_sum, rank, world_size
from creinn.interval import Interval
from creinn.numerics import first_index

Augment = Callable[[Any, torch.Generator], Any]
Pair = tuple[Inputs, Tensor]
Triple = tuple[Tensor, Inputs, Tensor]  # row indices, inputs and targets
_CHUNK_BYTES = 2**25  # size of rows that are copied together
_EVALUATION_ROWS = 1024  # in a batch of a table


class Batch(NamedTuple):
    """Labelled rows on the device of the model."""

    rows: Tensor  # indices of the rows
    x: Inputs
    y: Tensor  # classes (N,) or label distributions (N, K)
    weight: Tensor | None  # in the loss; shape (N, 1) for rows or (K,) for classes


class Rows:
    """Batches of labelled rows, with the device and the dtype of ``like``.

    See :func:`creinn.fit` for the types of data. Rows in memory are
    checked in the constructor, others when they are read.

    Raises:
        TypeError: If the type of the data or targets is not supported.
        ValueError: If a value or a length is not valid.
    """

    def __init__(
        self, data: Any, num_classes: int, like: Tensor, name: str, workers: int = 0
    ) -> None:
        self._num_classes, self._like, self._name, self._workers = num_classes, like, name, workers
        self._pair: Pair | None = None  # tensors or memory maps
        self.in_memory: Pair | None = None
        self.row_weights: Tensor | None = None
        self.class_weights: Tensor | None = None
        if isinstance(data, Dataset):
            data = data.to_fit()
        elif isinstance(data, TensorDataset):
            data = data.tensors
        self._is_stream = isinstance(data, DataLoader | IterableDataset)
        sampler = getattr(data, "sampler", None)
        self._has_own_rows = isinstance(sampler, DistributedSampler)
        is_dataset = hasattr(data, "__getitem__") and hasattr(data, "__len__")
        is_array = isinstance(data, Tensor | Interval | tuple | list)
        if isinstance(data, tuple | list) and len(data) in (2, 3):
            data = self._read_pair(*data)
        elif is_array or not (self._is_stream or is_dataset):
            expected = "a pair (inputs, targets), a Dataset or a DataLoader"
            raise TypeError(f"{name} must be {expected}, got {type(data).__name__}.")
        if not self._is_stream and len(data) == 0:
            raise ValueError(f"{name} is empty.")
        self._data = data

    def count(self) -> int | None:
        """Return the number of rows, ``None`` of a stream."""
        return None if self._is_stream else len(self._data)

    def steps(self, batch_size: int) -> int | None:
        """Return the number of batches per epoch, if it is known."""
        rows = self.count()
        if rows is not None:
            return len(shuffled_batches(rows, batch_size, seed=0))
        return self._stream_length(batch_size * world_size())

    def class_counts(self) -> Tensor:
        """Return the number of rows in each class; may read all data."""
        if isinstance(self._data, LazyImages):
            return self._count(self._data.labels)
        if self._pair is not None:
            return self._count(self._pair[1].cpu())
        counts = torch.zeros(self._num_classes, dtype=torch.long, device=self._like.device)
        for batch in self.in_order(1024):
            counts = counts + self._count(batch.y)
        counts = all_sum(counts).cpu()
        if not counts.any():
            raise ValueError(f"{self._name} is empty.")
        return counts

    def _count(self, y: Tensor) -> Tensor:
        return y.sum(0) if y.ndim == 2 else torch.bincount(y, minlength=self._num_classes)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """Yield the rows of this process in the order of the data."""
        if self._is_stream:
            stream = self._read_stream(batch_size)
            if not self._has_own_rows:
                stream = islice(stream, rank(), None, world_size())
            batches: Iterable[Batch] = map(self._checked, stream)
        else:
            rows = own_share(len(self._data))
            batches = self._read(rows.split(batch_size) if len(rows) else ())
        for batch in batches:
            if self.in_memory is None:
                self._check_finite(batch.x, int(batch.rows[0]))
            yield batch

    def evaluation_batch_size(self, batch_size: int) -> int:
        """Return a batch size that is larger for tables."""
        inputs = None if self.in_memory is None else self.in_memory[0]
        is_table = isinstance(inputs, Tensor | Interval) and inputs.ndim == 2
        return max(batch_size, _EVALUATION_ROWS) if is_table else batch_size

    def labelled(self, batch_size: int) -> Iterable[Pair]:
        """Return the pairs of batches in order; reiterable if not in memory."""
        pairs = ReiterableStream(lambda: ((b.x, b.y) for b in self.in_order(batch_size)))
        return pairs if self.in_memory is None else iter(pairs)

    def shuffled(
        self, batch_size: int, seed: int, augment: Augment | None = None
    ) -> Iterator[Batch]:
        """Yield the batches in a random order and with an augmentation that depend on the seed."""
        if self._is_stream:
            stream = self._read_stream(batch_size * world_size())
            batches: Iterable[Batch] = map(self._checked, map(self._own_rows, stream))
        else:
            batches = self._read(shuffled_batches(len(self._data), batch_size, seed))
        if augment is None:
            yield from batches
            return
        generator = torch.Generator(self._like.device).manual_seed(seed + rank())
        for batch in batches:
            yield batch._replace(x=augment(batch.x, generator))

    def digest(self) -> str:
        """Return a description of the data, with a checksum if they are in memory."""
        if self._is_stream:
            length, dataset = self._stream_length(1), getattr(self._data, "dataset", self._data)
            size = "" if length is None else f" of length {length}"
            return f"a stream of a {type(dataset).__name__}{size}"
        if self.in_memory is None:
            data = self._data if self._pair is None else self._pair[0]
            own = f", {data.digest()}" if hasattr(data, "digest") else ""
            return f"{len(self._data)} rows of a {type(data).__name__}{own}"
        code = 0
        for tensor in pytree.tree_leaves((*self.in_memory, self.row_weights)):
            if tensor is not None:
                numbers = tensor.detach().cpu().contiguous().view(torch.uint8).numpy()
                code = zlib.crc32(numbers.data, code)
        return f"{len(self._data)} rows, {describe(self.in_memory[0])}, checksum {code:08x}"

    def _read_pair(self, inputs: Any, targets: Any, weights: Any = None) -> Tensor:
        """Store the checked data, and return the targets."""
        mapped = is_mapped(inputs)
        inputs = as_inputs(inputs, keep_arrays=True) if mapped else self._check_inputs(inputs)
        targets = as_targets(targets, self._num_classes, self._name)
        self._pair = inputs, targets
        self.in_memory = None if mapped else self._pair
        if (rows := count_rows(inputs)) != len(targets):
            raise ValueError(f"{self._name} has {rows} inputs but {len(targets)} targets.")
        if weights is not None:
            self.row_weights = self._check_weights(weights, rows)
        return targets

    def _read(self, order: Sequence[Tensor]) -> Iterator[Batch]:
        if self.in_memory is not None:
            return self._read_memory(self.in_memory, order)
        if self._pair is not None:
            pairs: Iterable[Any] = (take(self._pair, index) for index in order)
        else:
            options: dict[str, Any] = {"batch_sampler": [index.tolist() for index in order]}
            seeds = torch.Generator().manual_seed(torch.initial_seed())  # of the workers
            options |= {"num_workers": self._workers, "generator": seeds}
            pairs = map(self._as_pair, DataLoader(self._data, **options))
        return (self._checked((i, *pair)) for i, pair in zip(order, pairs, strict=True))

    def _read_memory(self, pair: Pair, order: Sequence[Tensor]) -> Iterator[Batch]:
        """Yield batches as views of larger copies, which is faster."""
        row_bytes = sum(leaf[:1].nbytes for leaf in pytree.tree_leaves(pair))
        largest = row_bytes * max(map(len, order), default=1)
        step = max(1, _CHUNK_BYTES // max(1, largest))
        for start in range(0, len(order), step):
            indices = order[start : start + step]
            together, first = torch.cat(list(indices)), 0
            _, x, y, weight = self._place(together, *take(pair, together))
            for index in indices:
                own = slice(first, first + len(index))
                part = weight if self.row_weights is None or weight is None else weight[own]
                yield Batch(index, take(x, own), y[own], part)
                first += len(index)

    def _read_stream(self, batch_size: int) -> Iterator[Triple]:
        """Yield the batches; a short last batch joins the previous one."""
        first, waiting = 0, None
        for batch in map(self._as_pair, self._loader(batch_size)):
            if waiting is not None and len(batch[1]) < max(2, world_size()):
                batch = concatenate([waiting, batch])
            elif waiting is not None:
                end = first + len(waiting[1])
                yield torch.arange(first, end), *waiting
                first = end
            waiting = batch
        if waiting is None:
            raise ValueError(f"{self._name} is empty. A stream must restart in each epoch.")
        yield torch.arange(first, first + len(waiting[1])), *waiting

    def _own_rows(self, batch: Triple) -> Triple:
        """Return the rows of a batch for this process."""
        if world_size() == 1 or self._has_own_rows:
            return batch
        index, x, y = batch
        if (rows := len(index)) < world_size():
            raise ValueError(f"{self._name} gave {rows} rows for {world_size()} processes.")
        own = own_share(rows)
        return index[own], take(as_inputs(x), own), y[own]

    def _checked(self, batch: Triple) -> Batch:
        """Check rows that are not in memory, and move them to the device."""
        index, x, y = batch
        return self._place(index, as_inputs(x), as_targets(y, self._num_classes, self._name))

    def _place(self, index: Tensor, x: Inputs, y: Tensor) -> Batch:
        device, dtype = self._like.device, self._like.dtype
        weight = self.class_weights
        if self.row_weights is not None:
            weight = self.row_weights[index].to(device)
        return Batch(index, to_device(x, device, dtype), to_device(y, device, dtype), weight)

    def _stream_length(self, batch_size: int) -> int | None:
        try:
            return len(self._loader(batch_size))
        except TypeError:
            return None

    def _loader(self, batch_size: int) -> Any:
        if isinstance(self._data, DataLoader):
            return self._data
        return DataLoader(self._data, batch_size, num_workers=self._workers)

    def _as_pair(self, batch: Any) -> Pair:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise TypeError(f"The items of {self._name} must be pairs (input, target).")
        return batch[0], torch.as_tensor(batch[1])

    def _check_inputs(self, inputs: Any) -> Inputs:
        inputs = torch.as_tensor(inputs) if isinstance(inputs, list) else as_inputs(inputs)
        is_array = isinstance(inputs, Tensor | Interval)
        if is_array and inputs.dtype.is_floating_point and inputs.ndim < 2:
            shape = tuple(inputs.shape)
            raise ValueError(f"The inputs of {self._name} must have shape (N, ...), got {shape}.")
        inputs = to_device(inputs, None, self._like.dtype)
        self._check_finite(inputs)
        return inputs

    def _check_finite(self, inputs: Inputs, first: int = 0) -> None:
        if found := find_not_finite(inputs, f"the inputs of {self._name}", first):
            raise ValueError(f"{found}. Impute, clip or drop such values.")

    def _check_weights(self, weights: Any, rows: int) -> Tensor:
        weights = torch.as_tensor(weights).to(self._like.dtype)
        must = f"The weights of {self._name} must"
        if weights.shape != (rows,):
            raise ValueError(f"{must} have shape ({rows},), got {tuple(weights.shape)}.")
        if bool((bad := ~((weights > 0) & weights.isfinite())).any()):
            (at,) = first_index(bad)
            found = f"row {at} has {weights[at].item()}. Leave out rows of weight 0"
            raise ValueError(f"{must} be positive and finite, but {found}.")
        return weights.unsqueeze(1)


def shuffled_batches(rows: int, batch_size: int, seed: int) -> list[Tensor]:
    """Return the row indices of each batch of an epoch in random order.

    The rows are divided between the processes by a ``DistributedSampler``.
    A last batch of one row joins the previous one, because batch norm
    needs two rows.

    Example:
        >>> [len(batch) for batch in shuffled_batches(7, 3, seed=0)]
        [3, 4]
    """
    if world_size() == 1:  # the order of the sampler, without a list
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    else:
        indices: Any = range(rows)
        sampler: Any = DistributedSampler(indices, world_size(), rank(), seed=seed)
        order = torch.tensor(list(sampler))
    batches = list(order.split(batch_size))
    if len(batches) > 1 and len(batches[-1]) == 1 and batch_size > 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def own_share(count: int) -> Tensor:
    """Return the row indices of this process."""
    return torch.arange(count).tensor_split(world_size())[rank()]
