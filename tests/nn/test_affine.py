"""Tests of convolutions with one output pixel, and of the padding modes."""

import pytest
import torch
from torch.testing import assert_close

from creinn import nn as inn
from creinn.interval import Interval
from creinn.nn._operations import Convolution
from creinn.nn._product import interval_affine
from creinn.nn.affine import one_pixel

ONE_PIXEL = {
    "one pixel, 3 x 3": ((2, 3, 1, 1), {"kernel_size": 3, "padding": 1}),
    "two by two, stride 2": ((2, 3, 2, 2), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "a part of the image": ((2, 3, 2, 2), {"kernel_size": 1, "stride": 2}),
    "the whole image": ((2, 3, 4, 3), {"kernel_size": (4, 3)}),
}


def interval_of(shape, kind):
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
    if kind == "point":
        return Interval.point(a - b)
    return Interval(a, a + b) if kind == "nonnegative" else Interval(a - 1, a + b - 0.5)


@pytest.mark.parametrize("kind", ["point", "nonnegative", "signed"])
@pytest.mark.parametrize("name", ONE_PIXEL)
def test_convolution_to_one_pixel(name, kind):
    shape, options = ONE_PIXEL[name]
    torch.manual_seed(0)
    layer = inn.Conv2d(3, 4, **options).double()
    layer.bias_radius.data.uniform_()
    assert one_pixel(layer, shape[2:]) is not None
    x = interval_of(shape, kind)
    found = layer(x)
    operation = Convolution(layer.stride, layer.padding, layer.dilation)
    expected = interval_affine(
        operation, x, layer.weight, layer.weight_radius, (layer.bias, layer.bias_radius)
    )
    assert found.shape == expected.shape == (2, 4, 1, 1)
    parameters = list(layer.parameters())
    for mine, theirs in ((found.lower, expected.lower), (found.upper, expected.upper)):
        assert_close(mine, theirs)
        for a, b in zip(
            torch.autograd.grad(mine.square().sum(), parameters, retain_graph=True),
            torch.autograd.grad(theirs.square().sum(), parameters, retain_graph=True),
            strict=True,
        ):
            assert_close(a, b)


# a warning of torch about the ordinary layer
@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("kind", ["point", "nonnegative", "signed"])
@pytest.mark.parametrize("padding_mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", ["same", "valid", (1, 2)])
def test_padding_equals_torch(padding, padding_mode, kind, batched):
    torch.manual_seed(0)
    options = {"padding": padding, "padding_mode": padding_mode, "dtype": torch.float64}
    # an even kernel: "same" pads more behind than in front
    layer = inn.Conv2d(2, 3, (2, 3), **options)
    x = interval_of((2, 2, 5, 6), kind)
    x = x if batched else x[0]
    ordinary = torch.nn.Conv2d(2, 3, (2, 3), **options)
    center, radius = layer.weight.detach(), layer.weight_radius.detach()

    def torch_conv(values, weight):
        ordinary.weight.data = weight
        ordinary.bias.data.zero_()
        return ordinary(values).detach()

    low, high = center - radius, center + radius
    if kind == "point":
        mid, rad = torch_conv(x.lower, center), torch_conv(x.lower.abs(), radius)
        lower, upper = mid - rad, mid + rad
    else:
        lower = torch_conv(x.lower, low.clamp_min(0)) + torch_conv(x.upper, low.clamp_max(0))
        upper = torch_conv(x.upper, high.clamp_min(0)) + torch_conv(x.lower, high.clamp_max(0))
    found = layer(x)
    if kind == "signed":
        member = torch_conv(x.center, center)
        assert found.shape == member.shape
        assert bool(found.contains(member).all())
    else:
        assert_close(found.lower, lower)
        assert_close(found.upper, upper)
