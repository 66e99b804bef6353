r"""Squared Mahalanobis distances from the classes of the training features.

.. math::
    d(x) = \min_k\, (f - \mu_k)^\top \Sigma^{-1} (f - \mu_k), \qquad
    d'(x) = d(x) - (f - \mu)^\top (\Sigma + B)^{-1} (f - \mu).

The class means are :math:`\mu_k` with the covariance :math:`B`, and the
mean of all features is :math:`\mu`. The covariance :math:`\Sigma` within
the classes is shrunk towards a multiple of the identity (Ledoit and Wolf,
2004). Of many features, the directions with the largest variances are
kept, and the others have the mean of their variances.

In the coordinates :math:`w` of a whitened row, :math:`\Sigma` is the
identity and :math:`B` has a few directions :math:`v_j` with variances
:math:`\lambda_j`. The other directions cancel in the relative distance
:math:`d'` (Ren et al., 2021). With :math:`u_j = v_j^\top w`,

.. math::
    d'(x) = \min_k \|u - u_k\|^2 - \textstyle\sum_j u_j^2 / (1 + \lambda_j).
"""

import functools
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from creinn.distance.class_statistics import ClassSums, Labels, Products, products_of_means
from creinn.interval import Interval, as_interval
from creinn.numerics import widen

MAX_RANK = 256  # directions with their own variance
_MIN_SHRINKAGE = 1e-6


class Distance(torch.nn.Module):
    """Squared Mahalanobis distance to the nearest class, and relative distance.

    At most ``rank`` directions have their own variance.

    Example:
        >>> distance = Distance(num_classes=2)  # the means are 0 and 8, the variance is 1
        >>> distance.fit(torch.tensor([[-1.0], [1.0], [7.0], [9.0]]), torch.tensor([0, 0, 1, 1]))
        >>> distance(torch.tensor([[1.0], [11.0]]))  # 1 - 9 / 17 and 9 - 49 / 17
        (tensor([1., 9.]), tensor([0.4706, 6.1176]))
    """

    origin: Tensor  # ``(D,)``, mean of the features
    directions: Tensor  # ``(D, R)``, orthonormal columns
    deviations: Tensor  # ``(R,)``, along the directions
    rest: Tensor  # in the other directions
    means: Tensor  # ``(K, W)``, whitened class means
    axes: Tensor  # ``(W, J)``, basis of the means
    shares: Tensor  # ``(J,)``, within-class variance
    coordinates: Tensor  # ``(K, J)``, means along the axes

    def __init__(self, num_classes: int, rank: int = MAX_RANK) -> None:
        super().__init__()
        self.num_classes, self.rank = num_classes, rank
        for name in Distance.__annotations__:
            self.register_buffer(name, torch.empty(0))

    def forward(self, features: Interval | Float[Tensor, "rows features"]) -> tuple[Tensor, Tensor]:
        r"""Return the squared distance and the relative distance of each row.

        For an interval, the results are upper bounds. With the whitened
        center :math:`c` and radius :math:`r`, and the mean :math:`m` that
        is nearest to :math:`c`, the first bound is
        :math:`\sum_i (|c_i - m_i| + r_i)^2`. The second is a sum of convex
        functions of :math:`u_j`, with maxima at the ends of intervals.
        """
        features = as_interval(features)
        center = self.whiten(features.center - self.origin)
        u = center @ self.axes
        nearest = nearest_of(self.coordinates, u)
        difference, mean, ends = center - self.means[nearest], self.coordinates[nearest], [u]
        if not features.is_point:
            radius = self.whiten(features.radius, of_radius=True)
            reach = radius @ self.axes.abs()
            difference, ends = difference.abs() + radius, [u - reach, u + reach]
        relative = [(end - mean).square() - self.shares * end.square() for end in ends]
        return difference.square().sum(1), functools.reduce(torch.maximum, relative).sum(1)

    def whiten(self, x: Tensor, of_radius: bool = False) -> Tensor:
        """Transform features minus the origin.

        There are ``R`` (if ``R = D``) or ``R + D`` coordinates. With
        ``of_radius``, transform radii to upper bounds of the radii.
        """
        directions = self.directions.abs() if of_radius else self.directions
        along = x @ directions
        whitened = along / self.deviations
        if directions.shape[0] == directions.shape[1]:
            return whitened
        across = torch.add(x, along @ directions.mT, alpha=1 if of_radius else -1)
        return torch.cat((whitened, across / self.rest), 1)

    @torch.no_grad()
    def fit(self, features: Interval | Tensor, labels: Tensor) -> None:
        """Compute the buffers from the centers of training features."""
        center, sums = as_interval(features).center, ClassSums(self.num_classes)
        sums.add(center, labels)
        products = sums.second_pass()
        products.add(center, labels)
        self.set_statistics(sums, products)

    def set_statistics(self, sums: ClassSums, products: Products) -> None:
        """Compute the buffers from the sums of two passes."""
        means, like = sums.means(), self.origin
        covariance, shrinkage = _nonzero_covariance(sums, products)
        variance = covariance.diagonal().mean()
        eigenvalues, vectors = torch.linalg.eigh(covariance.cpu())  # not on all devices
        eigenvalues = (1 - shrinkage) * eigenvalues.clamp_min(0) + shrinkage * variance.cpu()
        eigenvalues, rank = eigenvalues.to(means), min(self.rank, means.shape[1])
        self.origin, self.deviations = sums.origin, eigenvalues[-rank:].sqrt()
        self.directions = vectors.to(means)[:, -rank:].contiguous()  # as after loading
        self.rest = (eigenvalues[:-rank].mean() if rank < means.shape[1] else variance).sqrt()
        self.means = self.whiten(means)
        weights = (sums.counts / sums.rows).sqrt().unsqueeze(1)
        _, sizes, axes = torch.linalg.svd((weights * self.means).cpu(), full_matrices=False)
        count = max(1, min(self.num_classes - 1, len(sizes)))  # the sum of the means is 0
        self.axes = axes[:count].mT.to(means).contiguous()
        self.coordinates = self.means @ self.axes
        self.shares = 1 / (1 + sizes[:count].square().to(means))
        for name, buffer in self.named_buffers():
            setattr(self, name, buffer.to(like))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in list(self._buffers):
            saved = state_dict.get(prefix + name)
            if saved is not None and (name != "means" or len(saved) in (0, self.num_classes)):
                setattr(self, name, self.origin.new_empty(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


def nearest_of(means: Float[Tensor, "classes axes"], u: Float[Tensor, "rows axes"]) -> Labels:
    """Return the index of the nearest mean; squares cancel in float32."""
    wide = widen(means)
    return torch.addmm(wide.square().sum(1), widen(u), wide.mT, beta=-0.5).argmax(1)


def _nonzero_covariance(sums: ClassSums, products: Products) -> tuple[Tensor, float]:
    """Return the first covariance above the rounding error."""
    noise = sums.mean_square * sums.resolution**2
    for candidate in (products, products_of_means(sums)):
        covariance, shrinkage = candidate.ledoit_wolf()
        if covariance.diagonal().mean() > noise:
            return covariance, max(shrinkage, _MIN_SHRINKAGE)
    return torch.eye(len(covariance)).to(covariance), _MIN_SHRINKAGE
