"""The table of methods: each can be built, trained and put into an ensemble."""

from functools import partial

import pytest
import torch

from creinn import models
from creinn.baselines.factory import build_classifier, build_ensemble
from creinn.classifier.base import Prediction
from creinn.classifier.methods import METHODS, base_method
from creinn.training import TrainConfig
from creinn.training.loop import fit_members


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].forms_ensembles])
def test_methods_build_classifiers_and_ensembles(name):
    method = METHODS[name]
    architecture = partial(models.mlp, in_features=3, num_classes=3, hidden=(4,))
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    y = torch.arange(12) % 3
    config = TrainConfig(epochs=2, progress=False)
    members, _ = fit_members(
        lambda: build_classifier(method, architecture), 2, (x, y), None, config
    )
    torch.manual_seed(0)
    prediction = build_ensemble(method, members).eval()(x)
    assert prediction.probabilities.shape == (12, 3)
    assert hasattr(prediction, "lower") == method.is_credal
    if method.is_credal:
        assert members[0].is_interval == method.takes_intervals
        assert (members[0].distance_radius is not None) == bool(method.options.get("distance"))
    if name == "snn":
        expected = torch.stack([member(x).probabilities for member in members]).mean(0)
        torch.testing.assert_close(prediction.probabilities, expected)
    if name.startswith("creinn"):
        expected = torch.stack([member(x).lower for member in members]).mean(0)
        torch.testing.assert_close(prediction.lower, expected)


@pytest.mark.filterwarnings("ignore:.*CreRL")
@pytest.mark.parametrize("name", ["creinn", "snn", "bnn-l", "effcre", "crerl"])
def test_predictions_follow_protocol(name):
    architecture = partial(models.mlp, in_features=3, num_classes=3, hidden=(4,))
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    model = build_classifier(METHODS[name], architecture)
    model.after_training([(x, torch.arange(12) % 3)])
    prediction = model.predict(x)
    parts = type(prediction).concatenate([prediction[:5], prediction[5:]]).to(torch.float64)
    missing = [
        entry
        for entry in vars(Prediction)
        if not entry.startswith("_") and not hasattr(prediction, entry)
    ]
    assert (missing, len(parts)) == ([], 12)
    for measure in ("label", "probabilities", "total", "aleatoric", "epistemic"):
        torch.testing.assert_close(
            getattr(parts, measure), getattr(prediction, measure), check_dtype=False
        )


def test_average_is_not_a_suffix():
    with pytest.raises(ValueError, match="creinn-average"):
        base_method("creinn-average")
