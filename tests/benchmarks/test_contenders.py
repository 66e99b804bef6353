"""Contenders of the speed benchmark: those that must agree do, and each is timed at what its name says."""

import pytest
import torch
from benchmarks.speed import four_products
from benchmarks.speed.architectures import SMALL, grown
from benchmarks.speed.contenders import (
    ARITHMETIC,
    LABELS,
    SAMPLES,
    TRAINED,
    Contenders,
    fold_batch_norm,
    new_classifier,
    training_step,
)

from creinn import nn as inn
from creinn.credal.credal_set import CredalSet
from creinn.interval import Interval


@pytest.fixture(scope="module", params=["mlp", "resnet8"])
def contenders(request):
    return Contenders(grown("classes", 5) if request.param == "mlp" else grown("width", 4))


@pytest.fixture
def x(contenders):
    torch.manual_seed(0)
    return contenders.architecture.inputs(6)


def bounds(contenders, name, x):
    with torch.no_grad():
        found = contenders.call(name, x)()
    return torch.stack((found.lower, found.upper))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("creinn-compiled", "creinn"),
        ("creinn-four-products", "creinn"),
        ("relative-compiled", "relative"),
        ("creinn-d-compiled", "creinn-d"),
    ],
)
def test_contenders_that_must_agree_do(contenders, x, name, other):
    found, expected = bounds(contenders, name, x), bounds(contenders, other, x)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
    assert (expected[1] - expected[0]).mean() > 0.01  # of sets, not of points


@pytest.mark.parametrize("name", ["snn-folded", "snn-folded-channels-last"])
def test_folded_networks_predict_as_the_network_does(contenders, x, name):
    with torch.no_grad():
        found, expected = (contenders.call(n, x)().samples for n in (name, "snn"))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    kinds = {type(part).__name__ for part in contenders.model(name).modules()}
    assert not {kind for kind in kinds if "BatchNorm" in kind}


@pytest.mark.parametrize("name", ["bnn-r", "bnn-f", "deep-ensemble"])
def test_samplers_give_ten_samples(contenders, x, name):
    with torch.no_grad():
        samples = contenders.call(name, x)().samples
    assert samples.shape == (SAMPLES, len(x), contenders.architecture.arguments["num_classes"])


def test_members_of_the_deep_ensemble_have_memory_of_their_own(contenders):
    members = contenders.model("deep-ensemble").members
    assert len({next(member.parameters()).data_ptr() for member in members}) == SAMPLES


def test_arithmetic_is_done_anew_at_every_call(contenders, x):
    with torch.no_grad():
        call = contenders.call(ARITHMETIC, x)
        first, second = call(), call()
        sets = contenders.call("creinn", x)()
    for one, two, expected in zip(
        first, second, (sets.label, sets.aleatoric, sets.epistemic, sets.total), strict=True
    ):
        assert one.data_ptr() != two.data_ptr()
        torch.testing.assert_close(one, expected)


def test_batch_norms_have_seen_one_batch_and_keep_their_momentum(contenders):
    norms = [
        m
        for m in contenders.model("creinn").modules()
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)
    ]
    assert {norm.momentum for norm in norms} == {0.1}
    assert {int(norm.num_batches_tracked) for norm in norms} == {1}
    assert not contenders.model("creinn").training


def test_only_compiled_contenders_choose_a_memory_format(contenders, x):
    found = {name: contenders.memory_format(name, len(x)) for name in ("creinn", "creinn-compiled")}
    images = len(contenders.architecture.shape) == 3
    assert found["creinn"] is None
    assert found["creinn-compiled"] in (
        ("contiguous_format", "channels_last") if images else (None,)
    )


def test_an_unknown_contender_is_refused(contenders, x):
    with pytest.raises(ValueError, match=r"Unknown contender 'snm'; choose of snn, snn-folded"):
        contenders.call("snm", x)


@pytest.mark.parametrize("name", TRAINED)
def test_a_training_step_changes_parameters(name):
    torch.manual_seed(0)
    architecture = grown("classes", 3)
    model = new_classifier(name, architecture)
    before = [parameter.clone() for parameter in model.parameters()]
    step = training_step(model, architecture.inputs(6), torch.arange(6) % 3)
    step()
    step()
    assert model.training
    assert all(
        (old != new).any()
        for old, new in zip(before, model.parameters(), strict=True)
        if new.numel() > 3
    )


@pytest.mark.parametrize("kind", ["Linear", "Conv2d"])
def test_four_products_by_the_layer_they_stand_for(kind):
    torch.manual_seed(0)
    arguments = (4, 3) if kind == "Linear" else (4, 3, 3)
    layer, expected = getattr(four_products, kind)(*arguments), getattr(inn, kind)(*arguments)
    expected.load_state_dict(layer.state_dict())
    shape = (5, 4) if kind == "Linear" else (5, 4, 6, 6)
    low = torch.rand(shape)
    point, positive = torch.randn(shape), Interval(low, low + torch.rand(shape))
    for x in (point, positive, Interval(low - 0.5, low)):
        found, wanted = layer(x), expected(x)
        torch.testing.assert_close(found.lower, wanted.lower)
        torch.testing.assert_close(found.upper, wanted.upper)


def test_four_products_by_hand():
    layer = four_products.Linear(2, 1, bias=False)
    layer.weight.data = torch.tensor([[1.0, -1.0]])
    layer.weight_radius.data = torch.tensor([[0.5, 0.5]])
    found = layer(Interval(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 3.0]])))
    assert (found.lower.item(), found.upper.item()) == (
        -4.0,
        3.0,
    )  # 0.5 * 1 - 1.5 * 3, 1.5 * 2 - 0.5 * 0


def test_a_norm_whose_input_is_used_elsewhere_is_not_folded():
    class Forked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)

        def forward(self, x):
            y = self.layer(x)
            return y + self.norm(y)

    network = Forked().eval()
    network.norm.running_mean.fill_(1.0)
    x = torch.randn(5, 3)
    torch.testing.assert_close(fold_batch_norm(network)(x), network(x))


def test_every_name_has_a_label_and_networks_are_built_of_one_architecture():
    assert set(TRAINED) < set(LABELS)
    snn, creinn = (Contenders(SMALL["mlp"]).model(name) for name in ("snn", "creinn"))
    assert snn.network.config["arguments"] | {"layers": 0} == creinn.network.config["arguments"] | {
        "layers": 0
    }
    assert isinstance(creinn(torch.zeros(2, 20)), CredalSet)
