"""Interval linear layers and convolutions, with the arguments of ``torch.nn``.

The centers are ``weight`` and ``bias``, so that the state dict of an
ordinary layer can be loaded. The radii are ``weight_radius`` and
``bias_radius``, which must be ``>= 0`` (Section "Training procedure").
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from creinn.interval import Interval, as_interval
from creinn.nn._operations import Biases, Convolution, Matrix, Operation, interval_version
from creinn.nn._product import interval_affine
from creinn.numerics import valid_radius

Slices = tuple[Any, ...]


class IntervalParameters(nn.Module):
    """Mixin that adds radii and the initialization of the paper.

    The centers have Glorot's uniform distribution, and the radii its
    absolute value. Biases are zero.
    """

    weight: Tensor
    bias: Tensor | None
    weight_radius: Parameter
    bias_radius: Parameter | None
    _crops = True  # whether a convolution to one pixel becomes a matrix product

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize the parameters, as called by the constructor of torch."""
        if not hasattr(self, "bias_radius"):
            self._add_weight_radius()
            self.bias_radius = None if self.bias is None else Parameter(torch.empty_like(self.bias))
        nn.init.xavier_uniform_(self.weight)
        self._reset_weight_radius()
        for bias in (self.bias, self.bias_radius):
            if bias is not None:
                bias.zero_()

    def _add_weight_radius(self) -> None:
        self.weight_radius = Parameter(torch.empty_like(self.weight))

    def _reset_weight_radius(self) -> None:
        nn.init.xavier_uniform_(self.weight_radius).abs_()

    @property
    def weight_interval(self) -> Interval:
        """The weights as intervals."""
        radius = valid_radius(self.weight_radius)
        return Interval._of_parts(self.weight - radius, self.weight + radius)

    def _biases(self) -> Biases:
        return self.bias, None if self.bias_radius is None else valid_radius(self.bias_radius)

    def radii(self) -> dict[str, Parameter]:
        """Return the radius parameters by name."""
        parameters = self.named_parameters(recurse=False)
        return {name: radius for name, radius in parameters if name.endswith("_radius")}

    def center_of(self, name: str) -> Tensor:
        """Return the center for the radius parameter ``name``."""
        return self.bias if name == "bias_radius" and self.bias is not None else self.weight

    @torch.no_grad()
    def project_radii_(self) -> None:
        """Clamp the radii to ``>= 0`` in place."""
        for radius in self.radii().values():
            radius.clamp_(min=0)

    def _affine(self, operation: Operation, x: Interval, window: Slices | None = None) -> Interval:
        center: Tensor = self.weight
        radius: Tensor = self.weight_radius
        if window is not None:
            center, radius = (t[(..., *window)].flatten(1) for t in (center, radius))
        return interval_affine(operation, x, center, radius, self._biases())

    def _check_features(self, x: Interval, dim: int, count: int) -> None:
        if x.ndim < -dim or x.shape[dim] != count:
            expected = f"{type(self).__name__} expects {count} features in dimension {dim}"
            raise ValueError(f"{expected}, got shape {tuple(x.shape)}.")


@torch.no_grad()
def project_(module: nn.Module) -> nn.Module:
    """Clamp radii to ``>= 0`` and relative radii to values below 1, in place.

    The paper does this after each step of the optimizer. It is optional,
    because the forward pass clamps the radii too.
    """
    for layer in module.modules():
        if isinstance(layer, IntervalParameters):
            layer.project_radii_()
    return module


@torch.no_grad()
def scale_radii_(module: nn.Module, factor: float) -> nn.Module:
    """Multiply all radii of a module by ``factor > 0`` in place."""
    if not factor > 0:
        raise ValueError(f"factor must be > 0, got {factor}.")
    for layer in module.modules():
        if isinstance(layer, IntervalParameters):
            for radius in layer.radii().values():
                radius.mul_(factor)
    return module


