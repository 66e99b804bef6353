"""Measures of uncertainty by hand, their order and bounds, and gradients."""

import pytest
import torch
from torch import tensor

import credal_cases
from creinn.credal.credal_set import CredalSet
from creinn.credal.probability import interval_softmax
from creinn.credal.uncertainty import Uncertainty, entropy_uncertainty, interval_uncertainty, samples_uncertainty
from creinn.numerics import entropy


def test_entropy_uncertainty_by_hand():
    total, aleatoric, epistemic = entropy_uncertainty(tensor([0.0, 0.4, 0.2]), tensor([0.2, 0.6, 0.4]))
    assert total.item() == pytest.approx(1.52193, abs=1e-5)  # (.2, .4, .4): .2 log2 5 + .8 log2 2.5
    assert aleatoric.item() == pytest.approx(0.97095, abs=1e-5)  # (0, .6, .4)
    assert epistemic.item() == pytest.approx(0.55098, abs=1e-5)


def test_interval_uncertainty_by_hand():
    # class 1 in [.1, .6]
    found = interval_uncertainty(tensor([[0.4, 0.1]]), tensor([[0.9, 0.6]]))
    assert [x.item() for x in found] == pytest.approx([0.6, 0.1, 0.5])


def test_interval_uncertainty_is_the_papers_formula_and_symmetric():
    low, high = torch.rand(2, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64).sort(0).values
    lower, upper = torch.stack([1 - high, low], -1), torch.stack([1 - low, high], -1)
    found = interval_uncertainty(lower, upper)
    expected = Uncertainty(torch.minimum(1 - low, high), torch.minimum(low, 1 - high), high - low)
    for got, wanted, swapped in zip(found, expected, interval_uncertainty(lower.flip(-1), upper.flip(-1)), strict=True):
        torch.testing.assert_close(got, wanted)
        torch.testing.assert_close(got, swapped)
    torch.testing.assert_close(found.total, found.aleatoric + found.epistemic)


def test_interval_uncertainty_refuses_three_classes():
    with pytest.raises(ValueError, match=r"defined for 2 classes, found 3 \(bounds of shape \(4, 3\)\)"):
        interval_uncertainty(torch.zeros(4, 3), torch.ones(4, 3))


def test_samples_uncertainty_by_hand():
    # mean (.5, .5): 1 bit; each sample .8113 bits
    total, aleatoric, epistemic = samples_uncertainty(tensor([[[0.75, 0.25]], [[0.25, 0.75]]]))
    assert total.tolist() == pytest.approx([1.0])
    assert aleatoric.item() == pytest.approx(0.81128, abs=1e-5)
    assert epistemic.item() == pytest.approx(0.18872, abs=1e-5)


def test_one_sample_has_no_epistemic_uncertainty():
    q = torch.rand(1, 30, 6, generator=torch.Generator().manual_seed(1)).softmax(-1)
    found = samples_uncertainty(q)
    assert found.epistemic.eq(0).all()
    torch.testing.assert_close(found.total, entropy(q[0]))


def test_samples_uncertainty_refuses_what_has_no_sample():
    with pytest.raises(ValueError, match=r"at least one sample, found shape \(0, 5, 3\)"):
        samples_uncertainty(torch.zeros(0, 5, 3))
    with pytest.raises(ValueError, match=r"\(samples, ..., classes\).*found shape \(3,\)"):
        samples_uncertainty(torch.zeros(3))


@pytest.mark.parametrize("family", ["softmax", "boxes", "lattice"])
def test_measures_are_ordered_and_bounded(family):
    total, aleatoric, epistemic = entropy_uncertainty(*credal_cases.FAMILIES[family](300, 8, seed=2))
    assert ((aleatoric >= 0) & (aleatoric <= total) & (total <= 3 + 1e-12) & (epistemic >= 0)).all()


def logits(count, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    center, radius = torch.randn(2, count, classes, generator=generator, dtype=torch.float64)
    return center - radius.abs(), center + radius.abs()


def unreduced(count, classes, seed):
    """Intervals that are mostly not reachable, as a caller may give them."""
    generator = torch.Generator().manual_seed(seed)
    point = torch.randn(count, classes, generator=generator, dtype=torch.float64).mul(1.5).softmax(-1)
    down, up = torch.rand(2, count, classes, generator=generator, dtype=torch.float64)
    return point * down, point + (0.999 - point) * up.square()


def given(low, high):
    return low, high


KINDS = {
    "logits, paper": (logits, interval_softmax),
    "logits, sound": (logits, lambda low, high: interval_softmax(low, high, "sound")),
    "unreduced": (unreduced, given),
    **{name: (make, lambda low, high: (low * 0.97, high * 1.03)) for name, make in credal_cases.FAMILIES.items()},
}


@pytest.mark.parametrize("classes", [3, 5, 10])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_the_difference_quotients(kind, classes):
    """Of sets without a kink: in each of four directions the quotients to both sides agree."""
    make, bounds = KINDS[kind]
    at = torch.stack(make(500, classes, classes))
    noise = torch.randn(4, *at.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
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
        assert error.max() < 1e-4, f"measure {measure}: {int((error > 1e-4).any(0).sum())} of {error.shape[1]} sets"


def test_points_have_no_epistemic_uncertainty():
    q = torch.randn(200, 12, generator=torch.Generator().manual_seed(3)).mul(5).softmax(-1)
    assert entropy_uncertainty(q, q).epistemic.eq(0).all()
