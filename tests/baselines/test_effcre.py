"""EffCre: shifts and bounds against a search over a grid of shifts."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from creinn.baselines.effcre import EffCre, plausible_shifts, shifted_bounds
from creinn.saving import load, save


def likelihood_ratio(logits, target, shift):
    """Relative likelihood of a shift, computed row by row."""
    change = [
        float((z + shift).log_softmax(0)[k] - z.log_softmax(0)[k])
        for z, k in zip(logits, target, strict=True)
    ]
    return math.exp(sum(change) / len(change))


def draw(rows=40, classes=4, scale=3.0):
    logits = scale * torch.randn(rows, classes, dtype=torch.float64)
    return logits, torch.arange(rows) % classes


@pytest.mark.parametrize("alpha", [0.5, 0.95])
@pytest.mark.parametrize("classes", [2, 4])
def test_ends_of_the_shifts_have_relative_likelihood_alpha(alpha, classes):
    logits, target = draw(classes=classes)
    shifts = plausible_shifts(logits.log_softmax(1), target, alpha)
    for end in shifts:
        for k in range(classes):
            shift = torch.zeros(classes, dtype=torch.float64)
            shift[k] = end[k]
            assert likelihood_ratio(logits, target, shift) == pytest.approx(alpha, abs=1e-6)
    assert (shifts[0] < 0).all()
    assert (shifts[1] > 0).all()


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_bounds_match_search_over_shifts(classes, scale):
    logits, _ = draw(classes=classes, scale=scale)
    ends = torch.stack([-3 * torch.rand(classes), 3 * torch.rand(classes)]).double()
    lower, upper = shifted_bounds(logits.log_softmax(1), *ends)
    found = []
    for k in range(classes):
        for share in torch.linspace(0, 1, 21, dtype=torch.float64):
            shift = torch.zeros(classes, dtype=torch.float64)
            shift[k] = ends[0, k] + share * (ends[1, k] - ends[0, k])
            found.append((logits + shift).softmax(1))
    assert_close(lower, torch.stack(found).amin(0), atol=1e-12, rtol=1e-9)
    assert_close(upper, torch.stack(found).amax(0), atol=1e-12, rtol=1e-9)


def test_bounds_by_hand():
    # odds 1 : 1 with a factor between 1/2 and 2 for the first class: p_1 in [1/3, 2/3]
    logs, shift = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([math.log(2), 0.0])
    lower, upper = shifted_bounds(logs, -shift, shift)
    assert_close(lower, torch.tensor([[1 / 3, 1 / 3]]))
    assert_close(upper, torch.tensor([[2 / 3, 2 / 3]]))


def test_extreme_logits_have_finite_bounds():
    logs = torch.tensor([[1e4, 0.0, -1e4]]).log_softmax(1)
    lower, upper = shifted_bounds(logs, -torch.ones(3), torch.ones(3))
    assert lower.isfinite().all()
    assert upper.isfinite().all()
    assert (lower <= upper).all()


def test_class_without_rows_has_a_finite_shift():
    logits, target = draw(classes=3)
    shifts = plausible_shifts(logits.log_softmax(1), target.clamp_max(1), 0.9)
    assert shifts.isfinite().all()
    assert (shifts[:, 2].abs() <= 1e4).all()


def test_smaller_alpha_gives_wider_sets():
    x, y = torch.randn(60, 2), torch.arange(60) % 3
    widths = []
    for alpha in (0.5, 0.95, 1.0):
        torch.manual_seed(0)
        model = EffCre(nn.Linear(2, 3), alpha)
        model.eval().after_training([(x, y)])
        prediction = model.predict(x)
        widths.append((prediction.upper - prediction.lower).mean().item())
    assert widths[0] > widths[1] > widths[2]


def test_one_logit_and_saved_model(tmp_path):
    x, y = torch.randn(40, 2), torch.arange(40) % 2
    model = EffCre(nn.Linear(2, 1), 0.9)
    model.eval().after_training([(x, y)])
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model").predict(x)
    assert loaded.num_classes == 2
    assert_close(loaded.lower, model.predict(x).lower)


def test_alpha_outside_range_raises():
    with pytest.raises(ValueError, match="alpha"):
        EffCre(nn.Linear(2, 3), alpha=0.0)


def test_sets_match_search_over_plausible_shifts():
    """Search for all shifts on a grid whose relative likelihood is large enough."""
    x, y, alpha = torch.randn(50, 2).double(), torch.arange(50) % 3, 0.9
    model = EffCre(nn.Linear(2, 3).double(), alpha).eval()
    model.after_training([(x[:30], y[:30]), (x[30:], y[30:])])
    with torch.no_grad():
        logits = model.network(x)
    found = []
    for k in range(3):
        for value in torch.linspace(-5, 5, 2001, dtype=torch.float64):
            shift = value * torch.eye(3, dtype=torch.float64)[k]
            change = (logits + shift).log_softmax(1) - logits.log_softmax(1)
            if float(change[torch.arange(50), y].mean().exp()) >= alpha:
                found.append((logits + shift).softmax(1))
    prediction = model.predict(x)
    assert_close(prediction.lower, torch.stack(found).amin(0), atol=2e-3, rtol=0)
    assert_close(prediction.upper, torch.stack(found).amax(0), atol=2e-3, rtol=0)
    assert float(prediction.width.mean()) > 0.1
