"""Tests of the plots with matplotlib: the drawn values are compared with the metrics."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from creinn import CredalSet
from creinn.evaluation import accuracy_rejection, ood_detection, reliability
from creinn.report import plot_ood, plot_rejection, plot_reliability


@pytest.fixture(autouse=True)
def backend():
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.fixture
def found():
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(60, 4, generator=generator, dtype=torch.float64)
    p = p / p.sum(1, keepdim=True)
    width = 0.2 * torch.rand(60, 1, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(p, 1, generator=generator)[:, 0]
    return CredalSet((p - width).clamp(0), (p + width).clamp_max(1)), labels


def test_rejection(found):
    s, y = found
    ax = plt.subplots()[1]
    assert plot_rejection(s, y, ax) is ax
    assert len(ax.lines) == 3
    curve = accuracy_rejection(s.total, s.label == y)
    np.testing.assert_allclose(ax.lines[2].get_xydata().T, curve)
    assert f"TU, AUARC {curve.area:.3f}" in ax.get_legend().get_texts()[2].get_text()
    assert len(plt.get_fignums()) == 1


def test_ood(found):
    s, _ = found
    near, far = s[:20], CredalSet(torch.zeros(10, 4), torch.ones(10, 4))
    ax = plot_ood(s, {"near": near, "far": far}, by="total", bins=5)
    heights = np.array([bar.get_height() for bar in ax.patches]).reshape(3, 5)
    np.testing.assert_allclose(heights.sum(1), 1)
    np.testing.assert_allclose(heights[2], [0, 0, 0, 0, 1])
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    first, second = (ood_detection(s.total, one.total).auroc for one in (near, far))
    assert texts == ["in distribution", f"near, AUROC {first:.3f}", f"far, AUROC {second:.3f}"]
    single = plot_ood(s, far)
    assert "epistemic" in single.get_xlabel()
    assert len(single.get_legend().get_texts()) == 2
    with pytest.raises(ValueError, match="EU"):
        plot_ood(s, far, by="EU")


def test_reliability(found):
    s, y = found
    ax = plot_reliability(s, y, bins=4)
    expected = reliability(s.probabilities, y, 4, predicted=s.label)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], expected.accuracy)
    np.testing.assert_allclose([bar.get_x() for bar in ax.patches], expected.edges[:-1])
