"""Tests of probability intervals with ball arithmetic and linear programs."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

import credal_cases
import reference_credal
from creinn.credal.probability import (
    intersection_probability,
    interval_sigmoid,
    interval_softmax,
    one_logit_softmax,
    reachable,
    tolerance,
)
from creinn.numerics import entropy

MODES = ["paper", "sound"]
logits = st.one_of(
    st.sampled_from([0.0, 1.0, 1e4, -1e4, 88.0, -104.0]), st.floats(-1e4, 1e4, width=32)
)


@st.composite
def logit_boxes(draw, scale=1.0):
    classes = draw(st.integers(2, 6))
    ends = np.array(draw(st.lists(st.tuples(logits, logits), min_size=classes, max_size=classes)))
    return tuple(torch.from_numpy(np.sort(ends * scale, 1).T.copy()).float())


def random_box(count, classes, seed, width=1.0):
    generator = torch.Generator().manual_seed(seed)
    center = 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    radius = width * torch.rand(count, classes, generator=generator, dtype=torch.float64)
    return center - radius, center + radius


def test_appendix_example():
    # softmax of each bound crosses over; Interval SoftMax does not. e^.5, e^-.5, e^2 = 1.6487, .6065, 7.3891:
    # class 0 gets 1 / (1 + .6065 + 7.3891) and e / (e + .6065 + 7.3891)
    low, high = tensor([0.0, -1.0, 1.0]), tensor([1.0, 0.0, 3.0])
    assert low.softmax(-1).tolist() == pytest.approx([0.2447, 0.0900, 0.6652], abs=1e-4)
    assert high.softmax(-1).tolist() == pytest.approx([0.1142, 0.0420, 0.8438], abs=1e-4)
    lower, upper = interval_softmax(low, high)
    assert lower.tolist() == pytest.approx([0.11117, 0.03912, 0.54655], abs=1e-5)
    assert upper.tolist() == pytest.approx([0.25372, 0.09963, 0.89905], abs=1e-5)


def test_erratum_paper_intervals_exclude_a_member():
    low, high = tensor([0.0, 0.0]), tensor([0.0, 2.0])
    member = tensor([0.0, 2.0]).softmax(-1)[0]
    paper, sound = interval_softmax(low, high), interval_softmax(low, high, mode="sound")
    assert paper[0][0].item() == pytest.approx(0.2689, abs=1e-4) == paper[1][0].item()
    assert member.item() == pytest.approx(0.1192, abs=1e-4)
    assert member < paper[0][0]
    assert sound[0][0].item() == pytest.approx(member.item())
    assert sound[1][0].item() == pytest.approx(0.5)


@pytest.mark.parametrize("mode", MODES)
@credal_cases.seeded()
@given(box=logit_boxes(scale=1e-3))
def test_softmax_matches_ball_arithmetic(mode, box):
    low, high = (x.double() for x in box)
    exact = reference_credal.exact_softmax_intervals(low.tolist(), high.tolist(), mode)
    for got, expected in zip(interval_softmax(low, high, mode), exact, strict=True):
        assert got.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("mode", MODES)
@credal_cases.seeded()
@given(box=logit_boxes())
def test_huge_float32_logits_give_valid_and_accurate_intervals(mode, box):
    low, high = (x.requires_grad_() for x in box)
    lower, upper = interval_softmax(low, high, mode)
    assert torch.isfinite(lower).all()
    assert torch.isfinite(upper).all()
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()
    assert lower.sum() <= 1 + 1e-6
    assert upper.sum() >= 1 - 1e-6
    (lower.sum() + 2 * upper.sum()).backward()
    assert torch.isfinite(low.grad).all()
    assert torch.isfinite(high.grad).all()
    exact = reference_credal.exact_softmax_intervals(low.tolist(), high.tolist(), mode)
    for got, expected in zip((lower, upper), exact, strict=True):
        # a midpoint is a float32 of size 1e4: the logits themselves are only known to 1e-3
        atol = 3e-4 if mode == "paper" else 1e-6
        np.testing.assert_allclose(got.detach().numpy(), expected, atol=atol)


def test_sound_softmax_of_close_huge_logits_is_accurate():
    # the resolution of float32 is 2**-10 at 1e4, so a rounded log-sum-exp would be wrong
    low = tensor([1e4, 1e4 + 2**-10, -1e4])
    lower, _ = interval_softmax(low, low, mode="sound")
    assert lower[:2].tolist() == pytest.approx([0.49975586, 0.50024414], abs=1e-7)


@pytest.mark.parametrize("mode", MODES)
def test_zero_width_equals_softmax(mode):
    point, _ = random_box(50, 7, seed=0)
    for bound in interval_softmax(point, point, mode):
        torch.testing.assert_close(bound, point.softmax(-1))


def test_sound_mode_is_exact_range_of_softmax():
    low, high = random_box(200, 4, seed=1)
    lower, upper = interval_softmax(low, high, mode="sound")
    share = torch.rand(500, 200, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    share[:250] = share[:250].round()  # corners
    inside = (low + share * (high - low)).softmax(-1)
    assert (inside >= lower - 1e-15).all()
    assert (inside <= upper + 1e-15).all()
    for k in range(4):  # attained at the corner with class k against all others
        own = torch.arange(4) == k
        torch.testing.assert_close(torch.where(own, low, high).softmax(-1)[:, k], lower[:, k])
        torch.testing.assert_close(torch.where(own, high, low).softmax(-1)[:, k], upper[:, k])


@pytest.mark.parametrize("mode", MODES)
def test_softmax_is_permutation_equivariant(mode):
    low, high = random_box(20, 6, seed=3)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(4))
    lower, upper = interval_softmax(low, high, mode)
    permuted = interval_softmax(low[:, order], high[:, order], mode)
    torch.testing.assert_close(permuted, (lower[:, order], upper[:, order]))


@pytest.mark.parametrize("mode", MODES)
def test_softmax_gradients(mode):
    low, high = (x.requires_grad_() for x in random_box(3, 4, seed=5))
    assert torch.autograd.gradcheck(lambda a, b: interval_softmax(a, b, mode), (low, high))


def test_softmax_of_one_class_or_unknown_mode_raises():
    with pytest.raises(ValueError, match="interval_sigmoid"):
        interval_softmax(torch.zeros(5, 1), torch.zeros(5, 1))
    with pytest.raises(ValueError, match="tight"):
        interval_softmax(torch.zeros(3), torch.zeros(3), mode="tight")


def test_sigmoid_by_hand_has_the_corrected_sign():
    lower, upper = interval_sigmoid(tensor([-1.0, 0.0]), tensor([1.0, 2.0]))
    assert lower.tolist() == pytest.approx([0.26894, 0.5], abs=1e-5)
    assert upper.tolist() == pytest.approx([0.73106, 0.88080], abs=1e-5)


def test_single_logit_equals_softmax_with_zero_logit():
    low, high = (x[:, 0] for x in random_box(30, 1, seed=6))
    pairs = [torch.stack([torch.zeros_like(x), x], -1) for x in (low, high)]
    expected = interval_softmax(*pairs, mode="sound")
    torch.testing.assert_close(one_logit_softmax(low, high), expected)


def test_single_logit_gradient_of_improbable_class():
    logit = tensor(30.0, requires_grad=True)
    lower, upper = reachable(*one_logit_softmax(logit - 1, logit + 1), check=False)
    intersection_probability(lower, upper)[0].log().backward()
    assert logit.grad.item() == pytest.approx(-1, abs=1e-3)


@credal_cases.seeded(40)
@given(credal_cases.credal_bounds(most_classes=5))
def test_reachable_matches_linear_programs(bounds):
    lower, upper = reachable(*bounds)
    low, high = (x.numpy() for x in bounds)
    for k, unit in enumerate(np.eye(len(low))):
        least = reference_credal.minimum(unit, low, high)
        most = -reference_credal.minimum(-unit, low, high)
        assert (lower[k].item(), upper[k].item()) == pytest.approx((least, most), abs=1e-7)


@pytest.mark.parametrize("case", credal_cases.CASES, ids=lambda c: c.name)
def test_reachable_is_subset_and_idempotent(case):
    low, high = case.bounds()
    lower, upper = reachable(low, high)
    assert ((low <= lower) & (lower <= upper) & (upper <= high)).all()
    torch.testing.assert_close(reachable(lower, upper), (lower, upper), rtol=0, atol=1e-14)


def test_reachable_by_hand():
    lower, upper = reachable(tensor([0.0, 0.0, 0.0]), tensor([0.2, 0.3, 0.9]))
    assert lower.tolist() == pytest.approx([0, 0, 0.5])  # 1 - .2 - .3
    assert upper.tolist() == pytest.approx([0.2, 0.3, 0.9])


def test_empty_sets_raise():
    with pytest.raises(ValueError, match=r"1\.2"):
        reachable(tensor([0.4, 0.4, 0.4]), tensor([0.5, 0.5, 0.5]))
    with pytest.raises(ValueError, match=r"\(1, 0\)"):
        reachable(torch.full((2, 1, 3), 0.1), tensor([[[0.5] * 3], [[0.3] * 3]]))
    reachable(tensor([0.4, 0.4, 0.4]), tensor([0.5, 0.5, 0.5]), check=False)


def test_tolerance_is_smaller_in_float64():
    assert tolerance(torch.float64) < tolerance(torch.float32)


def test_intersection_by_hand():
    # alpha = (1 - .6) / 1.0
    got = intersection_probability(tensor([0.1, 0.2, 0.3]), tensor([0.4, 0.5, 0.7]))
    assert got.tolist() == pytest.approx([0.22, 0.32, 0.46])


@credal_cases.seeded()
@given(credal_cases.credal_bounds())
def test_intersection_is_member_with_common_fraction(bounds):
    lower, upper = reachable(*bounds)
    q = intersection_probability(lower, upper)
    assert q.sum().item() == pytest.approx(1, abs=1e-14)
    assert ((lower <= q) & (q <= upper + 1e-16)).all()
    wide = upper - lower > 1e-9
    if wide.any():
        shares = ((q - lower) / (upper - lower))[wide]
        torch.testing.assert_close(shares, shares[:1].expand_as(shares), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_intersection_of_a_point_has_value_and_gradient(dtype):
    point = tensor([0.2, 0.3, 0.5], dtype=dtype)
    lower, upper = point.clone().requires_grad_(), point.clone().requires_grad_()
    q = intersection_probability(*reachable(lower, upper))
    torch.testing.assert_close(q, point)
    q[0].backward()
    assert lower.grad.tolist() == [0.5, 0, 0] == upper.grad.tolist()


def test_intersection_gradients():
    lower, upper = (x.clone().requires_grad_() for x in credal_cases.boxes(3, 5, seed=7, share=1.0))
    assert torch.autograd.gradcheck(intersection_probability, (lower, upper))
    assert torch.autograd.gradcheck(
        lambda a, b: reachable(a, b, check=False), (lower * 0.9, upper * 1.1)
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("radius", [0.0, 1e-12, 1e-7, 1e-3, 1.0])
@pytest.mark.parametrize("scale", [0.1, 10.0, 20.0, 1e4])
def test_float32_gradients_of_head_are_bounded(mode, radius, scale):
    generator = torch.Generator().manual_seed(8)
    center = (scale * torch.randn(500, 10, generator=generator)).requires_grad_()
    lower, upper = reachable(*interval_softmax(center - radius, center + radius, mode), check=False)
    q = intersection_probability(lower, upper)
    (-q.clamp_min(torch.finfo(q.dtype).tiny).log()[:, 0].sum() + entropy(q).sum()).backward()
    assert torch.isfinite(center.grad).all()
    assert center.grad.abs().max() < 100
