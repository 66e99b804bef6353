"""Activations against rigorous balls of python-flint; ReLU of center and radius against that of the bounds."""

import flint
import pytest
import torch
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import reference
from creinn import nn as inn
from creinn.interval import Interval


def _erf_gelu(x: arb) -> arb:
    return x * (1 + (x / arb(2).sqrt()).erf()) / 2


def _tanh_gelu(x: arb) -> arb:
    return x * (1 + ((2 / arb.pi()).sqrt() * (x + arb("0.044715") * x**3)).tanh()) / 2


def _sigmoid(x: arb) -> arb:
    return 1 / (1 + (-x).exp())


def _hinge(x: arb) -> arb:
    return x.max(arb(0))


VALLEYS = {
    "gelu": (inn.GELU(), _erf_gelu),
    "gelu-tanh": (inn.GELU("tanh"), _tanh_gelu),
    "silu": (inn.SiLU(), lambda x: x * _sigmoid(x)),
    "mish": (inn.Mish(), lambda x: x * (1 + x.exp()).log().tanh()),
    "hardswish": (inn.Hardswish(), lambda x: x * (x + 3).max(arb(0)).min(arb(6)) / 6),
}
MONOTONE = {
    "relu": (inn.ReLU(), _hinge),
    "relu6": (inn.ReLU6(), lambda x: _hinge(x).min(arb(6))),
    "leaky": (inn.LeakyReLU(0.25), lambda x: x.max(x / 4)),
    "elu": (inn.ELU(0.5), lambda x: _hinge(x) + (x.min(arb(0)).exp() - 1) / 2),
    "selu": (
        inn.SELU(),
        lambda x: (
            arb("1.0507009873554805")
            * (_hinge(x) + arb("1.6732632423543772") * (x.min(arb(0)).exp() - 1))
        ),
    ),
    "softplus": (inn.Softplus(2.0), lambda x: (1 + (2 * x).exp()).log() / 2),
    "sigmoid": (inn.Sigmoid(), _sigmoid),
    "tanh": (inn.Tanh(), lambda x: x.tanh()),
    "hardtanh": (inn.Hardtanh(-0.5, 0.75), lambda x: x.max(arb(-0.5)).min(arb(0.75))),
}
ends = st.tuples(st.floats(-30, 30), st.floats(-30, 30)).map(sorted)


def ball(function, low: float, high: float) -> arb:
    """Return a ball that contains all values of the function between two numbers."""
    return function(arb(low).union(arb(high)))


