"""Coverage of sets: by hand, and the binomial interval by its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from creinn.evaluation import binomial_share, set_coverage


def test_by_hand():
    sets = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]], dtype=bool)
    found = set_coverage(sets, [0, 2, 1, 2, 1])
    assert (found.all.rows, found.all.coverage, found.size, found.empty, found.full) == (
        5,
        0.6,
        1.4,
        0.2,
        0.2,
    )
    assert {size: (share.rows, share.coverage) for size, share in found.by_size.items()} == {
        0: (1, 0.0),
        1: (2, 1.0),
        2: (1, 0.0),
        3: (1, 1.0),
    }
    assert {k: (share.rows, share.coverage) for k, share in found.by_class.items()} == {
        0: (1, 1.0),
        1: (2, 0.5),
        2: (2, 0.5),
    }


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.data())
def test_interval_is_that_of_clopper_and_pearson(rows, data):
    count = data.draw(st.integers(0, rows))
    share = binomial_share(np.arange(rows) < count)
    assert share.coverage == count / rows
    assert 0 <= share.low <= share.coverage <= share.high <= 1
    # at its ends, what was found, or more extreme, has a probability of 2.5 %
    if count > 0:
        assert binom.sf(count - 1, rows, share.low) == pytest.approx(0.025)
    if count < rows:
        assert binom.cdf(count, rows, share.high) == pytest.approx(0.025)


def test_refusals():
    with pytest.raises(
        TypeError, match=r"classes must be boolean, but its dtype is int64\. Pass a mask"
    ):
        set_coverage([[1, 0]], [0])
    with pytest.raises(ValueError, match="with one row at least"):
        set_coverage(np.zeros((0, 3), bool), [])
    with pytest.raises(ValueError, match="Label 2 in row 0 is not a class"):
        set_coverage([[True, False]], [2])
    with pytest.raises(ValueError, match=r"shape \(samples,\) with one at least"):
        binomial_share([])
