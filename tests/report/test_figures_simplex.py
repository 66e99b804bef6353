"""Credal sets in the simplex: hand-computed polygons, and merged classes."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from creinn.credal.credal_set import CredalSet
from creinn.report.figures import coarsen, simplex

LOWER, UPPER = torch.tensor([[0.1, 0.2, 0.3], [0.5, 0.5, 0.9]], dtype=torch.float64)


def trace(figure, name):
    (found,) = [t for t in figure.data if t.name == name]
    return found


def points(trace):
    return np.array([trace.a, trace.b, trace.c], dtype=float).T


def test_polygon_by_hand():
    # a in [.1, .5], b in [.2, .5], c in [.3, .7]: the upper bound .9 is redundant, as a + b >= .3
    polygon = points(trace(simplex(CredalSet(LOWER, UPPER), "abc"), "credal set"))
    expected = {(0.1, 0.2, 0.7), (0.1, 0.5, 0.4), (0.2, 0.5, 0.3), (0.5, 0.2, 0.3)}
    assert {tuple(row) for row in polygon.round(5)} == expected
    np.testing.assert_array_equal(polygon[0], polygon[-1])
    assert len(polygon) == 5


def test_polygon_vertices_are_ordered():
    # the six orders of (.1, .3, .6); neighbouring vertices of a polygon of bounds share a bound, that is one coordinate
    hexagon = CredalSet(torch.full((3,), 0.1), torch.full((3,), 0.6))
    polygon = points(trace(simplex(hexagon, "abc"), "credal set"))
    assert len(polygon) == 7
    for one, next_one in itertools.pairwise(polygon):
        assert np.isclose(one, next_one, atol=1e-6).any()


def test_intersection_probability_by_hand():
    # widths .4, .3, .4 and lower bounds that sum to .6: alpha = .4 / 1.1
    mark = points(trace(simplex(CredalSet(LOWER, UPPER), "abc"), "intersection probability"))
    alpha = 0.4 / 1.1
    np.testing.assert_allclose(
        mark, [[0.1 + 0.4 * alpha, 0.2 + 0.3 * alpha, 0.3 + 0.4 * alpha]], atol=1e-6
    )


def test_lines_of_reachable_and_given_bounds():
    figure = simplex(CredalSet(LOWER, UPPER), "abc", given=(LOWER, UPPER))
    reachable, as_given = (
        points(trace(figure, name)) for name in ("reachable bounds", "bounds as given")
    )
    # the last line is the upper bound of c, which is .7 if it is reachable and .9 if it is given
    np.testing.assert_allclose(reachable[-3:-1], [[0.3, 0, 0.7], [0, 0.3, 0.7]], atol=1e-6)
    np.testing.assert_allclose(as_given[-3:-1], [[0.1, 0, 0.9], [0, 0.1, 0.9]], atol=1e-6)
    np.testing.assert_allclose(reachable[:-3], as_given[:-3], atol=1e-6)
    assert np.isnan(reachable[2::3]).all()


def test_no_lines_without_given_bounds():
    names = [trace.name for trace in simplex(CredalSet(LOWER, UPPER), "abc").data]
    assert names == ["reachable bounds", "credal set", "intersection probability"]


def test_corner_labels():
    layout = simplex(CredalSet(LOWER, UPPER), ["cat", "dog", "any other"]).layout.ternary
    titles = [axis.title.text for axis in (layout.aaxis, layout.baxis, layout.caxis)]
    assert titles == ["cat", "dog", "any other"]
    assert layout.sum == 1


def test_single_distribution_is_a_point():
    point = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    polygon = points(trace(simplex(CredalSet(point, point), "abc"), "credal set"))
    np.testing.assert_allclose(polygon, np.tile(point.numpy(), (len(polygon), 1)))


@pytest.mark.parametrize(("shape", "names"), [((2, 3), "abc"), ((4,), "abcd"), ((3,), "ab")])
def test_simplex_of_other_sets_raises(shape, names):
    with pytest.raises(ValueError, match="three"):
        simplex(CredalSet(torch.full(shape, 0.1), torch.full(shape, 0.8)), names)


@pytest.mark.parametrize("classes", [(0, 0), (0, 4), (-1, 2)])
def test_coarsen_with_unknown_classes_raises(classes):
    with pytest.raises(ValueError, match="different"):
        coarsen(CredalSet(torch.full((4,), 0.1), torch.full((4,), 0.8)), *classes)


def test_coarsen_many_sets_raises():
    with pytest.raises(ValueError, match=r"\(2, 4\)"):
        coarsen(CredalSet(torch.full((2, 4), 0.1), torch.full((2, 4), 0.8)), 0, 1)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 5))
def test_coarsen_matches_image_of_set(seed, classes):
    # A linear map takes a polytope to the hull of the images of its vertices. So the merged vertices lie in the coarse
    # set, and they attain the extremes of every linear function on it; here of random ones.
    rng = np.random.default_rng(seed)
    inside = rng.dirichlet(np.ones(classes))
    lower = torch.from_numpy(inside * rng.random(classes))
    upper = torch.from_numpy(inside + (1 - inside) * rng.random(classes))
    fine = CredalSet(lower, upper)
    coarse = coarsen(fine, 2, 0)
    vertices = np.asarray(fine.vertices())
    image = np.stack([vertices[:, 2], vertices[:, 0], 1 - vertices[:, 2] - vertices[:, 0]], 1)
    directions = rng.normal(size=(20, 3))
    expected = (image @ directions.T).max(0)
    found = (np.asarray(coarse.vertices()) @ directions.T).max(0)
    np.testing.assert_allclose(found, expected, atol=1e-9)