@pytest.mark.parametrize("name", [*VALLEYS, *MONOTONE])
@given(ends=ends)
@settings(max_examples=60)
def test_range_is_exact(name: str, ends: tuple[float, float]) -> None:
    layer, function = {**VALLEYS, **MONOTONE}[name]
    low, high = ends
    result = layer(
        Interval(
            torch.tensor([low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64)
        )
    )
    lower, upper = result.lower.item(), result.upper.item()
    slack = 1e-12 * max(1.0, abs(low), abs(high))
    slack += 2e-9 if name == "softplus" else 0  # torch returns x above the threshold
    for i in range(33):  # no member leaves
        value = float(function(arb(low + (high - low) * i / 32)).mid())
        assert lower - slack <= value <= upper + slack
    bottom = min(max(getattr(layer, "_bottom", low), low), high)
    # the minimum is at a bound or at the bottom
    assert lower >= float(function(arb(bottom)).lower()) - slack
    assert (
        upper <= max(float(function(arb(low)).upper()), float(function(arb(high)).upper())) + slack
    )


@given(
    *(st.floats(0.1, 5), st.floats(-3, 4)),
    *(st.floats(-1, 1, width=32), st.sampled_from([0.0, 1e-3, 0.05, 2.0])),
)
def test_softplus_range_includes_the_jump(beta, threshold, offset, width):
    low = threshold / beta + offset * width
    x = Interval(*(torch.tensor([t], dtype=torch.float64) for t in (low, low + width)))
    result = inn.Softplus(beta, threshold)(x)
    least, greatest = reference.grid_range(torch.nn.Softplus(beta, threshold), low, low + width)
    assert result.lower.item() == pytest.approx(least, abs=1e-4 * width + 1e-12)
    assert result.upper.item() == pytest.approx(greatest, abs=1e-4 * width + 1e-12)
    assert result.lower.item() <= least + 1e-12
    assert greatest <= result.upper.item() + 1e-12
    assert not result.nonnegative or result.lower.item() >= 0


@pytest.mark.parametrize("name", VALLEYS)
def test_minimum_of_each_valley_function(name: str) -> None:
    layer, function = VALLEYS[name]
    with flint.ctx.workprec(200):
        bottom = layer._bottom
        step = arb("1e-12")
        assert function(arb(bottom) - 2 * step) > function(arb(bottom))
        assert function(arb(bottom) + 2 * step) > function(arb(bottom))


def test_activations_by_hand() -> None:
    x = Interval([-2.0], [1.0])
    assert (inn.ReLU()(x).lower.item(), inn.ReLU()(x).upper.item()) == (0.0, 1.0)
    assert inn.LeakyReLU(0.5)(x).lower.item() == -1.0
    assert inn.SiLU()(x).lower.item() == pytest.approx(-0.278465, abs=1e-6)
    assert inn.GELU()(x).lower.item() == pytest.approx(-0.169971, abs=1e-6)
    assert inn.Hardswish()(x).lower.item() == pytest.approx(-0.375)
    # falls there
    assert inn.SiLU()(Interval([-9.0], [-5.0])).upper.item() == pytest.approx(
        -9 / (1 + 8103.083927575384)
    )


def test_nonnegative_flag() -> None:
    x, positive = Interval(-torch.ones(3), torch.ones(3)), Interval(torch.zeros(3), torch.ones(3))
    for layer in (inn.ReLU(), inn.ReLU6(), inn.Sigmoid(), inn.Softplus(), inn.Hardtanh(0.0, 1.0)):
        assert layer(x).nonnegative
    for layer in (
        inn.Tanh(),
        inn.ELU(),
        inn.SELU(),
        inn.LeakyReLU(),
        inn.GELU(),
        inn.SiLU(),
        inn.Hardtanh(),
    ):
        assert not layer(x).nonnegative
        assert layer(positive).nonnegative
        assert bool((layer(positive).lower >= 0).all())
    assert not inn.Hardtanh(-2.0, -1.0)(positive).nonnegative
    assert not inn.Softplus(1.0, -2.0)(x).nonnegative  # torch gives -1 at -1
    assert inn.Softplus(1.0, -2.0)(positive).nonnegative


@pytest.mark.parametrize("name", MONOTONE)
def test_bounds_of_points_are_ordered(name: str) -> None:
    # With an odd number of columns, vectorized and scalar instructions compute the two bounds.
    torch.manual_seed(0)
    for columns in range(1, 80):
        x = 3 * torch.randn(40, columns)
        y = MONOTONE[name][0](Interval(x, x))
        assert bool((y.lower <= y.upper).all()), columns


def test_non_monotone_functions_raise() -> None:
    with pytest.raises(ValueError, match="negative_slope"):
        inn.LeakyReLU(-0.1)
    with pytest.raises(ValueError, match="alpha"):
        inn.ELU(-1.0)
    with pytest.raises(ValueError, match="beta"):
        inn.Softplus(-1)


@pytest.mark.parametrize(
    "layer",
    [
        inn.ReLU,
        inn.ReLU6,
        inn.SELU,
        inn.ELU,
        inn.LeakyReLU,
        inn.Hardtanh,
        inn.SiLU,
        inn.Mish,
        inn.Hardswish,
    ],
)
def test_inputs_are_not_modified(layer: type[torch.nn.Module]) -> None:
    value = torch.tensor([[-1.0, 2.0]])
    x = Interval(value, value + 1)
    layer(inplace=True)(x)
    layer(inplace=True)(value)
    assert value.tolist() == [[-1.0, 2.0]]
    assert x.bounds.tolist() == [[[-1.0, 2.0], [0.0, 3.0]]]


# ReLU on center and radius.


def random_pairs(seed, dtype=torch.float64):
    """Return negative, positive and mixed intervals, and intervals of width zero."""
    generator = torch.Generator().manual_seed(seed)
    center = torch.randn(4, 7, dtype=dtype, generator=generator)
    radius = torch.rand(4, 7, dtype=dtype, generator=generator)
    radius[0], center[1] = 0, radius[1]
    center[2] = -radius[2]
    return torch.stack((center, radius), 1)


@given(st.integers(0, 10_000), st.sampled_from([torch.float32, torch.float64]))
def test_relu_of_center_and_radius_equals_relu_of_bounds(seed, dtype):
    pairs = random_pairs(seed, dtype)
    center, radius = pairs.unbind(1)
    found = inn.ReLU()(Interval._of_center_radius(pairs))
    assert_close(found.lower, (center - radius).relu())
    assert_close(found.upper, (center + radius).relu())
    assert (found.lower >= 0).all()


def test_relu_clamps_negative_radii():
    found = inn.ReLU()(
        Interval._of_center_radius(torch.tensor([[[2.0, -1.0], [-1e-9, -1e-9]]]))
    ).center_radius
    assert found[:, 1].tolist() == [[0.0, 0.0]]


@given(st.integers(0, 10_000))
def test_relu_gradient_equals_autograd(seed):
    pairs = random_pairs(seed).requires_grad_()
    weights = torch.randn(
        2, 4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1)
    )
    (found,) = torch.autograd.grad(
        (
            inn.ReLU()(Interval._of_center_radius(pairs)).center_radius.transpose(0, 1) * weights
        ).sum(),
        pairs,
    )
    center, radius = pairs.unbind(1)
    lower, upper = (center - radius).relu(), (center + radius).relu()
    (expected,) = torch.autograd.grad(
        (weights[0] * (lower + upper) / 2 + weights[1] * (upper - lower) / 2).sum(), pairs
    )
    assert_close(found, expected)


def test_relu_gradcheck():
    pairs = random_pairs(5)[3:].clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda t: inn.ReLU()(Interval._of_center_radius(t)).center_radius, (pairs,)
    )
