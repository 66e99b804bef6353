"""Slow oracles for intervals and layers, each obviously right."""

import itertools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from creinn.interval import Interval
from creinn.nn.affine import IntervalParameters


def product_bounds(a_lo: Tensor, a_hi: Tensor, w_lo: Tensor, w_hi: Tensor) -> tuple[Tensor, Tensor]:
    """Exact range of the element-wise product, which is the range of the four products of bounds."""
    products = torch.stack([a * w for a in (a_lo, a_hi) for w in (w_lo, w_hi)])
    return products.amin(0), products.amax(0)


def linear_bounds(x: Interval, w: Interval, b: Interval | None) -> tuple[Tensor, Tensor]:
    """Exact range of ``x W^T + b``, computed for each element before the sum."""
    lower, upper = product_bounds(x.lower.unsqueeze(-2), x.upper.unsqueeze(-2), w.lower, w.upper)
    lower, upper = lower.sum(-1), upper.sum(-1)
    return (lower, upper) if b is None else (lower + b.lower, upper + b.upper)


def conv_bounds(x: Interval, layer: torch.nn.Module) -> tuple[Tensor, Tensor]:
    """Exact range of a convolution, computed as the sum of the exact ranges of all products."""
    radius = layer.weight_radius.clamp_min(0)
    w_lo, w_hi = layer.weight - radius, layer.weight + radius
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    pads = layer._reversed_padding_repeated_twice
    a_lo, a_hi = (F.pad(t, pads, mode=mode) for t in (x.lower, x.upper))
    spans = [d * (k - 1) + 1 for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    out = [
        (n - span) // s + 1 for n, span, s in zip(a_lo.shape[2:], spans, layer.stride, strict=True)
    ]
    total = [torch.zeros(()), torch.zeros(())]
    per_in, per_out = layer.in_channels // layer.groups, layer.out_channels // layer.groups
    for offset in itertools.product(*(range(k) for k in layer.kernel_size)):
        window = tuple(
            slice(o * d, o * d + s * (n - 1) + 1, s)
            for o, d, s, n in zip(offset, layer.dilation, layer.stride, out, strict=True)
        )
        rows: tuple[list[Tensor], list[Tensor]] = ([], [])
        for g in range(layer.groups):
            channels, outputs = (
                slice(g * per_in, (g + 1) * per_in),
                slice(g * per_out, (g + 1) * per_out),
            )
            a = [t[(slice(None), channels, *window)].unsqueeze(1) for t in (a_lo, a_hi)]
            w = [
                t[(outputs, slice(None), *offset)].reshape(1, per_out, per_in, *(1,) * len(out))
                for t in (w_lo, w_hi)
            ]
            for row, bound in zip(rows, product_bounds(*a, *w), strict=True):
                row.append(bound.sum(2))
        total = [t + torch.cat(row, 1) for t, row in zip(total, rows, strict=True)]
    if layer.bias is not None:
        shape = (-1, *(1,) * len(out))
        bias_radius = layer.bias_radius.clamp_min(0)
        total[0] = total[0] + (layer.bias - bias_radius).view(shape)
        total[1] = total[1] + (layer.bias + bias_radius).view(shape)
    return total[0], total[1]


def affine_bounds(layer: torch.nn.Module, x: Interval) -> tuple[Tensor, Tensor]:
    """Exact bounds of a linear or convolutional layer, computed for each element of the product."""
    if isinstance(layer, torch.nn.Linear):
        weight = Interval(layer.weight - layer.weight_radius, layer.weight + layer.weight_radius)
        bias = (
            None
            if layer.bias is None
            else Interval(layer.bias - layer.bias_radius, layer.bias + layer.bias_radius)
        )
        return linear_bounds(x, weight, bias)
    batch = x if x.ndim == layer.weight.ndim else x.unsqueeze(0)
    lower, upper = conv_bounds(batch, layer)
    return (lower, upper) if x.ndim == layer.weight.ndim else (lower[0], upper[0])


def members(x: Interval, generator: torch.Generator, count: int) -> Iterator[Tensor]:
    """Members of an interval: both ends, random corners, random inner points."""
    yield x.lower
    yield x.upper
    for i in range(count):
        share = torch.rand(x.shape, generator=generator, dtype=x.dtype)
        yield x.lower + (share.round() if i % 2 else share) * x.width


def member_parameters(
    module: torch.nn.Module, generator: torch.Generator, corner: bool
) -> dict[str, Tensor]:
    """Parameters of an ordinary network inside the intervals of ``module``, under the same names."""
    drawn = {}
    for path, layer in module.named_modules():
        prefix = f"{path}." if path else ""
        if isinstance(layer, IntervalParameters):
            for name, center, radius in (
                ("weight", layer.weight, layer.weight_radius),
                ("bias", layer.bias, layer.bias_radius),
            ):
                if center is not None:
                    share = (
                        torch.rand(center.shape, generator=generator, dtype=center.dtype) * 2 - 1
                    )
                    share = share.sign() if corner else share
                    drawn[prefix + name] = center.detach() + share * radius.detach().clamp_min(0)
    return drawn


def member_outputs(
    interval_module: torch.nn.Module,
    ordinary: torch.nn.Module,
    x: Interval,
    generator: torch.Generator,
    count: int = 20,
) -> Iterator[Tensor]:
    """Outputs of ordinary networks whose weights and inputs lie inside the intervals, corners included."""
    for i, value in enumerate(members(x, generator, count)):
        parameters = member_parameters(interval_module, generator, corner=i % 3 == 0)
        yield functional_call(ordinary, parameters, (value,))


def assert_contains(bounds: Interval, value: Tensor, tolerance: float = 1e-9) -> None:
    """Containment up to rounding, with the worst violation in the message."""
    scale = tolerance * (1 + bounds.lower.abs().amax() + bounds.upper.abs().amax())
    worst = torch.maximum(bounds.lower - value, value - bounds.upper).amax()
    assert worst <= scale, f"a member leaves the bounds by {worst.item():.3g}"


def grid_range(
    function: Callable[[Tensor], Tensor], lower: float, upper: float, steps: int = 20001
) -> tuple[float, float]:
    """Compute the range of a scalar function over an interval on a fine grid, which is an inner bound."""
    values = function(torch.linspace(lower, upper, steps, dtype=torch.float64))
    return values.min().item(), values.max().item()
