"""Tests of the entropies with enumeration, and of the gaps, the gradients and the shapes."""

import pytest
import torch
from hypothesis import given
from jaxtyping import TypeCheckError
from torch import tensor

import credal_cases
import creinn.credal.entropy
import reference_credal
from creinn.credal import entropy_search
from creinn.credal.credal_set import CredalSet
from creinn.credal.entropy import (
    EntropyGapWarning,
    Uncertainty,
    entropy_uncertainty,
    interval_uncertainty,
    lower_entropy,
    samples_uncertainty,
    upper_entropy,
)
from creinn.credal.probability import interval_softmax, reachable
from creinn.numerics import entropy

ENTROPIES = [lower_entropy, upper_entropy]
SMALL = [(family, classes) for family in credal_cases.FAMILIES for classes in range(2, 9)]


def enumerated(lower, upper):
    """Return the lower and the upper entropy of each row."""
    rows = list(zip(lower.numpy(), upper.numpy(), strict=True))
    least = [reference_credal.lower_entropy(low, high) for low, high in rows]
    largest = [reference_credal.upper_entropy(low, high) for low, high in rows]
    return tensor(least, dtype=torch.float64), tensor(largest, dtype=torch.float64)


BY_HAND = tensor([0.0, 0.4, 0.2]), tensor([0.2, 0.6, 0.4])


def assert_members(q, lower, upper, slack=1e-13):
    assert ((q >= lower - slack) & (q <= upper + slack)).all()
    torch.testing.assert_close(q.sum(-1), torch.ones_like(q[..., 0]), rtol=0, atol=slack)


def test_lower_entropy_by_hand():
    # vertices (0, .6, .4), (.2, .4, .4), (.2, .6, .2); the first has the least entropy
    value, q = lower_entropy(*BY_HAND, return_distribution=True)
    assert value.item() == pytest.approx(0.97095, abs=1e-5)  # -.6 log2 .6 - .4 log2 .4
    assert q.tolist() == pytest.approx([0, 0.6, 0.4])


def test_upper_entropy_by_hand():
    # the level is .4, so the first class is .5 and the second class is .1
    bounds = tensor([0.5, 0.0, 0.1]), tensor([0.8, 0.1, 0.6])
    value, q = upper_entropy(*bounds, return_distribution=True)
    assert value.item() == pytest.approx(1.36096, abs=1e-5)  # .5 + .1 log2 10 + .4 log2 2.5
    assert q.tolist() == pytest.approx([0.5, 0.1, 0.4])


@pytest.mark.parametrize("case", credal_cases.CASES, ids=lambda c: c.name)
def test_named_cases_match_enumeration(case):
    lower, upper = case.bounds()
    least, largest = enumerated(lower[None], upper[None])
    for function, expected in ((lower_entropy, least), (upper_entropy, largest)):
        value, q = function(lower, upper, return_distribution=True)
        assert value.item() == pytest.approx(expected.item(), abs=1e-12)
        assert entropy(q).item() == pytest.approx(value.item(), abs=1e-14)
        assert_members(q, lower, upper)


@pytest.mark.parametrize(("family", "classes"), SMALL, ids=str)
def test_random_sets_match_enumeration(family, classes):
    lower, upper = credal_cases.FAMILIES[family](100, classes, seed=classes)
    found = lower_entropy(lower, upper), upper_entropy(lower, upper)
    torch.testing.assert_close(found, enumerated(lower, upper), rtol=0, atol=1e-12)


