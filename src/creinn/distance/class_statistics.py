r"""Class means and the covariance within classes, from sums over batches of features.

In: features ``(N, D)`` and their classes in batches, twice: once for the means, once for products of what is left. Out:
both, and by how much to shrink the covariance. Memory does not depend on the number of rows, the result not on how they
are divided into batches or among processes, up to rounding.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from creinn.distributed import all_sum
from creinn.numerics import widen

_BLOCK = 4096  # rows that are widened at once


class ClassSums:
    """First pass: the number of rows of each class, and the sums of their features, in float64 where a device has it.

    Example:
        >>> sums = ClassSums(2)
        >>> sums.add(torch.tensor([[1.0], [3.0], [10.0]]), torch.tensor([0, 0, 1]))
        >>> sums.rows, sums.means().flatten() + sums.origin
        (3, tensor([ 2.0000, 10.0000], dtype=torch.float64))
    """

    counts: Tensor  # (K,)
    sums: Tensor  # (K, D), of features less the shift
    squares: Tensor  # (), sum over all features and rows
    shift: Tensor  # (D,), somewhere among the features: sums of what is left lose no digits

    def __init__(self, num_classes: int) -> None:
        self._num_classes = num_classes
        self.counts = torch.empty(0)
        self.resolution = 0.0  # of the features, relative

    def add(
        self, features: Float[Tensor, "rows features"], labels: Int[Tensor, " rows"], sign: int = 1
    ) -> None:
        """Add rows, or with ``sign = -1`` take them out again."""
        for block, label in _blocks(features, labels):
            if not self.counts.numel():
                self.resolution = torch.finfo(features.dtype).eps
                self.shift, self.squares = block.mean(0), block.new_zeros(())
                self.counts = block.new_zeros(self._num_classes)
                self.sums = block.new_zeros(self._num_classes, block.shape[1])
            self.counts += sign * torch.bincount(label, minlength=self._num_classes)
            self.sums.index_add_(0, label, block - self.shift, alpha=sign)
            self.squares += sign * block.square().sum()

    def all_reduce(self) -> None:
        """Make these the sums over the rows of all processes."""
        rows = self.counts.sum()
        shift = all_sum(rows * self.shift) / all_sum(rows)
        self.sums = all_sum(self.sums + self.counts.unsqueeze(1) * (self.shift - shift))
        self.shift, self.counts, self.squares = shift, all_sum(self.counts), all_sum(self.squares)

    @property
    def rows(self) -> int:
        """How many there were."""
        return int(self.counts.sum())

    @property
    def mean_square(self) -> Tensor:
        """Of a single feature."""
        return self.squares / (self.rows * len(self.shift))

    @property
    def origin(self) -> Tensor:
        """Mean of all features, ``(D,)``."""
        return self.shift + self.sums.sum(0) / self.rows

    def means(self) -> Float[Tensor, "classes features"]:
        """Class means less the origin; a class without rows has that of the largest one."""
        means = self.sums / self.counts.clamp_min(1).unsqueeze(1) - self.sums.sum(0) / self.rows
        means[self.counts == 0] = means[self.counts.argmax()].clone()
        return means


class Products:
    """Second pass: sums of products, and of squared squares, of features less those of the means of their classes."""

    def __init__(
        self, origin: Float[Tensor, " features"], means: Float[Tensor, "classes features"]
    ) -> None:
        self._centers = origin, means
        self.products, self.fourth = means.new_zeros(len(origin), len(origin)), means.new_zeros(())
        self.rows = means.new_zeros(())

    def add(
        self, features: Float[Tensor, "rows features"], labels: Int[Tensor, " rows"], sign: int = 1
    ) -> None:
        """Add rows, or with ``sign = -1`` take them out again."""
        origin, means = self._centers
        for block, label in _blocks(features, labels):
            residuals = block - origin - means[label]
            self.products.addmm_(residuals.mT, residuals, alpha=sign)
            self.fourth += sign * residuals.square().sum(1).square().sum()
            self.rows += sign * len(residuals)

    def all_reduce(self) -> None:
        """Make these the sums over the rows of all processes."""
        self.products, self.fourth, self.rows = map(
            all_sum, (self.products, self.fourth, self.rows)
        )

    def ledoit_wolf(self) -> tuple[Float[Tensor, "features features"], float]:
        r"""Covariance :math:`S`, and the share :math:`\rho` by which to shrink it.

        The estimate is :math:`(1 - \rho) S + \rho\, \bar\sigma^2 I`, with the :math:`\rho` that has the least expected
        squared error (Ledoit and Wolf, 2004, in closed form).

        Example:
            >>> products = Products(torch.zeros(2).double(), torch.zeros(1, 2).double())
            >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
            >>> products.add(x, torch.zeros(4, dtype=torch.long))
            >>> covariance, share = products.ledoit_wolf()
            >>> covariance.diagonal(), share  # round already: whatever the share, the estimate is the same
            (tensor([0.5000, 0.5000], dtype=torch.float64), 0.0)
        """
        covariance = self.products / self.rows
        squares = covariance.square().sum()
        spread = (
            squares - covariance.diagonal().mean() * covariance.diagonal().sum()
        )  # squared distance to the target
        error = (self.fourth / self.rows - squares) / self.rows
        if not bool(spread > torch.finfo(spread.dtype).eps * squares):
            return covariance, 0.0
        return covariance, float((error / spread).clamp(0, 1))


def products_of_means(sums: ClassSums) -> Products:
    """The second pass over rows that do not differ from the means of their classes, about the mean of all."""
    means = sums.means()
    between = Products(torch.zeros_like(sums.origin), torch.zeros_like(means))
    between.products = means.mT @ (sums.counts.unsqueeze(1) * means)
    between.fourth, between.rows = (
        (sums.counts * means.square().sum(1).square()).sum(),
        sums.counts.sum(),
    )
    return between


def _blocks(features: Tensor, labels: Tensor) -> Iterator[tuple[Any, Tensor]]:
    return (
        (widen(x), y) for x, y in zip(features.split(_BLOCK), labels.split(_BLOCK), strict=True)
    )
