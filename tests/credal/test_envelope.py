"""The envelope of credal sets, and the loss on both bounds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

import credal_cases
import reference_credal
from credal_cases import random_sets
from creinn.credal.credal_set import CredalSet, bounds_cross_entropy, cross_entropy
from creinn.credal.probability import reachable


def test_envelope_by_hand():
    one = CredalSet(tensor([0.1, 0.2, 0.3]), tensor([0.4, 0.5, 0.7]))
    two = CredalSet(tensor([0.0, 0.4, 0.2]), tensor([0.2, 0.6, 0.4]))
    both = CredalSet.envelope([one, two])
    assert both.lower.tolist() == pytest.approx([0.0, 0.2, 0.2])
    assert both.upper.tolist() == pytest.approx([0.4, 0.6, 0.7])
    assert both.width.sum() > CredalSet.average([one, two]).width.sum()


@credal_cases.seeded(60)
@given(st.data())
def test_envelope_is_the_least_reachable_set_that_holds_the_members(data):
    first = data.draw(credal_cases.credal_bounds(5))
    classes = len(first[0])
    others = data.draw(st.lists(credal_cases.credal_bounds(5).filter(lambda b: len(b[0]) == classes), max_size=2))
    sets = [CredalSet(*bounds) for bounds in (first, *others)]
    envelope = CredalSet.envelope(sets)
    for s in sets:
        assert (envelope.lower <= s.lower).all()
        assert (envelope.upper >= s.upper).all()
        assert envelope.contains(s.vertices()).all()
    corners = np.concatenate([reference_credal.vertices(s.lower.numpy(), s.upper.numpy(), 1e-11) for s in sets])
    np.testing.assert_allclose(envelope.lower, corners.min(0), rtol=0, atol=1e-10)  # attained by a member's member
    np.testing.assert_allclose(envelope.upper, corners.max(0), rtol=0, atol=1e-10)
    for got, expected in zip(reachable(envelope.lower, envelope.upper), (envelope.lower, envelope.upper), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


def test_envelope_of_softmax_outputs_is_reachable_in_float32():
    bounds = [credal_cases.softmax_sets(50, 10, seed, 1.0) for seed in range(4)]
    envelope = CredalSet.envelope([CredalSet(a.float(), b.float()) for a, b in bounds])
    for got, expected in zip(reachable(envelope.lower, envelope.upper), (envelope.lower, envelope.upper), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    low, high = envelope.lower[0].double().numpy(), envelope.upper[0].double().numpy()
    for k, unit in enumerate(np.eye(10)):
        assert reference_credal.minimum(unit, low, high) == pytest.approx(low[k], abs=1e-6)
        assert -reference_credal.minimum(-unit, low, high) == pytest.approx(high[k], abs=1e-6)


def test_envelope_never_looks_at_the_data_and_passes_gradients():
    on_meta = CredalSet._trusted(*torch.rand(2, 4, 3, device="meta"))
    assert CredalSet.envelope([on_meta, on_meta]).shape == (4, 3)
    lower = random_sets().lower.clone().requires_grad_()
    CredalSet.envelope([CredalSet._wrap(lower, random_sets().upper), random_sets(seed=1)]).lower.sum().backward()
    assert 0 < lower.grad.sum() < lower.numel()


def test_envelope_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="nothing to envelop: the list of credal sets is empty"):
        CredalSet.envelope([])
    with pytest.raises(ValueError, match=r"to envelop do not fit: shape \(20, 5\) at position 0, \(20, 4\) at pos"):
        CredalSet.envelope([random_sets(), random_sets(classes=4)])


def test_bounds_cross_entropy_by_hand():
    s = CredalSet(tensor([[0.25, 0.5], [0.125, 0.5], [0.5, 0.0]]), tensor([[0.5, 0.75], [0.5, 0.875], [1.0, 0.5]]))
    target = tensor([0, 0, 0])  # upper .5, .5, 1; lower .25, .125, .5
    ln2 = math.log(2)
    assert bounds_cross_entropy(s, target, hardest=0.34).item() == pytest.approx((2 / 3 + 3) * ln2)
    assert bounds_cross_entropy(s, target).item() == pytest.approx((2 / 3 + 5 / 2) * ln2)  # 1.5 samples: two
    assert bounds_cross_entropy(s, target, hardest=1.0).item() == pytest.approx((2 / 3 + 2) * ln2)
    assert bounds_cross_entropy(s, target, hardest=1e-9).item() == pytest.approx((2 / 3 + 3) * ln2)
    mixed = tensor([0, 1, 0])  # upper .5, .875, 1; lower .25, .5, .5; weights 1, 3, 1
    expected = (ln2 - 3 * math.log(0.875)) / 5 + 2 * ln2
    assert bounds_cross_entropy(s, mixed, tensor([1.0, 3.0]), 0.34).item() == pytest.approx(expected)


def slow_bounds_cross_entropy(s, target, weight, hardest):
    """Sample by sample."""
    pairs = []
    for low, high, y in zip(s.lower.tolist(), s.upper.tolist(), target.tolist(), strict=True):
        pairs.append((-math.log(max(low[y], 2.3e-308)), -math.log(max(high[y], 2.3e-308)), weight[y]))
    count = max(1, round(hardest * len(pairs)))
    hard = sorted((p for p in pairs if p[2] > 0), key=lambda p: -p[0])[:count]
    upper = sum(w * high for _, high, w in pairs) / sum(w for *_, w in pairs)
    return upper + sum(w * low for low, _, w in hard) / sum(w for *_, w in hard)


@credal_cases.seeded(60)
@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([0.01, 0.3, 0.5, 0.8, 1.0]), st.booleans())
def test_bounds_cross_entropy_matches_the_slow_one(seed, count, hardest, weighted):
    generator = torch.Generator().manual_seed(seed)
    s = random_sets(count, 4, seed)
    target = torch.randint(4, (count,), generator=generator)
    weight = torch.rand(4, generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    expected = slow_bounds_cross_entropy(s, target, [1.0] * 4 if weight is None else weight.tolist(), hardest)
    got = bounds_cross_entropy(s, target, weight, hardest)
    assert got.item() == pytest.approx(expected, rel=1e-12)
    assert got >= 0
    order = torch.randperm(count, generator=generator)
    torch.testing.assert_close(bounds_cross_entropy(s[order], target[order], weight, hardest), got)


def test_bounds_cross_entropy_of_points_and_of_any_batch_shape():
    points = CredalSet(random_sets().intersection, random_sets().intersection)
    target = torch.arange(20) % 5
    torch.testing.assert_close(
        bounds_cross_entropy(points, target, hardest=1.0), 2 * cross_entropy(points, target), rtol=1e-9, atol=0
    )
    s, weight = random_sets(), torch.arange(1.0, 6.0)
    grid = CredalSet._wrap(s.lower.view(4, 5, 5), s.upper.view(4, 5, 5))
    expected = bounds_cross_entropy(s, target, weight)
    torch.testing.assert_close(bounds_cross_entropy(grid, target.view(4, 5), weight), expected)


def test_samples_of_weight_zero_are_never_the_hard_ones():
    s = CredalSet([[0.01, 0.5], [0.25, 0.5]], [[0.5, 0.99], [0.5, 0.75]])
    got = bounds_cross_entropy(s, tensor([0, 1]), tensor([0.0, 1.0]))
    assert got.item() == pytest.approx(-math.log(0.75) - math.log(0.5))


def test_bounds_cross_entropy_without_check_never_looks_at_the_data():
    s = CredalSet._trusted(*torch.rand(2, 6, 3, device="meta"))
    target, weight = torch.zeros(6, dtype=torch.long, device="meta"), torch.ones(3, device="meta")
    assert bounds_cross_entropy(s, target, check=False).shape == ()
    assert bounds_cross_entropy(s, target, weight, check=False).shape == ()


def test_bounds_cross_entropy_refuses_bad_arguments():
    s = random_sets(4, 3)
    for hardest in (0.0, -0.5, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"share of the batch, in \(0, 1\], found"):
            bounds_cross_entropy(s, tensor([0, 1, 2, 0]), hardest=hardest)
    with pytest.raises(ValueError, match=r"Target 3 at index \(2,\) is not a class: there are 3"):
        bounds_cross_entropy(s, tensor([0, 1, 3, -1]))
    with pytest.raises(TypeError, match=r"class indices \(integers\), found torch.float32"):
        bounds_cross_entropy(s, torch.zeros(4))
    with pytest.raises(ValueError, match="batch is empty"):
        bounds_cross_entropy(s[:0], torch.zeros(0, dtype=torch.long))
    with pytest.raises(ValueError, match=r"one entry per class \(3\), found shape \(2,\)"):
        bounds_cross_entropy(s, tensor([0, 1, 2, 0]), torch.ones(2))
