"""Tests of all metrics of a prediction, with and without credal sets."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from creinn import CredalSet
from creinn.baselines import Predictive
from creinn.evaluation import auarc, ood_detection, summary

LOWER = [[0.4, 0.3, 0.0], [0.1, 0.1, 0.1], [0.0, 0.0, 0.8]]
UPPER = [[0.6, 0.5, 0.1], [0.7, 0.7, 0.7], [0.1, 0.1, 1.0]]  # sets {0, 1}, {0, 1, 2} and {2}


def prediction(aleatoric, epistemic, label=(0, 0)):
    a, e = torch.tensor(aleatoric), torch.tensor(epistemic)
    return SimpleNamespace(label=torch.tensor(label), aleatoric=a, epistemic=e, total=a + e)


def drawn(kind, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    samples = torch.randn(3, rows, 4, generator=generator).double().softmax(-1)
    return CredalSet(samples.amin(0), samples.amax(0)) if kind == "credal" else Predictive(samples)


@pytest.fixture(params=["credal", "samples"])
def kind(request):
    return request.param


def test_quality_matches_definitions(kind):
    found, labels = drawn(kind, 50, 0), torch.arange(50) % 4
    p, truth = found.probabilities.tolist(), labels.tolist()
    hits = [row == y for row, y in zip(found.label.tolist(), truth, strict=True)]
    sure = [row[k] for row, k in zip(p, found.label.tolist(), strict=True)]
    gaps = [
        sum(h - s for h, s in zip(hits, sure, strict=True) if b / 15 < s <= (b + 1) / 15)
        for b in range(15)
    ]
    squares = [
        sum((q - (k == y)) ** 2 for k, q in enumerate(row)) for row, y in zip(p, truth, strict=True)
    ]
    assert summary.quality(found, labels) == pytest.approx(
        {
            "accuracy": sum(hits) / 50,
            "log_loss": -sum(math.log(row[y]) for row, y in zip(p, truth, strict=True)) / 50,
            "brier": sum(squares) / 50,
            "expected_calibration_error": sum(map(abs, gaps)) / 50,
        }
    )


def test_metrics_of_each_uncertainty(kind):
    inside, outside, labels = drawn(kind, 50, 0), drawn(kind, 30, 1), torch.arange(50) % 4
    curves, found = summary.rejection(inside, labels), summary.detection(inside, outside)
    means = summary.means(inside)
    assert list(curves) == list(found) == list(summary.MEASURES)
    correct = inside.label == labels
    for name, values in summary.uncertainties(inside).items():
        np.testing.assert_allclose(values, getattr(inside, name).numpy())
        assert curves[name].area == pytest.approx(auarc(values, correct))
        assert curves[name].accuracy[0] == pytest.approx(correct.double().mean().item())
        assert found[name] == pytest.approx(ood_detection(values, getattr(outside, name)))
        assert means[name] == pytest.approx(sum(values.tolist()) / 50)
    assert ("width" in means) == (kind == "credal")


def test_uncertain_error_is_rejected_first():
    # the second of two is wrong and more uncertain by every measure: accuracies 1/2 (both kept) and 1 (one kept)
    found = prediction([0.1, 0.2], [0.3, 0.5], label=(0, 1))
    curves = summary.rejection(found, torch.tensor([0, 0]))
    areas = {name: curve.area for name, curve in curves.items()}
    assert areas == dict.fromkeys(summary.MEASURES, 0.75)


def test_increase_ignores_rounding_errors():
    base = prediction([0.0, 0.0], [1e-8, 0.5])
    found = summary.increase(prediction([0.1, 0.1], [0.4, 1.0]), base)
    assert found["epistemic"] == (2.0, 1)
    assert found["total"] == (pytest.approx(2.2), 1)
    assert found["aleatoric"] is None


def test_sets_and_widths_by_hand():
    found, labels = CredalSet(torch.tensor(LOWER), torch.tensor(UPPER)), torch.tensor([1, 2, 0])
    sets = summary.sets(found, labels, "maximality")
    assert (sets.coverage, sets.size) == pytest.approx((2 / 3, (2 + 3 + 1) / 3))
    assert summary.set_size(found, "maximality") == pytest.approx(2)
    widths = [0.2, 0.2, 0.1, 0.6, 0.6, 0.6, 0.1, 0.1, 0.2]  # all of these bounds are reached
    assert summary.means(found)["width"] == pytest.approx(sum(widths) / 9)


def test_samples_have_no_sets():
    found = drawn("samples", 4, 0)
    assert summary.sets(found, torch.tensor([0, 1, 2, 3]), "maximality") is None
    assert summary.set_size(found, "maximality") is None
