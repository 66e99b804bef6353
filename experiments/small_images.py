"""Faster training of ordinary convolutions on images of few pixels, with equal results.

The convolutions of oneDNN multiply the zeros of the padding as well. A ResNet-50 with the stem of
ImageNet has one or four pixels per image in its last stages for images of 32 x 32 pixels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.nn.affine import one_pixel


class Conv2d(torch.nn.Conv2d):
    """``torch.nn.Conv2d`` that computes single pixels and 1 x 1 kernels as matrix products.

    Example:
        >>> layer = Conv2d(3, 4, 3, padding=1)
        >>> x = torch.rand(2, 3, 1, 1)
        >>> torch.testing.assert_close(layer(x), torch.nn.Conv2d.forward(layer, x))
    """

    def forward(self, x: Tensor) -> Tensor:
        """Apply the convolution to a batch ``(N, in_channels, height, width)``."""
        window = one_pixel(self, tuple(x.shape[2:]))
        if window is not None:
            kernel, image = window
            weight = self.weight[(..., *kernel)].flatten(1)
            return F.linear(x[(..., *image)].flatten(1), weight, self.bias)[..., None, None]
        if self.kernel_size == (1, 1) and self.groups == 1 and self.padding == (0, 0):
            down, across = self.stride
            rows = (x if self.stride == (1, 1) else x[..., ::down, ::across]).permute(0, 2, 3, 1)
            return F.linear(rows, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)
        return super().forward(x)


def use_small_image_convolutions(network: torch.nn.Module) -> None:
    """Let the ordinary convolutions of a network compute small images fast, in place.

    A network without ordinary convolutions, such as an interval network, is not changed.
    """
    layers = [module for module in network.modules() if type(module) is torch.nn.Conv2d]
    if layers:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for layer in layers:
        layer.__class__ = Conv2d
