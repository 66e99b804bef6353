"""Tests of the gradients and the memory of pooling layers."""

import pytest
import torch
from torch.testing import assert_close

from benchmarks.memory import saved_bytes
from creinn import nn as inn
from creinn.interval import Interval

LAYERS = {
    "MaxPool1d": ((2, 3, 8), (3,), {"stride": 2, "padding": 1}),
    "MaxPool2d": ((2, 3, 6, 5), (3,), {"stride": 2, "padding": 1, "ceil_mode": True}),
    "AdaptiveMaxPool1d": ((2, 3, 7), (3,), {}),
    "AdaptiveMaxPool2d": ((2, 3, 6, 5), ((2, 3),), {}),
    "AvgPool1d": ((2, 3, 8), (2,), {}),
    "AvgPool2d": ((2, 3, 6, 5), (3,), {"stride": 2, "padding": 1, "count_include_pad": False}),
    "AdaptiveAvgPool2d": ((2, 3, 6, 5), ((2, 3),), {}),
}


def random_pairs(shape):
    generator = torch.Generator().manual_seed(0)
    center = torch.randn(shape, generator=generator, dtype=torch.float64)
    return torch.stack(
        (center, torch.rand(shape, generator=generator, dtype=torch.float64)), 1
    ).requires_grad_()


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_equal_torch(name, batched):
    shape, args, kwargs = LAYERS[name]
    pairs = random_pairs(shape if batched else shape[1:])
    ordinary, layer = getattr(torch.nn, name)(*args, **kwargs), getattr(inn, name)(*args, **kwargs)
    found = layer(Interval._of_center_radius(pairs))
    center, radius = pairs.unbind(1)
    lower, upper = ordinary(center - radius), ordinary(center + radius)
    assert_close(found.lower, lower)
    assert_close(found.upper, upper)
    weights = torch.randn(
        2, *lower.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    mine, theirs = (
        torch.autograd.grad((a * weights[0] + b * weights[1]).sum(), pairs)[0]
        for a, b in ((found.lower, found.upper), (lower, upper))
    )
    assert_close(mine, theirs)


@pytest.mark.parametrize("name", LAYERS)
def test_saved_memory(name):
    shape, args, kwargs = LAYERS[name]
    pairs = random_pairs(shape)
    layer = getattr(inn, name)(*args, **kwargs)
    kept = saved_bytes(lambda: layer(Interval._of_center_radius(pairs)).center_radius, [pairs])
    places = layer(Interval._of_center_radius(pairs)).center_radius.numel() * torch.int32.itemsize
    assert kept == (places if "Max" in name else 0)


@pytest.mark.parametrize("name", [name for name in LAYERS if "Max" in name])
def test_maximum_of_infinite_values_is_nan(name):
    shape, args, kwargs = LAYERS[name]
    lower, upper = torch.zeros(shape), torch.ones(shape)
    lower[0, 0, 0] = upper[0, 0, 0] = -torch.inf
    result = getattr(inn, name)(*args, **kwargs)(Interval._of_parts(lower, upper))
    assert bool(result.lower[0, 0].isnan().any())
    assert bool(torch.isfinite(result.upper[1]).all())
