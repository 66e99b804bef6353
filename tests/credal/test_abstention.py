"""Abstention: oracle, guarantee, groups, ties and errors."""

import math

import pytest
import torch

from creinn.credal.abstention import (
    CRITERIA,
    SHARES,
    Abstention,
    NoThresholdError,
    error_bounds,
    find_candidates,
    find_limits,
    fit_abstention,
    rows_needed_without_error,
)
from creinn.credal.credal_set import CredalSet
from creinn.numerics import entropy

REPEATS = 4000


def tail(rows, errors, rate):
    """P(Bin(rows, rate) <= errors), summed term by term."""
    return sum(math.comb(rows, k) * rate**k * (1 - rate) ** (rows - k) for k in range(errors + 1))


def slow_limit(uncertainty, is_error, max_error, confidence):
    """Fixed-sequence testing with explicit loops; None if the first test fails."""
    rows = list(zip(uncertainty.tolist(), is_error.tolist(), strict=True))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).tolist()
    size = len(rows) // 5
    grid, tested = sorted(rows[i][0] for i in order[:size]), [rows[i] for i in order[size:]]
    limits = {grid[math.ceil(share * size / SHARES) - 1] for share in range(1, SHARES + 1)}
    needed = rows_needed_without_error(max_error, confidence)
    enough = max(needed, min(3 * needed, len(tested) / 2))
    chosen = None
    for limit in sorted(limits):
        expected = sum(u <= limit for u in grid) / size * len(tested)
        accepted = [error for u, error in tested if u <= limit]
        if expected < enough and limit < grid[-1]:
            continue
        if tail(len(accepted), sum(accepted), max_error) > 1 - confidence:
            break
        chosen = limit
    return chosen


@pytest.mark.parametrize("rows", [60, 333])
@pytest.mark.parametrize("levels", [None, 7])
def test_limit_equals_explicit_sums(rows, levels):
    generator = torch.Generator().manual_seed(rows)
    for _ in range(10):
        u = torch.rand(rows, generator=generator, dtype=torch.float64)
        u = u if levels is None else (u * levels).floor() / 8
        is_error = torch.rand(rows, generator=generator) < u.square() / 2
        expected = slow_limit(u, is_error, 0.1, 0.9)
        if expected is None:
            with pytest.raises(NoThresholdError):
                fit_abstention(u, is_error, 0.1, 0.9)
        else:
            found = fit_abstention(u, is_error, 0.1, 0.9).limits[0]
            assert found == pytest.approx(expected, abs=1e-9)


def test_rows_without_errors_are_accepted_up_to_the_largest_uncertainty():
    limits = fit_abstention(torch.rand(1000), torch.zeros(1000, dtype=torch.bool), 0.05).limits
    assert 0.95 < limits[0] < 1.001


def test_bound_by_hand():
    candidates = find_candidates(torch.zeros(59), torch.zeros(59, dtype=torch.bool), 0.0)
    assert candidates.accepted.tolist() == [48] * SHARES  # 11 of the rows are the grid
    assert error_bounds(candidates, 0.95).tolist() == pytest.approx([1 - 0.05 ** (1 / 48)] * SHARES)
    assert rows_needed_without_error(0.05, 0.95) == 59


def test_error_names_the_smallest_rate():
    torch.manual_seed(0)
    uncertainty, is_error = torch.rand(200), torch.rand(200) < 0.3
    with pytest.raises(NoThresholdError, match="200") as caught:
        fit_abstention(uncertainty, is_error, 0.01)
    smallest = caught.value.smallest
    assert smallest > 0.01
    assert f"{smallest:g}" in str(caught.value)
    fit_abstention(uncertainty, is_error, smallest)
    with pytest.raises(NoThresholdError):
        fit_abstention(uncertainty, is_error, smallest - 1e-3)


@pytest.mark.parametrize("name", ["max_error", "confidence"])
@pytest.mark.parametrize("value", [0, 1, -0.1, True])
def test_settings_outside_the_unit_interval_raise(name, value):
    settings = {"max_error": 0.1, "confidence": 0.9} | {name: value}
    with pytest.raises(ValueError, match=name):
        fit_abstention(torch.rand(100), torch.zeros(100, dtype=torch.bool), **settings)


