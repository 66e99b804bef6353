r"""Interval data from images, as in the interval experiments of Wang et al. (2025).

In: images. Out: :class:`~creinn.interval.Interval`, by noise or brightness of a range of strengths; and normalisation
that keeps order.

Both shifts are monotone in their strength, pixel by pixel and in floating point too: sums, quotients by a positive
number, products with a non-negative one and clipping are monotone, and correct rounding keeps order. So the two ends of
a range of strengths give the two bounds of the range of every pixel.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from creinn.interval import Interval

Images = Float[Tensor, "n channels height width"]


def noise(x: Images, mu1: float, mu2: float) -> Interval:
    r"""Every pixel raised by between :math:`\mu_1` and :math:`\mu_2`: :math:`x_\mu = \mathrm{clip}(x + \mu, 0, 1)`.

    Args:
        x: Images in [0, 1].
        mu1: Least shift.
        mu2: Greatest shift.

    Raises:
        TypeError: If the images are not floating.
        ValueError: If a pixel leaves [0, 1], or ``mu1 > mu2``.

    Example:
        >>> x = torch.tensor([0.0, 0.5, 0.95]).reshape(1, 1, 1, 3)
        >>> noise(x, 0, 0.1).upper.flatten()
        tensor([0.1000, 0.6000, 1.0000])
    """
    _check_images(x)
    _check_range(mu1, mu2, "mu")
    return Interval((x + mu1).clamp(0, 1), (x + mu2).clamp(0, 1))


def brightness(x: Images, beta1: float, beta2: float) -> Interval:
    r"""Every image brightened by between :math:`\beta_1` and :math:`\beta_2`, the HSV value of each pixel being raised.

    Hue and saturation stay, so with :math:`V = \max(R, G, B)` and :math:`V' = \mathrm{clip}(V + \beta, 0, 1)` all
    channels are multiplied by :math:`V' / V`; black, :math:`V = 0`, which has no hue, becomes the grey :math:`V'`. A
    strength of 0 leaves the image exactly as it is. Grey images of one channel are taken too.

    Args:
        x: Images in [0, 1], of 1 or 3 channels.
        beta1: Least increase.
        beta2: Greatest increase.

    Raises:
        TypeError: If the images are not floating.
        ValueError: If a pixel leaves [0, 1], there are neither 1 nor 3 channels, or ``beta1 > beta2``.

    Example:
        >>> x = torch.tensor([0.2, 0.4, 0.0]).reshape(1, 3, 1, 1)
        >>> brightness(x, 0, 0.2).upper.flatten()
        tensor([0.3000, 0.6000, 0.0000])
    """
    _check_images(x)
    if x.shape[1] not in (1, 3):
        raise ValueError(f"Brightness needs grey (1 channel) or RGB images (3), but these have {x.shape[1]} channels.")
    _check_range(beta1, beta2, "beta")
    return Interval(_brightened(x, beta1), _brightened(x, beta2))


def normalize(
    x: Tensor | Interval, mean: float | Sequence[float] | Tensor, std: float | Sequence[float] | Tensor
) -> Tensor | Interval:
    """Subtract ``mean`` and divide by ``std``, per channel, in both bounds alike.

    Args:
        x: Images ``(N, channels, height, width)``, or other inputs ``(N, channels, ...)``.
        mean: One number, or one per channel.
        std: One number, or one per channel; positive, so that order is kept.

    Raises:
        ValueError: If ``std`` is not positive, or the numbers do not fit the channels.

    Example:
        >>> normalize(Interval(torch.zeros(1, 1), torch.ones(1, 1)), mean=0.5, std=0.25)
        Interval(lower=tensor([[-2.]]), upper=tensor([[2.]]))
    """
    shift, scale = _per_channel(mean, "mean", x), _per_channel(std, "std", x)
    if not bool((scale > 0).all()):
        raise ValueError(f"std must be positive, but is {scale.flatten().tolist()}.")
    if isinstance(x, Interval):
        return x.each(lambda bound: (bound - shift) / scale, nonnegative=False)
    return (x - shift) / scale


def _brightened(x: Tensor, beta: float) -> Tensor:
    value = x.amax(dim=1, keepdim=True)
    raised = (value + beta).clamp(0, 1)
    # Below the smallest normal number the quotient could overflow: there as for black, the increase is added.
    black = value < torch.finfo(x.dtype).tiny
    return torch.where(black, x + (raised - value), x * (raised / value.masked_fill(black, 1))).clamp(0, 1)


def _check_images(x: Tensor) -> None:
    if not x.is_floating_point():
        raise TypeError(f"Images must be floating, in [0, 1], but are {x.dtype}. Divide bytes by 255 first.")
    if x.ndim != 4:
        raise ValueError(f"Images must have shape (N, channels, height, width), but have {tuple(x.shape)}.")
    outside = ~((x >= 0) & (x <= 1))
    if bool(outside.any()):
        at = tuple(outside.nonzero()[0].tolist())
        raise ValueError(f"Pixels must lie in [0, 1], but one is {x[at].item():g} at index {at}. Normalise afterwards.")


def _check_range(low: float, high: float, name: str) -> None:
    if not -1 <= low <= high <= 1:
        raise ValueError(f"Need -1 <= {name}1 <= {name}2 <= 1, but they are {low:g} and {high:g}.")


def _per_channel(value: float | Sequence[float] | Tensor, name: str, x: Tensor | Interval) -> Tensor:
    tensor = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    if tensor.ndim == 0:
        return tensor
    if tensor.ndim != 1 or x.ndim < 2 or len(tensor) != x.shape[1]:
        raise ValueError(
            f"{name} must be one number or one per channel; got {tuple(tensor.shape)} for {tuple(x.shape)}."
        )
    return tensor.reshape(-1, *[1] * (x.ndim - 2))
