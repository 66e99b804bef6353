"""A bounded sample of a stream: batches of rows in, at most so many of these rows out.

Which rows are kept depends on their numbers alone, not on the batches. Several processes, each with a share of the
rows, end with one sample of all of them.
"""

from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree

from creinn.classifier.inputs import concatenate, count_rows, leaves_of, take
from creinn.distributed import gather, rank, world_size

LARGEST = 20_000  # rows: enough for a median, and for the areas and means that a scale is chosen by


class Sample:
    """At most ``largest`` rows, each as likely as any other; if there are no more, all of them in their order.

    Example:
        >>> sample = Sample(largest=3)
        >>> for start in range(0, 100, 10):
        ...     sample.add(torch.arange(start, start + 10))
        >>> len(sample), sample.rows().shape
        (100, torch.Size([3]))
    """

    def __init__(self, largest: int = LARGEST) -> None:
        self._largest, self._seen = largest, 0
        self._filling: list[Any] = []  # batches, until there are enough
        self._rows: Any = None
        self._numbers = np.empty(0, np.uint64)  # of the rows kept

    def __len__(self) -> int:
        """How many rows there were."""
        return self._seen

    def add(self, batch: Any) -> None:
        """Add the next rows: a tensor, an interval, or a tuple of such; those of the first process go first."""
        count = count_rows(batch)
        numbers = np.arange(self._seen, self._seen + count, dtype=np.uint64) + np.uint64(
            rank() << 40
        )
        self._seen += count
        if room := min(self._largest - len(self._numbers), count):
            self._filling.append(take(batch, slice(room)))
            self._numbers = np.concatenate((self._numbers, numbers[:room]))
            if len(self._numbers) == self._largest:
                self._rows, self._filling = concatenate(self._filling), []
        if room < count:
            self._replace(batch, np.arange(room, count), numbers)

    def _replace(self, batch: Any, rows: Any, numbers: Any) -> None:
        """Let those of ``rows`` in that go before some of the rows kept."""
        keys = _mixed(self._numbers)
        enter = rows[_mixed(numbers[rows]) < keys.max()]
        both = np.concatenate((keys, _mixed(numbers[enter])))
        kept = np.sort(np.argpartition(both, self._largest - 1)[: self._largest])
        leave = np.setdiff1d(np.arange(self._largest), kept)
        come = enter[kept[kept >= self._largest] - self._largest]
        self._numbers[leave] = numbers[come]
        for old, new in zip(
            leaves_of(self._rows), leaves_of(take(batch, torch.from_numpy(come))), strict=True
        ):
            old[torch.from_numpy(leave).to(old.device)] = new

    def rows(self) -> Any:
        """The rows kept, of all processes, in the order of their numbers; ``None`` if there were none."""
        if self._filling:
            self._rows, self._filling = concatenate(self._filling), []
        numbers = np.concatenate(gather(self._numbers))
        if world_size() > 1:
            device = None if self._rows is None else leaves_of(self._rows)[0].device
            parts = gather(pytree.tree_map(lambda part: part.cpu(), self._rows))
            self._rows = concatenate([part for part in parts if part is not None])
            self._rows = pytree.tree_map(lambda part: part.to(device), self._rows)
        order = np.sort(np.argsort(_mixed(numbers), kind="stable")[: self._largest])
        order = order[np.argsort(numbers[order])]
        if len(order) == len(numbers) and (order == np.arange(len(order))).all():
            return self._rows
        return take(self._rows, torch.from_numpy(order))


def _mixed(numbers: Any) -> Any:
    """Numbers without order, one for each (the finaliser of SplitMix64: Steele, Lea and Flood, 2014)."""
    z = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
