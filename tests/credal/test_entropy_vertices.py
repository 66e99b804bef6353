"""Tests of the lower entropy of exported graphs with the search and with enumeration."""

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import tensor

import credal_cases
import reference_credal
from creinn.credal.entropy import MOST_CLASSES, lower_entropy, lower_entropy_by_vertices


def test_by_hand():
    # vertices (0, .6, .4), (.2, .4, .4), (.2, .6, .2); the first has the least entropy
    found = lower_entropy_by_vertices(tensor([0.0, 0.4, 0.2]), tensor([0.2, 0.6, 0.4]))
    assert found.item() == pytest.approx(0.97095, abs=1e-5)
    assert lower_entropy_by_vertices(torch.zeros(4), torch.ones(4)).item() == 0


@pytest.mark.parametrize("family", credal_cases.FAMILIES)
@pytest.mark.parametrize("classes", [2, 3, 6, MOST_CLASSES])
def test_minimum_over_vertices(family, classes):
    lower, upper = credal_cases.FAMILIES[family](5, classes, 0)
    expected = list(map(reference_credal.lower_entropy, lower.numpy(), upper.numpy()))
    found = lower_entropy_by_vertices(lower, upper)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


@credal_cases.seeded()
@given(credal_cases.credal_bounds())
def test_extreme_sets(bounds):
    expected = lower_entropy(*bounds)
    torch.testing.assert_close(lower_entropy_by_vertices(*bounds), expected, rtol=0, atol=1e-10)


def test_bounds_empty_by_rounding():
    torch.manual_seed(0)
    points = torch.randn(200, 7).mul(5).softmax(1)  # with sums that differ slightly from 1
    assert (points.double().sum(1) != 1).any()
    found = lower_entropy_by_vertices(points, points)
    torch.testing.assert_close(found, lower_entropy(points, points), rtol=0, atol=1e-5)


def test_batch_axes():
    lower, upper = credal_cases.FAMILIES["softmax"](6, 4, 0)
    found = lower_entropy_by_vertices(lower.view(2, 3, 4), upper.view(2, 3, 4))
    torch.testing.assert_close(found.flatten(), lower_entropy_by_vertices(lower, upper))
