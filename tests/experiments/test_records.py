"""What records hold: the numbers of predictions under their names, and examples."""

import numpy as np
import pytest
import torch

from creinn import CredalSet
from creinn.data import Dataset
from creinn.evaluation import accuracy_rejection, auarc
from creinn.experiments import Shift
from creinn.experiments.records import GRID, describe_examples, measure_all, measure_test, set_name
from creinn.rivals import Predictive


def sure(*probabilities):
    """Two classes, the first of these probabilities; one sample, so that aleatoric uncertainty is all there is."""
    p = torch.tensor(probabilities, dtype=torch.float64)
    return Predictive(torch.stack([p, 1 - p], -1)[None])


def binary(*bounds):
    """Credal sets over two classes; epistemic uncertainty is the width of the interval."""
    return CredalSet.binary(*torch.tensor(bounds, dtype=torch.float64).T)


def test_by_hand():
    # the second of two is wrong and more uncertain: accuracies 1/2 (both kept) and 1 (one kept)
    found = measure_test(sure(1.0, 0.5 - 1e-9), torch.tensor([0, 0]))
    assert list(found) == [
        *("accuracy", "log_loss", "brier", "expected_calibration_error", "auarc", "curves", "means"),
    ]
    assert (found["accuracy"], found["brier"], found["expected_calibration_error"]) == (0.5, 0.25, 0.25)
    assert found["log_loss"] == pytest.approx(np.log(2) / 2, abs=1e-6)
    assert found["auarc"] == {"aleatoric": 0.75, "epistemic": 0.5, "total": 0.75}
    assert found["means"] == {"aleatoric": 0.5, "epistemic": 0.0, "total": 0.5}
    assert (found["curves"]["total"][0], found["curves"]["total"][-1]) == (0.5, 1.0)


def test_curves_are_those_of_the_evaluation_at_the_recorded_rates():
    made = sure(*torch.rand(1000, generator=torch.Generator().manual_seed(0)).tolist())
    labels = (torch.arange(1000) % 10 < 7).long()
    found, correct = measure_test(made, labels), made.label == labels
    curve = accuracy_rejection(made.total, correct)
    np.testing.assert_allclose(found["curves"]["total"], np.interp(GRID, curve.rejection, curve.accuracy), atol=6e-6)
    assert found["auarc"]["aleatoric"] == pytest.approx(auarc(made.aleatoric, correct), abs=1e-6)


def test_ood_is_told_from_the_test_images():
    inside, outside = binary((0.0, 0.1), (0.0, 0.3)), binary((0.0, 0.2), (0.0, 0.4), (0.0, 0.5))
    found = measure_all({"points": inside}, torch.tensor([0, 0]), {"other": outside}, (None,))["ood"]["other"]
    # of the six pairs five are in order
    assert found["epistemic"]["auroc"] == pytest.approx(5 / 6, abs=1e-6)
    assert found["total"]["base_rate"] == 0.6
    assert found["means"]["epistemic"] == found["means"]["width"] == pytest.approx(1.1 / 3, abs=1e-6)


def test_increase_is_against_the_first_shift_of_the_kind():
    shifts = (Shift("noise", 0, 0.1), Shift("noise", 0.1, 0.2), Shift("brightness", 0, 0.1))
    tests = {
        str(shift): binary((0.1, 0.1 + width), (0.2, 0.2 + 2 * width))
        for shift, width in zip(shifts, (0.1, 0.3, 0.2), strict=True)
    }
    sets = measure_all(tests, torch.tensor([0, 0]), {}, shifts)["sets"]
    assert [sets[str(s)]["increase"]["epistemic"]["mean"] for s in shifts] == [1, 3, 1]
    assert sets[str(shifts[1])]["increase"]["epistemic"]["excluded"] == 0


def test_increase_over_nothing_is_none():
    shift = Shift("noise", 0, 0.1)
    found = measure_all({str(shift): sure(0.1, 0.2)}, torch.tensor([0, 0]), {}, (shift,))["sets"][str(shift)]
    assert found["increase"]["epistemic"] == {"mean": None, "excluded": 2}


def test_names_of_sets():
    assert (set_name(None), set_name(Shift("brightness", 0.1, 0.15))) == ("points", "brightness [0.1, 0.15]")


def test_examples_are_different_images_where_all_are_equally_certain():
    images = Dataset("x", torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    vacuous = CredalSet(torch.zeros(4, 2), torch.ones(4, 2))
    assert [example["index"] for example in describe_examples(vacuous, images)] == [0, 2, 3]
