"""Gradients of convolutions with few output pixels, compared with those of torch."""

import pytest
import torch
from torch.testing import assert_close

from creinn import nn as inn
from creinn.interval import Interval
from creinn.nn._operations import Convolution

FEW_PIXELS = {  # operation, image, kernel
    "3x3 on 2x2": (Convolution((1, 1), (1, 1), (1, 1)), (2, 2), (3, 3)),
    "3x3 with stride 2": (Convolution((2, 2), (1, 1), (1, 1)), (4, 4), (3, 3)),
    "1x1 with stride 2": (Convolution((2, 2), (0, 0), (1, 1)), (4, 3), (1, 1)),
    "taps outside the image": (Convolution((2, 2), (3, 3), (1, 1)), (3, 1), (7, 7)),
    "dilation": (Convolution((2, 1), (1, 0), (1, 2)), (5, 3), (3, 2)),
    "one dimension": (Convolution((2,), (4,), (2,)), (9,), (3,)),
}


def problem(name):
    operation, image, kernel = FEW_PIXELS[name]
    torch.manual_seed(0)
    x = torch.randn(3, 64, *image, dtype=torch.float64)
    weight = torch.randn(65, 64, *kernel, dtype=torch.float64)
    return operation, x, weight, torch.randn_like(operation(x, weight))


@pytest.mark.parametrize("name", FEW_PIXELS)
def test_gradients_match_torch(name):
    operation, x, weight, gradient = problem(name)
    x.requires_grad_(), weight.requires_grad_()
    expected = torch.autograd.grad(operation(x, weight), (x, weight), gradient)
    for wanted in ((True, True), (True, False), (False, True)):
        found = operation._gradients_by_tap(gradient, x, weight, wanted)
        for result, reference, is_wanted in zip(found, expected, wanted, strict=True):
            assert_close(result, reference if is_wanted else None)


def test_gradients_under_vmap():
    operation, x, weight, gradient = problem("3x3 on 2x2")
    weights = torch.stack((weight, 2 * weight))

    def gradients(weight):
        return operation.gradients(gradient, x, weight, (True, True))

    found = torch.func.vmap(gradients)(weights)
    for index, weight in enumerate(weights):
        for batched, single in zip(found, gradients(weight), strict=True):
            assert_close(batched[index], single)


def test_memory_format_does_not_change_the_gradients():
    torch.manual_seed(0)
    layer = torch.nn.Sequential(inn.Conv2d(64, 64, 3, padding=1), inn.BatchNorm2d(64), inn.ReLU())
    x = Interval(low := torch.rand(2, 64, 4, 4), low + 1)
    found = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        layer.to(memory_format=memory_format).zero_grad()
        y = layer(x.map_monotone(lambda t, to=memory_format: t.contiguous(memory_format=to)))
        y.center_radius.square().sum().backward()
        assert y.center.flatten(1).shape == (2, 1024)
        found.append([y.center_radius, *(parameter.grad for parameter in layer.parameters())])
    for one, other in zip(*found, strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-4)
