from types import SimpleNamespace

import numpy as np
import pytest
import torch

from creinn.evaluation import accuracy_rejection, auarc
from creinn.experiments import Shift
from creinn.experiments.measures import GRID, Scores, measure_all, measure_increase, measure_test, set_name


def prediction(label, aleatoric, epistemic, **bounds):
    a, e = torch.tensor(aleatoric), torch.tensor(epistemic)
    return SimpleNamespace(label=torch.tensor(label), aleatoric=a, epistemic=e, total=a + e, **bounds)


def test_by_hand():
    # the second of two is wrong and more uncertain by every measure: accuracies 1/2 (both kept) and 1 (one kept)
    found = measure_test(Scores.of(prediction([0, 1], [0.1, 0.2], [0.3, 0.5])), torch.tensor([0, 0]))
    assert found["accuracy"] == 0.5
    assert found["auarc"] == {"aleatoric": 0.75, "epistemic": 0.75, "total": 0.75}
    assert found["means"] == pytest.approx({"aleatoric": 0.15, "epistemic": 0.4, "total": 0.55})
    assert found["curves"]["total"][0] == 0.5
    assert found["curves"]["total"][-1] == 1.0


def test_curves_are_those_of_the_evaluation_at_the_recorded_rates():
    rng = np.random.default_rng(0)
    score, correct = rng.random(1000), rng.random(1000) < 0.7
    label, truth = torch.ones(1000, dtype=torch.long), torch.from_numpy(correct).long()
    made = SimpleNamespace(label=label, **{k: torch.from_numpy(score) for k in ("aleatoric", "epistemic", "total")})
    found = measure_test(Scores.of(made), truth)
    curve = accuracy_rejection(score, correct)
    np.testing.assert_allclose(found["curves"]["total"], np.interp(GRID, curve.rejection, curve.accuracy), atol=6e-6)
    assert found["auarc"]["epistemic"] == pytest.approx(auarc(score, correct), abs=1e-6)


def test_ood_is_told_from_the_test_images():
    inside = prediction([0, 0], [0.0, 0.0], [0.1, 0.3])
    outside = prediction([0, 0, 0], [0.0, 0.0, 0.0], [0.2, 0.4, 0.5])
    found = measure_all({"points": inside}, torch.tensor([0, 0]), {"other": outside}, (None,))["ood"]["other"]
    # of the six pairs five are in order
    assert found["epistemic"]["auroc"] == pytest.approx(5 / 6, abs=1e-6)
    assert found["total"]["base_rate"] == 0.6
    assert found["means"]["total"] == pytest.approx(1.1 / 3, abs=1e-6)


def test_increase_is_against_the_first_shift_of_the_kind():
    shifts = (Shift("noise", 0, 0.1), Shift("noise", 0.1, 0.2), Shift("brightness", 0, 0.1))
    tests = {
        str(shift): prediction([0, 0], [0.1, 0.2], [scale, 2 * scale])
        for shift, scale in zip(shifts, (0.2, 0.6, 0.5), strict=True)
    }
    sets = measure_all(tests, torch.tensor([0, 0]), {}, shifts)["sets"]
    assert [sets[str(s)]["increase"]["epistemic"]["mean"] for s in shifts] == [1, 3, 1]
    assert sets[str(shifts[1])]["increase"]["aleatoric"]["mean"] == 1


def test_increase_leaves_out_rounding_errors():
    base = Scores.of(prediction([0, 0], [0.0, 0.0], [1e-8, 0.5]))
    found = measure_increase(Scores.of(prediction([0, 0], [0.1, 0.1], [0.4, 1.0])), base)
    assert found["epistemic"] == {"mean": 2.0, "excluded": 1}
    assert found["aleatoric"] == {"mean": None, "excluded": 2}


def test_width_of_credal_sets_is_recorded():
    made = prediction([0], [0.1], [0.1], lower=torch.tensor([[0.2, 0.3]]), upper=torch.tensor([[0.5, 0.8]]))
    assert measure_test(Scores.of(made), torch.tensor([0]))["means"]["width"] == pytest.approx(0.4)


def test_names_of_sets():
    assert (set_name(None), set_name(Shift("brightness", 0.1, 0.15))) == ("points", "brightness [0.1, 0.15]")
