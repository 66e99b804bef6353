"""Tests of the numerical functions by ball arithmetic, and of their gradients."""

import math

import flint
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import credal_cases
import reference_credal
from creinn.numerics import entropy, first_index, logsumexp_others, magnitude, widen, xlogx


def test_magnitude_has_gradient_one_at_zero():
    x = torch.tensor([-2.0, -0.0, 0.0, 3.0], requires_grad=True)
    magnitude(x).sum().backward()
    assert magnitude(x).tolist() == [2, 0, 0, 3]
    assert x.grad.tolist() == [-1, 1, 1, 1]


@credal_cases.seeded()
@given(st.floats(0, 1))
def test_xlogx_matches_ball_arithmetic(x):
    expected = pytest.approx(reference_credal.exact_xlogx(x), rel=1e-14, abs=1e-300)
    assert xlogx(torch.tensor(x, dtype=torch.float64)).item() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_xlogx_at_zero(dtype):
    x = torch.tensor([0.0, 0.25], dtype=dtype, requires_grad=True)
    xlogx(x).sum().backward()
    assert xlogx(x)[0].item() == 0
    assert torch.isfinite(x.grad).all()
    assert x.grad[0].item() == pytest.approx(math.log(torch.finfo(dtype).tiny))
    assert x.grad[1].item() == pytest.approx(-0.386294, abs=1e-5)  # ln(1/4) + 1


def test_entropy_by_hand():
    q = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    assert entropy(q).tolist() == pytest.approx([1.5, 0.0, 1.0])


def test_entropy_gradient_of_saturated_softmax_is_finite():
    logits = torch.tensor([0.0, 500.0, -500.0], requires_grad=True)
    entropy(logits.softmax(-1)).backward()
    assert torch.isfinite(logits.grad).all()


@credal_cases.seeded()
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=6))
def test_logsumexp_others_matches_ball_arithmetic(values):
    pivot, remainder = logsumexp_others(torch.tensor(values, dtype=torch.float32))
    for k in range(len(values)):
        others = [flint.arb(v) for j, v in enumerate(values) if j != k]
        exact = sum((v.exp() for v in others), flint.arb(0)).log() - flint.arb(pivot[k].item())
        assert pivot[k].item() == max(v for j, v in enumerate(values) if j != k)
        assert remainder[k].item() == pytest.approx(float(exact.mid()), abs=1e-6)


def test_logsumexp_others_gradient_is_softmax_of_the_others():
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[0] = 1.0  # all tied
    x[1, :2] = 4.0  # two on top
    assert torch.autograd.gradcheck(lambda v: sum(logsumexp_others(v)), x.requires_grad_())


def test_logsumexp_others_has_finite_gradients_at_huge_logits():
    x = torch.tensor([1e4, -1e4, 1e4, 0.0], requires_grad=True)
    sum(logsumexp_others(x)).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad.sum().item() == pytest.approx(4)  # each row of a softmax sums to one


def test_logsumexp_others_memory_is_linear():
    pivot, remainder = logsumexp_others(torch.zeros(200_000))  # squared: 160 GB
    assert pivot.eq(0).all()
    torch.testing.assert_close(remainder, torch.full((200_000,), 199_999.0).log())


def test_widen_is_float64_with_gradients():
    x = torch.tensor([0.1], requires_grad=True)
    assert widen(x).dtype == torch.float64
    widen(x).sum().backward()
    assert x.grad.item() == 1


def test_first_index():
    assert first_index(torch.tensor([[False, False], [False, True]])) == (1, 1)
    assert first_index(torch.tensor(True)) == ()
