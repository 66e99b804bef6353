"""CreRL: relative likelihoods of the members, sets, training and saved models."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from creinn import fit, models
from creinn.baselines import SNN, CreRL, crerl
from creinn.baselines.crerl import initialize, log_likelihood
from creinn.baselines.factory import build_classifier
from creinn.classifier.methods import METHODS
from creinn.credal.credal_set import CredalSet
from creinn.saving import load, save
from creinn.training import TrainConfig


def draw(rows=90, classes=3):
    y = torch.arange(rows) % classes
    return torch.randn(rows, 2) + 2 * torch.eye(classes)[y, :2], y


def trained(alpha=0.7, logits=3, norm=False, **options):
    x, y = draw(classes=max(logits, 2))
    torch.manual_seed(0)
    members = [SNN(nn.Linear(2, logits), logit_norm=norm) for _ in range(4)]
    model = CreRL(members, alpha, learning_rate=0.3, **options)
    fit(model, (x, y), config=TrainConfig(epochs=60, learning_rate=0.1, progress=False))
    return model, x, y


def mean_log_likelihood(member, x, y):
    """Mean log-likelihood, summed row by row."""
    with torch.no_grad():
        probabilities = member(x).probabilities.double()
    return sum(math.log(float(p[k])) for p, k in zip(probabilities, y, strict=True)) / len(y)


@pytest.mark.parametrize(("logits", "norm"), [(1, False), (3, False), (3, True)])
def test_relative_likelihoods_reach_their_thresholds(logits, norm):
    model, x, y = trained(logits=logits, norm=norm)
    first, *others = (mean_log_likelihood(member, x, y) for member in model.members)
    found = [math.exp(one - first) for one in others]
    for share, threshold in zip(found, (0.7, 0.8, 0.9), strict=True):
        assert threshold - 1e-6 <= share <= threshold + 0.05
    assert log_likelihood(model.members[0], x, y) == pytest.approx(first, abs=1e-5)


def test_log_likelihood_by_hand():
    member = SNN(nn.Linear(2, 1))  # probability 3/4 of the true class of every row
    nn.init.zeros_(member.network.weight)
    nn.init.constant_(member.network.bias, math.log(3.0))
    found = log_likelihood(member, torch.zeros(5, 2), torch.ones(5).long())
    assert found == pytest.approx(math.log(3 / 4))


def test_sets_contain_exactly_the_range_of_the_members():
    model, x, _ = trained()
    samples = torch.stack([member(x).probabilities for member in model.members]).detach()
    prediction = model.predict(x)
    assert isinstance(prediction, CredalSet)
    assert_close(prediction.lower, samples.amin(0))
    assert_close(prediction.upper, samples.amax(0))
    assert all(bool(prediction.contains(one).all()) for one in samples)


def test_smaller_alpha_gives_wider_sets():
    widths = []
    for alpha in (0.3, 0.9):
        model, x, _ = trained(alpha)
        widths.append(float(model.predict(x).width.mean()))
    assert widths[0] > 1.5 * widths[1] > 0


def test_initial_members_prefer_different_classes():
    members = [SNN(nn.Linear(2, 3)) for _ in range(3)]
    for preferred, member in enumerate(members):
        initialize(member, preferred, 20.0)
        assert (member(torch.randn(9, 2)).label == preferred).all()


def test_member_below_its_threshold_is_replaced(monkeypatch):
    monkeypatch.setattr(crerl, "MIN_STEPS", 0)
    with pytest.warns(UserWarning, match="passes"):
        model, x, y = trained(passes=1, tilt=100.0)
    first, second, *_ = model.members
    least = min(log_likelihood(member, x, y) for member in model.members)
    assert math.exp(least - log_likelihood(first, x, y)) >= 0.7
    assert_close(first.network.weight, second.network.weight)


def test_untrained_model_predicts_the_first_member():
    model = build_classifier(METHODS["crerl"], partial(models.mlp, in_features=2, num_classes=3))
    x = torch.randn(5, 2)
    assert len(model.members) == 8
    prediction = model.eval().predict(x)
    assert_close(prediction.lower, model.members[0](x).probabilities)
    assert float(prediction.width.max()) == 0


def test_saved_model_predicts_the_same_sets(tmp_path):
    model, x, _ = trained()
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert (loaded.alpha, len(loaded.members)) == (0.7, 4)
    assert_close(loaded.predict(x).upper, model.predict(x).upper)


@pytest.mark.parametrize(("alpha", "count", "token"), [(1.0, 3, "alpha"), (0.5, 1, "members")])
def test_settings_out_of_range_raise(alpha, count, token):
    with pytest.raises(ValueError, match=token):
        CreRL([SNN(nn.Linear(2, 3)) for _ in range(count)], alpha)


def test_layer_without_bias_raises():
    members = [SNN(nn.Linear(2, 3, bias=False)) for _ in range(2)]
    with pytest.raises(ValueError, match="bias"):
        CreRL(members).eval().after_training([draw()])