def test_groups_have_limits_of_their_own():
    u, groups = torch.rand(400), torch.arange(400) % 3
    is_error = (groups == 2) | ((groups == 1) & (u > 0.5))
    with pytest.warns(UserWarning, match="Group 2"):
        found = fit_abstention(u, is_error, 0.1, groups=groups)
    assert found.groups == (0, 1, 2)
    assert 0.9 < found.limits[0] < 1.001
    assert 0.4 < found.limits[1] < 0.7
    new = torch.full((4,), 0.9)
    assert found.accepts(new, [0, 1, 2, 7]).tolist() == [True, False, False, False]
    with pytest.raises(ValueError, match="groups"):
        found.accepts(new)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("by", CRITERIA)
def test_sets_accept_by_each_uncertainty(by, classes):
    torch.manual_seed(0)
    s = CredalSet.from_samples(torch.rand(3, 50, classes).mul(4).softmax(-1))
    u = entropy(s.intersection) if by == "entropy" else getattr(s, by)
    limit = u.median().item()
    carried = s.with_abstention(Abstention((limit,), None, by, 0.1, 0.95))
    assert torch.equal(carried.accepted, u <= limit)
    assert torch.equal(carried[10:].accepted, carried.accepted[10:])
    assert CredalSet.concatenate([carried, carried]).abstention is not None
    assert CredalSet.concatenate([carried, s]).abstention is None
    with pytest.raises(ValueError, match="max_error"):
        _ = s.accepted


def error_probability(u, kind):
    """Error probability of a row."""
    return {
        "constant": 0.1 + 0 * u,
        "increasing": 0.3 * u,
        "step": 0.25 * (u > 0.3),
        "decreasing": 0.22 * (1 - u),
        "peaks": 0.2 * ((u * 5).floor() % 2),
    }[kind]


def risks_below(limits, kind, levels):
    """True error rates among rows with at most these uncertainties; 0 if there are no such rows."""
    count = 100_000 if levels is None else levels
    grid = (torch.arange(count, dtype=torch.float64) + 0.5 * (levels is None)) / count
    accepted = torch.searchsorted(grid, limits + 1e-9, right=True)
    errors = torch.cat([torch.zeros(1), error_probability(grid, kind).cumsum(0)])
    return errors[accepted] / accepted.clamp_min(1)


def violations(find, kind, levels, rows, repeats=REPEATS, max_error=0.1):
    """Share of calibration sets whose true error rate exceeds the guaranteed one."""
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(repeats, rows, generator=generator, dtype=torch.float64)
    u = u if levels is None else (u * levels).floor() / levels
    is_error = torch.rand(u.shape, generator=generator) < error_probability(u, kind)
    risks = risks_below(find(u, is_error, max_error), kind, levels)
    return float((risks > max_error + 1e-4).double().mean())


def guaranteed(u, is_error, max_error):
    """Limits of the calibration sets; those of the first sets also by the public function."""
    limits = find_limits(find_candidates(u, is_error, 1e-12), max_error, 0.95)
    for row in range(5):
        try:
            expected = fit_abstention(u[row], is_error[row], max_error).limits[0]
        except NoThresholdError:
            expected = -math.inf
        assert limits[row].item() == pytest.approx(expected)
    return limits


def largest_allowed(confidence=0.95, repeats=REPEATS):
    """Promised share of violations plus three standard errors."""
    limit = 1 - confidence
    return limit + 3 * math.sqrt(limit * (1 - limit) / repeats)


@pytest.mark.parametrize(
    ("kind", "levels", "rows"),
    [
        ("constant", 6, 80),
        ("increasing", None, 400),
        ("step", 6, 400),
        ("decreasing", None, 100),
        ("peaks", 10, 400),
    ],
)
def test_violations_are_at_most_as_frequent_as_promised(kind, levels, rows):
    assert violations(guaranteed, kind, levels, rows) <= largest_allowed()


def test_the_test_of_violations_can_fail():
    def largest_observed(u, is_error, max_error):
        """Largest limits whose observed error rate is small enough, without a test."""
        values, order = u.sort()
        rate = is_error.gather(1, order).double().cumsum(1) / torch.arange(1, u.shape[1] + 1)
        return torch.where(rate <= max_error, values, 0.0).amax(1)

    assert violations(largest_observed, "increasing", None, 400) > largest_allowed()


def test_no_rows_raise():
    with pytest.raises(ValueError, match="rows"):
        fit_abstention(torch.zeros(0), torch.zeros(0, dtype=torch.bool), max_error=0.1)
