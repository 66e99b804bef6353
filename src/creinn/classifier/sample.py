"""A bounded sample of a stream: batches of rows in, at most so many of these rows out.

Which rows are kept depends on their numbers alone, so that several processes, each with a share of the rows, keep those
that one process would.
"""

from typing import Any

import numpy as np
import torch

from creinn.classifier.inputs import count_rows, joined, leaves_of, take

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
        self._keys = np.empty(0, np.uint64)

    def __len__(self) -> int:
        """How many rows there were."""
        return self._seen

    def add(self, batch: Any) -> None:
        """Add the next rows: a tensor, an interval, or a tuple of such."""
        count = count_rows(batch)
        keys = _mixed(np.arange(self._seen, self._seen + count, dtype=np.uint64))
        self._seen += count
        if room := min(self._largest - len(self._keys), count):
            self._filling.append(take(batch, slice(room)))
            self._keys = np.concatenate((self._keys, keys[:room]))
        if len(self._keys) == self._largest and self._filling:
            self._rows, self._filling = joined(self._filling), []
        enter = room + np.flatnonzero(keys[room:] < self._keys.max(initial=0))
        if len(enter) == 0:
            return
        both = np.concatenate((self._keys, keys[enter]))
        kept = np.sort(np.argpartition(both, self._largest - 1)[: self._largest])
        leave = np.setdiff1d(np.arange(self._largest), kept)
        come = kept[kept >= self._largest]
        self._keys[leave] = both[come]
        new = take(batch, torch.from_numpy(enter[come - self._largest]))
        for old, fresh in zip(leaves_of(self._rows), leaves_of(new), strict=True):
            old[torch.from_numpy(leave).to(old.device)] = fresh

    def rows(self) -> Any:
        """The rows kept; ``None`` if there were none."""
        if self._filling:
            self._rows, self._filling = joined(self._filling), []
        return self._rows


def _mixed(numbers: Any) -> Any:
    """Numbers without order, one for each (the finaliser of SplitMix64: Steele, Lea and Flood, 2014)."""
    z = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
