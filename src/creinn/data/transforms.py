"""Transforms of image batches: intervals, normalization and augmentation.

The interval data are those of Wang et al. (2025). Noise and brightness are monotone in their
strength, also in floating point, so that the bounds of each pixel are its values at the two ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from creinn.interval import Interval

Images = Float[Tensor, "n channels height width"]
Batch = TypeVar("Batch", Tensor, Interval)
PerChannel = float | Sequence[float] | Tensor
_LEVELS = 511  # possible values of the center of two bytes


def noise(x: Images, mu1: float, mu2: float) -> Interval:
    r"""Add between :math:`\mu_1` and :math:`\mu_2` to each pixel, clipped to [0, 1].

    Raises:
        TypeError: If the images are not floating point.
        ValueError: If a pixel is outside [0, 1], or if ``mu1 > mu2``.

    Example:
        >>> x = torch.tensor([0.0, 0.5, 0.95]).reshape(1, 1, 1, 3)
        >>> noise(x, 0, 0.1).upper.flatten()
        tensor([0.1000, 0.6000, 1.0000])
    """
    _check(x, mu1, mu2, "mu")
    return Interval((x + mu1).clamp(0, 1), (x + mu2).clamp(0, 1))


def brightness(x: Images, beta1: float, beta2: float) -> Interval:
    r"""Add between :math:`\beta_1` and :math:`\beta_2` to the HSV value of each pixel.

    With :math:`V = \max(R, G, B)` and :math:`V' = \mathrm{clip}(V + \beta, 0, 1)`, all channels are
    multiplied by :math:`V' / V`, so that hue and saturation do not change. Black becomes the grey
    :math:`V'`. The errors are those of :func:`noise`, and a ``ValueError`` for images that do not
    have 1 or 3 channels.

    Example:
        >>> x = torch.tensor([0.2, 0.4, 0.0]).reshape(1, 3, 1, 1)
        >>> brightness(x, 0, 0.2).upper.flatten()
        tensor([0.3000, 0.6000, 0.0000])
    """
    _check(x, beta1, beta2, "beta")
    if x.shape[1] not in (1, 3):
        raise ValueError(f"Brightness needs 1 or 3 channels, but these have {x.shape[1]} channels.")
    value = x.amax(dim=1, keepdim=True)
    black = value < torch.finfo(x.dtype).tiny  # the quotient could overflow

    def bright(beta: float) -> Tensor:
        new = (value + beta).clamp(0, 1)
        product = x * (new / value.masked_fill(black, 1))
        return torch.where(black, x + (new - value), product).clamp(0, 1)

    return Interval(bright(beta1), bright(beta2))


def normalize(x: Tensor | Interval, mean: PerChannel, std: PerChannel) -> Tensor | Interval:
    """Subtract ``mean`` and divide by ``std``.

    Both are numbers or sequences with one number per channel.

    Raises:
        ValueError: If ``std`` is not positive, or if the numbers do not fit the channels.

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
    """Random crop after zero padding, and random horizontal flip, for each image.

    Both bounds of an interval get the same crop. The padding is black before a normalization.

    Example:
        >>> images = torch.arange(4.0).reshape(1, 1, 2, 2)
        >>> RandomCropFlip(padding=1)(images, torch.Generator().manual_seed(0)).shape
        torch.Size([1, 1, 2, 2])
    """

    padding: int = 4  # width of the border in pixels
    flip: bool = True  # whether to flip, with probability 1/2

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(f"padding must be at least 0, but is {self.padding}.")

    def __call__(self, x: Batch, generator: torch.Generator) -> Batch:
        """Transform images ``(N, channels, height, width)`` of any dtype."""
        _check_shape(x)
        n, _, height, width = x.shape

        def draw(high: int) -> Tensor:
            drawn = torch.randint(high, (n, 1), generator=generator, device=generator.device)
            return drawn.to(x.device)

        top, left = draw(2 * self.padding + 1), draw(2 * self.padding + 1)
        rows = top + torch.arange(height, device=x.device)
        columns = left + torch.arange(width, device=x.device)
        if self.flip:
            columns = torch.where(draw(2).bool(), columns.flip(1), columns)
        places = rows[:, :, None] * (width + 2 * self.padding) + columns[:, None, :]
        index = places.reshape(n, 1, height * width)

        def crop(images: Tensor) -> Tensor:
            padded = pad(images, [self.padding] * 4).flatten(2)
            pixels = padded.gather(2, index.expand(-1, images.shape[1], -1))
            return pixels.unflatten(2, (height, width))

        return x.map_monotone(crop) if isinstance(x, Interval) else crop(x)


class ChannelStats:
    """Exact mean and standard deviation of each channel of uint8 images.

    The images can be added in several parts.
    """

    def __init__(self) -> None:
        self._counts = torch.zeros(1, _LEVELS, dtype=torch.int64)  # (channels, levels) after add

    def add(self, x: Tensor | Interval) -> None:
        """Count the pixels of images in [0, 1], or of the centers of intervals."""
        center = x.center if isinstance(x, Interval) else x
        levels = (center * (_LEVELS - 1)).round().long().transpose(0, 1).flatten(1)
        counts = [torch.bincount(channel, minlength=_LEVELS) for channel in levels]
        self._counts = self._counts + torch.stack(counts)

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        """Return both for each channel. The standard deviation of a constant channel is 1.

        Example:
            >>> stats = ChannelStats()
            >>> stats.add(torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 2))
            >>> stats.mean_and_std()
            ([0.5], [0.5])
        """
        means, deviations = [], []
        for counts in self._counts.tolist():
            n, first, second = (
                sum(count * level**power for level, count in enumerate(counts))
                for power in range(3)
            )
            means.append(first / n / (_LEVELS - 1))
            deviations.append(sqrt(n * second - first**2) / n / (_LEVELS - 1) or 1.0)
        return means, deviations


def _check_shape(x: Tensor | Interval) -> None:
    if x.ndim != 4:
        found = tuple(x.shape)
        raise ValueError(f"Images must have shape (N, channels, height, width), but have {found}.")


def _check(x: Tensor, low: float, high: float, name: str) -> None:
    if not x.is_floating_point():
        found = f"Images must be floating, in [0, 1], but are {x.dtype}"
        raise TypeError(f"{found}. Divide bytes by 255 first.")
    _check_shape(x)
    outside = ~((x >= 0) & (x <= 1))
    if bool(outside.any()):
        at = tuple(outside.nonzero()[0].tolist())
        found = f"one is {x[at].item():g} at index {at}"
        raise ValueError(f"Pixels must lie in [0, 1], but {found}. Normalize afterwards.")
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
