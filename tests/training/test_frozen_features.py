"""Heads of frozen networks: a model of stored features equals the model of the images."""

import pytest
import torch

from creinn import CreINN, Ensemble, TrainConfig, fit, models
from creinn.baselines import SNN, DeepEnsemble
from creinn.training.frozen_features import Extractor, FeatureHead, attach_network


@pytest.fixture
def images():
    torch.manual_seed(0)
    return torch.randn(60, 3, 16, 16), torch.arange(60) % 3


@pytest.fixture
def extractor(images):
    torch.manual_seed(0)
    network = models.resnet8(3, width=4, layers=torch.nn)
    network.train()(images[0])  # statistics of the batch norms
    return Extractor(network, images[0][:2])


def trained(extractor, images, kind=CreINN, **options):
    head = FeatureHead(extractor.widths, 3)
    if kind is CreINN:
        options |= {"distance": True, "feature_layers": head.feature_layers}
    model = kind(head, **options)
    config = TrainConfig(epochs=2, batch_size=20, progress=False)
    fit(model, (extractor(images[0]), images[1]), config=config)
    return model


def test_features_are_those_of_the_network(extractor, images):
    x = images[0][:20]
    features = extractor(x)
    assert features.shape == (20, sum(extractor.widths))
    with torch.no_grad():
        expected = extractor.network.features(x)
    torch.testing.assert_close(features[:, -16:], expected, rtol=1e-4, atol=1e-5)
    assert extractor.layers[-1] == "<head>"


@pytest.mark.parametrize("calibrates", [False, True])
def test_attached_network_predicts_the_same(extractor, images, calibrates):
    model, (x, y) = trained(extractor, images), images
    if calibrates:
        model.calibrate(extractor(x), y, coverage=0.8)
    expected = model.predict(extractor(x))
    attach_network(model, extractor)
    found = model.predict(x)
    torch.testing.assert_close(found.lower, expected.lower, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.upper, expected.upper, rtol=1e-3, atol=1e-4)
    assert (expected.upper - expected.lower).max() > 1e-3
    assert model.distance_is_current
    assert model.calibration_is_current == calibrates
    model.network.conv1.weight.data.mul_(2)
    model.clear_cache()
    assert not model.distance_is_current


@pytest.mark.parametrize(("kind", "together"), [(CreINN, Ensemble), (SNN, DeepEnsemble)])
def test_members_have_their_own_networks(extractor, images, kind, together):
    model, x = together([trained(extractor, images, kind) for _ in range(2)]), images[0]
    expected = model.predict(extractor(x)).probabilities
    attach_network(model, extractor)
    torch.testing.assert_close(model.predict(x).probabilities, expected, rtol=1e-3, atol=1e-4)
    first, second = (member.network for member in model.members)
    assert first.conv1.weight is not second.conv1.weight
    assert not torch.equal(first.fc.weight, second.fc.weight)