@credal_cases.seeded(500)
@given(credal_cases.credal_bounds())
def test_adversarial_sets_match_enumeration(bounds):
    bounds = [x[None] for x in bounds]
    found = lower_entropy(*bounds), upper_entropy(*bounds)
    torch.testing.assert_close(found, enumerated(*bounds), rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", [f for f in credal_cases.FAMILIES if f != "concentric"])
@pytest.mark.parametrize(("classes", "count"), [(10, 500), (100, 50), (1000, 4)])
def test_bounds_of_random_sets_are_attained(family, classes, count):
    lower, upper = credal_cases.FAMILIES[family](count, classes, seed=classes)
    value, q, gap = lower_entropy(lower, upper, return_distribution=True, return_gap=True)
    assert gap.eq(0).all()
    torch.testing.assert_close(entropy(q), value, rtol=0, atol=1e-12)
    assert_members(q, lower, upper)
    assert_members(upper_entropy(lower, upper, return_distribution=True)[1], lower, upper)


def stop_early(monkeypatch, budget):
    """Search each set alone, with a budget."""
    monkeypatch.setattr(entropy_search, "BUDGET", budget)
    monkeypatch.setattr(entropy_search, "_FEW", 0)
    monkeypatch.setattr(entropy_search, "_PIECE", 32)


def assert_gap_is_honest(lower, upper, slack=1e-11):
    least, _ = enumerated(lower, upper)
    value, q, gap = lower_entropy(lower, upper, return_distribution=True, return_gap=True)
    assert gap.isfinite().all()
    assert ((value - gap <= least + slack) & (least <= value + slack)).all()
    assert_members(q, lower, upper)
    return gap


@pytest.mark.parametrize("budget", [1, 2**14])
@pytest.mark.parametrize("family", credal_cases.FAMILIES | credal_cases.HARD)
def test_gap_after_early_stop_is_valid(family, budget, monkeypatch):
    stop_early(monkeypatch, budget)
    gap = assert_gap_is_honest(*(credal_cases.FAMILIES | credal_cases.HARD)[family](50, 9, 3))
    if budget == 1 and family in ("equal slopes", "concentric", "independent"):
        assert gap.max() > 1e-4


@credal_cases.seeded(100)
@given(credal_cases.credal_bounds())
def test_gap_of_adversarial_sets_is_valid(bounds):
    with pytest.MonkeyPatch.context() as monkeypatch:
        stop_early(monkeypatch, 1)
        assert_gap_is_honest(*(x[None] for x in bounds), slack=1e-10)


@pytest.mark.parametrize(
    ("family", "classes"),
    [
        ("softmax", 60),
        ("softmax, wide", 60),
        ("boxes", 40),
        ("independent", 30),
        ("concentric", 12),
        ("lattice", 24),
    ],
)
def test_lower_entropy_matches_exhaustive_search(family, classes):
    lower, upper = reachable(*credal_cases.FAMILIES[family](6, classes, seed=1))
    expected = [
        reference_credal.lower_entropy_by_search(*row)
        for row in zip(lower.numpy(), upper.numpy(), strict=True)
    ]
    assert lower_entropy(lower, upper).tolist() == pytest.approx(expected, abs=1e-9)


def test_many_concentric_intervals_are_solved():
    assert lower_entropy(*credal_cases.concentric(2, 60, seed=0), return_gap=True)[1].eq(0).all()


@pytest.mark.parametrize("kind", credal_cases.HARD)
@pytest.mark.parametrize("classes", [20, 30, 200, 1000])
def test_hard_sets_have_small_gap(kind, classes):
    lower, upper = credal_cases.HARD[kind](2, classes, 0)
    value, q, gap = lower_entropy(lower, upper, return_distribution=True, return_gap=True)
    assert (gap < 3e-3).all()
    assert_members(q, *reachable(lower, upper))
    torch.testing.assert_close(entropy(q), value)
    for row in range(len(lower)):
        inside = entropy(reference_credal.members(lower[row], upper[row], 200, seed=0))
        assert inside.min() >= value[row] - gap[row] - 1e-12


def test_unproven_values_warn():
    lower, upper = credal_cases.HARD["equal slopes"](2, 30, 0)
    with pytest.warns(EntropyGapWarning, match="return_gap"):
        value = lower_entropy(lower, upper)
    s = CredalSet(lower, upper)
    again, gap = s.lower_entropy(return_gap=True)
    torch.testing.assert_close(again, value)
    assert ((gap > 0) & (gap < 1e-4)).all()
    with pytest.warns(EntropyGapWarning):
        assert s.aleatoric is not None


def test_core_by_hand():
    """Test which classes can be the free class of a better vertex."""
    lower = tensor([[0.1, 0.2, 0.15, 0.12, 0.11]], dtype=torch.float64)
    width = tensor([[0.1, 0.01, 0.1, 0.1, 0.01]], dtype=torch.float64)
    # the classes can move by the whole width, .001, .02, .02 and the whole width
    off_slope = tensor([[0.0, 100.0, 5.0, 5.0, 5.0]], dtype=torch.float64)
    nodes, best = entropy_search._start(lower, lower + width)
    solved = entropy_search._relax(nodes)._replace(
        filled=torch.zeros_like(lower),
        fractional=tensor([[0]]),
        slope=off_slope,
        bound=tensor([1.0]).double(),
    )
    best = best._replace(attained=tensor([1.1]).double())
    found = entropy_search._core(solved, entropy_search._reach(solved, best))
    # class 3 is replaced by class 2, because the width of class 1 is too small
    assert found.tolist() == [[True, True, True, False, True]]


def test_equal_intervals_are_interchangeable():
    """Test 500 classes of each of two kinds, for which the vertices can be counted."""
    low = tensor([0.0006, 0.0002], dtype=torch.float64)
    high = tensor([0.0013, 0.0019], dtype=torch.float64)
    bounds = low.repeat_interleave(500), high.repeat_interleave(500)
    value, gap = lower_entropy(*bounds, return_gap=True)
    h_low, h_high = (entropy(x.unsqueeze(-1)) for x in (low, high))
    best = []
    for free in range(2):
        count = tensor([500, 500]).index_fill(0, tensor(free), 499)
        top = torch.cartesian_prod(torch.arange(count[0] + 1), torch.arange(count[1] + 1)).double()
        rest = 1 - ((count - top) * low + top * high).sum(-1)
        fits = (rest >= low[free] - 1e-12) & (rest <= high[free] + 1e-12)
        bits = ((count - top) * h_low + top * h_high).sum(-1)
        bits = bits + entropy(rest.clamp_min(0).unsqueeze(-1))
        best.append(bits[fits].min().item())
    assert gap == 0
    assert value.item() == pytest.approx(min(best), abs=1e-10)


@pytest.mark.parametrize("classes", [3, 50, 1000])
def test_entropy_of_members_is_between_bounds(classes):
    for seed in range(3):
        lower, upper = (x[0] for x in credal_cases.boxes(1, classes, seed, share=1.0))
        inside = entropy(reference_credal.members(lower, upper, 200, seed))
        assert inside.min() >= lower_entropy(lower, upper) - 1e-12
        assert inside.max() <= upper_entropy(lower, upper) + 1e-12


def test_equally_ordered_bounds_do_not_branch(monkeypatch):
    torch.manual_seed(0)
    lower, upper = torch.rand(2, 50, 200, dtype=torch.float64).sort(-1).values / 200
    expected = lower_entropy(lower, upper * 3)
    branch = entropy_search._branch

    def childless(*args):
        children = branch(*args)
        assert len(children.row) == 0, "a set with bounds ordered alike was branched on"
        return children

    monkeypatch.setattr(entropy_search, "_branch", childless)
    torch.testing.assert_close(lower_entropy(lower, upper * 3), expected)
    with pytest.raises(AssertionError, match="branched on"):
        lower_entropy(*credal_cases.concentric(5, 9, seed=0))


@pytest.mark.parametrize("function", ENTROPIES)
def test_entropies_are_permutation_invariant(function):
    lower, upper = credal_cases.boxes(100, 9, seed=2, share=1.0)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(3))
    value, q = function(lower, upper, return_distribution=True)
    permuted = function(lower[:, order], upper[:, order], return_distribution=True)
    torch.testing.assert_close(permuted, (value, q[:, order]))


