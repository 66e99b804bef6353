"""Margins for distributions: oracle, by hand, containment and limits."""

import math

import pytest
import torch

from creinn.credal.margin import UNITS, add_margin, margin_score
from creinn.credal.probability import reachable


def random_intervals(rows, classes, generator):
    """Reachable intervals around random distributions."""
    center = torch.rand(rows, classes, generator=generator, dtype=torch.float64)
    center = center / center.sum(1, keepdim=True)
    down, up = torch.rand(2, rows, classes, generator=generator, dtype=torch.float64) / 4
    return reachable((center - down).clamp_min(0), (center + up).clamp_max(1))


def unit(p, margin):
    return math.sqrt(p * (1 - p)) + 0.02 if margin == "deviation" else 1.0


@pytest.mark.parametrize("margin", UNITS)
@pytest.mark.parametrize("classes", [2, 5])
def test_score_equals_loops(margin, classes):
    generator = torch.Generator().manual_seed(classes)
    lower, upper = random_intervals(50, classes, generator)
    q = torch.rand(50, classes, generator=generator, dtype=torch.float64).pow(4)
    q = q / q.sum(1, keepdim=True)
    expected = []
    for row in torch.stack([lower, upper, q], -1).tolist():
        margins = [max((a - c) / unit(a, margin), (c - b) / unit(b, margin)) for a, b, c in row]
        expected.append(max(margins))
    torch.testing.assert_close(margin_score(lower, upper, q, margin).tolist(), expected)


def test_score_by_hand():
    lower, upper = torch.tensor([0.5, 0.2]), torch.tensor([0.8, 0.5])
    score = margin_score(lower, upper, torch.tensor([0.2, 0.8]))
    assert score.item() == pytest.approx(0.3 / 0.52)  # (0.5 - 0.2) / (sqrt(0.25) + 0.02)


@pytest.mark.parametrize("margin", UNITS)
def test_widened_bounds_contain_rows_with_smaller_scores(margin):
    generator = torch.Generator().manual_seed(0)
    lower, upper = random_intervals(400, 4, generator)
    q = torch.rand(400, 4, generator=generator, dtype=torch.float64).pow(4)
    q = q / q.sum(1, keepdim=True)
    score = margin_score(lower, upper, q, margin)
    size = score.clamp_min(0).median()
    wide_lower, wide_upper = add_margin(lower, upper, size, margin)
    contains = ((wide_lower <= q + 1e-12) & (q <= wide_upper + 1e-12)).all(1)
    assert torch.equal(contains, score <= size + 1e-12)


@pytest.mark.parametrize("margin", UNITS)
def test_limits(margin):
    zeros, ones = torch.zeros(2, 3), torch.ones(2, 3)
    lower, upper = add_margin(zeros, ones, ones[:, :1], margin)
    assert torch.equal(lower, zeros)
    assert torch.equal(upper, ones)
    assert bool((margin_score(zeros, ones, torch.eye(3)[:2], margin) <= 0).all())
    certain = torch.tensor([[1.0, 0.0]])
    assert add_margin(certain, certain, torch.tensor([[-1.0]]), margin)[0].tolist() == [[1.0, 0.0]]
