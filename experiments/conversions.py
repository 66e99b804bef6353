"""Conversions of images in the experiments: intervals, channels and size.

The interval data are those of Wang et al. (2025). Noise and brightness are
monotone in their strength, also in floating point, so the bounds of a pixel are
its values at the two ends.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from creinn.data import Dataset
from creinn.interval import Interval

Images = Float[Tensor, "n channels height width"]


def noise(x: Images, mu1: float, mu2: float) -> Interval:
    r"""Add between :math:`\mu_1` and :math:`\mu_2` to pixels, clipped to [0, 1].

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
    r"""Add between :math:`\beta_1` and :math:`\beta_2` to the HSV value of pixels.

    Channels are multiplied by :math:`V' / V`, where :math:`V = \max(R, G, B)`
    and :math:`V' = \mathrm{clip}(V + \beta, 0, 1)`, so that hue and saturation
    do not change. Black becomes the grey :math:`V'`.

    Raises:
        TypeError: As in :func:`noise`.
        ValueError: As in :func:`noise`, or if there are not 1 or 3 channels.

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


def to_grey(dataset: Dataset, size: int | None = None) -> Dataset:
    """Convert images to grey (ITU-R 601, as in Pillow) with an optional size."""
    images = _images(dataset, "grey")
    if images.shape[1] == 3:
        red, green, blue = images.int().unbind(1)
        luma = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
        images = luma.to(torch.uint8).unsqueeze(1)
    grey = replace(dataset, inputs=images)
    return grey if size is None else resize(grey, size)


def to_rgb(dataset: Dataset) -> Dataset:
    """Convert images to three channels."""
    return replace(dataset, inputs=_images(dataset, "RGB").expand(-1, 3, -1, -1).contiguous())


def resize(dataset: Dataset, size: int) -> Dataset:
    """Resize images to squares (bilinear, with antialiasing)."""
    images = _images(dataset)
    if size < 1:
        raise ValueError(f"Image size must be at least 1, but is {size}.")
    if images.shape[2:] == (size, size):
        return dataset
    resized = []
    for part in images.split(4096):
        pixels = interpolate(part.float(), (size, size), mode="bilinear", antialias=True)
        resized.append(pixels.round().clamp(0, 255).to(torch.uint8))
    return replace(dataset, inputs=torch.cat(resized))


def _images(dataset: Dataset, mode: str = "") -> Tensor:
    """Return images, which need one or three channels for a ``mode``."""
    images = dataset.inputs
    if isinstance(images, Interval) or images.dtype != torch.uint8:
        found = f"the inputs of {dataset.title} are {images.dtype}"
        raise TypeError(f"This function needs uint8 images, but {found}.")
    if mode and images.shape[1] not in (1, 3):
        found = f"{dataset.title} has {images.shape[1]}"
        raise ValueError(f"Only images of 1 or 3 channels can be converted to {mode}; {found}.")
    return images


def _check(x: Tensor, low: float, high: float, name: str) -> None:
    if not x.is_floating_point():
        found = f"Images must be floating, in [0, 1], but are {x.dtype}"
        raise TypeError(f"{found}. Divide bytes by 255 first.")
    if x.ndim != 4:
        raise ValueError(
            f"Images must have shape (N, channels, height, width), but have {tuple(x.shape)}."
        )
    outside = ~((x >= 0) & (x <= 1))
    if bool(outside.any()):
        at = tuple(outside.nonzero()[0].tolist())
        found = f"one is {x[at].item():g} at index {at}"
        raise ValueError(f"Pixels must lie in [0, 1], but {found}. Normalize afterwards.")
    if not -1 <= low <= high <= 1:
        raise ValueError(f"Need -1 <= {name}1 <= {name}2 <= 1, but they are {low:g} and {high:g}.")
