r"""How much uncertainty grows when the data shift, Eq. (Relative increase) of Wang et al. (2025).

In: uncertainties of the same samples under shift and without. Out: the mean of their ratios, and how many samples
have none.
"""

from typing import Any, NamedTuple

import numpy as np

from creinn.evaluation.checks import as_numbers


class RelativeIncrease(NamedTuple):
    """Mean ratio of shifted to base uncertainty, and the number of samples left out because their base is 0."""

    mean: float
    excluded: int


def relative_increase(test: Any, base: Any) -> RelativeIncrease:
    r"""Mean over samples, and over runs if given, of :math:`U_\mathrm{test} / U_\mathrm{base}`.

    Args:
        test: Uncertainty of the shifted samples, any shape, for example ``(samples,)`` or ``(runs, samples)``; not
            negative.
        base: Uncertainty of the same samples without shift, of the same shape; where it is 0 the ratio is undefined
            and left out.

    Raises:
        TypeError: If the values are not numbers.
        ValueError: If the shapes differ, a value is negative, NaN or infinite, there are none, or no ratio is defined
            and finite.

    Example:
        >>> relative_increase([0.2, 0.6, 0.5], [0.1, 0.2, 0.0])
        RelativeIncrease(mean=2.5, excluded=1)
    """
    shifted, unshifted = as_numbers(test, "test"), as_numbers(base, "base")
    if shifted.shape != unshifted.shape:
        raise ValueError(
            f"test and base must hold the same samples, but their shapes are {shifted.shape} and {unshifted.shape}."
        )
    for name, values in (("test", shifted), ("base", unshifted)):
        if (values < 0).any():
            at = tuple(int(i) for i in np.argwhere(values < 0)[0])
            raise ValueError(
                f"{name} must be >= 0, but is {values[at]:g} at index {at}. Uncertainties are never negative."
            )
    defined = unshifted > 0
    if not defined.any():
        raise ValueError(
            f"base is 0 for all {defined.size} samples, so no ratio is defined. Choose another measure or another base."
        )
    with np.errstate(over="ignore"):
        mean = float((shifted[defined] / unshifted[defined]).mean())
    if not np.isfinite(mean):
        raise ValueError(
            f"The ratios overflow: base is as small as {unshifted[defined].min():g}. Round such values to 0 to "
            "leave them out."
        )
    return RelativeIncrease(mean=mean, excluded=int((~defined).sum()))
