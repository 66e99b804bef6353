"""Means and covariance of the classes, and a random sample of the rows.

Up to rounding, the results do not depend on the batches and processes.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from jaxtyping import Float, Int
from torch import Tensor

from creinn.distributed import all_sum, gather, rank, world_size
from creinn.numerics import widen

FeatureRows = Float[Tensor, "rows features"]
Labels = Int[Tensor, " rows"]
_BLOCK = 4096  # rows


class ClassSums:
    """Sums of the features of each class.

    Example:
        >>> sums = ClassSums(2)
        >>> sums.add(torch.tensor([[1.0], [3.0], [10.0]]), torch.tensor([0, 0, 1]))
        >>> sums.means().flatten() + sums.origin
        tensor([ 2.0000, 10.0000], dtype=torch.float64)
    """

    counts: Tensor  # rows of each class
    sums: Tensor  # (K, D), of the features minus the shift
    squares: Tensor
    shift: Tensor  # mean of the first block
    resolution: float  # machine epsilon of the features

    def __init__(self, num_classes: int) -> None:
        self._num_classes = num_classes
        self.counts = torch.empty(0)

    def add(self, features: FeatureRows, labels: Labels, sign: int = 1) -> None:
        """Add rows, or remove them if ``sign`` is -1."""
        for block, label in _blocks(features, labels):
            if not len(self.counts):
                self.resolution = torch.finfo(features.dtype).eps
                self.shift, self.squares = block.mean(0), block.new_zeros(())
                self.counts = block.new_zeros(self._num_classes)
                self.sums = block.new_zeros(self._num_classes, block.shape[1])
            self.counts += sign * torch.bincount(label, minlength=self._num_classes)
            self.sums.index_add_(0, label, block - self.shift, alpha=sign)
            self.squares += sign * block.square().sum()

    def all_reduce(self) -> None:
        """Add the sums of all processes."""
        rows = self.counts.sum()
        shift = all_sum(rows * self.shift) / all_sum(rows)
        self.sums = all_sum(self.sums + self.counts.unsqueeze(1) * (self.shift - shift))
        self.shift, self.counts, self.squares = shift, all_sum(self.counts), all_sum(self.squares)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.counts.sum())

    @property
    def mean_square(self) -> Tensor:
        """Mean square of all features."""
        return self.squares / (self.rows * len(self.shift))

    @property
    def origin(self) -> Tensor:
        """Mean of the features ``(D,)``."""
        return self.shift + self.sums.sum(0) / self.rows

    def means(self) -> Float[Tensor, "classes features"]:
        """Return the means minus the origin.

        An empty class has the mean of the largest class.
        """
        means = self.sums / self.counts.clamp_min(1).unsqueeze(1) - self.sums.sum(0) / self.rows
        means[self.counts == 0] = means[self.counts.argmax()].clone()
        return means

    def second_pass(self) -> "Products":
        """Return empty products, or raise a ``ValueError`` on overflow."""
        if not bool(self.mean_square.square().isfinite()):
            raise ValueError("The features overflow. Check the network.")
        return Products(self.origin, self.means())


class Products:
    """Sums of products of the features minus the mean of their class."""

    def __init__(self, origin: Tensor, means: Tensor) -> None:
        self._centers = origin, means
        self.products = means.new_zeros(len(origin), len(origin))
        self.fourth, self.rows = means.new_zeros(()), means.new_zeros(())

    def add(self, features: FeatureRows, labels: Labels, sign: int = 1) -> None:
        """See :meth:`ClassSums.add`."""
        origin, means = self._centers
        for block, label in _blocks(features, labels):
            residuals = block - origin - means[label]
            self.products.addmm_(residuals.mT, residuals, alpha=sign)
            self.fourth += sign * residuals.square().sum(1).square().sum()
            self.rows += sign * len(residuals)

    def all_reduce(self) -> None:
        """See :meth:`ClassSums.all_reduce`."""
        self.products, self.fourth = all_sum(self.products), all_sum(self.fourth)
        self.rows = all_sum(self.rows)

    def ledoit_wolf(self) -> tuple[Float[Tensor, "features features"], float]:
        r"""Return the covariance :math:`S` and its shrinkage :math:`\rho`.

        The estimate :math:`(1 - \rho) S + \rho\, \bar\sigma^2 I` minimizes
        the expected squared error (Ledoit and Wolf, 2004).
        """
        covariance = self.products / self.rows
        squares, variances = covariance.square().sum(), covariance.diagonal()
        to_target = squares - variances.mean() * variances.sum()
        if not bool(to_target > torch.finfo(squares.dtype).eps * squares):
            return covariance, 0.0
        error = (self.fourth / self.rows - squares) / self.rows
        return covariance, float((error / to_target).clamp(0, 1))


def products_of_means(sums: ClassSums) -> Products:
    """Return the products of rows that are equal to their class mean."""
    means = sums.means()
    between = Products(sums.origin, means)
    between.products = means.mT @ (sums.counts.unsqueeze(1) * means)
    between.fourth = (sums.counts * means.square().sum(1).square()).sum()
    between.rows = sums.counts.sum()
    return between


class Sample:
    """Random sample of at most ``size`` rows, in order and without replacement.

    Example:
        >>> sample = Sample(size=3)
        >>> sample.add(torch.arange(100))
        >>> len(sample), sample.rows().shape
        (100, torch.Size([3]))
    """

    def __init__(self, size: int = 20_000) -> None:
        self._size, self._count = size, 0
        self._parts: list[Any] = []  # of the sample
        self._numbers = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return self._count

    def add(self, batch: Any) -> None:
        """Add rows: a tensor, an interval, or a tuple of these."""
        count = len(pytree.tree_leaves(batch)[0])
        start = (rank() << 40) + self._count  # process 0 is first
        numbers = np.arange(start, start + count, dtype=np.uint64)
        self._count += count
        if len(self._numbers) >= self._size:
            enter = _random_keys(numbers) < _random_keys(self._numbers).max()
            if not enter.any():
                return
            batch, numbers = _take(batch, np.flatnonzero(enter)), numbers[enter]
        self._parts.append(batch)
        self._numbers = np.concatenate((self._numbers, numbers))
        if len(self._numbers) > self._size * 5 // 4:
            self._join()

    def rows(self) -> Any:
        """Return the sample of all processes, or ``None`` if it is empty."""
        if world_size() > 1:
            leaves = pytree.tree_leaves(self._parts)
            device = leaves[0].device if leaves else None
            parts = chain(*gather(pytree.tree_map(lambda part: part.cpu(), self._parts)))
            self._parts = pytree.tree_map(lambda part: part.to(device), list(parts))
            self._numbers = np.concatenate(gather(self._numbers))
        if not self._parts:
            return None
        self._join()
        return self._parts[0]

    def _join(self) -> None:
        self._parts = [pytree.tree_map(lambda *parts: torch.cat(parts), *self._parts)]
        if len(self._numbers) > self._size:
            keys = _random_keys(self._numbers)
            rows = np.sort(np.argpartition(keys, self._size - 1)[: self._size])
            self._parts, self._numbers = [_take(self._parts[0], rows)], self._numbers[rows]


def _take(rows: Any, numbers: Any) -> Any:
    numbers = torch.from_numpy(numbers)
    return pytree.tree_map(lambda part: part[numbers.to(part.device)], rows)


def _random_keys(numbers: Any) -> Any:
    """Return pseudorandom keys by SplitMix64 (Steele, Lea and Flood, 2014)."""
    z = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _blocks(features: Tensor, labels: Tensor) -> Iterator[tuple[Any, Tensor]]:
    blocks = zip(features.split(_BLOCK), labels.split(_BLOCK), strict=True)
    return ((widen(x), y) for x, y in blocks)
