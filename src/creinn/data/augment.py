"""Random crops and flips: a batch of images in, a batch of the same shape out; both bounds of intervals alike."""

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from creinn.interval import Interval

Batch = TypeVar("Batch", Tensor, Interval)


@dataclass(frozen=True)
class RandomCropFlip:
    """Pad with zeros, cut out a window of the old size at a random place, and mirror every other image left to right.

    Every image of a batch has a place and a side of its own; both bounds of an interval have the same. The border is
    black if applied before normalisation, the mean colour if after.

    Args:
        padding: Width of the border.
        flip: Whether to mirror, with probability one half.

    Example:
        >>> images = torch.arange(4.0).reshape(1, 1, 2, 2)
        >>> RandomCropFlip(padding=1)(images, torch.Generator().manual_seed(0)).shape
        torch.Size([1, 1, 2, 2])
    """

    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(f"padding must be at least 0, but is {self.padding}.")

    def __call__(self, x: Batch, generator: torch.Generator) -> Batch:
        """Augment images ``(N, channels, height, width)``.

        Args:
            x: A tensor of any dtype, or an interval.
            generator: Source of randomness; it may live on another device than the images.

        Raises:
            ValueError: If ``x`` is not a batch of images.
        """
        if x.ndim != 4:
            raise ValueError(f"Images must have shape (N, channels, height, width), but have {tuple(x.shape)}.")
        n, _, height, width = x.shape

        def draw(high: int) -> Tensor:
            return torch.randint(high, (n, 1), generator=generator, device=generator.device).to(x.device)

        top, left = draw(2 * self.padding + 1), draw(2 * self.padding + 1)
        rows = top + torch.arange(height, device=x.device)
        columns = left + torch.arange(width, device=x.device)
        if self.flip:
            columns = torch.where(draw(2).bool(), columns.flip(1), columns)
        place = (rows[:, :, None] * (width + 2 * self.padding) + columns[:, None, :]).reshape(n, 1, height * width)

        def cut(images: Tensor) -> Tensor:
            padded = pad(images, [self.padding] * 4).flatten(2)
            return padded.gather(2, place.expand(-1, images.shape[1], -1)).unflatten(2, (height, width))

        return x.each(cut) if isinstance(x, Interval) else cut(x)
