"""Bounds of the product in C++ that hold in floating point, against rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from creinn import native
from creinn.native.library import LIBRARY
from creinn.rounding import row_bounds

pytestmark = pytest.mark.skipif(not native.available, reason=native.reason)

BEST = LIBRARY.creinn_best_level() if LIBRARY else -1
EXPONENTS = (-149, -130, -60, -25, -3, 0, 3, 40)
ROWS, OUTPUTS = 9, 2


def numbers(rng, *shape):
    """Float32 numbers of sizes that do not go together, some zero; of neighbours some cancel but for a rounding."""
    sizes = 2.0 ** rng.choice(EXPONENTS, shape) * rng.choice([0.0, 1.0], shape, p=[0.1, 0.9])
    values = torch.tensor(rng.standard_normal(shape) * sizes, dtype=torch.float32)
    if rng.random() < 0.5:
        values[..., 1::2] = -values[..., : values.shape[-1] // 2 * 2 : 2] * (1 + 2.0**-23)
    return values


def packed(center, radius, biases):
    """Rows as a layer packs them."""
    lower, upper, *shifts = row_bounds(center.double(), radius.double(), biases, torch.float32)
    return native.pack(lower, upper), torch.nn.functional.pad(torch.stack(shifts, 1), (0, 2))


def exact(tensor):
    return np.vectorize(Fraction, otypes=[object])(tensor.double().numpy())


def real_bounds(x, center, radius, bias, bias_radius, residual, relu):
    """Least and largest results ``(2, rows, outputs)`` of real numbers, from the four products of the ends."""
    low, high = exact(center)[None] - exact(radius)[None], exact(center)[None] + exact(radius)[None]
    a, b = (exact(t)[:, None] for t in x.unbind(1))
    ends = [w * t for w in (low, high) for t in (a, b)]
    least, most = np.minimum.reduce(ends).sum(-1), np.maximum.reduce(ends).sum(-1)
    d = exact(bias_radius)
    bounds = np.stack((least + exact(bias) - d, most + exact(bias) + d))
    bounds = bounds if residual is None else bounds + exact(residual).transpose(1, 0, 2)
    return np.maximum(bounds, Fraction(0)) if relu else bounds


@torch.no_grad()
@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.booleans(),
    st.booleans(),
    st.integers(0, BEST),
)
def test_bounds_contain_those_of_real_numbers(seed, count, relu, with_residual, level):
    rng = np.random.default_rng(seed)
    x = numbers(rng, ROWS, 2, count).abs().sort(1).values
    x[::2, 1] = x[::2, 0]  # points among them
    center, bias, bias_radius = (
        numbers(rng, OUTPUTS, count),
        numbers(rng, OUTPUTS),
        numbers(rng, OUTPUTS).abs(),
    )
    radius = numbers(rng, OUTPUTS, count).abs() if seed % 2 else torch.zeros_like(center)
    residual = numbers(rng, ROWS, 2, OUTPUTS).sort(1).values if with_residual else None
    others = None if residual is None else residual[..., None, None]
    weights, norm = packed(center, radius, (bias, bias_radius))
    y = native.product(
        x[..., None, None], weights, norm, native.Window(), others, False, relu, level, True
    )
    wanted = real_bounds(x, center, radius, bias, bias_radius, residual, relu)
    lower, upper = exact(y[..., 0, 0]).transpose(1, 0, 2)
    assert (lower <= wanted[0]).all()
    assert (upper >= wanted[1]).all()


def test_bounds_by_hand():
    # [1, 2] * [-1, 1] + [0, 3] * [2, 2] + [-1, -1] = [-2 + 0 - 1, 2 + 6 - 1], and [10, 20] is added: [7, 27]
    x = torch.tensor([1.0, 0.0, 2.0, 3.0]).view(1, 2, 2, 1, 1)
    weights, norm = packed(
        torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]]), (torch.tensor([-1.0]), None)
    )
    residual = torch.tensor([10.0, 20.0]).view(1, 2, 1, 1, 1)
    lower, upper = (
        native.product(x, weights, norm, native.Window(), residual, outward=True).flatten().tolist()
    )
    assert 7 - 3e-5 < lower < 7
    assert 27 < upper < 27 + 9e-5


@pytest.mark.parametrize("large", [1.0, -1.0])
@pytest.mark.parametrize("small", [2.0**-30, -(2.0**-30)])
def test_a_residual_that_swallows_the_sum(large, small):
    weights, norm = packed(torch.full((1, 1), small), torch.zeros(1, 1), (None, None))
    given = (
        torch.ones(1, 2, 1, 1, 1),
        weights,
        norm,
        native.Window(),
        torch.full((1, 2, 1, 1, 1), large),
    )
    lower, upper = native.product(*given, outward=True).flatten().tolist()
    assert lower < large + small < upper


@pytest.mark.parametrize("value", [1e30, -1e30])
def test_what_has_overflowed_is_kept(value):
    weights, norm = packed(torch.full((1, 1), value), torch.zeros(1, 1), (None, None))
    once = native.product(
        torch.full((1, 2, 1, 1, 1), 1e30), weights, norm, native.Window(), relu=True, outward=True
    )
    weights, norm = packed(torch.full((1, 1), -value), torch.zeros(1, 1), (None, None))
    twice = native.product(once, weights, norm, native.Window(), once, outward=True)
    assert not bool(torch.isfinite(once).any() or torch.isfinite(twice).any())
