"""Tests of the metrics of uncertainty scores, compared with slow implementations."""

from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from creinn.evaluation import (
    accuracy_rejection,
    auarc,
    augrc,
    aurc,
    bootstrap_interval,
    ood_detection,
    relative_increase,
)

some_scores = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=3)
samples = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()), min_size=1, max_size=6
)
uncertainty = st.sampled_from([0.0, 0.125, 0.3, 1.0, 3.3])


def curve_over_all_orders(score, correct):
    """Compute the mean of the curves for all orders in which the scores are sorted."""
    curves = []
    for order in permutations(range(len(score))):
        if all(score[a] <= score[b] for a, b in pairwise(order)):
            hits = [correct[i] for i in order]
            curves.append([sum(hits[:k]) / k for k in range(len(hits), 0, -1)])
    return np.mean(curves, axis=0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(samples)
def test_curve_is_mean_over_orders_of_ties(pairs):
    score, correct = map(list, zip(*pairs, strict=True))
    curve = accuracy_rejection(score, correct)
    expected = curve_over_all_orders(score, correct)
    np.testing.assert_allclose(curve.accuracy, expected, rtol=1e-12)
    n = len(score)
    np.testing.assert_allclose(curve.rejection, [(n - k) / n for k in range(n, 0, -1)], rtol=1e-12)
    assert auarc(score, correct) == pytest.approx(np.mean(expected))


def test_rejection_with_tie_by_hand():
    # Kept 3: 1/3 correct. Kept 2: the sure one and one of the tied pair (half a hit): 1/4. Kept 1: the sure one: 0.
    curve = accuracy_rejection([0.5, 0.1, 0.5], [True, False, False])
    np.testing.assert_allclose(curve.accuracy, [1 / 3, 1 / 4, 0])
    np.testing.assert_allclose(curve.rejection, [0, 1 / 3, 2 / 3])
    assert auarc([0.5, 0.1, 0.5], [True, False, False]) == pytest.approx((1 / 3 + 1 / 4) / 3)


def test_accuracy_without_rejection():
    rng = np.random.default_rng(0)
    correct = rng.random(1000) < 0.7
    curve = accuracy_rejection(rng.random(1000), correct)
    assert curve.accuracy[0] == pytest.approx(correct.mean())


def test_constant_score_gives_constant_curve():
    correct = np.array([True] * 3 + [False])
    np.testing.assert_allclose(accuracy_rejection(np.zeros(4), correct).accuracy, 0.75)


def test_random_scores_give_flat_curve():
    rng = np.random.default_rng(1)
    curve = accuracy_rejection(rng.random(100_000), rng.random(100_000) < 0.8)
    np.testing.assert_allclose(curve.accuracy[:90_000], 0.8, atol=0.02)  # at least 10,000 kept
    assert curve.accuracy.mean() == pytest.approx(0.8, abs=0.01)


def test_perfect_and_reversed_scores():
    n, hits = 50, 30
    correct = np.arange(n) < hits
    kept = np.arange(n, 0, -1)
    ideal = np.minimum(hits / kept, 1)
    np.testing.assert_allclose(accuracy_rejection(np.arange(n), correct).accuracy, ideal)
    assert auarc(np.arange(n), correct) == pytest.approx(ideal.mean())
    worst = np.maximum(1 - (n - hits) / kept, 0)
    np.testing.assert_allclose(accuracy_rejection(-np.arange(n), correct).accuracy, worst)
    rng = np.random.default_rng(2)
    assert worst.mean() < auarc(rng.random(n), correct) < ideal.mean()


def test_rejection_is_invariant_to_order_and_monotone_maps():
    rng = np.random.default_rng(3)
    score, correct = rng.integers(0, 5, 200) / 4, rng.random(200) < 0.5
    order = rng.permutation(200)
    assert auarc(score[order], correct[order]) == pytest.approx(auarc(score, correct), rel=1e-12)
    assert auarc(np.exp(3 * score), correct) == pytest.approx(auarc(score, correct), rel=1e-12)


def test_rejection_input_types():
    score, correct = [0.5, 0.25, 0.75, 0.25], [True, False, True, True]
    expected = auarc(score, correct)
    assert type(expected) is float
    assert auarc(np.array(score, np.float32), np.array(correct)) == expected
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        tensor = torch.tensor(score, dtype=dtype, requires_grad=True)
        assert auarc(tensor, torch.tensor(correct)) == expected
    curve = accuracy_rejection(torch.tensor(score), torch.tensor(correct))
    assert isinstance(curve.accuracy, np.ndarray)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_scores_raise(bad):
    with pytest.raises(ValueError, match=r"\(1,\)"):
        auarc([0.1, bad], [True, False])


def test_rejection_invalid_inputs_raise():
    with pytest.raises(ValueError, match="score"):
        auarc([], [])
    with pytest.raises(ValueError, match=r"\(3,\)"):
        auarc([0.1, 0.2], [True, False, True])
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        auarc([[0.1, 0.2]], [True, False])
    with pytest.raises(TypeError, match="int64"):
        auarc([0.1, 0.2], np.array([3, 1]))
    with pytest.raises(TypeError, match="<U1"):
        auarc(["a", "b"], [True, False])
    with pytest.raises(TypeError, match="complex128"):
        auarc([1j], [True])


def auroc_over_all_orders(inside, outside):
    """Compute the share of the pairs in the right order; the ties count one half."""
    items = [(s, 0) for s in inside] + [(s, 1) for s in outside]
    values = []
    for order in permutations(items):
        if all(a[0] <= b[0] for a, b in pairwise(order)):
            place = [[i for i, item in enumerate(order) if item[1] == k] for k in (0, 1)]
            values.append(np.mean([b > a for a in place[0] for b in place[1]]))
    return np.mean(values)


def average_precision_by_thresholds(inside, outside):
    """Compute the average precision with a loop over the distinct scores."""
    total, recall_before = 0.0, 0.0
    for threshold in sorted(set(inside) | set(outside), reverse=True):
        true, false = sum(s >= threshold for s in outside), sum(s >= threshold for s in inside)
        recall = true / len(outside)
        total += (recall - recall_before) * true / (true + false)
        recall_before = recall
    return total


@settings(max_examples=80, deadline=None, derandomize=True)
@given(some_scores, some_scores)
def test_detection_matches_slow_definitions(inside, outside):
    got = ood_detection(inside, outside)
    assert got.auroc == pytest.approx(auroc_over_all_orders(inside, outside))
    assert got.auprc == pytest.approx(average_precision_by_thresholds(inside, outside))
    assert got.base_rate == pytest.approx(len(outside) / (len(inside) + len(outside)))


def test_detection_by_hand():
    # Pairs (id, ood): .1<.2, .1<.3, .2=.2 (half), .2<.3 -> 3.5 of 4. Thresholds .3: P=1, R=1/2; .2: P=2/3, R=1.
    got = ood_detection([0.1, 0.2], [0.2, 0.3])
    assert got == pytest.approx((3.5 / 4, 0.5 * 1 + 0.5 * 2 / 3, 0.5, 0.25))


def test_detection_matches_scikit_learn_with_ties():
    rng = np.random.default_rng(0)
    inside, outside = rng.integers(0, 20, 300) / 7, rng.integers(5, 30, 500) / 7
    labels, scores = np.repeat([0, 1], [300, 500]), np.concatenate([inside, outside])
    got = ood_detection(inside, outside)
    auroc, auprc = roc_auc_score(labels, scores), average_precision_score(labels, scores)
    assert got[:3] == pytest.approx((auroc, auprc, 500 / 800))


def test_detection_known_values():
    assert ood_detection([0, 1, 2], [3, 4]) == (1.0, 1.0, 0.4, 0.0)
    assert ood_detection([3, 4], [0, 1, 2]).auroc == 0
    rng = np.random.default_rng(1)
    chance = ood_detection(rng.random(10_000), rng.random(26_032))
    assert chance.base_rate == pytest.approx(0.7225, abs=5e-5)
    assert chance.auroc == pytest.approx(0.5, abs=0.01)
    assert chance.auprc == pytest.approx(chance.base_rate, abs=0.01)
    assert ood_detection(np.zeros(3), np.zeros(5)) == (0.5, 5 / 8, 5 / 8, 5 / 6)


def test_detection_is_invariant_to_order():
    rng = np.random.default_rng(2)
    inside, outside = rng.integers(0, 3, 40), rng.integers(0, 3, 60)
    expected = ood_detection(np.sort(inside), np.sort(outside)[::-1])
    assert ood_detection(inside, outside) == pytest.approx(expected, rel=1e-12)


def test_detection_input_types():
    inside, outside = [0.5, 0.25], [0.5, 0.75, 0.25]
    expected = ood_detection(inside, outside)
    assert all(type(value) is float for value in expected)
    assert ood_detection(np.array(inside), torch.tensor(outside, requires_grad=True)) == expected


def test_detection_invalid_inputs_raise():
    with pytest.raises(ValueError, match="ood_score"):
        ood_detection([0.1], [])
    with pytest.raises(ValueError, match="id_score"):
        ood_detection(torch.empty(0), [0.1])
    with pytest.raises(ValueError, match="id_score"):
        ood_detection([float("nan")], [0.1])
    with pytest.raises(ValueError, match="ood_score"):
        ood_detection([0.1], [[0.1]])
    with pytest.raises(TypeError, match="id_score"):
        ood_detection([None], [0.1])


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(uncertainty, uncertainty), min_size=1, max_size=8).filter(
        lambda p: any(b > 0 for _, b in p)
    )
)
def test_increase_matches_slow_definition(pairs):
    ratios = [t / b for t, b in pairs if b > 0]
    got = relative_increase([t for t, _ in pairs], [b for _, b in pairs])
    assert got == pytest.approx((sum(ratios) / len(ratios), len(pairs) - len(ratios)))


