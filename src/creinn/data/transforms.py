"""Normalization, augmentation and channel statistics of image batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from creinn.interval import Interval

Batch = TypeVar("Batch", Tensor, Interval)
PerChannel = float | Sequence[float] | Tensor
_LEVELS = 510  # largest sum of two bytes


def normalize(x: Tensor | Interval, mean: PerChannel, std: PerChannel) -> Tensor | Interval:
    """Subtract ``mean`` and divide by ``std``: one number, or one per channel.

    Raises:
        ValueError: If ``std`` is not positive, or a length is wrong.

    Example:
        >>> normalize(torch.ones(1, 1), mean=0.5, std=0.25)
        tensor([[2.]])
    """
    shift, scale = _per_channel(mean, "mean", x), _per_channel(std, "std", x)
    if not bool((scale > 0).all()):
        raise ValueError(f"std must be positive, got {scale.flatten().tolist()}.")
    if isinstance(x, Interval):
        return x.map_monotone(lambda bound: (bound - shift) / scale, nonnegative=False)
    return (x - shift) / scale


@dataclass(frozen=True)
class RandomCropFlip:
    """Random crop after zero padding and random horizontal flip.

    Both bounds of an interval have the same crop and flip.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> RandomCropFlip()(torch.ones(1, 3, 8, 8), generator).shape
        torch.Size([1, 3, 8, 8])
    """

    padding: int = 4  # width of the border in pixels
    flip: bool = True  # with probability 1/2

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(f"padding must be at least 0, got {self.padding}.")

    def __call__(self, x: Batch, generator: torch.Generator) -> Batch:
        """Transform images ``(N, channels, height, width)``."""
        if x.ndim != 4:
            found = tuple(x.shape)
            raise ValueError(f"Images must be (N, channels, height, width), got {found}.")
        n, _, height, width = x.shape

        def draw(high: int) -> Tensor:
            drawn = torch.randint(high, (n, 1), generator=generator, device=generator.device)
            return drawn.to(x.device)

        top, left = draw(2 * self.padding + 1), draw(2 * self.padding + 1)
        rows = top + torch.arange(height, device=x.device)
        columns = left + torch.arange(width, device=x.device)
        if self.flip:
            columns = torch.where(draw(2).bool(), columns.flip(1), columns)
        index = rows[:, :, None] * (width + 2 * self.padding) + columns[:, None, :]
        index = index.reshape(n, 1, height * width)

        def crop(images: Tensor) -> Tensor:
            padded = pad(images, [self.padding] * 4).flatten(2)
            pixels = padded.gather(2, index.expand(-1, images.shape[1], -1))
            return pixels.unflatten(2, (height, width))

        return x.map_monotone(crop) if isinstance(x, Interval) else crop(x)


class ChannelStats:
    """Exact channel means and standard deviations of uint8 images in [0, 1]."""

    def __init__(self) -> None:
        self._sums = torch.zeros(3, 1, dtype=torch.float64)  # of the powers of x

    def add(self, x: Tensor | Interval) -> None:
        """Add images, or the centers of intervals."""
        center = x.center if isinstance(x, Interval) else x
        levels = (center.double() * _LEVELS).round().transpose(0, 1).flatten(1)
        sums = [(levels**power).sum(1) for power in range(3)]
        self._sums = self._sums + torch.stack(sums)

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        """The standard deviation of a constant channel is 1."""
        count, first, second = self._sums
        std = (count * second - first**2).clamp_min(0).sqrt() / count / _LEVELS
        return (first / count / _LEVELS).tolist(), std.where(std > 1e-6, 1.0).tolist()


def _per_channel(value: PerChannel, name: str, x: Tensor | Interval) -> Tensor:
    tensor = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    if tensor.ndim == 0:
        return tensor
    if tensor.ndim != 1 or x.ndim < 2 or len(tensor) != x.shape[1]:
        found = f"{tuple(tensor.shape)} for {tuple(x.shape)}"
        raise ValueError(f"{name} must be one number or one per channel, got {found}.")
    return tensor.reshape(-1, *[1] * (x.ndim - 2))
