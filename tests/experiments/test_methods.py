"""Prediction with the statistics of the batch: which norms use it, and that their state comes back."""

import copy

import pytest
import torch

from creinn import nn as inn
from creinn.classifier.base import Classifier, evaluating
from creinn.experiments.methods import batch_statistics, has_batch_norm, predict_by_batch
from creinn.interval import Interval
from creinn.rivals import SNN


@pytest.fixture
def x():
    return torch.randn(7, 3, generator=torch.Generator().manual_seed(0)) * 5 + 2


@pytest.mark.parametrize("mode", ["paper", "scaled", "sound"])
def test_interval_norms_use_the_batch_and_keep_their_state(mode, x):
    norm = inn.BatchNorm1d(3, mode=mode).eval()
    interval = Interval(x, x + 0.5)
    reference = copy.deepcopy(norm).train()(interval)
    before = copy.deepcopy(norm.state_dict())
    with batch_statistics(norm):
        found = norm(interval)
    torch.testing.assert_close(found.lower, reference.lower)
    torch.testing.assert_close(found.upper, reference.upper)
    assert not norm.training
    assert norm.track_running_stats
    torch.testing.assert_close(norm.state_dict(), before)
    assert (norm(interval).lower - found.lower).abs().max() > 0.1  # running statistics give something else


def test_state_comes_back_after_an_error():
    norm = torch.nn.BatchNorm1d(2)
    with pytest.raises(RuntimeError), batch_statistics(norm):
        raise RuntimeError
    assert norm.training
    assert norm.track_running_stats


def test_other_parts_stay_in_eval_mode(x):
    network = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)).eval()
    with batch_statistics(network):
        first, second = network(x), network(x)
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(first.mean(0), torch.zeros(3), atol=1e-5, rtol=0)


def test_batches_are_predicted_in_order_and_a_single_last_row_joins(x):
    model = SNN(torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)))
    found = predict_by_batch(model, x, 3)
    with evaluating(model), batch_statistics(model), torch.no_grad():
        expected = torch.cat([model(x[:3]).probabilities, model(x[3:]).probabilities])  # rows 0-2, then 3-6
    torch.testing.assert_close(found.probabilities, expected)
    assert len(predict_by_batch(model, x, 100)) == 7
    assert model.training  # as it was before


def test_one_row_is_refused(x):
    model = SNN(torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)))
    with pytest.raises(ValueError, match="Batch statistics need at least two rows, got 1"):
        predict_by_batch(model, x[:1], 32)


def test_which_models_have_batch_norm():
    assert has_batch_norm(torch.nn.Sequential(inn.BatchNorm2d(2)))
    assert has_batch_norm(torch.nn.BatchNorm2d(2))
    assert not has_batch_norm(torch.nn.Linear(2, 2))
    assert isinstance(SNN(torch.nn.Linear(2, 2)), Classifier)
