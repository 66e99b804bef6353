"""Tests of combinations of the terms of a distance."""

import pytest
import torch

from creinn.distance.radius import FAR_WEIGHT
from experiments.study.terms import FAR, areas, ways_of


@pytest.fixture(scope="module")
def found():
    """Return the two far terms and the four near terms of each row."""
    generator = torch.Generator().manual_seed(0)
    z = {
        name: torch.randn(2000, 6, generator=generator)
        for name in ("held-out", "test", "near", FAR)
    }
    z["near"][:, 2:] += 1
    z[FAR][:, :2] += 4
    return {way: areas(scores) for way, scores in ways_of(z).items()}


def test_each_term_detects_its_own_set(found):
    # Phi(4 / sqrt(8)) and nearly 1
    assert found["near term alone"] == {
        "near": pytest.approx(0.921, abs=0.015),
        FAR: pytest.approx(0.5, abs=0.03),
    }
    assert found["far term alone"] == {
        "near": pytest.approx(0.5, abs=0.03),
        FAR: pytest.approx(0.999, abs=0.005),
    }


def test_combined_terms_detect_both_sets(found):
    joined = {way: of for way, of in found.items() if "alone" not in way}
    assert len(joined) == 8
    for way, of in joined.items():
        assert 0.65 < of["near"] < found["near term alone"]["near"] + 0.01, way
        assert 0.65 < of[FAR] < found["far term alone"][FAR] + 0.01, way


def test_distance_is_sum_of_terms():
    rows = (
        torch.arange(101.0).unsqueeze(1).repeat(1, 6)
    )  # median 50, spread 34; sums 2 and 4 times that
    z = {"held-out": rows, "test": rows[:1] + torch.tensor([84.0] * 6)}
    assert ways_of(z)["as it is"]["test"].item() == pytest.approx((1 + FAR_WEIGHT) * (84 - 50) / 34)
