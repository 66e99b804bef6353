"""Tests of the plots of credal sets, by what is drawn on the axes."""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from creinn import CredalSet
from creinn.credal.plot import CORNERS


@pytest.fixture(autouse=True)
def backend():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


FOUR = CredalSet([[0.1, 0.2, 0.0, 0.1], [0.4, 0.1, 0.1, 0.1]], [[0.5, 0.4, 0.3, 0.6], [0.6] * 4])


@pytest.mark.parametrize("s", [FOUR, FOUR[1]])
def test_bars_are_the_intervals(s):
    ax = plt.subplots()[1]
    assert s.plot(ax, names=list("abcd")) is ax
    bars = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in ax.patches]
    expected = torch.stack([s.lower, s.upper], -1).reshape(-1, 2)
    np.testing.assert_allclose(bars, expected, atol=1e-6)
    points = np.concatenate([line.get_ydata() for line in ax.lines])
    np.testing.assert_allclose(points, s.intersection.flatten(), atol=1e-6)
    centers = np.array([bar.get_x() + bar.get_width() / 2 for bar in ax.patches]).reshape(-1, 4)
    assert (abs(centers - np.arange(4)) < 0.5).all()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == list("abcd")
    assert len(plt.get_fignums()) == 1


def test_polygon_has_the_vertices():
    s = CredalSet([0.1, 0.3, 0.0], [0.4, 0.7, 0.32])
    ax = s.plot(names=["cat", "dog", "fox"])
    outline = ax.patches[1].get_xy()[:-1]  # the last point closes the polygon
    expected = s.vertices().double().numpy() @ np.array(CORNERS)
    assert len(outline) == len(expected)
    for point in expected:
        assert np.abs(outline - point).sum(1).min() < 1e-6
    x, y = np.diff(ax.patches[1].get_xy(), axis=0).T
    assert (x * np.roll(y, -1) - y * np.roll(x, -1) > 0).all()  # convex, so no two sides cross
    assert {text.get_text() for text in ax.texts} == {"cat", "dog", "fox"}
    np.testing.assert_allclose(
        np.ravel(ax.lines[0].get_xydata()), s.intersection.numpy() @ np.array(CORNERS), atol=1e-6
    )


def test_several_rows_of_three_classes_have_a_legend():
    ax = CredalSet([[0.1, 0.3, 0.0], [0.0, 0.0, 1.0]], [[0.4, 0.7, 0.32], [0.0, 0.0, 1.0]]).plot()
    assert len(ax.patches) == 3
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["row 0", "row 1"]


def test_invalid_shapes_raise():
    many = CredalSet(torch.full((11, 3), 0.2), torch.full((11, 3), 0.5))
    for s in (many, many[:0], FOUR[None]):
        with pytest.raises(ValueError, match="rows"):
            s.plot()
    with pytest.raises(ValueError, match="4 names"):
        FOUR.plot(names=list("abc"))
    assert not plt.get_fignums()


def test_missing_matplotlib_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="plots"):
        FOUR.plot()
