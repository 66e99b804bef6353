from functools import partial

import pytest
import torch

from creinn import models
from creinn.jobs.methods import METHODS, find_method
from creinn.members import fit_members
from creinn.training import TrainConfig


@pytest.mark.parametrize("name", METHODS)
def test_every_method_makes_classifiers_and_ensembles(name):
    method = find_method(name)
    architecture = partial(models.mlp, in_features=3, num_classes=3, hidden=(4,))
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    y = torch.arange(12) % 3
    members, _ = fit_members(
        lambda: method.build(architecture, "paper"), 2, (x, y), None, TrainConfig(epochs=2, progress=False)
    )
    torch.manual_seed(0)
    prediction = method.ensemble(members).eval()(x)
    assert prediction.probabilities.shape == (12, 3)
    assert hasattr(prediction, "lower") == method.takes_intervals
    if name in ("snn", "deep-ensemble"):
        expected = torch.stack([member(x).probabilities for member in members]).mean(0)
        torch.testing.assert_close(prediction.probabilities, expected)
    if name == "creinn":
        expected = torch.stack([member(x).lower for member in members]).mean(0)
        torch.testing.assert_close(prediction.lower, expected)


def test_unknown_method():
    with pytest.raises(ValueError, match=r"There is no method 'magic'; there are creinn, snn, .*deep-ensemble"):
        find_method("magic")
