"""What is done to batches of images: intervals as in the interval experiments of Wang et al. (2025), and training.

Noise and brightness are monotone in their strength, pixel by pixel and in floating point too, since correct rounding
keeps order: so the two ends of a range of strengths give the bounds of every pixel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from creinn.interval import Interval

Images = Float[Tensor, "n channels height width"]
Batch = TypeVar("Batch", Tensor, Interval)
PerChannel = float | Sequence[float] | Tensor


def noise(x: Images, mu1: float, mu2: float) -> Interval:
    r"""Every pixel raised by between :math:`\mu_1` and :math:`\mu_2`: :math:`x_\mu = \mathrm{clip}(x + \mu, 0, 1)`.

    Raises:
        TypeError: If the images are not floating.
        ValueError: If a pixel leaves [0, 1], or ``mu1 > mu2``.

    Example:
        >>> x = torch.tensor([0.0, 0.5, 0.95]).reshape(1, 1, 1, 3)
        >>> noise(x, 0, 0.1).upper.flatten()
        tensor([0.1000, 0.6000, 1.0000])
    """
    _check(x, mu1, mu2, "mu")
    return Interval((x + mu1).clamp(0, 1), (x + mu2).clamp(0, 1))


def brightness(x: Images, beta1: float, beta2: float) -> Interval:
    r"""Every image brightened by between :math:`\beta_1` and :math:`\beta_2`, the HSV value of each pixel being raised.

    Hue and saturation stay, so with :math:`V = \max(R, G, B)` and :math:`V' = \mathrm{clip}(V + \beta, 0, 1)` all
    channels are multiplied by :math:`V' / V`; black, :math:`V = 0`, which has no hue, becomes the grey :math:`V'`.

    What :func:`noise` refuses is refused, and images with neither 1 nor 3 channels.

    Example:
        >>> x = torch.tensor([0.2, 0.4, 0.0]).reshape(1, 3, 1, 1)
        >>> brightness(x, 0, 0.2).upper.flatten()
        tensor([0.3000, 0.6000, 0.0000])
    """
    _check(x, beta1, beta2, "beta")
    if x.shape[1] not in (1, 3):
        raise ValueError(
            f"Brightness needs grey (1 channel) or RGB images (3), but these have {x.shape[1]} channels."
        )
    value = x.amax(dim=1, keepdim=True)
    # Below the smallest normal number the quotient could overflow: there as for black, the increase is added.
    black = value < torch.finfo(x.dtype).tiny

    def brightened(beta: float) -> Tensor:
        raised = (value + beta).clamp(0, 1)
        return torch.where(
            black, x + (raised - value), x * (raised / value.masked_fill(black, 1))
        ).clamp(0, 1)

    return Interval(brightened(beta1), brightened(beta2))


def normalize(x: Tensor | Interval, mean: PerChannel, std: PerChannel) -> Tensor | Interval:
    """Subtract ``mean`` and divide by ``std`` in both bounds alike; each is one number, or one per channel.

    Raises:
        ValueError: If ``std`` is not positive, so that order would not be kept, or the numbers do not fit the channels.

    Example:
        >>> normalize(Interval(torch.zeros(1, 1), torch.ones(1, 1)), mean=0.5, std=0.25)
        Interval(lower=tensor([[-2.]]), upper=tensor([[2.]]))
    """
    shift, scale = _per_channel(mean, "mean", x), _per_channel(std, "std", x)
    if not bool((scale > 0).all()):
        raise ValueError(f"std must be positive, but is {scale.flatten().tolist()}.")
    if isinstance(x, Interval):
        return x.map_monotone(lambda bound: (bound - shift) / scale, nonnegative=False)
    return (x - shift) / scale


@dataclass(frozen=True)
class RandomCropFlip:
    """Pad with zeros, cut out a window of the old size at a random place, and mirror every other image left to right.

    Every image of a batch has a place and a side of its own; both bounds of an interval have the same. The border is
    black if applied before normalisation, the mean colour if after.

    Example:
        >>> images = torch.arange(4.0).reshape(1, 1, 2, 2)
        >>> RandomCropFlip(padding=1)(images, torch.Generator().manual_seed(0)).shape
        torch.Size([1, 1, 2, 2])
    """

    padding: int = 4  # width of the border
    flip: bool = True  # whether to mirror, with probability one half

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(f"padding must be at least 0, but is {self.padding}.")

    def __call__(self, x: Batch, generator: torch.Generator) -> Batch:
        """Augment images ``(N, channels, height, width)`` of any dtype; ``generator`` may live on another device."""
        _check_batch(x)
        n, _, height, width = x.shape

        def draw(high: int) -> Tensor:
            return torch.randint(high, (n, 1), generator=generator, device=generator.device).to(
                x.device
            )

        top, left = draw(2 * self.padding + 1), draw(2 * self.padding + 1)
        rows = top + torch.arange(height, device=x.device)
        columns = left + torch.arange(width, device=x.device)
        if self.flip:
            columns = torch.where(draw(2).bool(), columns.flip(1), columns)
        place = (rows[:, :, None] * (width + 2 * self.padding) + columns[:, None, :]).reshape(
            n, 1, height * width
        )

        def cut(images: Tensor) -> Tensor:
            padded = pad(images, [self.padding] * 4).flatten(2)
            return padded.gather(2, place.expand(-1, images.shape[1], -1)).unflatten(
                2, (height, width)
            )

        return x.map_monotone(cut) if isinstance(x, Interval) else cut(x)


def _check_batch(x: Tensor | Interval) -> None:
    if x.ndim != 4:
        raise ValueError(
            f"Images must have shape (N, channels, height, width), but have {tuple(x.shape)}."
        )


def _check(x: Tensor, low: float, high: float, name: str) -> None:
    if not x.is_floating_point():
        raise TypeError(
            f"Images must be floating, in [0, 1], but are {x.dtype}. Divide bytes by 255 first."
        )
    _check_batch(x)
    outside = ~((x >= 0) & (x <= 1))
    if bool(outside.any()):
        at = tuple(outside.nonzero()[0].tolist())
        raise ValueError(
            f"Pixels must lie in [0, 1], but one is {x[at].item():g} at index {at}. Normalise afterwards."
        )
    if not -1 <= low <= high <= 1:
        raise ValueError(f"Need -1 <= {name}1 <= {name}2 <= 1, but they are {low:g} and {high:g}.")


def _per_channel(value: PerChannel, name: str, x: Tensor | Interval) -> Tensor:
    tensor = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    if tensor.ndim == 0:
        return tensor
    if tensor.ndim != 1 or x.ndim < 2 or len(tensor) != x.shape[1]:
        found = f"{tuple(tensor.shape)} for {tuple(x.shape)}"
        raise ValueError(f"{name} must be one number or one per channel; got {found}.")
    return tensor.reshape(-1, *[1] * (x.ndim - 2))
