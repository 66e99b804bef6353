"""The block product of non-negative intervals against four products on bounds, its derivatives, and what it keeps."""

import pytest
import torch
from benchmarks.speed.memory import saved_bytes
from hypothesis import given
from hypothesis import strategies as st

from creinn.nn._nonnegative import by_group, nonnegative_product, nonnegative_weight
from creinn.nn._operations import Convolution, Matrix

OPERATIONS = {
    "matrix": (Matrix(), (3, 4), (6, 4)),
    "conv1d": (Convolution((1,), (2,), (2,)), (2, 3, 6), (4, 3, 3)),
    "conv2d": (Convolution((2, 1), (1, 0), (1, 1)), (2, 3, 4, 3), (4, 3, 3, 2)),
    "conv2d in groups": (Convolution((1, 1), (1, 1), (1, 1), 2), (2, 4, 3, 3), (6, 2, 3, 3)),
    "conv3d": (Convolution((1, 1, 1), (0, 0, 0), (1, 1, 1)), (2, 2, 3, 2, 2), (3, 2, 2, 2, 2)),
}
cases = pytest.mark.parametrize("name", OPERATIONS)


def problem(name, seed=0, dtype=torch.float64):
    """Operation, centres and radii of an input >= 0, and those of weight and bias; some radii are below zero."""
    operation, rows, weights = OPERATIONS[name]
    generator = torch.Generator().manual_seed(seed)
    radius = torch.rand(rows, generator=generator, dtype=dtype)
    center = radius + torch.rand(rows, generator=generator, dtype=dtype)
    weight = torch.randn(weights, generator=generator, dtype=dtype)
    weight_radius = 2 * torch.rand(weights, generator=generator, dtype=dtype) - 0.2
    bias = torch.rand(2 * weights[0], generator=generator, dtype=dtype)
    moments = torch.stack((center, radius), 1)
    return operation, [t.requires_grad_() for t in (moments, weight, weight_radius, bias)]


def on_bounds(operation, moments, center, radius, bias):
    """(sim_full_o_lower_upper), term by term; the bias is that of centre and radius, group by group."""
    radius = radius - radius.detach().clamp_max(0)
    c, r = moments.unbind(1)
    low, high = c - r, c + r
    weight_low, weight_high = center - radius, center + radius
    bias_center, bias_radius = (t.flatten() for t in bias.view(operation.groups, 2, -1).unbind(1))
    lower = operation(low, weight_low.clamp_min(0)) + operation(
        high, weight_low.clamp_max(0), bias_center - bias_radius
    )
    upper = operation(high, weight_high.clamp_min(0)) + operation(
        low, weight_high.clamp_max(0), bias_center + bias_radius
    )
    return torch.stack(((lower + upper) / 2, (upper - lower) / 2), 1)


@cases
@given(st.integers(0, 10_000))
def test_values_and_gradients_are_those_of_four_products(name, seed):
    operation, tensors = problem(name, seed)
    found, expected = nonnegative_product(operation, *tensors), on_bounds(operation, *tensors)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(seed))
    for mine, theirs in zip(
        torch.autograd.grad((found * weights).sum(), tensors),
        torch.autograd.grad((expected * weights).sum(), tensors),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", ["matrix", "conv2d in groups"])
def test_derivatives_by_differences(name):
    operation, (moments, center, radius, bias) = problem(name)
    radius = radius.detach().abs().requires_grad_()

    def product(*tensors):
        return nonnegative_product(operation, *tensors)

    assert torch.autograd.gradcheck(product, (moments, center, radius, bias))
    assert torch.autograd.gradgradcheck(product, (moments, center, radius, bias))


def test_by_hand():
    # [1, 3] * [-1, 3] + [0, 1] = [-3, 10]
    moments, bias = torch.tensor([[[2.0], [1.0]]]), by_group(torch.tensor([0.5]), torch.tensor([0.5]), 1)
    found = nonnegative_product(Matrix(), moments, torch.tensor([[1.0]]), torch.tensor([[2.0]]), bias)
    assert found.flatten().tolist() == [3.5, 6.5]


def test_a_radius_below_zero_is_zero_and_not_dead():
    radius = torch.tensor([[-1.0]], requires_grad=True)
    moments = torch.tensor([[[2.0], [1.0]]])
    found = nonnegative_product(Matrix(), moments, torch.tensor([[1.0]]), radius)
    assert found.flatten().tolist() == [2.0, 1.0]
    (gradient,) = torch.autograd.grad(found[:, 1].sum(), radius)
    assert gradient.item() == 2.0  # that of W_r c


@cases
def test_nothing_is_kept_but_the_input_and_the_parameters(name):
    operation, tensors = problem(name)
    assert saved_bytes(lambda: nonnegative_product(operation, *tensors), tensors) == 0


def test_only_wanted_gradients_are_computed():
    operation, (moments, center, radius, _) = problem("conv2d")
    found = nonnegative_product(operation, moments.detach(), center.detach(), radius)
    assert torch.autograd.grad(found.sum(), radius)[0].shape == radius.shape
    found = nonnegative_product(operation, moments, center.detach(), radius.detach())
    assert torch.autograd.grad(found.sum(), moments)[0].shape == moments.shape


def test_under_vmap_and_jacobians():
    operation, (moments, center, radius, bias) = problem("matrix")

    def one(row, weight):
        return nonnegative_product(operation, row[None], weight, radius, bias)[0]

    each = torch.func.vmap(one, in_dims=(0, None))(moments, center)
    torch.testing.assert_close(each, nonnegative_product(operation, moments, center, radius, bias))
    jacobians = torch.func.vmap(torch.func.jacrev(one, 1), in_dims=(0, None))(moments, center)
    expected = torch.autograd.functional.jacobian(lambda w: one(moments[0], w), center)
    torch.testing.assert_close(jacobians[0], expected)


def test_mixed_precision_computes_in_the_narrow_dtype():
    operation, tensors = problem("matrix", dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = nonnegative_product(operation, *tensors)
    assert found.dtype == torch.bfloat16
    gradients = torch.autograd.grad(found.float().sum(), tensors)
    assert {gradient.dtype for gradient in gradients} == {torch.float32}
    exact = torch.autograd.grad(nonnegative_product(operation, *tensors).sum(), tensors)
    for narrow, wide in zip(gradients, exact, strict=True):
        torch.testing.assert_close(narrow, wide, rtol=0.05, atol=0.05)


@given(st.integers(0, 10_000))
def test_block_weight_is_that_of_the_bounds(seed):
    generator = torch.Generator().manual_seed(seed)
    center = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    radius = torch.rand(3, 5, dtype=torch.float64, generator=generator) * 2
    low, high = (center - radius).abs(), (center + radius).abs()
    expected = torch.cat((torch.cat((center, (high - low) / 2), 1), torch.cat((radius, (high + low) / 2), 1)))
    torch.testing.assert_close(nonnegative_weight(center, radius, 1), expected)