@pytest.mark.parametrize("function", ENTROPIES)
def test_wider_sets_have_wider_entropies(function):
    lower, upper = credal_cases.boxes(200, 6, seed=4, share=0.5)
    inner, outer = function(lower, upper), function(lower * 0.9, (upper * 1.1).clamp_max(1))
    sign = 1 if function is upper_entropy else -1
    assert (sign * (outer - inner) >= -1e-12).all()


@pytest.mark.parametrize("function", ENTROPIES)
def test_batch_shapes(function):
    lower, upper = credal_cases.boxes(24, 5, seed=5, share=1.0)
    value, q = function(lower, upper, return_distribution=True)
    found = function(lower.view(2, 3, 4, 5), upper.view(2, 3, 4, 5), return_distribution=True)
    torch.testing.assert_close(found, (value.view(2, 3, 4), q.view(2, 3, 4, 5)))
    assert function(lower[0], upper[0]).shape == ()
    assert function(lower[:0], upper[:0]).shape == (0,)


def test_rows_do_not_depend_on_chunks(monkeypatch):
    lower, upper = credal_cases.independent(300, 6, seed=6)
    expected = lower_entropy(lower, upper), upper_entropy(lower, upper)
    monkeypatch.setattr(entropy_search, "CHUNK", 40)
    monkeypatch.setattr(creinn.credal.entropy, "CHUNK", 40)
    found = lower_entropy(lower, upper), upper_entropy(lower, upper)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("function", ENTROPIES)
