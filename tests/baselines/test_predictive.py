"""Predictions of samples, and ensembles that pool them."""

import json

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from creinn.baselines import (
    BNN,
    SNN,
    DeepEnsemble,
    LaplaceBNN,
    Predictive,
    flipout,
    local_reparameterization,
)
from creinn.baselines.factory import build_classifier
from creinn.baselines.snn import check_tensor, predict_logits
from creinn.classifier.methods import BASELINES, METHODS
from creinn.interval import Interval
from creinn.models import resnet8
from creinn.nn.registry import arguments, build_layer, family_of


def test_uncertainties_by_hand():
    # entropy of (.5, .5) is 1 bit, of (.25, .75) 0.8113 bits; mean (.375, .625) has 0.9544 bits
    p = Predictive(torch.tensor([[[0.5, 0.5]], [[0.25, 0.75]]]))
    assert p.probabilities[0].tolist() == pytest.approx([0.375, 0.625])
    assert p.label.tolist() == [1]
    assert p.total.item() == pytest.approx(0.9544, abs=1e-4)
    assert p.aleatoric.item() == pytest.approx(0.9056, abs=1e-4)
    assert p.epistemic.item() == pytest.approx(0.0488, abs=1e-4)


def test_ordinary_network_has_zero_epistemic_uncertainty():
    torch.manual_seed(0)
    prediction = SNN(nn.Linear(3, 4))(torch.randn(6, 3))
    assert len(prediction) == 6
    assert_close(prediction.epistemic, torch.zeros(6), atol=1e-6, rtol=0)


def test_rows_devices_and_batches():
    logits = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    p = predict_logits(logits)
    assert torch.equal(p[1:3].samples, p.samples[:, 1:3])
    assert_close(p[1:3].log_samples, p.log_samples[:, 1:3])
    assert p.to(torch.float64).log_samples.dtype == torch.float64
    again = Predictive.concatenate([p[:2], p[2:]])
    assert torch.equal(again.samples, p.samples)
    pooled = Predictive.pool([p, p])
    assert pooled.samples.shape == (4, 5, 3)
    assert torch.equal(pooled.samples[2:], p.samples)


def test_log_probabilities_are_finite():
    logits = torch.tensor([[[0.0, 200.0]]])
    assert predict_logits(logits).log_samples[0, 0, 0].item() == pytest.approx(-200.0)
    p = Predictive(torch.tensor([[[0.0, 1.0]]]))
    assert p.log_samples.isfinite().all()
    assert p[:1].to(torch.float64).samples.dtype == torch.float64


def test_empty_samples_raise():
    with pytest.raises(ValueError, match=r"got \(0, 2, 3\)"):
        Predictive(torch.zeros(0, 2, 3))


def test_single_logit_is_binary_classifier():
    network = nn.Linear(2, 1)
    x = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    model = SNN(network)
    assert model.num_classes == 2
    assert_close(model(x).probabilities[:, 1], torch.sigmoid(network(x)[:, 0]))


def test_loss_of_ordinary_network_is_cross_entropy():
    torch.manual_seed(0)
    network, x, y = nn.Linear(3, 4), torch.randn(6, 3), torch.tensor([0, 1, 2, 3, 0, 1])
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    model = SNN(network)
    expected = nn.functional.cross_entropy(network(x), y, weight)
    assert_close(model.loss(model(x), y, weight), expected)


def test_logit_norm_normalises_the_logits():
    torch.manual_seed(0)
    network, x = nn.Linear(3, 4), torch.randn(50, 3)
    logits = network(x)
    expected = ((logits - logits.mean(0)) / (logits.var(0, unbiased=False) + 1e-5).sqrt()).softmax(
        1
    )
    assert_close(SNN(network, logit_norm=True)(x).probabilities, expected)


