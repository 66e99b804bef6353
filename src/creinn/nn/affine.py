"""Interval linear layers and convolutions: interval features in, interval features out; arguments as in torch.

In a layer ``weight`` and ``bias`` are the centres, so an ordinary state dict loads into them; ``weight_radius`` and
``bias_radius`` are the radii, constrained to be >= 0 (Section "Training procedure").
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from creinn.interval import Interval, as_interval
from creinn.nn._operations import Convolution, Matrix, Operation
from creinn.nn._product import interval_affine
from creinn.numerics import valid_radius

Slices = tuple[Any, ...]


class IntervalParameters(torch.nn.Module):
    """Mixin for a torch layer with ``weight`` and ``bias``: adds their radii and the paper's initialisation.

    Centre and radius are Glorot uniform, the radius in absolute value; biases start at ``[0, 0]``.
    """

    weight: Tensor
    bias: Tensor | None
    weight_radius: Parameter
    bias_radius: Parameter | None

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the parameters anew. Torch's constructor ends here: then the radii are made."""
        if not hasattr(self, "bias_radius"):
            self._add_weight_radius()
            self.bias_radius = None if self.bias is None else Parameter(torch.empty_like(self.bias))
        torch.nn.init.xavier_uniform_(self.weight)
        self._reset_weight_radius()
        if self.bias is not None and self.bias_radius is not None:
            self.bias.zero_()
            self.bias_radius.zero_()

    def _add_weight_radius(self) -> None:
        self.weight_radius = Parameter(torch.empty_like(self.weight))

    def _reset_weight_radius(self) -> None:
        torch.nn.init.xavier_uniform_(self.weight_radius).abs_()

    @property
    def weight_interval(self) -> Interval:
        """The weights as intervals."""
        radius = valid_radius(self.weight_radius)
        return Interval._of_parts(self.weight - radius, self.weight + radius)

    def _biases(self) -> tuple[Tensor | None, Tensor | None]:
        """Centres and valid radii of the bias."""
        return self.bias, None if self.bias_radius is None else valid_radius(self.bias_radius)

    def radii(self) -> dict[str, Parameter]:
        """The radius parameters by name."""
        return {
            name: radius
            for name, radius in self.named_parameters(recurse=False)
            if name.endswith("_radius")
        }

    def center_of(self, name: str) -> Tensor:
        """The centre that the radius parameter ``name`` belongs to."""
        return self.bias if name == "bias_radius" and self.bias is not None else self.weight

    @torch.no_grad()
    def project_radii_(self) -> None:
        """Clamp the radii to ``>= 0``, in place."""
        for radius in self.radii().values():
            radius.clamp_(min=0)


@torch.no_grad()
def project_(module: torch.nn.Module) -> torch.nn.Module:
    """Project every radius in ``module`` onto ``>= 0``, in place: the paper's constraint, after each optimiser step.

    Relative radii are kept below 1 too. A forgotten call gives no invalid intervals: forward passes clip radii.
    """
    for layer in module.modules():
        if isinstance(layer, IntervalParameters):
            layer.project_radii_()
    return module


@torch.no_grad()
def scale_radii_(module: torch.nn.Module, factor: float) -> torch.nn.Module:
    """Multiply every radius in ``module`` by ``factor > 0``, in place; sound and wide networks want small radii."""
    if not factor > 0:
        raise ValueError(f"factor must be > 0, got {factor}.")
    for layer in module.modules():
        if isinstance(layer, IntervalParameters):
            for radius in layer.radii().values():
                radius.mul_(factor)
    return module


class _Affine(IntervalParameters):
    """Mixin for an affine layer of torch: the product with interval weights."""

    _crops = True  # whether a convolution to one pixel is computed as a matrix product

    def _affine(
        self,
        operation: Operation,
        x: Interval,
        crop: Callable[[Tensor], Tensor] = lambda weight: weight,
    ) -> Interval:
        """The image of a batch, by what ``crop`` leaves of the weights."""
        return interval_affine(
            operation, x, crop(self.weight), crop(self.weight_radius), self._biases()
        )

    def _check_features(self, x: Interval, dim: int, count: int) -> None:
        if x.ndim < -dim or x.shape[dim] != count:
            raise ValueError(
                f"{type(self).__name__} expects {count} features in dimension {dim}, got shape {tuple(x.shape)}."
            )


