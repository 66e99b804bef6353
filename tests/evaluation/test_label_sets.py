"""Tests of the metrics for sets of classes, compared with slow implementations."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from credal_cases import distributions
from creinn import CredalSet
from creinn.evaluation import SetDecisions, binomial_share, set_coverage, set_decisions


def test_coverage_by_hand():
    sets = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]], dtype=bool)
    found = set_coverage(sets, [0, 2, 1, 2, 1])
    assert found.all[:2] == (5, 0.6)
    assert (found.size, found.empty, found.full) == (1.4, 0.2, 0.2)
    by_size = {size: share[:2] for size, share in found.by_size.items()}
    assert by_size == {0: (1, 0.0), 1: (2, 1.0), 2: (1, 0.0), 3: (1, 1.0)}
    by_class = {k: share[:2] for k, share in found.by_class.items()}
    assert by_class == {0: (1, 1.0), 1: (2, 0.5), 2: (2, 0.5)}


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.data())
def test_clopper_pearson_interval(rows, data):
    count = data.draw(st.integers(0, rows))
    share = binomial_share(np.arange(rows) < count)
    assert share.coverage == count / rows
    assert 0 <= share.low <= share.coverage <= share.high <= 1
    # at the limits of the interval, the probability of the tail is 2.5 %
    if count > 0:
        assert binom.sf(count - 1, rows, share.low) == pytest.approx(0.025)
    if count < rows:
        assert binom.cdf(count, rows, share.high) == pytest.approx(0.025)


def test_invalid_coverage_inputs_raise():
    with pytest.raises(TypeError, match="int64"):
        set_coverage([[1, 0]], [0])
    with pytest.raises(ValueError, match=r"\(0, 3\)"):
        set_coverage(np.zeros((0, 3), bool), [])
    with pytest.raises(ValueError, match=r"\(0,\)"):
        set_coverage([[True, False]], [2])
    with pytest.raises(ValueError, match=r"\(samples,\)"):
        binomial_share([])


def slow_threshold_set(row, threshold):
    """Compute the metrics with a loop over the rows and the classes."""
    top = list(row).index(max(row))
    return [bool(k == top or q >= threshold) for k, q in enumerate(row)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(distributions(most=5), st.data())
def test_decisions_match_definition(p, data):
    n, k = p.shape
    sets = [slow_threshold_set(row, data.draw(st.sampled_from([0, 0.25, 0.5, 2]))) for row in p]
    labels = data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    hits = [row[label] for row, label in zip(sets, labels, strict=True)]
    alone = [hit for hit, row in zip(hits, sets, strict=True) if sum(row) == 1]
    expected = (
        sum(hits) / n,
        sum(map(sum, sets)) / n,
        len(alone) / n,
        sum(alone) / len(alone) if alone else None,
        sum(hit / sum(row) for hit, row in zip(hits, sets, strict=True)) / n,
    )
    found = set_decisions(sets, labels)
    assert found.single_accuracy == pytest.approx(expected[3])
    assert found._replace(single_accuracy=0) == pytest.approx(
        SetDecisions(*expected)._replace(single_accuracy=0)
    )


def test_decisions_by_hand():
    # Sets {0}, {0, 1}, {1, 2} and labels 0, 2, 1: covered 2 of 3, discounted (1 + 0 + 1/2) / 3.
    sets = [[True, False, False], [True, True, False], [False, True, True]]
    found = set_decisions(sets, [0, 2, 1])
    assert found == pytest.approx((2 / 3, 5 / 3, 1 / 3, 1.0, 0.5))


def test_decisions_of_tensors_and_lists():
    credal = CredalSet([[0.5, 0.1, 0.0], [0.2, 0.2, 0.2]], [[0.9, 0.4, 0.1], [0.6, 0.6, 0.6]])
    found = set_decisions(credal.classes(), torch.tensor([0, 2]))
    assert found == pytest.approx((1.0, 2.0, 0.5, 1.0, 2 / 3))
    assert found == set_decisions(credal.classes().tolist(), [0, 2])


def test_accuracy_without_singletons_is_nan():
    found = set_decisions([[True, True]], [1])
    assert found == SetDecisions(
        coverage=1.0, size=2.0, single=0.0, single_accuracy=None, discounted=0.5
    )


def test_mismatched_sets_and_labels_raise():
    sets = np.array([[True, False], [True, True]])
    with pytest.raises(ValueError, match=r"\(0, 3\)"):
        set_decisions(np.zeros((0, 3), bool), np.zeros(0, int))
    with pytest.raises(TypeError, match="float64"):
        set_decisions(sets.astype(float), [0, 1])
    with pytest.raises(ValueError, match=r"\(3,\)"):
        set_decisions(sets, [0, 1, 1])
    with pytest.raises(ValueError, match=r"\(2,\)"):
        set_decisions(sets[0], [0, 1])
    with pytest.raises(TypeError, match="float64"):
        set_decisions(sets, [0.0, 1.0])
    with pytest.raises(TypeError, match="bool"):
        set_decisions(sets, [True, False])
    with pytest.raises(ValueError, match=r"\(1,\)"):
        set_decisions([[True, False], [False, False]], [0, 1])
    for label in (-1, 2):
        with pytest.raises(ValueError, match=r"\(1,\)"):
            set_decisions(sets, [0, label])