@pytest.mark.parametrize("method", ["snn", "bnn-r", "bnn-f", "fsvi", "bnn-l"])
def test_ensemble_concatenates_samples(method):
    torch.manual_seed(0)
    x, y = torch.randn(20, 4), torch.arange(20) % 3
    members = [
        build_classifier(METHODS[method], lambda layers: nn.Sequential(layers.Linear(4, 3))).eval()
        for _ in range(3)
    ]
    for member in members:
        member.after_training([(x, y)])
    ensemble = DeepEnsemble(members).eval()
    torch.manual_seed(1)
    prediction = ensemble.predict(x, batch_size=20)
    torch.manual_seed(1)
    parts = [member.predict(x, batch_size=20) for member in members]
    assert len(prediction.samples) == 3 * (1 if method == "snn" else 10)
    assert_close(prediction.samples, torch.cat([p.samples for p in parts]))
    assert (prediction.epistemic > 0).all()
    assert ensemble.num_classes == 3


def test_incompatible_ensemble_members_raise():
    with pytest.raises(ValueError, match=r"\[3, 4\]"):
        DeepEnsemble([SNN(nn.Linear(2, 3)), SNN(nn.Linear(2, 4))])
    with pytest.raises(ValueError, match="members"):
        DeepEnsemble([])


def test_registry_builds_each_method():
    def definition(layers):
        return nn.Sequential(layers.Linear(4, 5), layers.ReLU(), layers.Linear(5, 3))

    assert type(build_classifier(METHODS["snn"], definition)) is SNN
    assert isinstance(
        build_classifier(METHODS["bnn-r"], definition, samples=4).network[0],
        local_reparameterization.Linear,
    )
    assert build_classifier(METHODS["bnn-f"], definition, samples=4).samples == 4
    assert isinstance(build_classifier(METHODS["bnn-f"], definition), BNN)
    assert isinstance(build_classifier(METHODS["bnn-l"], definition), LaplaceBNN)


def test_training_on_intervals_raises():
    with pytest.raises(TypeError, match="Interval"):
        check_tensor(Interval.point(torch.zeros(2, 2)))


def definition(layers) -> nn.Module:
    return nn.Sequential(
        layers.Linear(4, 5), layers.BatchNorm1d(5), layers.ReLU(), layers.Linear(5, 3)
    )


GIVEN = {
    "snn": {"logit_norm": True},
    "bnn-r": {"samples": 3, "prior_std": 0.5, "kl_weight": 0.1, "warmup": 0.0, "logit_norm": True},
    "bnn-f": {"samples": 3, "prior_std": 0.5, "kl_weight": 0.1, "warmup": 0.0},
    "fsvi": {
        "samples": 3, "context": None, "context_points": 7, "prior_std": 0.5, "kl_weight": 0.1, "warmup": 0.0,
        "logit_norm": True,
    },
    "bnn-l": {
        "samples": 3, "normalise": False, "prior_precision": 2.0, "logit_norm": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("method", BASELINES)
def test_saved_options(method):
    options = build_classifier(METHODS[method], definition, **GIVEN[method]).options()
    assert json.loads(json.dumps(options)) == options
    assert options.items() >= GIVEN[method].items()
    assert build_classifier(METHODS[method], definition, **options).options() == options


def test_context_points_are_not_saved():
    options = build_classifier(METHODS["fsvi"], definition, context=torch.zeros(5, 4)).options()
    assert options["context"] is None
    with pytest.raises(RuntimeError, match="context"):
        build_classifier(METHODS["fsvi"], definition, **options).draw_context()


@pytest.mark.parametrize("logit_norm", [False, True])
@pytest.mark.parametrize("method", BASELINES)
def test_half_precision_losses_and_gradients_are_finite(method, logit_norm):
    torch.manual_seed(0)
    x, y = torch.randn(20, 4), torch.arange(20) % 3
    model = build_classifier(METHODS[method], definition, logit_norm=logit_norm)
    model.before_training([(x, y)], epochs=1)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.loss(model(x), y)
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "family"),
    [("local_reparameterization", local_reparameterization), ("flipout", flipout)],
)
def test_families_by_name(name, family):
    assert family_of(family.Conv2d(1, 2, 3)) == name
    assert build_layer(name, "Conv2d", arguments(family.Conv2d(1, 2, 3, bias=False))).bias is None
    network = resnet8(num_classes=3, in_channels=1, width=2, layers=name)
    assert build_classifier(METHODS["bnn-r"], lambda layers: network).eval()(
        torch.zeros(2, 1, 8, 8)
    ).samples.shape == (10, 2, 3)
