"""The steps on packed centres and radii against the same steps on bounds, and their derivatives."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from creinn.interval import Interval
from creinn.nn._moments import positive_radius, relu_moments
from creinn.numerics import magnitude


def moments_of(seed, dtype=torch.float64):
    """Intervals below, above and across zero, of width zero, and ones that end at zero."""
    generator = torch.Generator().manual_seed(seed)
    center = torch.randn(4, 7, dtype=dtype, generator=generator)
    radius = torch.rand(4, 7, dtype=dtype, generator=generator)
    radius[0], center[1] = 0, radius[1]
    center[2] = -radius[2]
    return torch.stack((center, radius), 1)


@given(st.integers(0, 10_000), st.sampled_from([torch.float32, torch.float64]))
def test_relu_is_that_of_both_bounds(seed, dtype):
    moments = moments_of(seed, dtype)
    center, radius = moments.unbind(1)
    found = Interval._of_moments(relu_moments(moments))
    torch.testing.assert_close(found.lower, (center - radius).relu())
    torch.testing.assert_close(found.upper, (center + radius).relu())
    assert (found.lower >= 0).all()


def test_a_radius_below_zero_by_rounding_counts_as_zero():
    found = relu_moments(torch.tensor([[[2.0, -1.0], [-1e-9, -1e-9]]]))
    assert found[:, 1].tolist() == [[0.0, 0.0]]


@given(st.integers(0, 10_000))
def test_gradient_of_relu_is_that_of_autograd_on_bounds(seed):
    moments = moments_of(seed).requires_grad_()
    weights = torch.randn(2, 4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    (found,) = torch.autograd.grad((relu_moments(moments).transpose(0, 1) * weights).sum(), moments)
    center, radius = moments.unbind(1)
    lower, upper = (center - radius).relu(), (center + radius).relu()
    (expected,) = torch.autograd.grad(
        (weights[0] * (lower + upper) / 2 + weights[1] * (upper - lower) / 2).sum(), moments
    )
    torch.testing.assert_close(found, expected)


def normed(moments, scale, shift):
    """An affine map of the radii, and their absolute value."""
    center, radius = moments.unbind(1)
    after = torch.stack((center, radius * scale + shift), 1)
    return positive_radius(after, moments.detach(), scale, shift)


def test_a_radius_of_zero_gets_a_gradient_through_its_magnitude():
    moments = torch.tensor([[[1.0, 1.0, 1.0], [-2.0, 0.0, 3.0]]], requires_grad=True)
    (found,) = torch.autograd.grad(normed(moments, torch.ones(3), torch.zeros(3)).sum(), moments)
    assert found.tolist() == [[[1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]]]


@given(st.integers(0, 10_000))
def test_magnitude_behind_a_norm_is_that_of_autograd(seed):
    generator = torch.Generator().manual_seed(seed)
    moments = moments_of(seed).requires_grad_()
    scale, shift = torch.randn(2, 7, dtype=torch.float64, generator=generator)
    weights = torch.randn(4, 2, 7, dtype=torch.float64, generator=generator)
    found = normed(moments, scale, shift)
    center, radius = moments.unbind(1)
    expected = torch.stack((center, magnitude(radius * scale + shift)), 1)
    torch.testing.assert_close(found, expected)
    mine, theirs = (torch.autograd.grad((t * weights).sum(), moments)[0] for t in (found, expected))
    torch.testing.assert_close(mine, theirs)


def test_relu_derivative_by_differences():
    moments = moments_of(5)[3:].clone().requires_grad_()
    assert torch.autograd.gradcheck(relu_moments, (moments,))
