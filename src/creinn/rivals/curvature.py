"""The generalised Gauss-Newton matrix (GGN) of the weights of a last layer: full, Kronecker-factored, diagonal.

In: features ``(N, D)`` that enter the layer (with a column of ones for the bias) and the predicted probabilities
``(N, K)``. The GGN is the sum over rows of ``kron(diag(p) - p p^T, phi phi^T)``. Out: its eigenvalues, and the
covariance of logits under a posterior of precision ``GGN + prior_precision * I``. All three are stored by
eigenvectors and eigenvalues, so that the prior precision can change afterwards at no cost.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


class Curvature(torch.nn.Module):
    """A GGN of ``K`` logits and ``D`` features; buffers of fixed shape, so that it is saved with the model."""

    eigenvalues: Tensor

    def fit(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Sum the GGN over batches of features and probabilities."""
        raise NotImplementedError

    def covariance(self, features: Tensor, prior_precision: Tensor) -> Tensor:
        """Covariance ``(N, K, K)`` of the logits of features ``(N, D)``."""
        raise NotImplementedError


class Full(Curvature):
    """The exact GGN; takes ``(K D) ** 2`` numbers and ``(K D) ** 3`` time."""

    vectors: Tensor

    def __init__(self, classes: int, features: int) -> None:
        super().__init__()
        self.shape = (classes, features)
        self.register_buffer("eigenvalues", torch.zeros(classes * features))
        self.register_buffer("vectors", torch.zeros(classes * features, classes * features))

    def fit(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Sum the GGN over batches of features and probabilities."""
        ggn = torch.zeros_like(self.vectors)
        for phi, p in batches:
            ggn += torch.einsum("nkl,nd,ne->kdle", _output_hessian(p), phi, phi).reshape_as(ggn)
        values, vectors = torch.linalg.eigh(ggn)
        self.eigenvalues.copy_(values.clamp_min(0))
        self.vectors.copy_(vectors)

    def covariance(self, features: Tensor, prior_precision: Tensor) -> Tensor:
        """Covariance ``(N, K, K)`` of the logits of features ``(N, D)``."""
        classes, width = self.shape
        roots = self.vectors / (self.eigenvalues + prior_precision).sqrt()
        rows = torch.einsum("nd,kdp->nkp", features, roots.reshape(classes, width, -1))
        return rows @ rows.transpose(1, 2)


class Kronecker(Curvature):
    """``kron(B, A) / N``: ``B`` sums the Hessians in the logits, ``A`` the outer products of the features."""

    output_values: Tensor
    output_vectors: Tensor
    input_values: Tensor
    input_vectors: Tensor

    def __init__(self, classes: int, features: int) -> None:
        super().__init__()
        for name, size in (("output", classes), ("input", features)):
            self.register_buffer(f"{name}_values", torch.zeros(size))
            self.register_buffer(f"{name}_vectors", torch.zeros(size, size))

    def fit(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Sum the factors over batches of features and probabilities."""
        outputs, inputs, count = torch.zeros_like(self.output_vectors), torch.zeros_like(self.input_vectors), 0
        for phi, p in batches:
            outputs += _output_hessian(p).sum(0)
            inputs += phi.T @ phi
            count += len(phi)
        for name, factor in (("output", outputs), ("input", inputs / count)):
            values, vectors = torch.linalg.eigh(factor)
            getattr(self, f"{name}_values").copy_(values.clamp_min(0))
            getattr(self, f"{name}_vectors").copy_(vectors)

    @property
    def eigenvalues(self) -> Tensor:  # type: ignore[override]
        """Products of the factors' eigenvalues, ``(K, D)``."""
        return torch.outer(self.output_values, self.input_values)

    def covariance(self, features: Tensor, prior_precision: Tensor) -> Tensor:
        """Covariance ``(N, K, K)`` of the logits of features ``(N, D)``."""
        variances = (features @ self.input_vectors).square() @ (1 / (self.eigenvalues + prior_precision)).T  # (N, K)
        return (self.output_vectors * variances.unsqueeze(1)) @ self.output_vectors.T


class Diagonal(Curvature):
    """The diagonal of the GGN."""

    def __init__(self, classes: int, features: int) -> None:
        super().__init__()
        self.register_buffer("eigenvalues", torch.zeros(classes, features))

    def fit(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Sum the diagonal over batches of features and probabilities."""
        self.eigenvalues.zero_()
        for phi, p in batches:
            self.eigenvalues.add_((p * (1 - p)).T @ phi.square())

    def covariance(self, features: Tensor, prior_precision: Tensor) -> Tensor:
        """Covariance ``(N, K, K)`` of the logits of features ``(N, D)``, diagonal."""
        return torch.diag_embed(features.square() @ (1 / (self.eigenvalues + prior_precision)).T)


STRUCTURES: dict[str, type[Curvature]] = {"full": Full, "kronecker": Kronecker, "diagonal": Diagonal}


def _output_hessian(p: Tensor) -> Tensor:
    return torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