class Linear(IntervalParameters, nn.Linear):
    r"""Interval version of ``torch.nn.Linear``.

    The weights are :math:`[c - r,\, c + r]`. The bounds are sound, and
    exact for points and for intervals that are known to be ``>= 0``.

    Example:
        >>> layer = Linear(1, 1)
        >>> for parameter in layer.parameters():
        ...     _ = parameter.data.fill_(1)
        >>> layer(torch.tensor([[-2.0]]))  # [0, 2] * -2 + [0, 2]
        Interval(lower=tensor([[-4.]], ...), upper=tensor([[2.]], ...))
    """

    def forward(self, x: Interval | Tensor) -> Interval:
        """Map inputs ``(..., in_features)`` to ``(..., out_features)``."""
        x = as_interval(x)
        self._check_features(x, -1, self.in_features)
        if x.ndim == 2:
            return self._affine(Matrix(), x)
        y = self._affine(Matrix(), x.reshape(-1, self.in_features))
        return y.reshape(*x.shape[:-1], self.out_features)


class _IntervalConv(IntervalParameters, nn.modules.conv._ConvNd):
    def forward(self, x: Interval | Tensor) -> Interval:
        """Map inputs ``(N, in_channels, ...)`` or ``(in_channels, ...)``."""
        x = as_interval(x)
        self._check_features(x, 1 - self.weight.ndim, self.in_channels)
        if x.ndim < self.weight.ndim:
            return self._convolve(x.unsqueeze(0)).squeeze(0)
        return self._convolve(x)

    def _convolve(self, x: Interval) -> Interval:
        window = one_pixel(self, tuple(x.shape[2:])) if self._crops else None
        if window is None:
            return self._affine(*self._operation(x))
        kernel, image = window
        pixels = x.channelwise(lambda t: t[(..., *image)].flatten(1), linear=True)
        y = self._affine(Matrix(), pixels, kernel)
        return y.channelwise(lambda t: t.view(*t.shape, *(1,) * len(image)), linear=True)

    def _operation(self, x: Interval) -> tuple[Convolution, Interval]:
        sides = self._reversed_padding_repeated_twice
        before, after = sides[::2][::-1], sides[1::2][::-1]
        if self.padding_mode != "zeros" or before != after:
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x = x.channelwise(lambda t: F.pad(t, sides, mode), linear=True)
            before = [0] * len(before)
        return Convolution(self.stride, tuple(before), self.dilation, self.groups), x


def one_pixel(layer: Any, sizes: tuple[int, ...]) -> tuple[Slices, Slices] | None:
    """Return the overlap of kernel and image if the output has one pixel.

    The convolution is then a matrix product, which is faster. The result
    is None for larger outputs, groups, and padding other than zeros.

    Example:
        >>> one_pixel(torch.nn.Conv2d(1, 1, 3, stride=2, padding=1), (2, 1))
        ((slice(1, 3, None), slice(1, 2, None)), (slice(0, 2, 1), slice(0, 1, 1)))
    """
    if len(sizes) != len(layer.kernel_size) or layer.groups != 1 or layer.padding_mode != "zeros":
        return None
    kernel, image = [], []
    padding = layer._reversed_padding_repeated_twice
    for axis, size in enumerate(sizes):
        before, after = padding[2 * (len(sizes) - 1 - axis) :][:2]
        length, step = layer.kernel_size[axis], layer.dilation[axis]
        if not 0 <= size + before + after - step * (length - 1) - 1 < layer.stride[axis]:
            return None
        taps = [tap for tap in range(length) if 0 <= tap * step - before < size]
        if not taps:
            return None
        kernel.append(slice(taps[0], taps[-1] + 1))
        image.append(slice(taps[0] * step - before, taps[-1] * step - before + 1, step))
    return tuple(kernel), tuple(image)


Conv1d = interval_version(_IntervalConv, nn.Conv1d)
Conv2d = interval_version(_IntervalConv, nn.Conv2d)
Conv3d = interval_version(_IntervalConv, nn.Conv3d)