def test_increase_by_hand():
    assert relative_increase([0.2, 0.6, 0.5], [0.1, 0.2, 0.0]) == pytest.approx((2.5, 1))


def test_increase_without_shift_is_one():
    base = np.random.default_rng(0).random((3, 50)) + 0.1
    assert relative_increase(base, base) == (1.0, 0)
    test = base * np.array([[1.0], [2.0], [6.0]])
    assert relative_increase(test, base) == pytest.approx((3.0, 0))


def test_increase_input_types():
    test, base = [1.0, 3.0], [0.5, 0.5]
    expected = relative_increase(test, base)
    assert expected == (4.0, 0)
    assert type(expected.mean) is float
    assert type(expected.excluded) is int
    assert relative_increase(torch.tensor(test, requires_grad=True), np.array(base)) == expected


def test_increase_invalid_inputs_raise():
    with pytest.raises(ValueError, match="base"):
        relative_increase([1.0, 2.0], [0.0, 0.0])
    with pytest.raises(ValueError, match=r"\(1,\)"):
        relative_increase([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="base"):
        relative_increase([1.0, 2.0], [1.0, -0.5])
    with pytest.raises(ValueError, match="test"):
        relative_increase([-1.0], [1.0])
    with pytest.raises(ValueError, match="inf"):
        relative_increase([float("inf")], [1.0])
    with pytest.raises(ValueError, match="base"):
        relative_increase([1.0], [])
    with pytest.raises(ValueError, match="overflow"):
        relative_increase([1.0, 1.0], [1e-320, 1.0])
    with pytest.raises(TypeError, match="test"):
        relative_increase(["x"], [1.0])


def test_areas_under_risk_coverage_curves_with_ties():
    rng = np.random.default_rng(0)
    score, correct = np.repeat([0.2, 0.5, 0.9], [3, 2, 2]), rng.random(7) < 0.6
    risks, generalized = [], []
    for order in permutations(range(7)):
        if (np.diff(score[list(order)]) < 0).any():
            continue
        errors = np.cumsum(~correct[list(order)])
        risks.append((errors / np.arange(1, 8)).mean())
        generalized.append((errors / 7).mean())
    assert len(risks) == 6 * 2 * 2
    assert aurc(score, correct) == pytest.approx(np.mean(risks))
    assert augrc(score, correct) == pytest.approx(np.mean(generalized))


@pytest.mark.parametrize("seed", range(3))
def test_false_positive_rate_with_ties(seed):
    rng = np.random.default_rng(seed)
    inside, outside = rng.integers(0, 3, 4).astype(float), rng.integers(1, 3, 3).astype(float)
    scores, is_ood = np.r_[inside, outside], np.repeat([False, True], [4, 3])
    rates = []
    for order in map(list, permutations(range(7))):
        if (np.diff(scores[order]) <= 0).all():
            detected = np.cumsum(is_ood[order])
            count = int((detected >= 0.95 * 3).argmax()) + 1  # samples above the threshold
            rates.append((count - detected[count - 1]) / 4)
    assert ood_detection(inside, outside).fpr95 == pytest.approx(np.mean(rates))


def test_false_positive_rate_matches_roc_curve():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=50), rng.normal(1, size=60)
    rates, hits, _ = roc_curve(np.repeat([0, 1], [50, 60]), np.r_[inside, outside])
    assert ood_detection(inside, outside).fpr95 == pytest.approx(rates[hits >= 0.95].min())


def test_bootstrap_interval_of_the_mean():
    x = np.random.default_rng(0).normal(size=400)
    low, high = bootstrap_interval(lambda sample: float(sample.mean()), x)
    assert high - low == pytest.approx(2 * 1.96 * x.std() / 20, rel=0.1)
    assert low < x.mean() < high
