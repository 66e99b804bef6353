"""The product of intervals encloses the exact one for any sign, and the paper's errata by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from creinn.interval import Interval
from creinn.nn._operations import Matrix
from creinn.nn._product import _midpoint_radius, _sign_split, interval_affine

value = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 5e-324, -1e-300]), st.floats(-1e3, 1e3, allow_nan=False))
pairs = st.tuples(value, value).map(sorted)
boxes = st.integers(1, 4).flatmap(
    lambda n: st.tuples(st.lists(pairs, min_size=n, max_size=n), st.lists(pairs, min_size=n, max_size=n))
)


def as_tensor(rows: list[list[float]]) -> Interval:
    t = torch.tensor(rows, dtype=torch.float64)
    return Interval(t[:, 0].unsqueeze(0), t[:, 1].unsqueeze(0))


@given(boxes)
@settings(max_examples=400)
def test_encloses_the_exact_product_for_any_sign(box: tuple[list[list[float]], list[list[float]]]) -> None:
    x, w = (as_tensor(rows) for rows in box)
    lower, upper = reference.linear_bounds(x, w, None)
    result = interval_affine(Matrix(), x, w.center, w.radius)
    slack = 1e-9 * (1 + lower.abs() + upper.abs())
    assert bool((result.lower <= lower + slack).all())
    assert bool((result.upper >= upper - slack).all())
    straddles = (x.lower < 0) & (x.upper > 0) & (w.center.abs() < w.radius)
    if not bool(straddles.any()):
        torch.testing.assert_close(result.lower, lower, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(result.upper, upper, atol=1e-9, rtol=1e-9)


def test_both_enclosures_of_signed_intervals_are_needed() -> None:
    # [-1, 1] * [-1, 1] = [-1, 1]: the sign split adds both extremes.
    # [1, 2] * [1, 2] = [1, 4]: midpoint-radius reaches down to 0.5.
    both = Interval([[-1.0]], [[1.0]])
    c, r = torch.zeros(1, 1), torch.ones(1, 1)
    assert _sign_split(Matrix(), both, c - r, c + r, None).lower.item() == -2
    assert _midpoint_radius(Matrix(), both, c, r, None, None).lower.item() == -1
    assert interval_affine(Matrix(), both, c, r).lower.item() == -1
    positive = Interval([[1.0]], [[2.0]])
    c, r = torch.full((1, 1), 1.5), torch.full((1, 1), 0.5)
    assert _midpoint_radius(Matrix(), positive, c, r, None, None).lower.item() == pytest.approx(0.5)
    assert interval_affine(Matrix(), positive, c, r).lower.item() == pytest.approx(1.0)


def test_the_papers_errata_by_hand() -> None:
    # Errata 2 and 3: x = (1, -1), W = (-1, 1): the value is -2. x = -1, W = [1, 2]: the range is [-2, -1].
    point = interval_affine(Matrix(), Interval.point([[1.0, -1.0]]), torch.tensor([[-1.0, 1.0]]), torch.zeros(1, 2))
    assert (point.lower.item(), point.upper.item()) == (-2, -2)
    for x in (Interval.point([[-1.0]]), Interval([[-1.0]], [[-1.0]])):
        result = interval_affine(Matrix(), x, torch.tensor([[1.5]]), torch.tensor([[0.5]]))
        assert (result.lower.item(), result.upper.item()) == (-2, -1)
    # Erratum 1: a = [-2, -1], W = [1, 2] has the greatest product 1 * -1 = -1
    result = interval_affine(Matrix(), Interval([[-2.0]], [[-1.0]]), torch.tensor([[1.5]]), torch.tensor([[0.5]]))
    assert (result.lower.item(), result.upper.item()) == (-4, -1)


def test_the_nonnegative_fact_changes_no_bound() -> None:
    torch.manual_seed(0)
    x = Interval(torch.rand(5, 6).double(), 1 + torch.rand(5, 6).double())
    assert x.nonnegative
    w, r = torch.randn(4, 6).double(), torch.rand(4, 6).double()
    fast = interval_affine(Matrix(), x, w, r)
    slow = interval_affine(Matrix(), x.each(lambda t: t, nonnegative=False), w, r)
    torch.testing.assert_close(fast.lower, slow.lower)
    torch.testing.assert_close(fast.upper, slow.upper)


def test_one_block_product_per_layer() -> None:
    calls = []

    class Counted(Matrix):
        def __call__(self, *args: torch.Tensor) -> torch.Tensor:
            calls.append(args[1].shape)
            return super().__call__(*args)

    x = Interval(torch.zeros(2, 3), torch.ones(2, 3))
    interval_affine(Counted(), x, torch.ones(4, 3), torch.ones(4, 3))
    assert calls == [(8, 6)]


def test_rounding_never_turns_into_width() -> None:
    torch.manual_seed(0)
    x = torch.rand(8, 50) * 1e4
    w = torch.randn(20, 50)
    for argument in (Interval(x, x), Interval.point(x)):
        assert not interval_affine(Matrix(), argument, w, torch.zeros_like(w)).width.any()