class Linear(_Affine, torch.nn.Linear):
    r"""Affine map with interval weights :math:`[c - r,\, c + r]`, :math:`r \ge 0`; arguments as in ``torch.nn.Linear``.

    Sound for inputs of any sign, exact for points and non-negative intervals.

    Example:
        >>> layer = Linear(1, 1)
        >>> _ = layer.load_state_dict({k: torch.ones_like(v) for k, v in layer.state_dict().items()})
        >>> layer(torch.tensor([[-2.0]]))      # [0, 2] * -2 + [0, 2]
        Interval(lower=tensor([[-4.]], ...), upper=tensor([[2.]], ...))
    """

    def forward(self, x: Interval | Tensor) -> Interval:
        """Map ``(..., in_features)`` to ``(..., out_features)``; another number of features is a ``ValueError``."""
        x = as_interval(x)
        self._check_features(x, -1, self.in_features)
        rows = x if x.ndim == 2 else x.reshape(-1, self.in_features)
        y = self._affine(Matrix(), rows)
        return y if x.ndim == 2 else y.reshape(*x.shape[:-1], self.out_features)


class _IntervalConv(_Affine, torch.nn.modules.conv._ConvNd):
    """Convolution with interval weights; takes every argument of torch's."""

    def forward(self, x: Interval | Tensor) -> Interval:
        """Map ``(N, in_channels, ...)`` or ``(in_channels, ...)``; another number of channels is a ``ValueError``."""
        x = as_interval(x)
        self._check_features(x, 1 - self.weight.ndim, self.in_channels)
        batch = x if x.ndim == self.weight.ndim else x.unsqueeze(0)
        window = one_pixel(self, tuple(batch.shape[2:])) if self._crops else None
        y = (
            self._affine(*self._operation(batch))
            if window is None
            else self._to_one_pixel(batch, *window)
        )
        return y if x.ndim == self.weight.ndim else y.squeeze(0)

    def _operation(self, x: Interval) -> tuple[Convolution, Interval]:
        """What the layer does, and its input with what is not zeros on both sides padded already."""
        sides = self._reversed_padding_repeated_twice
        before, after = sides[::2][::-1], sides[1::2][::-1]
        if self.padding_mode == "zeros" and before == after:
            return Convolution(self.stride, tuple(before), self.dilation, self.groups), x
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        padded = x.channelwise(lambda t: F.pad(t, sides, mode), linear=True)
        return Convolution(self.stride, (0,) * len(before), self.dilation, self.groups), padded

    def _to_one_pixel(self, x: Interval, kernel: Slices, image: Slices) -> Interval:
        """One pixel for each image, as a matrix product over the pixels under the kernel."""
        pixels = x.channelwise(lambda t: t[(..., *image)].flatten(1), linear=True)
        y = self._affine(Matrix(), pixels, lambda t: t[(..., *kernel)].flatten(1))
        return y.channelwise(lambda t: t.view(*t.shape, *(1,) * (x.ndim - 2)), linear=True)


def one_pixel(layer: Any, sizes: tuple[int, ...]) -> tuple[Slices, Slices] | None:
    """Slices of kernel and image where they meet, if a convolution gives one pixel per image; else ``None``.

    It is a matrix product over the pixels under the kernel then, several times faster, and weights that meet padding
    alone are not read. Convolutions with groups, or other padding than zeros, are not looked at.

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


class Conv1d(_IntervalConv, torch.nn.Conv1d):
    """Interval version of ``torch.nn.Conv1d``."""


class Conv2d(_IntervalConv, torch.nn.Conv2d):
    """Interval version of ``torch.nn.Conv2d``.

    Example:
        >>> Conv2d(3, 16, 3, padding="same", groups=1)(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 16, 8, 8])
    """


class Conv3d(_IntervalConv, torch.nn.Conv3d):
    """Interval version of ``torch.nn.Conv3d``."""
