"""Tests of the decision rules with linear programs and examples."""

import pytest
import torch
from hypothesis import given
from torch import tensor

import credal_cases
import reference_credal
from creinn.credal.decision import RULES, e_admissibility, maximality
from creinn.credal.probability import intersection_probability, interval_softmax, reachable

CLEAR = 1e-7  # the tolerance of the linear programs; smaller margins are ignored


def assert_matches_programs(lower, upper):
    """Compare each class of one set with linear programs; return the number of comparisons."""
    low, high = lower.numpy(), upper.numpy()
    classes = range(len(low))
    kept = {name: rule(lower, upper).tolist() for name, rule in RULES.items()}
    decided = 0
    for j in classes:
        margins = {
            "dominance": -max(low[i] - high[j] for i in classes),
            "maximality": -max(
                reference_credal.difference(low, high, i, j) for i in classes if i != j
            ),
            "e-admissibility": reference_credal.admissibility(low, high, j),
        }
        for name, margin in margins.items():
            if abs(margin) > CLEAR:
                assert kept[name][j] == (margin > 0), (name, j, margin, low, high)
                decided += 1
    return decided


@pytest.mark.parametrize("family", credal_cases.FAMILIES)
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_rules_match_linear_programs(family, classes):
    lower, upper = reachable(*credal_cases.FAMILIES[family](8, classes, seed=classes))
    compared = sum(map(assert_matches_programs, lower, upper))
    assert compared > 8 * classes


@pytest.mark.parametrize("case", credal_cases.CASES, ids=lambda c: c.name)
def test_named_cases_match_linear_programs(case):
    assert_matches_programs(*reachable(*case.bounds()))


@credal_cases.seeded(30)
@given(credal_cases.credal_bounds(most_classes=5))
def test_adversarial_sets_match_linear_programs(bounds):
    assert_matches_programs(*reachable(*bounds))


def test_smallest_difference_in_closed_form():
    lower, upper = reachable(*credal_cases.boxes(20, 4, seed=0, share=1.0))
    for n in range(20):
        for i, j in [(0, 1), (2, 3), (3, 0)]:
            program = reference_credal.difference(lower[n].numpy(), upper[n].numpy(), i, j)
            assert (lower[n, i] - upper[n, j]).item() == pytest.approx(program, abs=1e-9)


def test_rules_by_hand():
    # if class 2 is .31, the sum of the other two classes is .69, so one of them is larger
    # it is maximal, because it can be larger than class 0 for a q of (.31 - , .6, .09 +)
    lower, upper = tensor([0.2, 0.2, 0.2]), tensor([0.6, 0.6, 0.31])
    assert e_admissibility(lower, upper).tolist() == [True, True, False]
    assert maximality(lower, upper).tolist() == [True, True, True]
    # the upper bound of class 1 is above the lower bound .4 of class 0, unlike that of class 2
    lower, upper = tensor([0.4, 0.1, 0.0]), tensor([0.8, 0.5, 0.2])
    assert maximality(lower, upper).tolist() == [True, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", credal_cases.FAMILIES)
def test_rules_are_nested_and_contain_label(family, dtype):
    for classes in (2, 3, 10, 100):
        bounds = credal_cases.FAMILIES[family](200, classes, seed=1)
        lower, upper = reachable(*(x.to(dtype) for x in bounds))
        maximal, admissible = maximality(lower, upper), e_admissibility(lower, upper)
        assert (admissible <= maximal).all()
        label = intersection_probability(lower, upper).argmax(-1, keepdim=True)
        assert admissible.gather(-1, label).all()


def test_e_admissibility_is_stronger_than_maximality():
    lower, upper = credal_cases.independent(2000, 6, seed=2)
    assert e_admissibility(lower, upper).sum() < maximality(lower, upper).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 3, 7, 10, 1000])
def test_uniform_point_contains_all_classes(dtype, classes):
    q = torch.zeros(classes, dtype=dtype).softmax(-1)
    assert all(rule(q, q).all() for rule in RULES.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_point_contains_largest_class_only(dtype):
    torch.manual_seed(3)
    q = torch.randn(300, 40, dtype=dtype).mul(3).softmax(-1)
    expected = q == q.amax(-1, keepdim=True)
    assert all(torch.equal(rule(*reachable(q, q)), expected) for rule in RULES.values())


def test_ties_contain_both_classes():
    q = tensor([[0.4, 0.4, 0.2], [0.1, 0.45, 0.45]])
    for rule in RULES.values():
        assert rule(q, q).tolist() == [[True, True, False], [False, True, True]]


def test_vacuous_sets_contain_all_classes():
    assert all(rule(torch.zeros(4, 9), torch.ones(4, 9)).all() for rule in RULES.values())


@pytest.mark.parametrize("rule", RULES.values())
def test_rules_are_permutation_equivariant_over_any_batch_shape(rule):
    lower, upper = credal_cases.boxes(60, 7, seed=4, share=1.0)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(5))
    kept = rule(lower, upper)
    assert torch.equal(rule(lower[:, order], upper[:, order]), kept[:, order])
    assert torch.equal(rule(lower.view(3, 20, 7), upper.view(3, 20, 7)), kept.view(3, 20, 7))


@pytest.mark.parametrize("rule", RULES.values())
def test_rules_at_huge_float32_logits(rule):
    generator = torch.Generator().manual_seed(6)
    center = 1e4 * torch.randn(100, 10, generator=generator)
    radius = torch.rand(100, 10, generator=generator)
    lower, upper = reachable(*interval_softmax(center - radius, center + radius))
    assert rule(lower, upper).any(-1).all()
