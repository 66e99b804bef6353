"""Tests of predictions, batch statistics, numbers of records and examples."""

import copy

import numpy as np
import pytest
import torch

from creinn import CredalSet
from creinn import nn as inn
from creinn.baselines import SNN, Predictive
from creinn.classifier.base import Classifier, evaluating
from creinn.data import Dataset
from creinn.evaluation import accuracy_rejection, auarc
from creinn.interval import Interval
from experiments.definition import Shift
from experiments.predictions import (
    GRID,
    batch_norms,
    batch_statistics,
    describe_examples,
    from_arrays,
    measure_all,
    measure_test,
    predict_by_batch,
)


@pytest.fixture
def x():
    return torch.randn(7, 3, generator=torch.Generator().manual_seed(0)) * 5 + 2


@pytest.mark.parametrize("mode", ["paper", "scaled", "sound"])
def test_batch_statistics_preserve_state(mode, x):
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
    assert (
        norm(interval).lower - found.lower
    ).abs().max() > 0.1  # running statistics give something else


def test_state_is_restored_after_error():
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


def test_single_last_row_is_merged(x):
    model = SNN(torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)))
    found = predict_by_batch(model, x, 3)
    with evaluating(model), batch_statistics(model), torch.no_grad():
        expected = torch.cat(
            [model(x[:3]).probabilities, model(x[3:]).probabilities]
        )  # rows 0-2, then 3-6
    torch.testing.assert_close(found.probabilities, expected)
    assert len(predict_by_batch(model, x, 100)) == 7
    assert model.training  # as it was before


def test_single_row_raises(x):
    model = SNN(torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)))
    with pytest.raises(ValueError, match="got 1"):
        predict_by_batch(model, x[:1], 32)


def test_has_batch_norm():
    assert batch_norms(torch.nn.Sequential(inn.BatchNorm2d(2)))
    assert batch_norms(torch.nn.BatchNorm2d(2))
    assert not batch_norms(torch.nn.Linear(2, 2))
    assert isinstance(SNN(torch.nn.Linear(2, 2)), Classifier)


def sure(*probabilities):
    """Return a prediction of two classes with one sample, which has aleatoric uncertainty only."""
    p = torch.tensor(probabilities, dtype=torch.float64)
    return Predictive(torch.stack([p, 1 - p], -1)[None])


def binary(*bounds):
    """Return credal sets over two classes."""
    return CredalSet.binary(*torch.tensor(bounds, dtype=torch.float64).T)


def test_wrapper_of_members():
    members = [
        {"running/test/points/samples": sure(*p).samples.numpy()} for p in ((0.1, 0.5), (0.3, 0.4))
    ]
    wrapped = from_arrays(members, "wrapper")["running"]["test"]["points"]
    assert isinstance(wrapped, CredalSet)
    np.testing.assert_allclose(wrapped.lower, [[0.1, 0.7], [0.4, 0.5]])
    np.testing.assert_allclose(wrapped.upper, [[0.3, 0.9], [0.5, 0.6]])
    assert isinstance(from_arrays(members)["running"]["test"]["points"], Predictive)


def test_by_hand():
    # the second is wrong and more uncertain
    found = measure_test(sure(1.0, 0.5 - 1e-9), torch.tensor([0, 0]))
    assert list(found) == [
        *(
            "accuracy",
            "log_loss",
            "brier",
            "expected_calibration_error",
            "auarc",
            "curves",
            "means",
        ),
    ]
    assert (found["accuracy"], found["brier"], found["expected_calibration_error"]) == (
        0.5,
        0.25,
        0.25,
    )
    assert found["log_loss"] == pytest.approx(np.log(2) / 2, abs=1e-6)
    assert found["auarc"] == {"aleatoric": 0.75, "epistemic": 0.5, "total": 0.75}
    assert found["means"] == {"aleatoric": 0.5, "epistemic": 0.0, "total": 0.5}
    assert (found["curves"]["total"][0], found["curves"]["total"][-1]) == (0.5, 1.0)


def test_curves_at_recorded_rates():
    made = sure(*torch.rand(1000, generator=torch.Generator().manual_seed(0)).tolist())
    labels = (torch.arange(1000) % 10 < 7).long()
    found, correct = measure_test(made, labels), made.label == labels
    curve = accuracy_rejection(made.total, correct)
    np.testing.assert_allclose(
        found["curves"]["total"], np.interp(GRID, curve.rejection, curve.accuracy), atol=6e-6
    )
    assert found["auarc"]["aleatoric"] == pytest.approx(auarc(made.aleatoric, correct), abs=1e-6)


def test_ood_detection():
    inside, outside = binary((0.0, 0.1), (0.0, 0.3)), binary((0.0, 0.2), (0.0, 0.4), (0.0, 0.5))
    found = measure_all({"points": inside}, torch.tensor([0, 0]), {"other": outside}, (None,))[
        "ood"
    ]["other"]
    # of the six pairs five are in order
    assert found["epistemic"]["auroc"] == pytest.approx(5 / 6, abs=1e-6)
    assert found["total"]["base_rate"] == 0.6
    assert (
        found["means"]["epistemic"] == found["means"]["width"] == pytest.approx(1.1 / 3, abs=1e-6)
    )


def test_increase_relative_to_first_shift():
    shifts = (Shift("noise", 0, 0.1), Shift("noise", 0.1, 0.2), Shift("brightness", 0, 0.1))
    tests = {
        str(shift): binary((0.1, 0.1 + width), (0.2, 0.2 + 2 * width))
        for shift, width in zip(shifts, (0.1, 0.3, 0.2), strict=True)
    }
    sets = measure_all(tests, torch.tensor([0, 0]), {}, shifts)["sets"]
    assert [sets[str(s)]["increase"]["epistemic"]["mean"] for s in shifts] == [1, 3, 1]
    assert sets[str(shifts[1])]["increase"]["epistemic"]["excluded"] == 0


def test_increase_over_zero_is_none():
    shift = Shift("noise", 0, 0.1)
    found = measure_all({str(shift): sure(0.1, 0.2)}, torch.tensor([0, 0]), {}, (shift,))["sets"][
        str(shift)
    ]
    assert found["increase"]["epistemic"] == {"mean": None, "excluded": 2}


def test_examples_are_distinct_for_equal_scores():
    images = Dataset(
        "x", torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]), ("a", "b")
    )
    vacuous = CredalSet(torch.zeros(4, 2), torch.ones(4, 2))
    assert [example["index"] for example in describe_examples(vacuous, images)] == [0, 2, 3]
