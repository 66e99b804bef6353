"""Properties of all layers in tests/cases.py, such as containment and inclusion."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import reference
from cases import AFFINE, LAYERS, LayerCase
from creinn.interval import Interval, stack_axis
from creinn.nn.affine import IntervalParameters

# a warning of torch about copies
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
SIGNS = ["any", "nonnegative", "one-signed"]
by_name = pytest.mark.parametrize("case", LAYERS, ids=lambda c: c.name)


def pair(case: LayerCase, seed: int, radius: bool = True) -> tuple[nn.Module, nn.Module]:
    """The interval layer and its ordinary twin with the same centers and statistics, in eval mode."""
    torch.manual_seed(seed)
    interval, ordinary = case.interval(), case.ordinary()
    for tensor in ordinary.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand_like(tensor) * 2 - 0.5)
    if isinstance(ordinary, nn.modules.batchnorm._BatchNorm) and ordinary.running_var is not None:
        ordinary.running_var.abs_().add_(0.1)
    interval.load_state_dict(ordinary.state_dict(), strict=False)
    if isinstance(interval, IntervalParameters):
        for tensor in interval.radii().values():
            nn.init.uniform_(tensor, 0, 0.8) if radius else nn.init.zeros_(tensor)
    return interval.eval(), ordinary.eval()


@by_name
@pytest.mark.parametrize("sign", SIGNS)
def test_bounds_contain_all_members(case: LayerCase, sign: str) -> None:
    generator = torch.Generator().manual_seed(7)
    for seed in range(3):
        interval, ordinary = pair(case, seed)
        x = case.input(seed, sign)
        bounds = interval(x)
        for output in reference.member_outputs(interval, ordinary, x, generator):
            assert output.shape == bounds.shape
            reference.assert_contains(bounds, output)


@by_name
def test_bounds_of_points_contain_all_members(case: LayerCase) -> None:
    generator = torch.Generator().manual_seed(8)
    interval, ordinary = pair(case, 0)
    x = Interval.point(case.point(0))
    bounds = interval(x)
    for output in reference.member_outputs(interval, ordinary, x, generator):
        reference.assert_contains(bounds, output)


@by_name
def test_radius_zero_equals_the_ordinary_layer(case: LayerCase) -> None:
    interval, ordinary = pair(case, 1, radius=False)
    x = case.point(1)
    expected = ordinary(x)
    for argument in (
        x,
        Interval.point(x),
        Interval(x, x),
        Interval(x, x).map_monotone(lambda t: t, nonnegative=False),
    ):
        result = interval(argument)
        assert_close(result.lower, expected)
        assert_close(result.upper, expected)


@by_name
def test_inclusion_of_inputs_gives_inclusion_of_outputs(case: LayerCase) -> None:
    interval, _ = pair(case, 2)
    x = case.input(2)
    inner = Interval(x.lower + 0.3 * x.width, x.upper - 0.2 * x.width)
    outside, inside = interval(x), interval(inner)
    reference.assert_contains(outside, inside.lower)
    reference.assert_contains(outside, inside.upper)


@by_name
@pytest.mark.parametrize("sign", SIGNS)
def test_bounds_are_ordered_in_float32(case: LayerCase, sign: str) -> None:
    interval, _ = pair(case, 3, radius=False)  # widths of the size of rounding
    x = case.input(3, sign)
    thin = Interval(x.lower.float(), x.lower.float())
    result = interval.float()(thin)
    assert bool((result.lower <= result.upper).all())
    assert result.dtype == torch.float32


@by_name
def test_gradients_reach_the_input(case: LayerCase) -> None:
    interval, _ = pair(case, 4)
    x = case.input(4)
    lower, upper = x.lower.requires_grad_(), x.upper.requires_grad_()
    y = interval(Interval(lower, upper))
    (y.lower.sum() + 2 * y.upper.sum()).backward()
    assert all(torch.isfinite(t.grad).all() for t in (lower, upper))
    assert max(lower.grad.abs().max(), upper.grad.abs().max()) > 0


@by_name
@pytest.mark.parametrize("value", [-torch.inf, torch.inf, torch.nan])
@torch.no_grad()
def test_infinite_and_nan_inputs_do_not_become_finite(case: LayerCase, value: float) -> None:
    interval, _ = pair(case, 9)
    x = torch.full(case.shape, value, dtype=torch.float64)
    one = torch.ones(case.shape, dtype=torch.float64)
    pairs = torch.stack((x, one), stack_axis(x.ndim))
    for argument in (
        Interval._of_point(x),
        Interval._of_parts(x, x),
        Interval._of_center_radius(pairs),
    ):
        result = interval(argument)
        assert not bool((torch.isfinite(result.lower) & torch.isfinite(result.upper)).all())


@pytest.mark.parametrize("case", AFFINE, ids=lambda c: c.name)
@pytest.mark.parametrize("sign", SIGNS)
def test_affine_bounds_are_exact_if_signs_are_known(case: LayerCase, sign: str) -> None:
    interval, _ = pair(case, 5)
    if sign == "any":  # the inputs contain zero, so the weights do not
        interval.weight_radius.data.copy_(interval.weight.abs() * 0.9)
    x = case.input(5, sign)
    lower, upper = reference.affine_bounds(interval, x)
    result = interval(x)
    assert_close(result.lower, lower)
    assert_close(result.upper, upper)


@pytest.mark.parametrize("case", AFFINE, ids=lambda c: c.name)
def test_affine_bounds_are_exact_for_points_of_any_sign(case: LayerCase) -> None:
    interval, _ = pair(case, 6)
    x = case.point(6)
    lower, upper = reference.affine_bounds(interval, Interval(x, x))
    for argument in (x, Interval(x, x)):
        result = interval(argument)
        assert_close(result.lower, lower)
        assert_close(result.upper, upper)


@pytest.mark.parametrize("case", AFFINE, ids=lambda c: c.name)
def test_affine_bounds_are_at_most_twice_as_wide(
    case: LayerCase,
) -> None:
    interval, _ = pair(case, 7)
    x = case.input(7)
    lower, upper = reference.affine_bounds(interval, x)
    result = interval(x)
    assert bool((result.lower <= lower + 1e-9).all())
    assert bool((upper <= result.upper + 1e-9).all())
    assert bool((result.width <= 2 * (upper - lower) + 1e-9).all())


def test_zero_weight_radii_give_bound_propagation() -> None:
    for case in AFFINE:
        interval, ordinary = pair(case, 8, radius=False)
        x = case.input(8)
        mid = ordinary(x.center)
        absolute = pair(case, 8, radius=False)[1]
        for parameter in absolute.parameters():
            parameter.data.abs_()
        if absolute.bias is not None:
            absolute.bias.data.zero_()
        rad = absolute(x.radius)
        result = interval(x)
        assert_close(result.lower, mid - rad)
        assert_close(result.upper, mid + rad)
