"""Two products of points, and products of relative radii: against plain formulas under autograd, and what they keep."""

import pytest
import torch
from benchmarks.speed.memory import saved_bytes
from hypothesis import given
from hypothesis import strategies as st

from creinn.nn._operations import Convolution, Matrix
from creinn.nn._points import point_product
from creinn.nn._widening import relative_product

OPERATIONS = {
    "matrix": (Matrix(), (3, 4), (5, 4)),
    "conv2d": (Convolution((2, 1), (1, 0), (1, 1)), (2, 3, 4, 3), (4, 3, 3, 2)),
    "conv2d in groups": (Convolution((1, 1), (1, 1), (1, 1), 2), (2, 4, 3, 3), (6, 2, 3, 3)),
}
cases = pytest.mark.parametrize("name", OPERATIONS)


def draw(name, seed, nonnegative=False):
    """Operation, batch, weight centres and radii, relative radii, biases."""
    operation, rows, weights = OPERATIONS[name]
    generator = torch.Generator().manual_seed(seed)
    shapes = (rows, rows, weights, weights, (rows[1], *(1,) * (len(rows) - 2)), weights[:1], weights[:1])
    x, r, center, radius, relative, bias, bias_radius = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    )
    radius, bias_radius, r = radius.abs(), bias_radius.abs(), r.abs()
    moments = torch.stack((r + x.abs(), r), 1)
    tensors = {"x": x, "moments": moments, "center": center, "radius": radius, "relative": relative.sigmoid()}
    tensors |= {"bias": bias, "bias_radius": bias_radius}
    return operation, {key: t.requires_grad_() for key, t in tensors.items()}


def of_points(operation, x, center, radius, bias, bias_radius):
    return torch.stack((operation(x, center, bias), operation(x.abs(), radius, bias_radius)), 1)


def of_relative(operation, moments, center, relative, bias, bias_radius):
    c, r = moments.unbind(1)
    low, high = (c - r) * (1 - relative), (c + r) * (1 + relative)
    mid, rad = (low + high) / 2, (high - low) / 2
    return torch.stack((operation(mid, center, bias), operation(rad, center.abs(), bias_radius)), 1)


PRODUCTS = {
    "points": (point_product, of_points, ("x", "center", "radius", "bias", "bias_radius")),
    "relative": (relative_product, of_relative, ("moments", "center", "relative", "bias", "bias_radius")),
}
products = pytest.mark.parametrize("kind", PRODUCTS)


@cases
@products
@given(st.integers(0, 10_000))
def test_values_and_gradients_are_those_of_the_formula(kind, name, seed):
    product, formula, names = PRODUCTS[kind]
    operation, tensors = draw(name, seed)
    given_tensors = [tensors[key] for key in names]
    found, expected = product(operation, *given_tensors), formula(operation, *given_tensors)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(seed))
    mine = torch.autograd.grad((found * weights).sum(), given_tensors)
    theirs = torch.autograd.grad((expected * weights).sum(), given_tensors)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


@cases
@products
def test_nothing_is_kept_but_the_input_and_the_parameters(kind, name):
    product, _, names = PRODUCTS[kind]
    operation, tensors = draw(name, 0)
    assert saved_bytes(lambda: product(operation, *(tensors[key] for key in names)), tensors.values()) == 0


@products
def test_derivatives_of_derivatives(kind):
    product, _, names = PRODUCTS[kind]
    operation, tensors = draw("conv2d in groups", 1)
    assert torch.autograd.gradgradcheck(
        lambda *given_tensors: product(operation, *given_tensors), [tensors[key] for key in names]
    )


@products
def test_mixed_precision(kind):
    product, _, names = PRODUCTS[kind]
    operation, tensors = draw("matrix", 2)
    narrow = [tensors[key].detach().float().requires_grad_() for key in names]
    exact = product(operation, *narrow)
    with torch.autocast("cpu", torch.bfloat16):
        found = product(operation, *narrow)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, rtol=0.05, atol=0.05)
    gradients = torch.autograd.grad(found.float().sum(), narrow)
    assert {gradient.dtype for gradient in gradients} == {torch.float32}
    for a, b in zip(gradients, torch.autograd.grad(exact.sum(), narrow), strict=True):
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.1)
