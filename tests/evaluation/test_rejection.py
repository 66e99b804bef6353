"""Accuracy-rejection curves against the mean over all orders of ties, by hand, and at their extremes."""

from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from creinn.evaluation import accuracy_rejection, auarc

samples = st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()), min_size=1, max_size=6)


def curve_over_all_orders(score, correct):
    """Definition, slowly: every order that keeps the scores sorted, each as likely; all kept first."""
    curves = []
    for order in permutations(range(len(score))):
        if all(score[a] <= score[b] for a, b in pairwise(order)):
            hits = [correct[i] for i in order]
            curves.append([sum(hits[:k]) / k for k in range(len(hits), 0, -1)])
    return np.mean(curves, axis=0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(samples)
def test_curve_is_the_mean_over_all_orders_of_the_ties(pairs):
    score, correct = map(list, zip(*pairs, strict=True))
    curve = accuracy_rejection(score, correct)
    expected = curve_over_all_orders(score, correct)
    np.testing.assert_allclose(curve.accuracy, expected, rtol=1e-12)
    n = len(score)
    np.testing.assert_allclose(curve.rejection, [(n - k) / n for k in range(n, 0, -1)], rtol=1e-12)
    assert auarc(score, correct) == pytest.approx(np.mean(expected))


def test_by_hand_with_a_tie():
    # Kept 3: 1/3 correct. Kept 2: the sure one and one of the tied pair (half a hit): 1/4. Kept 1: the sure one: 0.
    curve = accuracy_rejection([0.5, 0.1, 0.5], [True, False, False])
    np.testing.assert_allclose(curve.accuracy, [1 / 3, 1 / 4, 0])
    np.testing.assert_allclose(curve.rejection, [0, 1 / 3, 2 / 3])
    assert auarc([0.5, 0.1, 0.5], [True, False, False]) == pytest.approx((1 / 3 + 1 / 4) / 3)


def test_accuracy_at_no_rejection_is_the_accuracy():
    rng = np.random.default_rng(0)
    correct = rng.random(1000) < 0.7
    assert accuracy_rejection(rng.random(1000), correct).accuracy[0] == pytest.approx(correct.mean())


def test_constant_score_gives_exactly_the_accuracy_everywhere():
    correct = np.array([True] * 3 + [False])
    np.testing.assert_allclose(accuracy_rejection(np.zeros(4), correct).accuracy, 0.75)


def test_random_scores_give_a_flat_curve():
    rng = np.random.default_rng(1)
    curve = accuracy_rejection(rng.random(100_000), rng.random(100_000) < 0.8)
    np.testing.assert_allclose(curve.accuracy[:90_000], 0.8, atol=0.02)  # at least 10,000 kept
    assert curve.accuracy.mean() == pytest.approx(0.8, abs=0.01)


def test_perfect_scores_give_the_ideal_curve_and_reversed_scores_the_worst():
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


def test_input_order_and_monotone_maps_of_the_score_do_not_matter():
    rng = np.random.default_rng(3)
    score, correct = rng.integers(0, 5, 200) / 4, rng.random(200) < 0.5
    order = rng.permutation(200)
    assert auarc(score[order], correct[order]) == pytest.approx(auarc(score, correct), rel=1e-12)
    assert auarc(np.exp(3 * score), correct) == pytest.approx(auarc(score, correct), rel=1e-12)


def test_lists_numpy_and_torch_agree():
    score, correct = [0.5, 0.25, 0.75, 0.25], [True, False, True, True]
    expected = auarc(score, correct)
    assert type(expected) is float
    assert auarc(np.array(score, np.float32), np.array(correct)) == expected
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        tensor = torch.tensor(score, dtype=dtype, requires_grad=True)
        assert auarc(tensor, torch.tensor(correct)) == expected
    assert isinstance(accuracy_rejection(torch.tensor(score), torch.tensor(correct)).accuracy, np.ndarray)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_scores_must_be_finite(bad):
    with pytest.raises(ValueError, match=rf"score must be finite, but is {bad} at index \(1,\)"):
        auarc([0.1, bad], [True, False])


def test_errors_name_the_cause():
    with pytest.raises(ValueError, match="score is empty"):
        auarc([], [])
    with pytest.raises(ValueError, match=r"shapes are \(2,\) and \(3,\)"):
        auarc([0.1, 0.2], [True, False, True])
    with pytest.raises(ValueError, match=r"score must have shape \(samples,\), but has shape \(1, 2\)"):
        auarc([[0.1, 0.2]], [True, False])
    with pytest.raises(TypeError, match=r"correct must be boolean, but its dtype is int64\. Were labels passed"):
        auarc([0.1, 0.2], np.array([3, 1]))
    with pytest.raises(TypeError, match="score must hold real numbers, but its dtype is <U1"):
        auarc(["a", "b"], [True, False])
    with pytest.raises(TypeError, match="score must hold real numbers, but its dtype is complex128"):
        auarc([1j], [True])
