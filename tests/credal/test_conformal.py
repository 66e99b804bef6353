"""Tests of conformal sets with slow oracles and with exchangeable data."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from creinn import CredalSet
from creinn.credal.conformal import (
    FREE,
    GROWTH,
    PENALTY,
    SCORES,
    Conformal,
    class_scores,
    conformal_rank,
    lower_score,
    rows_needed,
    usual_mass,
)
from creinn.credal.margin import UNITS, margin_score
from creinn.credal.probability import reachable


def one_group(scores, score="lower", coverage=0.95, **options) -> Conformal:
    scores = torch.as_tensor(scores, dtype=torch.float64)
    groups = torch.zeros(len(scores), dtype=torch.long)
    return Conformal(scores, groups, score, None, coverage, **options)


def random_sets(rows: int, classes: int, seed: int = 0) -> CredalSet:
    rng = np.random.default_rng(seed)
    samples = rng.dirichlet(np.full(classes, 0.5), (3, rows))
    return CredalSet.from_samples(samples)


def slow_score(name: str, lower, upper, p, y: int, usual: float = 0.0) -> float:
    """Compute the sets by the definition."""
    if name == "lower":
        return sum(low for k, low in enumerate(lower) if k != y) / max(sum(lower), usual)
    if name == "dominance":
        return max(low for k, low in enumerate(lower) if k != y) - upper[y]
    if name == "lac":
        return 1 - p[y]
    order = sorted(range(len(p)), key=lambda k: (-p[k], k))
    rank = order.index(y) + 1
    penalty = PENALTY * max(0, rank - FREE) if name == "raps" else 0
    return sum(p[k] for k in order[:rank]) + penalty


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(2, 9),
    st.sampled_from(SCORES),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_scores_match_definition(seed, classes, name, usual):
    s = random_sets(4, classes, seed)
    found = class_scores(name, s.lower, s.upper, s.intersection, usual=usual)
    for row in range(4):
        parts = [part[row].tolist() for part in (s.lower, s.upper, s.intersection)]
        expected = [slow_score(name, *parts, y, usual) for y in range(classes)]
        np.testing.assert_allclose(found[row], expected, atol=1e-9)


def test_points_and_vacuous_sets():
    p = torch.tensor([[0.5, 0.3, 0.2], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(lower_score(p, 0.9), 1 - p)
    for usual in (0.0, 0.5):
        assert (lower_score(0 * p, usual) == 0).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 5, 99, 100, 199, 200, 1000]))
def test_quantile_masses_with_new_row(seed, rows):
    lower = random_sets(rows + 1, 3, seed).lower
    in_calibration, in_new = usual_mass(lower[:-1])
    together = float(lower.sum(-1).sort().values[max(1, int(GROWTH * (rows + 1) / 2)) - 1])
    assert in_calibration <= together <= in_new


def test_dominance_at_zero_equals_interval_dominance():
    s = random_sets(500, 4)
    at_zero = one_group(torch.zeros(99), "dominance")
    assert torch.equal(s.with_conformal(at_zero).classes("conformal"), s.classes("dominance"))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.975, 0.99, 0.999]))
def test_rank_is_minimal(rows, coverage):
    parts = round(coverage * 1000)
    rank = conformal_rank(rows, coverage)
    assert rank * 1000 >= (rows + 1) * parts > (rank - 1) * 1000
    assert (rank <= rows) == (rows >= rows_needed(coverage))


def test_quantile_by_hand():
    # of nine scores the eighth smallest, ceil(10 * 0.8)
    conformal = one_group([0.9, 0.1, 0.5, 0.3, 0.7, 0.2, 0.8, 0.4, 0.6], "lac", 0.8)
    assert conformal.quantiles().tolist() == [0.8]
    assert conformal.quantiles(0.5).tolist() == [0.5]
    assert conformal.quantiles(0.95).tolist() == [math.inf]  # too few rows: all classes
    p = tensor([[0.7, 0.2, 0.1]], dtype=torch.float64)
    s = CredalSet(p, p).with_conformal(conformal)
    assert s.classes("conformal").tolist() == [[True, True, False]]  # 1 - 0.2 is the quantile
    assert s.classes("conformal", coverage=0.5).tolist() == [[True, False, False]]
    assert s.classes("conformal", coverage=0.95).all()


def test_group_quantiles():
    scores = tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dtype=torch.float64)
    groups = tensor([0, 0, 0, 1, 1, 1])
    p = tensor([[0.65, 0.35], [0.65, 0.35]], dtype=torch.float64)
    # the quantiles are 0.3 and 0.6
    by_class = CredalSet(p, p).with_conformal(Conformal(scores, groups, "lac", "class", 0.75))
    assert by_class.classes("conformal").tolist() == [[False, False]] * 2
    by_group = CredalSet(p, p).with_conformal(Conformal(scores, groups, "lac", "groups", 0.75))
    assert by_group.classes("conformal", groups=[0, 1]).tolist() == [[False, False], [True, False]]
    unknown = by_group.classes("conformal", groups=tensor([7, 1]))
    assert unknown.tolist() == [[True, True], [True, False]]
    with pytest.raises(ValueError, match="groups"):
        by_group.classes("conformal")
    with pytest.raises(ValueError, match=r"\(3,\)"):
        by_group.classes("conformal", groups=[0, 1, 1])


def exchangeable(rows: int, classes: int, rng: np.random.Generator, votes: int | None = None):
    """Return the predictions and the samples of the true classes or of the true distributions."""
    truth = rng.dirichlet(np.full(classes, 0.4), rows)
    noisy = torch.from_numpy((truth + 0.1) ** rng.uniform(0.3, 3, (3, rows, 1)))
    s = CredalSet.from_samples(noisy / noisy.sum(-1, keepdim=True))
    labels = rng.multinomial(votes or 1, truth)
    return s, torch.from_numpy(labels / votes if votes else labels.argmax(1))


@pytest.mark.parametrize("coverage", [0.7, 0.9, 0.95])
@pytest.mark.parametrize("score", list(SCORES))
@pytest.mark.parametrize("random", [False, True])
def test_coverage_of_exchangeable_data(score, coverage, random):
    rng, found = np.random.default_rng(1), []
    torch.manual_seed(0)
    n, m, trials = 60, 60, 60
    for _ in range(trials):
        s, y = exchangeable(n + m, 4, rng)
        part = torch.rand(n + m, 1) if random else 1.0
        own, usual = usual_mass(s.lower[:n])
        scores = class_scores(score, s.lower, s.upper, s.intersection, part, own)
        right = scores[torch.arange(n), y[:n]]
        conformal = one_group(right, score, coverage, random=random, usual=usual)
        sets = s[n:].with_conformal(conformal).classes("conformal")
        found.append(sets[torch.arange(m), y[n:]].double().mean().item())
    # the number of covered rows is beta-binomial with mean k / (n + 1) if there are no ties
    k = conformal_rank(n, coverage)
    mean = coverage if random else k / (n + 1)
    spread = math.sqrt(k * (n + 1 - k) / (n + 1) ** 2 / (n + 2) * (1 + (n + 1) / m) / trials)
    assert abs(np.mean(found) - mean) < 4 * spread


def test_randomized_ties_avoid_overcoverage():
    # the scores of a model with an accuracy of 95 % are 0 or 1
    p = tensor([[1.0, 0.0]]).double().repeat(4000, 1)
    rng = np.random.default_rng(0)
    scores, wrong = rng.random(2000) < 0.05, torch.from_numpy(rng.random(4000) < 0.05).long()
    for random, expected, error in ((False, 0.95, 0.015), (True, 0.8, 0.02)):
        s = CredalSet(p, p).with_conformal(one_group(scores, "lac", 0.8, random=random))
        kept = s.classes("conformal")[torch.arange(4000), wrong]
        assert kept.double().mean().item() == pytest.approx(expected, abs=error)


@pytest.mark.parametrize("by", [None, "class", "groups"])
@pytest.mark.parametrize(
    "scores",
    [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.2, 0.2, 0.2, 0.3, 0.3, 0.3], [0.5] * 6],
    ids=["no ties", "ties", "all equal"],
)
@pytest.mark.parametrize("coverage", [0.5, 0.6, 0.7, 0.8])
def test_randomized_sets_have_exact_coverage(scores, coverage, by):
    """Each of n + 1 exchangeable rows is used as the new row. (n + 1) * coverage is not an integer."""
    torch.manual_seed(0)
    every, draws, kept = tensor(scores, dtype=torch.float64), 20_000, []
    for new in range(6):
        others = torch.cat((every[:new], every[new + 1 :]))
        p = torch.stack((1 - every[new], every[new])).expand(draws, 2)
        conformal = Conformal(others, torch.zeros(5).long(), "lac", by, coverage, True)
        groups = torch.zeros(draws).long() if by == "groups" else None
        sets = CredalSet(p, p).with_conformal(conformal).classes("conformal", groups=groups)
        kept.append(sets[:, 0].double().mean().item())
    assert np.mean(kept) == pytest.approx(coverage, abs=0.006)


@pytest.mark.parametrize(
    ("dtype", "rounding", "expected"),
    [(torch.float32, 0.0, True), (torch.float64, 1e-7, True), (torch.float64, 0.0, False)],
)
def test_scores_equal_up_to_rounding_are_ties(dtype, rounding, expected):
    p = tensor([[0.75, 0.25]], dtype=dtype)
    conformal = one_group([0.25 - 1e-6] * 9, "lac", 0.9, rounding=rounding)
    s = CredalSet(p, p).with_conformal(conformal)
    assert s.classes("conformal").tolist() == [[expected, False]]


@pytest.mark.parametrize("margin", UNITS)
@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_widened_sets_contain_distributions(coverage, margin):
    rng, found = np.random.default_rng(2), []
    n, m, trials = 60, 60, 60
    for _ in range(trials):
        s, shares = exchangeable(n + m, 3, rng, votes=5)
        scores = margin_score(s.lower, s.upper, shares, margin)
        wide = s[n:].with_conformal(one_group(scores[:n], margin, coverage)).widened()
        found.append(wide.contains(shares[n:], tolerance=1e-12).double().mean().item())
    k = conformal_rank(n, coverage)
    assert abs(np.mean(found) - k / (n + 1)) < 4 * math.sqrt(0.25 * (1 / n + 1 / m) / trials)
    torch.testing.assert_close(reachable(wide.lower, wide.upper), (wide.lower, wide.upper))
    assert bool((wide.lower_entropy() <= s[n:].lower_entropy() + 1e-9).all())


def test_widened_by_hand():
    s = CredalSet([[0.5, 0.2, 0.1]], [[0.6, 0.4, 0.2]])
    wide = s.with_conformal(one_group([0.15] * 9, "additive", 0.9)).widened()
    np.testing.assert_allclose(wide.lower, [[0.35, 0.05, 0.0]], atol=2e-5)
    np.testing.assert_allclose(wide.upper, [[0.75, 0.55, 0.35]], atol=2e-5)
    inside = one_group([-0.05] * 9, "additive", 0.9)
    torch.testing.assert_close(s.with_conformal(inside).widened().lower, s.lower)


def test_operations_that_preserve_calibration():
    conformal = one_group(torch.zeros(99))
    s = random_sets(6, 3).with_conformal(conformal)
    joined = CredalSet.concatenate([s, s])
    for same in (s[2:], s.to(torch.float32), s.detach(), s.with_label(s.label), joined):
        assert same.conformal is conformal
    assert CredalSet.average([s, s]).conformal is None
    assert CredalSet.concatenate([s, random_sets(6, 3)]).conformal is None
    equal = one_group(torch.zeros(99))
    assert CredalSet.concatenate([s, s.with_conformal(equal)]).conformal == conformal
    for other in (one_group(torch.ones(99)), one_group(torch.zeros(99), coverage=0.9)):
        with pytest.raises(ValueError, match="calibrations"):
            CredalSet.concatenate([s, random_sets(6, 3), s.with_conformal(other)])
    with pytest.raises(ValueError, match="calibrate"):
        random_sets(6, 3).classes("conformal")
    with pytest.raises(ValueError, match="'maximality'"):
        s.classes("maximality", coverage=0.9)
    with pytest.raises(ValueError, match=r"1\.0"):
        s.classes("conformal", coverage=1.0)
    with pytest.raises(ValueError, match=r"s\.classes"):
        s.widened()
    by_votes = s.with_conformal(one_group(torch.zeros(99), "additive"))
    with pytest.raises(ValueError, match=r"s\.widened"):
        by_votes.classes("conformal")


def test_sets_match_mapie():
    pytest.importorskip("mapie")
    from mapie.classification import SplitConformalClassifier
    from sklearn.base import BaseEstimator, ClassifierMixin

    s, y = exchangeable(700, 5, np.random.default_rng(3))
    p = s.intersection.numpy()

    class Known(ClassifierMixin, BaseEstimator):
        """Model that returns the given probabilities for the indices of the rows."""

        classes_, fitted_ = np.arange(5), True

        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            return p[np.asarray(X)[:, 0].astype(int)]

        def predict(self, X):
            return self.predict_proba(X).argmax(1)

    rows = np.arange(700.0)[:, None]
    theirs = SplitConformalClassifier(
        Known(), confidence_level=0.9, conformity_score="lac", prefit=True
    )
    theirs.conformalize(rows[:300], y[:300].numpy())
    scores = class_scores("lac", s.lower, s.upper, s.intersection)[torch.arange(300), y[:300]]
    found = s[300:].with_conformal(one_group(scores, "lac", 0.9)).classes("conformal").numpy()
    assert (found == theirs.predict_set(rows[300:])[1][:, :, 0]).all()
