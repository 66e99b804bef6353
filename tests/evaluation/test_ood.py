"""Detection of foreign data against slow definitions and scikit-learn, ties included."""

from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from creinn.evaluation import ood_detection

some_scores = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=3)


def auroc_over_all_orders(inside, outside):
    """Definition, slowly: share of pairs in the right order, meaned over every order of the tied."""
    items = [(s, 0) for s in inside] + [(s, 1) for s in outside]
    values = []
    for order in permutations(items):
        if all(a[0] <= b[0] for a, b in pairwise(order)):
            place = [[i for i, item in enumerate(order) if item[1] == k] for k in (0, 1)]
            values.append(np.mean([b > a for a in place[0] for b in place[1]]))
    return np.mean(values)


def average_precision_by_thresholds(inside, outside):
    """Definition, slowly: gain in recall times precision, each distinct score as a threshold, highest first."""
    total, recall_before = 0.0, 0.0
    for threshold in sorted(set(inside) | set(outside), reverse=True):
        true, false = sum(s >= threshold for s in outside), sum(s >= threshold for s in inside)
        recall = true / len(outside)
        total += (recall - recall_before) * true / (true + false)
        recall_before = recall
    return total


@settings(max_examples=80, deadline=None, derandomize=True)
@given(some_scores, some_scores)
def test_slow_definitions(inside, outside):
    got = ood_detection(inside, outside)
    assert got.auroc == pytest.approx(auroc_over_all_orders(inside, outside))
    assert got.auprc == pytest.approx(average_precision_by_thresholds(inside, outside))
    assert got.base_rate == pytest.approx(len(outside) / (len(inside) + len(outside)))


def test_by_hand():
    # Pairs (id, ood): .1<.2, .1<.3, .2=.2 (half), .2<.3 -> 3.5 of 4. Thresholds .3: P=1, R=1/2; .2: P=2/3, R=1.
    got = ood_detection([0.1, 0.2], [0.2, 0.3])
    assert got == pytest.approx((3.5 / 4, 0.5 * 1 + 0.5 * 2 / 3, 0.5))


def test_matches_scikit_learn_with_ties():
    rng = np.random.default_rng(0)
    inside, outside = rng.integers(0, 20, 300) / 7, rng.integers(5, 30, 500) / 7
    labels, scores = np.repeat([0, 1], [300, 500]), np.concatenate([inside, outside])
    got = ood_detection(inside, outside)
    assert got == pytest.approx((roc_auc_score(labels, scores), average_precision_score(labels, scores), 500 / 800))


def test_known_answers():
    assert ood_detection([0, 1, 2], [3, 4]) == (1.0, 1.0, 0.4)
    assert ood_detection([3, 4], [0, 1, 2]).auroc == 0
    rng = np.random.default_rng(1)
    chance = ood_detection(rng.random(10_000), rng.random(26_032))
    assert chance.base_rate == pytest.approx(0.7225, abs=5e-5)
    assert chance.auroc == pytest.approx(0.5, abs=0.01)
    assert chance.auprc == pytest.approx(chance.base_rate, abs=0.01)
    assert ood_detection(np.zeros(3), np.zeros(5)) == (0.5, 5 / 8, 5 / 8)


def test_input_order_does_not_matter():
    rng = np.random.default_rng(2)
    inside, outside = rng.integers(0, 3, 40), rng.integers(0, 3, 60)
    assert ood_detection(inside, outside) == pytest.approx(
        ood_detection(np.sort(inside), np.sort(outside)[::-1]), rel=1e-12
    )


def test_lists_numpy_and_torch_agree():
    inside, outside = [0.5, 0.25], [0.5, 0.75, 0.25]
    expected = ood_detection(inside, outside)
    assert all(type(value) is float for value in expected)
    assert ood_detection(np.array(inside), torch.tensor(outside, requires_grad=True)) == expected


def test_errors_name_the_cause():
    with pytest.raises(ValueError, match="ood_score is empty"):
        ood_detection([0.1], [])
    with pytest.raises(ValueError, match="id_score is empty"):
        ood_detection(torch.empty(0), [0.1])
    with pytest.raises(ValueError, match=r"id_score must be finite, but is nan at index \(0,\)"):
        ood_detection([float("nan")], [0.1])
    with pytest.raises(ValueError, match=r"ood_score must have shape \(samples,\), but has shape \(1, 1\)"):
        ood_detection([0.1], [[0.1]])
    with pytest.raises(TypeError, match="id_score must hold real numbers"):
        ood_detection([None], [0.1])
