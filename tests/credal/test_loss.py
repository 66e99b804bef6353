"""Both losses by hand, against slow definitions and torch's; their gradients, and the targets they refuse."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

import credal_cases
from credal_cases import random_sets
from creinn.credal.credal_set import CredalSet
from creinn.credal.loss import bounds_cross_entropy, cross_entropy
from creinn.credal.probability import interval_softmax


def test_cross_entropy_by_hand():
    s = CredalSet([[0.1, 0.2, 0.3]] * 2, [[0.4, 0.5, 0.7]] * 2)  # intersection .22, .32, .46
    found = cross_entropy(s, tensor([2, 0]))
    assert found.item() == pytest.approx((0.776529 + 1.514128) / 2, abs=1e-5)
    weighted = cross_entropy(s, tensor([2, 0]), tensor([3.0, 0.0, 1.0]))
    assert weighted.item() == pytest.approx((0.776529 + 3 * 1.514128) / 4, abs=1e-5)


def test_cross_entropy_matches_torch():
    torch.manual_seed(1)
    s, weight = random_sets(), torch.rand(5, dtype=torch.float64)
    target = torch.arange(20) % 5
    for w in (None, weight):
        expected = torch.nn.functional.nll_loss(s.intersection.log(), target, w)
        torch.testing.assert_close(cross_entropy(s, target, w), expected)
    grid = CredalSet._wrap(s.lower.view(4, 5, 5), s.upper.view(4, 5, 5))
    expected = cross_entropy(s, target, weight)
    torch.testing.assert_close(cross_entropy(grid, target.view(4, 5), weight), expected)


@pytest.mark.parametrize("loss", [cross_entropy, bounds_cross_entropy])
@pytest.mark.parametrize("mode", ["paper", "sound"])
def test_cross_entropy_gradients(loss, mode):
    generator = torch.Generator().manual_seed(2)
    center = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    radius = torch.rand(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)

    def of(c, r):
        return loss(CredalSet._trusted(*interval_softmax(c - r, c + r, mode)), tensor([0, 1, 2, 0]))

    assert torch.autograd.gradcheck(of, (center, radius))


@pytest.mark.parametrize(("loss", "terms"), [(cross_entropy, 1), (bounds_cross_entropy, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [50.0, 90.0, 110.0, 1e4])
def test_cross_entropy_is_finite_after_underflow(loss, terms, dtype, gap):
    logits = tensor([[0.0, gap, -gap]], dtype=dtype, requires_grad=True)
    value = loss(CredalSet._trusted(*interval_softmax(logits - 0.5, logits + 0.5)), tensor([2]))
    value.backward()
    assert torch.isfinite(value)
    assert value > 40 * terms
    assert torch.isfinite(logits.grad).all()
    assert logits.grad.abs().max() <= 2 * terms


@pytest.mark.parametrize("loss", [cross_entropy, bounds_cross_entropy])
def test_invalid_targets_raise(loss):
    s = random_sets(4, 3)
    with pytest.raises(ValueError, match="float32"):
        loss(s, torch.zeros(4))
    with pytest.raises(ValueError, match="distribution"):
        loss(s, torch.ones(4, 3))
    with pytest.raises(ValueError, match=r"\(4, 1\)"):
        loss(s, torch.zeros(4, 1, dtype=torch.long))
    with pytest.raises(ValueError, match=r"\(2,\)"):
        loss(s, tensor([0, 1, 3, -1]))
    with pytest.raises(ValueError, match="empty"):
        loss(s[:0], torch.zeros(0, dtype=torch.long))
    with pytest.raises(ValueError, match="weight"):
        loss(s, tensor([0, 1, 2, 0]), torch.ones(2))


def test_bounds_cross_entropy_by_hand():
    s = CredalSet(
        tensor([[0.25, 0.5], [0.125, 0.5], [0.5, 0.0]]),
        tensor([[0.5, 0.75], [0.5, 0.875], [1.0, 0.5]]),
    )
    target = tensor([0, 0, 0])  # upper .5, .5, 1; lower .25, .125, .5
    ln2 = math.log(2)
    # at least one sample; 1.5 samples are two
    for hardest, lower in ((1e-9, 3), (0.34, 3), (0.5, 5 / 2), (1.0, 2)):
        found = bounds_cross_entropy(s, target, hardest=hardest)
        assert found.item() == pytest.approx((2 / 3 + lower) * ln2)
    mixed = tensor([0, 1, 0])  # upper .5, .875, 1; lower .25, .5, .5; weights 1, 3, 1
    expected = (ln2 - 3 * math.log(0.875)) / 5 + 2 * ln2
    found = bounds_cross_entropy(s, mixed, tensor([1.0, 3.0]), 0.34)
    assert found.item() == pytest.approx(expected)


def slow_bounds_cross_entropy(s, target, weight, hardest):
    """Sample by sample."""
    pairs = []
    for low, high, y in zip(s.lower.tolist(), s.upper.tolist(), target.tolist(), strict=True):
        losses = (-math.log(max(bound[y], 2.3e-308)) for bound in (low, high))
        pairs.append((*losses, weight[y]))
    count = max(1, round(hardest * len(pairs)))
    hard = sorted((p for p in pairs if p[2] > 0), key=lambda p: -p[0])[:count]
    upper = sum(w * high for _, high, w in pairs) / sum(w for *_, w in pairs)
    return upper + sum(w * low for low, _, w in hard) / sum(w for *_, w in hard)


@credal_cases.seeded(60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 9),
    st.sampled_from([0.01, 0.3, 0.5, 0.8, 1.0]),
    st.booleans(),
)
def test_bounds_cross_entropy_matches_slow_implementation(seed, count, hardest, weighted):
    generator = torch.Generator().manual_seed(seed)
    s = random_sets(count, 4, seed)
    target = torch.randint(4, (count,), generator=generator)
    weight = torch.rand(4, generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    weights = [1.0] * 4 if weight is None else weight.tolist()
    expected = slow_bounds_cross_entropy(s, target, weights, hardest)
    got = bounds_cross_entropy(s, target, weight, hardest)
    assert got.item() == pytest.approx(expected, rel=1e-12)
    assert got >= 0
    order = torch.randperm(count, generator=generator)
    torch.testing.assert_close(bounds_cross_entropy(s[order], target[order], weight, hardest), got)


def test_bounds_cross_entropy_of_points_and_of_any_batch_shape():
    points = CredalSet(random_sets().intersection, random_sets().intersection)
    target = torch.arange(20) % 5
    found = bounds_cross_entropy(points, target, hardest=1.0)
    torch.testing.assert_close(found, 2 * cross_entropy(points, target), rtol=1e-9, atol=0)
    s, weight = random_sets(), torch.arange(1.0, 6.0)
    grid = CredalSet._wrap(s.lower.view(4, 5, 5), s.upper.view(4, 5, 5))
    expected = bounds_cross_entropy(s, target, weight)
    torch.testing.assert_close(bounds_cross_entropy(grid, target.view(4, 5), weight), expected)


def test_zero_weight_samples_are_not_selected():
    s = CredalSet([[0.01, 0.5], [0.25, 0.5]], [[0.5, 0.99], [0.5, 0.75]])
    got = bounds_cross_entropy(s, tensor([0, 1]), tensor([0.0, 1.0]))
    assert got.item() == pytest.approx(-math.log(0.75) - math.log(0.5))


def test_bounds_cross_entropy_without_check_does_not_read_data():
    s = CredalSet._trusted(*torch.rand(2, 6, 3, device="meta"))
    target, weight = torch.zeros(6, dtype=torch.long, device="meta"), torch.ones(3, device="meta")
    assert bounds_cross_entropy(s, target, check=False).shape == ()
    assert bounds_cross_entropy(s, target, weight, check=False).shape == ()


@pytest.mark.parametrize("hardest", [0.0, -0.5, 1.5, float("nan")])
def test_invalid_shares_raise(hardest):
    with pytest.raises(ValueError, match="hardest"):
        bounds_cross_entropy(random_sets(4, 3), tensor([0, 1, 2, 0]), hardest=hardest)


@pytest.mark.parametrize("loss", [cross_entropy, bounds_cross_entropy])
@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 0.5], [[1.0], [0.0], [3.0], [1.0]]])
def test_distributions_on_one_class_have_the_loss_of_classes(loss, weight):
    torch.manual_seed(0)
    s = CredalSet.from_samples(torch.rand(3, 4, 3).softmax(-1))
    target = tensor([2, 0, 1, 1])
    weight = weight if weight is None else tensor(weight)
    soft = torch.nn.functional.one_hot(target, 3).float()
    torch.testing.assert_close(loss(s, soft, weight), loss(s, target, weight))


@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 0.5]])
def test_votes_have_the_loss_of_repeated_rows(weight):
    s = CredalSet([[0.1, 0.2, 0.3], [0.2, 0.2, 0.2]], [[0.4, 0.5, 0.7], [0.5, 0.6, 0.6]])
    votes = tensor([[2, 1, 0], [0, 0, 3]])
    repeated = [row for row in range(2) for _ in range(3)]
    classes = torch.cat([torch.arange(3).repeat_interleave(row) for row in votes])
    weight = weight if weight is None else tensor(weight)
    expected = cross_entropy(s[repeated], classes, weight)
    torch.testing.assert_close(cross_entropy(s, votes / 3, weight), expected)
