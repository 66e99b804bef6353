r"""Distance-aware radii: features far from the training data widen the intervals of the logits (our own extension).

In: penultimate features and labels of the training data, once; then features of new data. Out: one radius per row,
which CreINN adds to the radius of every logit, after batch norm and before Interval SoftMax:

.. math::
    d(x) = \min_k\, (f(x) - \mu_k)^\top \Sigma^{-1} (f(x) - \mu_k), \quad
    e(x) = \max\bigl(0,\ d(x) / \operatorname{median} d - 1\bigr), \quad r(x) = s\, e(x).

:math:`\mu_k` are class means and :math:`\Sigma` is one covariance within all classes: a closed form, one pass over the
data. Near them nothing changes; far away the credal set becomes all of the simplex, which is what ignorance looks like.
Up to rounding, the intersection probability orders the classes as the logits do, whatever the radius.

:math:`\Sigma` is shrunk towards a multiple of the identity (Ledoit and Wolf, 2004), so that few samples, more features
than samples and constant features give finite distances. Sums are taken in float64. An interval of features gets an
upper bound of :math:`d` over the box: the radius is then at least that of every member.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from creinn.interval import Interval, as_interval
from creinn.numerics import widen

VACUOUS = 20.0
"""A radius this much larger than the range of the logits makes the set all of the simplex; it is not made larger."""
_LEAST_SHRINKAGE = 1e-6
_BLOCK = 4096  # rows that are widened at once


class Statistics(NamedTuple):
    """What distances are measured with."""

    origin: Tensor
    """Mean of all features, ``(D,)``."""
    factor: Tensor
    """Whitening matrix ``(D, D)``: the inverse covariance is ``factor @ factor.T``."""
    means: Tensor
    """Class means ``(K, D)``, less the origin, whitened. A class without samples has the mean of another one."""


def fit_statistics(
    features: Float[Tensor, "rows features"], labels: Int[Tensor, " rows"], num_classes: int
) -> Statistics:
    """Class means and the shrunk covariance within classes; tensors are float64 where the device has it.

    Where features do not vary within classes (one sample each, say), their covariance over all classes stands in;
    where they do not vary at all, the identity.

    Raises:
        ValueError: If there are no rows, or a feature is NaN or infinite.
    """
    if len(features) == 0:
        raise ValueError("The distance needs training data, but there are no rows.")
    total = sum((widen(block).sum(0) for block in features.split(_BLOCK)), torch.zeros((), device=features.device))
    if not bool(total.isfinite().all()):
        raise ValueError("The features of the training data are not finite. Look for an overflow in the network.")
    origin = total / len(features)
    counts = torch.bincount(labels, minlength=num_classes)
    means = origin.new_zeros(num_classes, features.shape[1])
    for block, label in zip(features.split(_BLOCK), labels.split(_BLOCK), strict=True):
        means.index_add_(0, label, widen(block) - origin)
    means /= counts.clamp_min(1).unsqueeze(1)
    means[counts == 0] = means[counts.argmax()].clone()

    def residuals(within: bool) -> Iterable[Tensor]:
        for block, label in zip(features.split(_BLOCK), labels.split(_BLOCK), strict=True):
            yield widen(block) - origin - (means[label] if within else 0)

    square = sum(widen(block).square().sum() for block in features.split(_BLOCK)) / features.numel()
    noise = float(square) * torch.finfo(features.dtype).eps ** 2
    for within in (True, False):
        covariance, shrinkage = ledoit_wolf(residuals(within))
        variance = covariance.diagonal().mean()
        if variance > noise:
            break
    else:
        covariance, shrinkage, variance = torch.eye(len(origin)).to(means), 0.0, torch.ones_like(variance)
    shrinkage = max(shrinkage, _LEAST_SHRINKAGE)
    eigenvalues, vectors = torch.linalg.eigh(covariance.cpu())  # not every device has it
    eigenvalues = (1 - shrinkage) * eigenvalues.clamp_min(0) + shrinkage * variance.cpu()
    factor = (vectors * eigenvalues.rsqrt()).to(means)
    return Statistics(origin, factor, means @ factor)


def ledoit_wolf(
    residuals: Iterable[Float[Tensor, "rows features"]],
) -> tuple[Float[Tensor, "features features"], float]:
    r"""Covariance of centred rows, given in blocks, and the share by which to shrink it towards its mean variance.

    The estimate is :math:`(1 - \rho) S + \rho\, \bar\sigma^2 I`, with the :math:`\rho` that has the least expected
    squared error (Ledoit and Wolf, 2004, in closed form).

    Returns:
        :math:`S`, not shrunk, and :math:`\rho`.

    Example:
        >>> covariance, share = ledoit_wolf([torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])])
        >>> covariance.diagonal(), share  # round already: whatever the share, the estimate is the same
        (tensor([0.5000, 0.5000]), 0.0)
    """
    blocks = iter(residuals)
    first = next(blocks)
    products, fourth, rows = first.mT @ first, first.square().sum(1).square().sum(), len(first)
    for block in blocks:
        products += block.mT @ block
        fourth += block.square().sum(1).square().sum()
        rows += len(block)
    covariance = products / rows
    squares = covariance.square().sum()
    spread = squares - covariance.diagonal().mean() * covariance.diagonal().sum()  # squared distance to the target
    error = (fourth / rows - squares) / rows
    if not bool(spread > torch.finfo(spread.dtype).eps * squares):
        return covariance, 0.0
    return covariance, float((error / spread).clamp(0, 1))


def squared_distance(
    features: Interval | Float[Tensor, "rows features"], statistics: Statistics
) -> Float[Tensor, " rows"]:
    r"""Squared Mahalanobis distance to the nearest class mean; of an interval, an upper bound over the box.

    With whitened centre :math:`c` and radius :math:`r`, and the mean :math:`m` that is nearest to :math:`c`, the bound
    is :math:`\sum_i (|c_i - m_i| + r_i)^2`. It bounds the distance to one mean, hence to the nearest one.

    Example:
        >>> statistics = Statistics(torch.zeros(1), torch.eye(1), torch.tensor([[0.0], [4.0]]))
        >>> squared_distance(torch.tensor([[1.0], [7.0]]), statistics)
        tensor([1., 9.])
        >>> squared_distance(Interval(torch.tensor([[0.5]]), torch.tensor([[1.5]])), statistics)
        tensor([2.2500])
    """
    features = as_interval(features)
    origin, factor, means = statistics
    center = (features.center - origin) @ factor
    nearest = (center @ means.mT - means.square().sum(1) / 2).argmax(1)
    apart = (center - means[nearest]).abs()
    if not features.is_point:
        apart = apart + features.radius @ factor.abs()
    return apart.square().sum(1)


def add_radius(logits: Interval, radius: Float[Tensor, " rows"]) -> Interval:
    """Logits ``(N, K)`` with the radius of its row added to each.

    Added is at most the range of the row's logits (one logit stands against 0) and :data:`VACUOUS`. More could not be
    seen in the probabilities, and lower ones that are not yet 0 still tell the classes apart.
    """
    lower, upper = logits.lower, logits.upper
    highest, lowest = upper.detach().amax(1), lower.detach().amin(1)
    if logits.shape[1] == 1:
        highest, lowest = highest.clamp_min(0), lowest.clamp_max(0)
    added = torch.minimum(radius, highest - lowest + VACUOUS).unsqueeze(1)
    return Interval._of_parts(lower - added, upper + added)


class DistanceRadius(torch.nn.Module):
    """Features ``(N, D)`` in, radii ``(N,)`` out; 0 until :meth:`fit` is called.

    Args:
        num_features: ``D``.
        num_classes: Number of classes.
    """

    origin: Tensor
    factor: Tensor
    means: Tensor
    median: Tensor
    scale: Tensor
    fitted: Tensor

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.num_features, self.num_classes = num_features, num_classes
        self.register_buffer("origin", torch.empty(num_features))
        self.register_buffer("factor", torch.empty(num_features, num_features))
        self.register_buffer("means", torch.empty(num_classes, num_features))
        self.register_buffer("median", torch.empty(()))
        self.register_buffer("scale", torch.empty(()))
        self.register_buffer("fitted", torch.empty((), dtype=torch.bool))
        self.reset()

    def reset(self) -> None:
        """Forget the data: radii are 0 again."""
        for tensor in (self.origin, self.factor, self.means, self.scale, self.fitted):
            tensor.zero_()
        self.median.fill_(1)

    @torch.no_grad()
    def fit(self, features: Interval | Tensor, labels: Tensor, new: Interval | Tensor | None = None) -> None:
        """Take statistics from the centres of training features, and the median distance; the scale stays.

        Args:
            features: Of the training data.
            labels: Their classes.
            new: Features of data of the same distribution that the network was not trained on. The median is then over
                these, since features of training data lie closer to their means than those of new data.
        """
        features = as_interval(features)
        for name, value in fit_statistics(features.center, labels, self.num_classes)._asdict().items():
            getattr(self, name).copy_(value)
        distances = squared_distance(features if new is None else new, self.statistics)
        median = distances.median()
        # Where at least half of the rows are their class's mean, the expected distance of whitened features stands in.
        is_zero = median <= torch.finfo(median.dtype).eps * self.num_features
        self.median.copy_(torch.where(is_zero, float(self.num_features), median))
        self.fitted.fill_(True)

    @property
    def statistics(self) -> Statistics:
        """What distances are measured with."""
        return Statistics(self.origin, self.factor, self.means)

    def excess(self, features: Interval | Tensor) -> Tensor:
        """How much farther than usual, ``(N,)``: 0 up to the median distance, 1 at twice that."""
        return (squared_distance(features, self.statistics) / self.median - 1).clamp_min(0)

    def forward(self, features: Interval | Tensor) -> Tensor:
        """Radii ``(N,)``."""
        return self.scale * self.excess(features)

    def extra_repr(self) -> str:
        """Arguments as printed."""
        return f"{self.num_features}, {self.num_classes}"
