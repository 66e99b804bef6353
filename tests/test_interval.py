"""Tests of the arithmetic, the shapes and the transforms of intervals."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils.data import DataLoader

import reference
from creinn.interval import Interval, as_interval, cat, stack

finite = st.floats(-1e6, 1e6, allow_nan=False, width=64)


def interval(a: list[float], b: list[float]) -> Interval:
    x, y = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    return Interval(torch.minimum(x, y), torch.maximum(x, y))


four = st.lists(finite, min_size=4, max_size=4)
intervals = st.builds(interval, four, four)


@given(intervals, intervals, st.floats(0, 1), st.floats(0, 1))
def test_arithmetic_contains_every_member(x: Interval, y: Interval, s: float, t: float) -> None:
    a, b = x.lower + s * x.width, y.lower + t * y.width
    for result, value in [
        (x + y, a + b),
        (x - y, a - b),
        (x * y, a * b),
        (-x, -a),
        (3 - x, 3 - a),
        (-2 * x, -2 * a),
        (x / -4, a / -4),
    ]:
        reference.assert_contains(result, value)


@given(intervals, intervals)
def test_arithmetic_is_exact(x: Interval, y: Interval) -> None:
    lower, upper = reference.product_bounds(x.lower, x.upper, y.lower, y.upper)
    assert_close((x * y).lower, lower)
    assert_close((x * y).upper, upper)
    assert_close((x - y).lower, x.lower - y.upper)
    assert_close((x - y).upper, x.upper - y.lower)
    signed = torch.tensor([1.0, -1.0, 0.0, 2.0], dtype=torch.float64)
    assert_close((x * signed).lower[1], -x.upper[1])


def test_arithmetic_by_hand() -> None:
    x, y = Interval([1.0, -1.0], [2.0, 3.0]), Interval([0.0, -2.0], [1.0, 1.0])
    assert (x + y).lower.tolist() == [1, -3]
    assert (x - y).upper.tolist() == [2, 5]
    assert (x * y).lower.tolist() == [0, -6]  # -1..3 times -2..1: least is 3 * -2
    assert (x * y).upper.tolist() == [2, 3]
    assert (x / -2).lower.tolist() == [-1, -1.5]


def test_center_and_radius() -> None:
    x = Interval.from_center_radius(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.0]))
    assert x.lower.tolist() == [0.5, -2.0]
    assert x.upper.tolist() == [1.5, -2.0]
    assert x.center.tolist() == [1.0, -2.0]
    assert x.radius.tolist() == [0.5, 0.0]
    assert x.width.tolist() == [1.0, 0.0]


def test_flags() -> None:
    x = Interval(torch.zeros(2, 3), torch.ones(2, 3))
    assert x.nonnegative
    assert (x + x).nonnegative
    assert (2 * x).nonnegative
    assert x.mean(1).nonnegative
    assert not (-x).nonnegative
    assert not (x - 1).nonnegative
    assert not (-2 * x).nonnegative
    assert not (x * torch.tensor(-1.0)).nonnegative
    assert not Interval(-torch.ones(2), torch.ones(2)).nonnegative
    assert Interval.point(torch.ones(2)).is_point
    assert (Interval.point(torch.ones(2)) + 1).is_point
    assert not (Interval.point(torch.ones(2, 3)) + x).is_point
    assert not cat([x, -x]).nonnegative


@pytest.mark.parametrize("shape", [(), (4,), (3, 4), (2, 3, 4, 5)])
def test_packed_forms_equal_the_bounds(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(shape), torch.rand(shape)
    from_parts = Interval(a, a + b)
    for x in (
        Interval._of_bounds(from_parts.bounds),
        Interval._of_center_radius(from_parts.center_radius),
    ):
        assert_close(x.lower, a)
        assert_close(x.upper, a + b)
        assert_close(x.center, a + b / 2)
        assert_close(x.radius, b / 2)
        assert x.shape == shape
        assert x.ndim == len(shape)


def test_negative_radius_becomes_zero() -> None:
    x = Interval._of_center_radius(torch.tensor([[[1.0], [-1e-9]]]))
    assert x.radius.item() == 0
    assert x.lower.item() == x.upper.item() == 1.0


def test_shape_methods_equal_torch() -> None:
    t = torch.arange(24.0).reshape(2, 3, 4)
    x = Interval(t, t + 1)
    packed = Interval._of_bounds(x.bounds)
    for operation in (
        lambda v: v.flatten(1), lambda v: v.flatten(), lambda v: v.flatten(-2, -1),
        lambda v: v.reshape(4, 6), lambda v: v.transpose(0, 2),
        lambda v: v.permute(2, 0, 1), lambda v: v.unsqueeze(1), lambda v: v.unsqueeze(0).squeeze(0),
        lambda v: v.sum(1), lambda v: v.mean((1, 2)),
        lambda v: v[1], lambda v: v[:, 1:], lambda v: v[..., 0], lambda v: v[torch.tensor([1, 0])],
    ):  # fmt: skip
        for value in (x, packed):
            assert_close(operation(value).lower, operation(t))
            assert_close(operation(value).upper, operation(t + 1))
    assert len(x) == 2
    assert x.size() == t.size()
    assert x.size(1) == 3
    assert x.dim() == 3
    assert torch.equal(stack([x, x], 1).upper, torch.stack([t + 1, t + 1], 1))
    assert torch.equal(cat([x, t], 0).upper, torch.cat([t + 1, t], 0))


def test_moves_and_casts() -> None:
    x = Interval(torch.zeros(2), torch.ones(2)).to(torch.float64)
    assert x.dtype == torch.float64
    assert x.device == torch.device("cpu")
    assert x.to("meta").device.type == "meta"
    assert x.clone().detach().upper.tolist() == [1, 1]


def test_contains() -> None:
    x = Interval([0.0, 0.0], [1.0, 1.0])
    assert x.contains(torch.tensor([1.0, 1.1])).tolist() == [True, False]


def test_conversion_of_arrays_and_lists() -> None:
    assert Interval([0, 1], [1, 2]).dtype == torch.float32
    assert (
        Interval(torch.zeros(2).double().numpy(), torch.ones(2).double().numpy()).dtype
        == torch.float64
    )


def test_gradient_of_nonpositive_radii() -> None:
    pairs = torch.tensor([[[1.0, 1.0, 1.0], [-1e-9, 0.0, 2.0]]], requires_grad=True)
    for width in (lambda x: x.width, lambda x: 2 * x.radius):
        x = Interval._of_center_radius(pairs)
        assert width(x).tolist() == [[0, 0, 4]]
        (gradient,) = torch.autograd.grad(width(x).sum(), pairs)
        assert gradient.tolist() == [[[0, 0, 0], [2, 2, 2]]]


def test_gradients_flow_to_both_bounds() -> None:
    lower, upper = torch.zeros(3, requires_grad=True), torch.ones(3, requires_grad=True)
    x = Interval(lower, upper)
    assert x.requires_grad
    (2 * x.lower.sum() + 3 * x.width.sum()).backward()
    assert lower.grad.tolist() == [-1, -1, -1]
    assert upper.grad.tolist() == [3, 3, 3]


def test_vmap() -> None:
    x = Interval(torch.zeros(5, 3), torch.ones(5, 3))
    result = torch.func.vmap(lambda v: (v + 1) * v)(x)
    assert isinstance(result, Interval)
    assert result.shape == (5, 3)
    assert result.upper.unique().tolist() == [2.0]
    built = torch.func.vmap(lambda lo, hi: Interval(lo, hi).width)(x.lower, x.upper)
    assert built.unique().tolist() == [1.0]


def test_export() -> None:
    class Halve(torch.nn.Module):
        def forward(self, x: Interval) -> Interval:
            return Interval(x.lower, x.upper) * 0.5 - x

    x = Interval(torch.zeros(2, 3), torch.ones(2, 3))
    program = torch.export.export(Halve(), (x,))
    other = Interval(-torch.ones(2, 3), torch.ones(2, 3))
    assert_close(program.module()(other).lower, Halve()(other).lower)
    assert program.module()(other).lower.unique().tolist() == [-1.5]


def test_tree_map() -> None:
    x = Interval(torch.zeros(2), torch.ones(2))
    named = torch.utils._pytree.tree_map(lambda t: None, x)
    assert (named._parts, named.is_point) == ((None, None), False)
    leaves, _ = torch.utils._pytree.tree_flatten(Interval.point(torch.ones(2)))
    assert len(leaves) == 1


def test_data_loaders_stack_intervals() -> None:
    items = [(Interval(torch.full((3,), float(i)), torch.full((3,), i + 1.0)), i) for i in range(4)]
    x, y = next(iter(DataLoader(items, batch_size=4)))
    assert isinstance(x, Interval)
    assert x.shape == (4, 3)
    assert x.nonnegative
    assert torch.equal(x.upper[:, 0], y + 1.0)


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        ([0.0, 2.0], [1.0, 1.5], r"\[2, 1\.5\]"),
        ([[0.0], [float("nan")]], [[1.0], [1.0]], r"\(1, 0\)"),
        ([0.0], [float("nan")], "nan"),
        ([0.0], [float("inf")], "inf"),
        ([0.0, 1.0], [1.0], r"\[2\]"),
    ],
)
def test_invalid_bounds_raise(lower: list[float], upper: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Interval(torch.tensor(lower), torch.tensor(upper))


def test_invalid_arguments_raise() -> None:
    with pytest.raises(ValueError, match="float64"):
        Interval(torch.zeros(2), torch.ones(2).double())
    with pytest.raises(TypeError, match="int64"):
        Interval(torch.zeros(2, dtype=torch.int64), torch.ones(2))
    with pytest.raises(ValueError, match="-1"):
        Interval.from_center_radius(torch.zeros(2), torch.tensor([0.0, -1.0]))
    with pytest.raises(ValueError, match="radius"):
        Interval.from_center_radius(torch.zeros(2), torch.zeros(1))
    with pytest.raises(ValueError, match="nan"):
        Interval.point(torch.tensor([float("nan")]))
    with pytest.raises(TypeError, match="Expected an Interval or a tensor"):
        as_interval([1.0])
    with pytest.raises(TypeError, match="unsupported operand"):
        Interval([0.0], [1.0]) + "1"


def test_repr() -> None:
    assert repr(Interval([0.0], [1.0])) == "Interval(lower=tensor([0.]), upper=tensor([1.]))"
