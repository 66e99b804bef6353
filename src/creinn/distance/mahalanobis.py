r"""Squared Mahalanobis distances from classes of training features, at one place of a network (our own extension).

In: features of the training data and their classes, once; then features of new data. Out: how far each row lies from
the nearest class, and how much farther from it than from the data as a whole:

.. math::
    d(x) = \min_k\, (f - \mu_k)^\top \Sigma^{-1} (f - \mu_k), \qquad
    d'(x) = d(x) - (f - \mu)^\top (\Sigma + B)^{-1} (f - \mu).

:math:`\mu_k` are class means, :math:`\mu` is the mean of all, :math:`\Sigma` one covariance within all classes, shrunk
towards a multiple of the identity (Ledoit and Wolf, 2004), so that few samples and constant features give finite
distances, and :math:`B` that of the class means. Of many features, the directions of the largest variances are kept,
and all others have the mean of their variances. The relative distance :math:`d'` (Ren et al., 2021) needs nothing more:
in coordinates where :math:`\Sigma` is the identity, :math:`B` has a few directions :math:`v_j` with variances
:math:`\lambda_j`, what is orthogonal to these cancels, and with :math:`u_j = v_j^\top w` of the whitened row :math:`w`

.. math::
    d'(x) = \min_k \|u - u_k\|^2 - \textstyle\sum_j u_j^2 / (1 + \lambda_j).

An interval of features gets upper bounds of both over the box.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from creinn.distance.class_statistics import ClassSums, Products, products_of_means
from creinn.interval import Interval, as_interval
from creinn.numerics import widen

LARGEST_RANK = 256  # most directions of the features that have a variance of their own
_LEAST_SHRINKAGE = 1e-6


class Distance(torch.nn.Module):
    """Features ``(N, D)`` in, squared distances ``(N,)`` out; empty until :meth:`fit`.

    The covariance has variances along at most ``rank`` directions, and one across all of them.

    Example:
        >>> distance = Distance(num_classes=2)  # means 0 and 8, variance 1
        >>> distance.fit(torch.tensor([[-1.0], [1.0], [7.0], [9.0]]), torch.tensor([0, 0, 1, 1]))
        >>> distance.squared(torch.tensor([[1.0], [11.0]]))
        tensor([1., 9.])
        >>> distance.squared(Interval(torch.tensor([[0.5]]), torch.tensor([[1.5]])))
        tensor([2.2500])
        >>> distance(torch.tensor([[1.0], [11.0]]))[1]  # 1 - 9 / 17 and 9 - 49 / 17
        tensor([0.4706, 6.1176])
    """

    origin: Tensor  # (D,), mean of all features
    directions: Tensor  # (D, R), orthonormal columns
    deviations: Tensor  # (R,), standard deviations along the directions
    rest: Tensor  # (), standard deviation in every direction that is orthogonal to these; without use if R = D
    means: (
        Tensor  # (K, W), class means, whitened; a class without samples has the mean of another one
    )
    axes: Tensor  # (W, J), orthonormal columns that all means are combinations of
    shares: Tensor  # (J,), of the variance along them, what lies within classes

    def __init__(self, num_classes: int, rank: int = LARGEST_RANK) -> None:
        super().__init__()
        self.num_classes, self.rank = num_classes, rank
        for name in ("origin", "directions", "deviations", "rest", "means", "axes", "shares"):
            self.register_buffer(name, torch.empty(0))

    def forward(self, features: Interval | Float[Tensor, "rows features"]) -> tuple[Tensor, Tensor]:
        r"""Squared distance to the nearest class mean, and the relative one; of an interval, upper bounds over the box.

        With whitened centre :math:`c` and radius :math:`r`, and the mean :math:`m` that is nearest to :math:`c`, the
        first bound is :math:`\sum_i (|c_i - m_i| + r_i)^2`. Both bound the distance to one mean, hence to the nearest
        one. In the second, each :math:`u_j` has a convex quadratic of its own, which is largest at one of its ends.
        """
        features = as_interval(features)
        center = self.whiten(features.center - self.origin)
        u, means = center @ self.axes, self.means @ self.axes
        nearest = nearest_of(means, u)
        apart = (center - self.means[nearest]).abs()
        if features.is_point:
            relative = self._relative(u, means[nearest])
        else:
            spread = self._spread(features.radius)
            apart, reach = apart + spread, spread @ self.axes.abs()
            relative = torch.maximum(
                *(self._relative(end, means[nearest]) for end in (u - reach, u + reach))
            )
        return apart.square().sum(1), relative.sum(1)

    def squared(
        self, features: Interval | Float[Tensor, "rows features"]
    ) -> Float[Tensor, " rows"]:
        """Squared Mahalanobis distance to the nearest class mean; of an interval, an upper bound over the box."""
        return self(features)[0]

    def _relative(self, u: Tensor, mean: Tensor) -> Tensor:
        return (u - mean).square() - self.shares * u.square()

    def whiten(self, centred: Tensor) -> Tensor:
        """Features less the origin ``(N, D)`` to coordinates ``(N, W)`` in which the covariance is the identity.

        ``W = R`` for ``R = D``; otherwise ``R + D``: the part outside the directions keeps its ``D`` coordinates.
        """
        along = centred @ self.directions
        if self.directions.shape[0] == self.directions.shape[1]:
            return along / self.deviations
        across = centred - along @ self.directions.mT
        return torch.cat((along / self.deviations, across / self.rest), 1)

    def _spread(self, radius: Tensor) -> Tensor:
        """How far members of a box of this radius ``(N, D)`` are from its centre at most, in whitened coordinates."""
        sizes = self.directions.abs()
        along = radius @ sizes
        if sizes.shape[0] == sizes.shape[1]:
            return along / self.deviations
        return torch.cat((along / self.deviations, (radius + along @ sizes.mT) / self.rest), 1)

    @torch.no_grad()
    def fit(self, features: Interval | Tensor, labels: Tensor) -> None:
        """Take means and covariance from the centres of training features.

        Raises:
            ValueError: If there are no rows, or a feature is NaN, infinite, or too large to be squared.
        """
        features, sums = as_interval(features), ClassSums(self.num_classes)
        if len(features) == 0:
            raise ValueError("The distance needs training data, but there are no rows.")
        sums.add(features.center, labels)
        products = second_pass(sums)
        products.add(features.center, labels)
        self.learn(sums, products)

    def learn(self, sums: ClassSums, products: Products) -> None:
        """Take class means and the shrunk covariance within classes from both passes over the training features."""
        noise, means, like = sums.mean_square * sums.resolution**2, sums.means(), self.origin
        for found in (
            products,
            products_of_means(sums),
        ):  # within classes; over all, where nothing varies within
            covariance, shrinkage = found.ledoit_wolf()
            variance = covariance.diagonal().mean()
            if variance > noise:
                break
        else:  # nothing varies at all
            covariance, shrinkage, variance = (
                torch.eye(means.shape[1]).to(means),
                0.0,
                torch.ones_like(variance),
            )
        shrinkage = max(shrinkage, _LEAST_SHRINKAGE)
        eigenvalues, vectors = torch.linalg.eigh(
            covariance.cpu()
        )  # not every device has it; the largest come last
        eigenvalues = ((1 - shrinkage) * eigenvalues.clamp_min(0) + shrinkage * variance.cpu()).to(
            means
        )
        kept = min(self.rank, means.shape[1])
        self.origin, self.deviations = sums.origin, eigenvalues[-kept:].sqrt()
        self.directions = vectors.to(means)[
            :, -kept:
        ].contiguous()  # as they are saved: products depend on the layout
        self.rest = (eigenvalues[:-kept].mean() if kept < means.shape[1] else variance).sqrt()
        self.means = self.whiten(means)
        weights = (sums.counts / sums.rows).sqrt().unsqueeze(1)
        _, sizes, axes = torch.linalg.svd((weights * self.means).cpu(), full_matrices=False)
        count = max(
            1, min(self.num_classes - 1, len(sizes))
        )  # the means are centred: one of as many is too much
        self.axes = axes[:count].mT.to(means).contiguous()
        self.shares = 1 / (1 + sizes[:count].square().to(means))
        for name, buffer in self.named_buffers():
            setattr(self, name, buffer.to(like))

    def resize_buffers(self, state: Mapping[str, Tensor], prefix: str = "") -> None:
        """Before loading, take the shapes that the tensors have in ``state``, if they fit; fitting decides on them."""
        shapes = [
            tuple(state[prefix + name].shape) for name in self._buffers if prefix + name in state
        ]
        features, rank = next(
            (shape for shape in shapes if len(shape) == 2), (0, 0)
        )  # of the directions
        width, axes = rank if rank == features else rank + features, shapes[-1] if shapes else ()
        fitted = [
            (features,),
            (features, rank),
            (rank,),
            (),
            (self.num_classes, width),
            (width, *axes),
            axes,
        ]
        if shapes in (fitted, [(0,)] * len(fitted)):
            for name, shape in zip(list(self._buffers), shapes, strict=True):
                setattr(self, name, self.origin.new_empty(shape))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self.resize_buffers(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


def nearest_of(
    means: Float[Tensor, "classes axes"], u: Float[Tensor, "rows axes"]
) -> Int[Tensor, " rows"]:
    """Which of the means each row is nearest to."""
    wide = widen(
        means
    )  # the squares cancel: of classes 1e4 deviations apart, float32 would take a wrong one
    return (widen(u) @ wide.mT - wide.square().sum(1) / 2).argmax(1)


def second_pass(sums: ClassSums) -> Products:
    """Where to add the products of all rows, after their sums; refuses features that fourth powers would overflow."""
    if not bool(sums.mean_square.square().isfinite()):
        raise ValueError(
            "The features of the training data are not finite, or so large that their squares overflow. "
            "Look for an overflow in the network."
        )
    return Products(sums.origin, sums.means())
