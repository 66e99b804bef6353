r"""Total, aleatoric and epistemic uncertainty: of credal sets, of a probability interval, of sampled distributions.

Reachable bounds (or sampled distributions) in, an :class:`Uncertainty` of three tensors out. Sections "Uncertainty
estimation" and "Uncertainty estimation in BNNs and DEs" of Wang et al. (2025).
"""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from creinn.credal.entropy import lower_entropy, upper_entropy
from creinn.numerics import entropy


class Uncertainty(NamedTuple):
    """Three measures of one prediction; ``epistemic`` is what more knowledge could remove."""

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor


def entropy_uncertainty(lower: Float[Tensor, "*batch classes"], upper: Float[Tensor, "*batch classes"]) -> Uncertainty:
    r"""Entropy measures of credal sets, in bits.

    .. math:: TU = \overline H(Q), \quad AU = \underline H(Q), \quad EU = \overline H(Q) - \underline H(Q)

    Eqs. (CreUncertainty), (uncertainties). The lower entropy is exact up to a gap that is mostly 0, and a warning says
    where it is not; see :mod:`creinn.credal.entropy`.

    Example:
        >>> import torch
        >>> total, aleatoric, epistemic = entropy_uncertainty(torch.zeros(4), torch.ones(4))  # nothing is known
        >>> total.item(), aleatoric.item(), epistemic.item()
        (2.0, 0.0, 2.0)
    """
    total, aleatoric = upper_entropy(lower, upper), lower_entropy(lower, upper)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0))


def interval_uncertainty(lower: Float[Tensor, "*batch classes"], upper: Float[Tensor, "*batch classes"]) -> Uncertainty:
    r"""Binary measures from the probability interval :math:`[\underline q, \overline q]` of class 1.

    .. math::
        TU = \min(1 - \underline q, \overline q), \quad AU = \min(\underline q, 1 - \overline q), \quad
        EU = \overline q - \underline q

    Eq. (uncertaintiesInterval). Dimensionless, at most 1; they do not change when the classes are swapped.
    ``TU = AU + EU`` holds here too. The bounds must be reachable: ``lower[..., 0] = 1 - upper[..., 1]``.

    Raises:
        ValueError: If there are not exactly two classes.

    Example:
        >>> import torch
        >>> total, aleatoric, epistemic = interval_uncertainty(torch.tensor([0.4, 0.1]), torch.tensor([0.9, 0.6]))
        >>> round(total.item(), 4), round(aleatoric.item(), 4), round(epistemic.item(), 4)
        (0.6, 0.1, 0.5)
    """
    if lower.shape[-1] != 2:
        raise ValueError(
            f"The interval measures are defined for 2 classes, found {lower.shape[-1]} (bounds of shape "
            f"{tuple(lower.shape)}). Use the entropy measures."
        )
    return Uncertainty(upper.amin(-1), lower.amin(-1), upper[..., 1] - lower[..., 1])


def samples_uncertainty(probabilities: Float[Tensor, "..."]) -> Uncertainty:
    r"""Entropy measures of sampled distributions (deep ensembles, Bayesian networks), in bits; sample axis first.

    .. math::
        TU = H\Bigl(\tfrac1M \sum_m q_m\Bigr), \quad AU = \tfrac1M \sum_m H(q_m), \quad EU = TU - AU

    Eqs. (MC_bnn), (AU_BNN). EU is the mutual information of label and model.

    Raises:
        ValueError: If there is no sample, or no sample axis.

    Example:
        >>> import torch
        >>> total, aleatoric, epistemic = samples_uncertainty(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        >>> total.item(), aleatoric.item(), epistemic.item()
        (1.0, 0.0, 1.0)
    """
    if probabilities.ndim < 2 or len(probabilities) == 0:
        raise ValueError(
            "samples_uncertainty needs (samples, ..., classes) with at least one sample, found shape "
            f"{tuple(probabilities.shape)}."
        )
    total, aleatoric = entropy(probabilities.mean(0)), entropy(probabilities).mean(0)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp_min(0))
