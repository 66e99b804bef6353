"""Tests of the scores and the calibration, compared with slow implementations."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from credal_cases import distributions
from creinn import CredalSet
from creinn.evaluation import (
    brier,
    confusion,
    expected_calibration_error,
    log_loss,
    reliability,
)

P = [[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.3, 0.6], [0.6, 0.4, 0.0]]
Y = [0, 1, 2, 2]


@st.composite
def predictions(draw):
    """Distributions whose confidences fall on the edges of 4, 8 and 16 bins; and true classes."""
    p = draw(distributions())
    return p, draw(st.lists(st.integers(0, p.shape[1] - 1), min_size=len(p), max_size=len(p)))


def slow_calibration_error(p, labels, bins):
    """Compute the error as the sum over the bins, which contain their upper edges."""
    error = 0.0
    for b in range(bins):
        rows = [i for i in range(len(p)) if b / bins < max(p[i]) <= (b + 1) / bins]
        if rows:
            right = sum(list(p[i]).index(max(p[i])) == labels[i] for i in rows) / len(rows)
            said = sum(max(p[i]) for i in rows) / len(rows)
            error += len(rows) / len(p) * abs(right - said)
    return error


@settings(deadline=None)
@given(predictions(), st.sampled_from([1, 2, 4, 8, 16]))
def test_scores_match_definitions(given_, bins):
    p, labels = given_
    rows = range(len(p))
    slow_log = [-math.log(max(p[i][labels[i]], np.finfo(float).eps)) for i in rows]
    assert log_loss(p, labels) == pytest.approx(sum(slow_log) / len(p), abs=1e-12)
    slow_brier = [(q - (k == labels[i])) ** 2 for i in rows for k, q in enumerate(p[i])]
    assert brier(p, labels) == pytest.approx(sum(slow_brier) / len(p), abs=1e-12)
    expected = slow_calibration_error(p, labels, bins)
    assert expected_calibration_error(p, labels, bins) == pytest.approx(expected, abs=1e-12)
    found = p.argmax(1)
    counts = [
        [sum((labels[i], found[i]) == (t, f) for i in rows) for f in range(p.shape[1])]
        for t in range(p.shape[1])
    ]
    assert confusion(found, labels, p.shape[1]).tolist() == counts


def test_scores_by_hand():
    assert log_loss(P[:3], Y[:3]) == pytest.approx(-math.log(0.7 * 0.4 * 0.6) / 3)
    with_zero = (-math.log(0.7 * 0.4 * 0.6) + 36.04365) / 4  # a zero for the truth
    assert log_loss(P, Y) == pytest.approx(with_zero, abs=1e-5)
    assert brier(P, Y) == pytest.approx((0.14 + 0.62 + 0.26 + 1.52) / 4)
    # there are two bins, and .5 is in the lower bin
    expected = (0.5 + 3 * abs(2 / 3 - 1.9 / 3)) / 4
    assert expected_calibration_error(P, Y, bins=2) == pytest.approx(expected)
    assert confusion([0, 0, 2, 0], Y, 3).tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 1]]


def test_reliability_by_hand():
    found = reliability(P, Y, bins=5)
    np.testing.assert_allclose(found.edges, [0, 0.2, 0.4, 0.6, 0.8, 1])
    assert found.rows.sum() == 4
    assert found.rows[:2].tolist() == [0, 0]
    assert np.isnan(found.accuracy[0])
    assert np.isnan(found.confidence[4])
    np.testing.assert_allclose(found.accuracy[2:4], [1 / 3, 1.0])


def test_given_label_breaks_ties():
    p = [[0.5, 0.5], [0.5, 0.5]]  # the probabilities are equal, but there is a label
    assert expected_calibration_error(p, [1, 1], predicted=[1, 1]) == 0.5
    assert reliability(p, [1, 1], 2, predicted=[1, 0]).accuracy[0] == 0.5


def test_single_precision_and_credal_sets():
    sets = CredalSet(torch.tensor([[0.1, 0.2, 0.3]] * 7), torch.tensor([[0.3, 0.5, 0.6]] * 7))
    p, labels = sets.probabilities, torch.tensor([0, 1, 2, 0, 1, 2, 2])
    assert p.dtype == torch.float32
    expected = -p.double().log()[torch.arange(7), labels].mean().item()
    assert log_loss(p, labels) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("score", [log_loss, brier, expected_calibration_error, reliability])
def test_invalid_inputs_raise(score):
    with pytest.raises(ValueError, match=r"\(0,\)"):
        score([[1.0, 2.0]], [0])
    with pytest.raises(ValueError, match=r"\(0,\)"):
        score([[0.5, 0.5]], [2])
    with pytest.raises(ValueError, match=r"\(2,\)"):
        score([[0.5, 0.5]], [0, 1])
    with pytest.raises(TypeError, match="integers"):
        score([[0.5, 0.5]], [0.5])
    with pytest.raises(ValueError, match="shape"):
        score([[0.5, 0.5]], [[0]])


def test_invalid_counts_raise():
    with pytest.raises(ValueError, match="bin"):
        reliability(P, Y, bins=0)
    with pytest.raises(ValueError, match=r"\(1,\)"):
        confusion([0, 1], [0], 2)
    with pytest.raises(ValueError, match=r"\(0,\)"):
        confusion(np.zeros(0, int), np.zeros(0, int), 2)
    with pytest.raises(ValueError, match=r"\(1,\)"):
        confusion([0, 3], [0, 1], 2)


@pytest.mark.parametrize("score", [log_loss, brier, reliability])
def test_invalid_distributions_raise(score):
    with pytest.raises(ValueError, match=r"\(0, 1\)"):
        score([[0.5, float("nan")]], [0])
    with pytest.raises(ValueError, match=r"\(0, 3\)"):
        score(np.zeros((0, 3)), [0])
    with pytest.raises(ValueError, match=r"\(2,\)"):
        score([0.5, 0.5], [0])
    with pytest.raises(ValueError, match=r"\(2, 1\)"):
        score([[1.0], [1.0]], [0])
    with pytest.raises(ValueError, match=r"\(1, 0\)"):
        score([[0.5, 0.5], [-1, 2]], [0, 0])
    with pytest.raises(ValueError, match=r"\(1,\)"):
        score([[0.5, 0.5], [1, 0.5]], [0])
    with pytest.raises(TypeError, match="complex128"):
        score([[1j, 1]], [0])
