r"""Gaussians over functions: a network linearised about its mean parameters; the KL divergence of two of them.

For parameters :math:`\theta \sim N(m, \operatorname{diag}(v))` the linearised network
:math:`f(x; m) + J(x)(\theta - m)` is Gaussian with mean :math:`f(x; m)` and, for output :math:`k`, covariance
:math:`J_k(x)\operatorname{diag}(v) J_k(x')^\top` (Rudner et al. 2022). Outputs are treated as independent: of the
covariance across outputs nothing is kept, as in the authors' code; for the last layer alone there is none.

Shapes: ``M`` points, ``K`` outputs; means ``(K, M)``, covariances ``(K, M, M)``, variances ``(K, M)``.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call, jacrev, vmap


def linearise(
    network: torch.nn.Module, parameters: Mapping[str, Tensor], variances: Mapping[str, Tensor], x: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the linearised network at ``x``, for any set of its parameters, by ``torch.func``.

    Costs memory for ``M * K * P`` numbers for ``P`` parameters: meant for small networks. The network must treat rows
    independently, so batch norm has to be in eval mode.

    Args:
        network: Module from ``(M, ...)`` to ``(M, K)``.
        parameters: Means of the random parameters, by their names in the network.
        variances: Their variances, by the same names.
        x: Inputs ``(M, ...)``.

    Returns:
        Mean ``(K, M)`` and covariance ``(K, M, M)``, differentiable in all parameters.
    """

    def output(values: dict[str, Tensor], row: Tensor) -> tuple[Tensor, Tensor]:
        y = functional_call(network, values, (row.unsqueeze(0),)).squeeze(0)
        return y, y

    jacobians, mean = vmap(jacrev(output, has_aux=True), in_dims=(None, 0))(dict(parameters), x)
    covariance = torch.zeros((), dtype=mean.dtype, device=mean.device)
    for name, jacobian in jacobians.items():
        rows = jacobian.flatten(2)  # (M, K, P)
        covariance = covariance + torch.einsum("mkp,p,nkp->kmn", rows, variances[name].flatten(), rows)
    return mean.T, covariance


def head_covariance(features: Tensor, variances: Tensor) -> Tensor:
    """Covariance ``(K, M, M)`` of the outputs of a last layer with random weights; linear, so linearisation is exact.

    Args:
        features: What enters the layer, ``(M, D)``, with a column of ones for the bias.
        variances: Variances of its weights, ``(K, D)``.
    """
    return torch.einsum("md,kd,nd->kmn", features, variances, features)


def full_kl(mean: Tensor, covariance: Tensor, prior_mean: Tensor, prior_covariance: Tensor) -> Tensor:
    """KL divergence of two Gaussians over ``M`` points, summed over the ``K`` independent outputs, in nats."""
    q = torch.linalg.cholesky(covariance)
    p = torch.linalg.cholesky(prior_covariance)
    trace = torch.linalg.solve_triangular(p, q, upper=False).square().sum((1, 2))
    distance = torch.linalg.solve_triangular(p, (mean - prior_mean).unsqueeze(-1), upper=False).square().sum((1, 2))
    log_ratio = 2 * (_log_diagonal(p) - _log_diagonal(q))
    return 0.5 * (trace + distance - mean.shape[-1] + log_ratio).sum()


def diagonal_kl(mean: Tensor, variance: Tensor, prior_mean: Tensor, prior_variance: Tensor) -> Tensor:
    """The same with points taken as independent, of variances ``(K, M)``."""
    ratio = variance / prior_variance
    return 0.5 * (ratio + (mean - prior_mean).square() / prior_variance - 1 - ratio.log()).sum()


def _log_diagonal(triangular: Tensor) -> Tensor:
    return triangular.diagonal(dim1=-2, dim2=-1).log().sum(-1)
