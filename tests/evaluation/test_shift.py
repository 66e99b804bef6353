"""Relative increase of uncertainty under a shift against the slow definition, and by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from creinn.evaluation import relative_increase

uncertainty = st.sampled_from([0.0, 0.125, 0.3, 1.0, 3.3])


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.tuples(uncertainty, uncertainty), min_size=1, max_size=8).filter(lambda p: any(b > 0 for _, b in p)))
def test_slow_definition(pairs):
    ratios = [t / b for t, b in pairs if b > 0]
    got = relative_increase([t for t, _ in pairs], [b for _, b in pairs])
    assert got == pytest.approx((sum(ratios) / len(ratios), len(pairs) - len(ratios)))


def test_by_hand():
    assert relative_increase([0.2, 0.6, 0.5], [0.1, 0.2, 0.0]) == pytest.approx((2.5, 1))


def test_no_shift_gives_one_and_runs_count_like_samples():
    base = np.random.default_rng(0).random((3, 50)) + 0.1
    assert relative_increase(base, base) == (1.0, 0)
    test = base * np.array([[1.0], [2.0], [6.0]])
    assert relative_increase(test, base) == pytest.approx((3.0, 0))


def test_lists_numpy_and_torch_agree():
    test, base = [1.0, 3.0], [0.5, 0.5]
    expected = relative_increase(test, base)
    assert expected == (4.0, 0)
    assert type(expected.mean) is float
    assert type(expected.excluded) is int
    assert relative_increase(torch.tensor(test, requires_grad=True), np.array(base)) == expected


def test_errors_name_the_cause():
    with pytest.raises(ValueError, match="base is 0 for all 2 samples"):
        relative_increase([1.0, 2.0], [0.0, 0.0])
    with pytest.raises(ValueError, match=r"shapes are \(2,\) and \(1,\)"):
        relative_increase([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match=r"base must be >= 0, but is -0.5 at index \(1,\)"):
        relative_increase([1.0, 2.0], [1.0, -0.5])
    with pytest.raises(ValueError, match=r"test must be >= 0, but is -1 at index \(0,\)"):
        relative_increase([-1.0], [1.0])
    with pytest.raises(ValueError, match=r"test must be finite, but is inf at index \(0,\)"):
        relative_increase([float("inf")], [1.0])
    with pytest.raises(ValueError, match="base is empty"):
        relative_increase([1.0], [])
    with pytest.raises(ValueError, match=r"The ratios overflow: base is as small as 9\.99989e-321"):
        relative_increase([1.0, 1.0], [1e-320, 1.0])
    with pytest.raises(TypeError, match="test must hold real numbers"):
        relative_increase(["x"], [1.0])
