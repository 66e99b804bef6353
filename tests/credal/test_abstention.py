"""Acceptance thresholds: oracle, guarantee, ties and errors."""

import math

import pytest
import torch

from creinn.credal.abstention import (
    NoThresholdError,
    acceptance_threshold,
    candidate_thresholds,
    error_bounds,
    rows_needed_without_error,
)


def tail(rows, errors, rate):
    """P(Bin(rows, rate) <= errors), summed term by term."""
    return sum(math.comb(rows, k) * rate**k * (1 - rate) ** (rows - k) for k in range(errors + 1))


def slow_threshold(uncertainty, is_error, max_error, confidence, shares=50):
    """Apply fixed-sequence testing with explicit sums; None if no threshold qualifies."""
    pairs = sorted(zip(uncertainty.tolist(), is_error.tolist(), strict=True))
    chosen = None
    for share in range(1, shares + 1):
        value = pairs[math.ceil(share * len(pairs) / shares) - 1][0]
        accepted = [error for u, error in pairs if u <= value]
        if tail(len(accepted), 0, max_error) > 1 - confidence:
            continue
        if tail(len(accepted), sum(accepted), max_error) > 1 - confidence:
            break
        chosen = value
    return chosen


@pytest.mark.parametrize("rows", [60, 333])
@pytest.mark.parametrize("levels", [None, 7])
def test_threshold_equals_explicit_sums(rows, levels):
    generator = torch.Generator().manual_seed(rows)
    for _ in range(10):
        u = torch.rand(rows, generator=generator, dtype=torch.float64)
        u = u if levels is None else (u * levels).floor() / 8
        is_error = torch.rand(rows, generator=generator) < u.square() / 2
        expected = slow_threshold(u, is_error, 0.1, 0.9)
        if expected is None:
            with pytest.raises(NoThresholdError):
                acceptance_threshold(u, is_error, 0.1, 0.9)
        else:
            assert acceptance_threshold(u, is_error, 0.1, 0.9) == pytest.approx(expected)


def test_candidates_by_hand():
    uncertainty = torch.tensor([0.5, 0.0, 0.5, 1.0])
    found = candidate_thresholds(uncertainty, torch.tensor([True, False, False, True]))
    assert found.thresholds == (0.0, 0.5, 1.0)
    assert found.accepted == (1, 3, 4)
    assert found.errors == (0, 1, 2)


def test_bound_by_hand():
    found = candidate_thresholds(torch.zeros(59), torch.zeros(59, dtype=torch.bool))
    assert error_bounds(found, 0.95) == pytest.approx([1 - 0.05 ** (1 / 59)])
    assert rows_needed_without_error(0.05, 0.95) == 59


def test_values_within_the_tolerance_are_accepted_together():
    uncertainty = torch.tensor([0.1, 0.1 + 1e-7, 0.5], dtype=torch.float64)
    found = candidate_thresholds(uncertainty, torch.zeros(3, dtype=torch.bool), tolerance=1e-6)
    assert found.accepted == (2, 3)


def test_error_names_the_smallest_rate():
    uncertainty, is_error = torch.rand(200), torch.rand(200) < 0.3
    with pytest.raises(NoThresholdError, match="200") as caught:
        acceptance_threshold(uncertainty, is_error, 0.01)
    smallest = caught.value.smallest
    assert smallest > 0.01
    acceptance_threshold(uncertainty, is_error, smallest + 1e-6)


@pytest.mark.parametrize("name", ["max_error", "confidence"])
@pytest.mark.parametrize("value", [0, 1, -0.1, True])
def test_settings_outside_the_unit_interval_raise(name, value):
    settings = {"max_error": 0.1, "confidence": 0.9} | {name: value}
    with pytest.raises(ValueError, match=name):
        acceptance_threshold(torch.rand(100), torch.zeros(100, dtype=torch.bool), **settings)


def error_probability(u, kind):
    """Return the error probability of a row, which is constant, linear or a step function."""
    return {"constant": 0.1 + 0 * u, "linear": 0.3 * u, "step": 0.25 * (u > 0.3)}[kind]


def risk_below(threshold, kind, levels):
    """Return the true error rate of the rows with at most this uncertainty."""
    grid = torch.linspace(0, 1, 200_001, dtype=torch.float64)[1:] if levels is None else None
    grid = torch.arange(levels, dtype=torch.float64) / levels if grid is None else grid
    accepted = grid[grid <= threshold + 1e-9]
    return float(error_probability(accepted, kind).mean())


@pytest.mark.parametrize(
    ("kind", "levels", "rows"),
    [("constant", None, 400), ("constant", 6, 80), ("linear", None, 80), ("step", 6, 400)],
)
def test_violations_are_at_most_as_frequent_as_promised(kind, levels, rows):
    generator = torch.Generator().manual_seed(0)
    repeats, confidence, max_error, violations = 2000, 0.95, 0.1, 0
    for _ in range(repeats):
        u = torch.rand(rows, generator=generator, dtype=torch.float64)
        u = u if levels is None else (u * levels).floor() / levels
        is_error = torch.rand(rows, generator=generator) < error_probability(u, kind)
        try:
            threshold = acceptance_threshold(u, is_error, max_error, confidence)
        except NoThresholdError:
            continue
        violations += risk_below(threshold, kind, levels) > max_error + 1e-4
    limit = 1 - confidence
    assert violations / repeats <= limit + 3 * math.sqrt(limit * (1 - limit) / repeats)