def test_float32_output(function):
    lower, upper = (x.float() for x in credal_cases.softmax_sets(200, 20, seed=7, width=1.0))
    value, q = function(lower, upper, return_distribution=True)
    assert value.dtype == q.dtype == torch.float32
    expected = function(lower.double(), upper.double())
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("function", ENTROPIES)
def test_float32_search_without_float64_device(function, monkeypatch):
    monkeypatch.setattr(creinn.credal.entropy, "widen", lambda x: x)
    lower, upper = (x.float() for x in credal_cases.boxes(300, 8, seed=8, share=1.0))
    expected = function(lower.double(), upper.double())
    torch.testing.assert_close(function(lower, upper).double(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("function", ENTROPIES)
@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
def test_saturated_float32_softmax_sets(function, scale):
    generator = torch.Generator().manual_seed(9)
    center = scale * torch.randn(200, 10, generator=generator)
    radius = torch.rand(200, 10, generator=generator)
    lower, upper = interval_softmax(center - radius, center + radius)
    value, q = function(lower, upper, return_distribution=True)
    assert torch.isfinite(value).all()
    assert (value >= 0).all()
    assert_members(q, lower, upper, slack=1e-6)


@pytest.mark.parametrize("function", ENTROPIES)
def test_gradients_match_differences(function):
    lower, upper = (x.requires_grad_() for x in credal_cases.boxes(6, 5, seed=10, share=1.0))
    assert torch.autograd.gradcheck(function, (lower * 0.99, upper * 1.01))


@pytest.mark.parametrize("function", ENTROPIES)
@pytest.mark.parametrize("case", credal_cases.CASES, ids=lambda c: c.name)
def test_gradients_are_finite(function, case):
    lower, upper = (x.requires_grad_() for x in case.bounds())
    function(lower, upper).backward()
    assert torch.isfinite(lower.grad).all()
    assert torch.isfinite(upper.grad).all()


def test_greedy_order_is_not_optimal():
    # filling class 0 first gives (.2, .6, .2): 1.371 bits; the minimum is .971
    greedy = entropy(tensor([0.2, 0.6, 0.2]))
    assert lower_entropy(*BY_HAND) < greedy - 0.39


def test_shapes_are_checked_in_tests():
    with pytest.raises(TypeCheckError, match="upper"):
        upper_entropy(torch.zeros(2, 3), torch.ones(2, 4))


def test_entropy_uncertainty_by_hand():
    total, aleatoric, epistemic = entropy_uncertainty(*BY_HAND)
    assert total.item() == pytest.approx(1.52193, abs=1e-5)  # (.2, .4, .4): .2 log2 5 + .8 log2 2.5
    assert aleatoric.item() == pytest.approx(0.97095, abs=1e-5)  # (0, .6, .4)
    assert epistemic.item() == pytest.approx(0.55098, abs=1e-5)


def test_interval_uncertainty_by_hand():
    # class 1 in [.1, .6]
    found = interval_uncertainty(tensor([[0.4, 0.1]]), tensor([[0.9, 0.6]]))
    assert [x.item() for x in found] == pytest.approx([0.6, 0.1, 0.5])


def test_interval_uncertainty_matches_paper_and_is_symmetric():
    torch.manual_seed(0)
    low, high = torch.rand(2, 500, dtype=torch.float64).sort(0).values
    lower, upper = torch.stack([1 - high, low], -1), torch.stack([1 - low, high], -1)
    found = interval_uncertainty(lower, upper)
    expected = Uncertainty(torch.minimum(1 - low, high), torch.minimum(low, 1 - high), high - low)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found, interval_uncertainty(lower.flip(-1), upper.flip(-1)))
    torch.testing.assert_close(found.total, found.aleatoric + found.epistemic)


def test_interval_uncertainty_of_three_classes_raises():
    with pytest.raises(ValueError, match=r"\(4, 3\)"):
        interval_uncertainty(torch.zeros(4, 3), torch.ones(4, 3))


def test_samples_uncertainty_by_hand():
    # mean (.5, .5): 1 bit; each sample .8113 bits
    total, aleatoric, epistemic = samples_uncertainty(tensor([[[0.75, 0.25]], [[0.25, 0.75]]]))
    assert total.tolist() == pytest.approx([1.0])
    assert aleatoric.item() == pytest.approx(0.81128, abs=1e-5)
    assert epistemic.item() == pytest.approx(0.18872, abs=1e-5)


def test_single_sample_has_zero_epistemic_uncertainty():
    q = torch.rand(1, 30, 6, generator=torch.Generator().manual_seed(1)).softmax(-1)
    found = samples_uncertainty(q)
    assert found.epistemic.eq(0).all()
    torch.testing.assert_close(found.total, entropy(q[0]))


def test_samples_uncertainty_without_samples_raises():
    with pytest.raises(ValueError, match=r"\(0, 5, 3\)"):
        samples_uncertainty(torch.zeros(0, 5, 3))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        samples_uncertainty(torch.zeros(3))


@pytest.mark.parametrize("family", ["softmax", "boxes", "lattice"])
def test_measures_are_ordered_and_bounded(family):
    bounds = credal_cases.FAMILIES[family](300, 8, seed=2)
    total, aleatoric, epistemic = entropy_uncertainty(*bounds)
    assert ((aleatoric >= 0) & (aleatoric <= total) & (total <= 3 + 1e-12) & (epistemic >= 0)).all()


def logits(count, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    center, radius = torch.randn(2, count, classes, generator=generator, dtype=torch.float64)
    return center - radius.abs(), center + radius.abs()


def unreduced(count, classes, seed):
    """Return intervals, most of which are not reachable."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, classes, generator=generator, dtype=torch.float64)
    point = logits.mul(1.5).softmax(-1)
    down, up = torch.rand(2, count, classes, generator=generator, dtype=torch.float64)
    return point * down, point + (0.999 - point) * up.square()


KINDS = {
    "logits, paper": (logits, interval_softmax),
    "logits, sound": (logits, lambda low, high: interval_softmax(low, high, "sound")),
    "unreduced": (unreduced, lambda low, high: (low, high)),
    **{
        name: (make, lambda low, high: (low * 0.97, high * 1.03))
        for name, make in credal_cases.FAMILIES.items()
    },
}


@pytest.mark.parametrize("classes", [3, 5, 10])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_match_difference_quotients(kind, classes):
    """Return the sets for which the difference quotients of both sides are equal."""
    make, bounds = KINDS[kind]
    at = torch.stack(make(500, classes, classes))
    torch.manual_seed(0)
    noise = torch.randn(4, *at.shape, dtype=torch.float64)
    directions, step = noise * at.abs().clamp_max(0.9), 1e-6

    def measures(x):
        low, high = bounds(*x)
        return torch.stack(CredalSet(low, high.clamp_max(1)).uncertainty("entropy"))

    leaf = at.clone().requires_grad_()
    here = measures(leaf)
    gradients = [torch.autograd.grad(m.sum(), leaf, retain_graph=True)[0] for m in here]
    here = here.detach()
    right, left = (torch.stack([measures(at + s * step * d) for d in directions]) for s in (1, -1))
    to_right, to_left = (right - here) / step, (here - left) / step
    smooth = ((to_right - to_left).abs() < 1e-4).all(0)
    assert smooth.double().mean() > 0.5
    for measure, gradient in enumerate(gradients):
        found = (gradient * directions).sum((1, -1))
        error = (found - (to_right + to_left)[:, measure] / 2).abs()[:, smooth[measure]]
        assert error.max() < 1e-4, f"measure {measure}"


def test_points_have_zero_epistemic_uncertainty():
    q = torch.randn(200, 12, generator=torch.Generator().manual_seed(3)).mul(5).softmax(-1)
    assert entropy_uncertainty(q, q).epistemic.eq(0).all()
