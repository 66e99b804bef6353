"""Tests of the interval products: enclosure, errata of the paper, derivatives and memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import reference
from benchmarks.memory import saved_bytes
from creinn import nn as inn
from creinn.interval import Interval, stack_parts
from creinn.nn._operations import Convolution, Matrix
from creinn.nn._product import (
    NonnegativeProduct,
    PointProduct,
    RelativeProduct,
    _midpoint_radius,
    _sign_split,
    interval_affine,
    interval_product,
    nonnegative_weight,
)

value = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 5e-324, -1e-300]), st.floats(-1e3, 1e3, allow_nan=False)
)
pairs = st.tuples(value, value).map(sorted)
boxes = st.integers(1, 4).flatmap(
    lambda n: st.tuples(
        st.lists(pairs, min_size=n, max_size=n), st.lists(pairs, min_size=n, max_size=n)
    )
)


def as_tensor(rows: list[list[float]]) -> Interval:
    t = torch.tensor(rows, dtype=torch.float64)
    return Interval(t[:, 0].unsqueeze(0), t[:, 1].unsqueeze(0))


@given(boxes)
@settings(max_examples=400)
def test_encloses_the_exact_product_for_any_sign(
    box: tuple[list[list[float]], list[list[float]]],
) -> None:
    x, w = (as_tensor(rows) for rows in box)
    lower, upper = reference.linear_bounds(x, w, None)
    result = interval_affine(Matrix(), x, w.center, w.radius)
    slack = 1e-9 * (1 + lower.abs() + upper.abs())
    assert bool((result.lower <= lower + slack).all())
    assert bool((result.upper >= upper - slack).all())
    straddles = (x.lower < 0) & (x.upper > 0) & (w.center.abs() < w.radius)
    if not bool(straddles.any()):
        assert_close(result.lower, lower, atol=1e-9, rtol=1e-9)
        assert_close(result.upper, upper, atol=1e-9, rtol=1e-9)


def test_sign_split_and_midpoint_radius() -> None:
    # [-1, 1] * [-1, 1] = [-1, 1]: the sign split adds both extremes.
    # [1, 2] * [1, 2] = [1, 4]: midpoint-radius reaches down to 0.5.
    both = Interval([[-1.0]], [[1.0]])
    c, r = torch.zeros(1, 1), torch.ones(1, 1)
    assert _sign_split(Matrix(), both, c - r, c + r, (None, None)).lower.item() == -2
    assert _midpoint_radius(Matrix(), both, c, r, (None, None)).lower.item() == -1
    assert interval_affine(Matrix(), both, c, r).lower.item() == -1
    positive = Interval([[1.0]], [[2.0]])
    c, r = torch.full((1, 1), 1.5), torch.full((1, 1), 0.5)
    assert _midpoint_radius(Matrix(), positive, c, r, (None, None)).lower.item() == pytest.approx(
        0.5
    )
    assert interval_affine(Matrix(), positive, c, r).lower.item() == pytest.approx(1.0)


def test_errata_of_the_paper_by_hand() -> None:
    # Errata 2 and 3: x = (1, -1), W = (-1, 1): the value is -2. x = -1, W = [1, 2]: the range is [-2, -1].
    point = interval_affine(
        Matrix(), Interval.point([[1.0, -1.0]]), torch.tensor([[-1.0, 1.0]]), torch.zeros(1, 2)
    )
    assert (point.lower.item(), point.upper.item()) == (-2, -2)
    for x in (Interval.point([[-1.0]]), Interval([[-1.0]], [[-1.0]])):
        result = interval_affine(Matrix(), x, torch.tensor([[1.5]]), torch.tensor([[0.5]]))
        assert (result.lower.item(), result.upper.item()) == (-2, -1)
    # Erratum 1: a = [-2, -1], W = [1, 2] has the greatest product 1 * -1 = -1
    result = interval_affine(
        Matrix(), Interval([[-2.0]], [[-1.0]]), torch.tensor([[1.5]]), torch.tensor([[0.5]])
    )
    assert (result.lower.item(), result.upper.item()) == (-4, -1)


def test_nonnegative_flag_does_not_change_bounds() -> None:
    torch.manual_seed(0)
    x = Interval(torch.rand(5, 6).double(), 1 + torch.rand(5, 6).double())
    assert x.nonnegative
    w, r = torch.randn(4, 6).double(), torch.rand(4, 6).double()
    fast = interval_affine(Matrix(), x, w, r)
    slow = interval_affine(Matrix(), x.map_monotone(lambda t: t, nonnegative=False), w, r)
    assert_close(fast.lower, slow.lower)
    assert_close(fast.upper, slow.upper)


def test_one_block_product_per_layer() -> None:
    calls = []

    class Counted(Matrix):
        def __call__(self, *args: torch.Tensor) -> torch.Tensor:
            calls.append(args[1].shape)
            return super().__call__(*args)

    x = Interval(torch.zeros(2, 3), torch.ones(2, 3))
    interval_affine(Counted(), x, torch.ones(4, 3), torch.ones(4, 3))
    assert calls == [(8, 6)]


def test_points_have_width_zero() -> None:
    torch.manual_seed(0)
    x = torch.rand(8, 50) * 1e4
    w = torch.randn(20, 50)
    for argument in (Interval(x, x), Interval.point(x)):
        assert not interval_affine(Matrix(), argument, w, torch.zeros_like(w)).width.any()


# Each product is compared with a formula that is differentiated by autograd.


def point_product(operation, x, center, radius, biases=(None, None)):
    return interval_product(PointProduct(operation), biases, x, center, radius).center_radius


def nonnegative_product(operation, pairs, center, radius, biases=(None, None)):
    rule = NonnegativeProduct(operation)
    return interval_product(rule, biases, pairs, center, radius).center_radius


def relative_product(operation, pairs, weight, relative, biases=(None, None)):
    rule = RelativeProduct(operation)
    return interval_product(rule, biases, pairs, relative, weight).center_radius


OPERATIONS = {
    "matrix": (Matrix(), (3, 4), (6, 4)),
    "conv1d": (Convolution((1,), (2,), (2,)), (2, 3, 6), (4, 3, 3)),
    "conv2d": (Convolution((2, 1), (1, 0), (1, 1)), (2, 3, 4, 3), (4, 3, 3, 2)),
    "conv2d in groups": (Convolution((1, 1), (1, 1), (1, 1), 2), (2, 4, 3, 3), (6, 2, 3, 3)),
    "conv3d": (Convolution((1, 1, 1), (0, 0, 0), (1, 1, 1)), (2, 2, 3, 2, 2), (3, 2, 2, 2, 2)),
}
cases = pytest.mark.parametrize("name", OPERATIONS)


def of_points(operation, x, center, radius, biases):
    radius = radius - radius.detach().clamp_max(0)
    return torch.stack((operation(x, center, biases[0]), operation(x.abs(), radius, biases[1])), 1)


def of_nonnegative(operation, pairs, center, radius, biases):
    """(sim_full_o_lower_upper), term by term."""
    radius = radius - radius.detach().clamp_max(0)
    (c, r), (b, s) = pairs.unbind(1), biases
    low, high = center - radius, center + radius
    lower = operation(c - r, low.clamp_min(0)) + operation(c + r, low.clamp_max(0), b - s)
    upper = operation(c + r, high.clamp_min(0)) + operation(c - r, high.clamp_max(0), b + s)
    return torch.stack(((lower + upper) / 2, (upper - lower) / 2), 1)


def of_relative(operation, pairs, center, relative, biases):
    c, r = pairs.unbind(1)
    low, high = (c - r) * (1 - relative), (c + r) * (1 + relative)
    mid, rad = (low + high) / 2, (high - low) / 2
    return torch.stack(
        (operation(mid, center, biases[0]), operation(rad, center.abs(), biases[1])), 1
    )


PRODUCTS = {
    "points": (point_product, of_points),
    "nonnegative": (nonnegative_product, of_nonnegative),
    "relative": (relative_product, of_relative),
}
products = pytest.mark.parametrize("kind", PRODUCTS)


def problem(kind, name, seed=0, dtype=torch.float64):
    """Return an operation with its input, the centers and radii of the weights, and the biases."""
    operation, rows, weights = OPERATIONS[name]
    generator = torch.Generator().manual_seed(seed)
    a, b, relative = (
        torch.rand(s, generator=generator, dtype=dtype) for s in (rows, rows, (rows[1],))
    )
    x = a - b if kind == "points" else torch.stack((a + b, a), 1)  # no lower bound below 0
    center = torch.randn(weights, generator=generator, dtype=dtype)
    radius = 2 * torch.rand(weights, generator=generator, dtype=dtype) - 0.2
    if kind == "relative":
        radius = relative.view(-1, *(1,) * (len(rows) - 2))
    biases = torch.rand(2, weights[0], generator=generator, dtype=dtype)
    return operation, [t.requires_grad_() for t in (x, center, radius, biases)]


@cases
@products
@given(st.integers(0, 10_000))
def test_values_and_gradients_equal_the_formula(kind, name, seed):
    product, formula = PRODUCTS[kind]
    operation, tensors = problem(kind, name, seed)
    found, expected = product(operation, *tensors), formula(operation, *tensors)
    assert_close(found, expected)
    weights = torch.randn(
        found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(seed)
    )
    mine = torch.autograd.grad((found * weights).sum(), tensors)
    theirs = torch.autograd.grad((expected * weights).sum(), tensors)
    for a, b in zip(mine, theirs, strict=True):
        assert_close(a, b)


@products
@pytest.mark.parametrize("name", ["matrix", "conv2d in groups"])
def test_gradcheck(kind, name):
    operation, (x, center, radius, biases) = problem(kind, name)
    tensors = (x, center, radius.detach().abs().requires_grad_(), biases)
    product = PRODUCTS[kind][0]
    assert torch.autograd.gradcheck(
        lambda *given_tensors: product(operation, *given_tensors), tensors
    )
    assert torch.autograd.gradgradcheck(
        lambda *given_tensors: product(operation, *given_tensors), tensors
    )


def test_nonnegative_by_hand():
    # [1, 3] * [-1, 3] + [0, 1] = [-3, 10]
    pairs, biases = torch.tensor([[[2.0], [1.0]]]), torch.tensor([[0.5], [0.5]])
    found = nonnegative_product(
        Matrix(), pairs, torch.tensor([[1.0]]), torch.tensor([[2.0]]), biases
    )
    assert found.flatten().tolist() == [3.5, 6.5]


def test_points_and_relative_radii_by_hand():
    found = point_product(
        Matrix(), torch.tensor([[-2.0]]), torch.tensor([[3.0]]), torch.tensor([[1.0]])
    )
    assert found.flatten().tolist() == [-6.0, 2.0]
    pairs = torch.tensor([[[2.0], [1.0]]])  # [1, 3] * [1, 3] = [1, 9]
    found = relative_product(Matrix(), pairs, torch.tensor([[2.0]]), torch.tensor([0.5]))
    assert found.flatten().tolist() == [5.0, 4.0]


def test_negative_radius_has_a_gradient():
    radius = torch.tensor([[-1.0]], requires_grad=True)
    pairs = torch.tensor([[[2.0], [1.0]]])
    found = nonnegative_product(Matrix(), pairs, torch.tensor([[1.0]]), radius)
    assert found.flatten().tolist() == [2.0, 1.0]
    (gradient,) = torch.autograd.grad(found[:, 1].sum(), radius)
    assert gradient.item() == 2.0  # that of W_r c


@cases
@products
def test_only_inputs_and_parameters_are_saved(kind, name):
    operation, tensors = problem(kind, name)
    assert saved_bytes(lambda: PRODUCTS[kind][0](operation, *tensors), tensors) == 0


@products
def test_only_needed_gradients_are_computed(kind, monkeypatch):
    operation, (x, center, radius, _) = problem(kind, "conv2d")
    wanted, gradients = [], Convolution.gradients

    def watched(self, *args):
        wanted.append(args[-1])
        return gradients(self, *args)

    monkeypatch.setattr(Convolution, "gradients", watched)
    product = PRODUCTS[kind][0]
    found = product(operation, x.detach(), center, radius.detach())
    assert torch.autograd.grad(found.sum(), center)[0].shape == center.shape
    assert set(wanted) == {(False, True)}
    wanted.clear()
    found = product(operation, x, center.detach(), radius.detach())
    assert torch.autograd.grad(found.sum(), x)[0].shape == x.shape
    assert set(wanted) == {(True, False)}


@products
def test_vmap_and_jacobians(kind):
    operation, (x, center, radius, biases) = problem(kind, "matrix")
    product = PRODUCTS[kind][0]

    def one(row, weight):
        return product(operation, row[None], weight, radius, biases)[0]

    each = torch.func.vmap(one, in_dims=(0, None))(x, center)
    assert_close(each, product(operation, x, center, radius, biases))
    jacobians = torch.func.vmap(torch.func.jacrev(one, 1), in_dims=(0, None))(x, center)
    expected = torch.autograd.functional.jacobian(lambda w: one(x[0], w), center)
    assert_close(jacobians[0], expected)


@products
@pytest.mark.parametrize("name", ["matrix", "conv2d in groups"])
def test_mixed_precision(kind, name):
    operation, tensors = problem(kind, name, dtype=torch.float32)
    product = PRODUCTS[kind][0]
    exact = product(operation, *tensors)
    with torch.autocast("cpu", torch.bfloat16):
        found = product(operation, *tensors)
    assert found.dtype == torch.bfloat16
    assert_close(found.float(), exact, rtol=0.05, atol=0.05)
    gradients = torch.autograd.grad(found.float().sum(), tensors)
    assert {gradient.dtype for gradient in gradients} == {torch.float32}
    for narrow, wide in zip(gradients, torch.autograd.grad(exact.sum(), tensors), strict=True):
        assert_close(narrow, wide, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("bias", [True, False])
def test_signed_intervals_in_mixed_precision(bias):
    torch.manual_seed(0)
    layers = (inn.Conv2d(2, 3, 3, bias=bias), inn.Conv2d(3, 2, 3, bias=bias), inn.Flatten())
    network, x = torch.nn.Sequential(*layers, inn.Linear(8, 2)), torch.randn(3, 2, 6, 6)
    for box in (x, Interval(x - 0.5, x + 0.5)):
        with torch.autocast("cpu", torch.bfloat16):
            found = network(box)
        found.upper.float().sum().backward()
        assert_close(found.upper.float(), network(box).upper, rtol=0.1, atol=0.1)


@given(st.integers(0, 10_000))
def test_nonnegative_weight_equals_the_bounds(seed):
    generator = torch.Generator().manual_seed(seed)
    center = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    radius = torch.rand(3, 5, dtype=torch.float64, generator=generator) * 2
    low, high = (center - radius).abs(), (center + radius).abs()
    expected = torch.cat(
        (torch.cat((center, (high - low) / 2), 1), torch.cat((radius, (high + low) / 2), 1))
    )
    assert_close(nonnegative_weight(center, radius, 1), expected)


@pytest.mark.parametrize("kernel", [1, 3])
def test_blocks_are_contiguous_for_any_memory_format(kernel):
    images = torch.rand(4, 3, kernel, kernel).to(memory_format=torch.channels_last)
    assert nonnegative_weight(images, images, 1).is_contiguous()
    assert stack_parts(images, images).is_contiguous()


SIDES = [(low, high) for low in (-1.0, 0.0, 1.0) for high in (-1.0, 0.0, 1.0) if low <= high]


@pytest.mark.parametrize("weight", SIDES)
@pytest.mark.parametrize("side", SIDES)
def test_derivative_of_growing_intervals(side, weight):
    """The derivative of ``torch.clamp`` at a bound would be wrong here."""

    def bounds(of_input, of_weight):  # by which each grows
        x = Interval._of_parts(side[0] - of_input, side[1] + of_input)
        y = _sign_split(Matrix(), x, weight[0] - of_weight, weight[1] + of_weight, (None, None))
        return torch.cat((y.lower, y.upper))

    start = torch.zeros(2, 1, 1, dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(lambda grown: bounds(*grown), start).reshape(2, 2)
    for which, slope in enumerate(slopes.T):
        step = start.clone()
        step[which] = 0.25  # this step does not change the sign of a bound
        difference = (bounds(*step) - bounds(*start)).flatten() / 0.25
        assert_close(slope, difference)
