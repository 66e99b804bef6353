"""Standardisation of columns, with outliers, missing numbers and extreme sizes."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from creinn.data.scaling import FAR, MARGIN, identity, learn_scaling


@pytest.mark.parametrize("factor", [1.0, 1e300, 1e-300])
def test_mean_and_deviation_of_known_numbers(factor):
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((200, 3)) < 0.2, np.nan, rng.normal(size=(200, 3)))
    weights = rng.random(200)
    scaling, outliers = learn_scaling(rows * factor, weights)
    expected = StandardScaler().fit(rows, sample_weight=weights)
    np.testing.assert_allclose(scaling.mean / factor, expected.mean_)
    np.testing.assert_allclose(scaling.scale / factor, expected.scale_)
    assert outliers.tolist() == [0, 0, 0]


def test_one_outlier_does_not_change_the_scaling_of_other_rows():
    values = np.random.default_rng(0).normal(size=(40, 1))
    clean, _ = learn_scaling(values)
    for outlier in (1e4, -1e30, 1.7e308):
        rows = np.concatenate((values, [[outlier]]))
        scaling, outliers = learn_scaling(rows)
        assert outliers.tolist() == [1]
        np.testing.assert_allclose(scaling.apply(values), clean.apply(values), atol=1e-9)
        far = scaling.apply(rows)[-1, 0]
        assert MARGIN < abs(far) < 10
        assert np.sign(far) == np.sign(outlier)


def test_outliers_where_most_values_are_equal():
    rows = np.r_[np.zeros(30), np.arange(9.0), 1e20][:, None]
    scaling, outliers = learn_scaling(rows)
    assert outliers.tolist() == [1]
    assert np.ptp(scaling.apply(rows[:-1])) > 1
    rare, none = learn_scaling(np.r_[np.zeros(30), 1.0][:, None])
    assert none.tolist() == [0]
    assert np.isfinite(rare.low).all()


def test_far_values_are_clipped_and_constants_are_zero():
    scaling, _ = learn_scaling(np.array([[1.0, 0.1], [3.0, 0.1]]))
    np.testing.assert_array_equal(scaling.apply(np.array([[1e300, 0.1]])), [[FAR, 0]])
    np.testing.assert_array_equal(identity(1).apply(np.array([[7.0]])), [[7.0]])
    scaling, _ = learn_scaling(np.array([[1e308], [-1e308], [0.0]]))
    assert np.isfinite(scaling.apply(np.array([[1e308], [-1e308]]))).all()
