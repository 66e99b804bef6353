"""Mode "rigorous": exact members of small networks lie inside, also where mode "sound" loses them to rounding."""

import math
import warnings
from fractions import Fraction

import flint
import numpy as np
import pytest
import torch

import creinn
from creinn import CreINN, Ensemble, Interval, models, native
from creinn import nn as inn
from creinn.graph.fold import FoldedFull, FoldedLayer
from creinn.graph.native import NativeFull, OnInputs
from creinn.rounding import outwards
from reference_exact import BITS, draw_member, exact, misses, run
from rigorous_cases import (
    NETWORKS,
    count_misses,
    every_kind,
    forms_of,
    inputs_of,
    model_of,
    natively,
)


@pytest.mark.parametrize("name", NETWORKS)
def test_members_lie_inside(name):
    widths = []
    for case, seed, model, x, forms in every_kind(name, model_of, rows=2, wide=3):
        found = count_misses(model, x, seed, forms)
        assert (found.logits_missed, sum(found.missed)) == (0, 0), case
        widths += found.widths
    assert torch.cat([w.double() for w in widths]).amin() < 1e-3  # not by being wide


def test_sound_mode_misses_members_that_rigorous_mode_holds():
    model, x = model_of("convolutions", "points", 0), inputs_of("convolutions", "points", 4, 0)
    assert count_misses(model, x, 0, forms_of(model)).missed == [0, 0, 0]
    model.mode = "sound"
    assert min(count_misses(model, x, 0, forms_of(model)).missed) > 0


FORMS = {
    "plain": lambda model: model,
    "by torch": lambda model: creinn.compile(model, native=False).model,
    "native": lambda model: natively(model).model,
}


@pytest.mark.parametrize("form_of", FORMS.values(), ids=FORMS)
def test_wide_radii_are_rounded_outwards_too(form_of):
    # members with the least and the largest weights of the last layer attain the bounds of its logits
    torch.manual_seed(0)
    network = torch.nn.Sequential(inn.Linear(6, 8), inn.ReLU(), inn.Linear(8, 40))
    model = CreINN(network, mode="sound", logit_norm=False).eval()
    inn.scale_radii_(network[0], 1e-30)
    x, rng, missed = torch.randn(10, 6), np.random.default_rng(0), {}
    for mode in ("sound", "rigorous"):
        model.mode = mode
        form = form_of(model)
        with torch.no_grad(), outwards(mode == "rigorous"):
            logits = form._logits(model._inputs(x))
            lower, upper = logits.lower, logits.upper
        with flint.ctx.workprec(BITS):
            members = [
                run(network, exact(x), draw_member(network, kind, rng))
                for kind in ("lower", "upper")
            ]
        missed[mode] = sum(misses(balls, lower, upper, -math.inf, math.inf) for balls in members)
    assert missed["sound"] > 100
    assert missed["rigorous"] == 0


def test_compiled_layers_are_those_that_are_proved():
    model = CreINN(models.resnet8(num_classes=3, width=4), mode="rigorous").eval()
    for by_library, proved in ((True, {NativeFull, OnInputs}), (False, {FoldedFull})):
        compiled = creinn.compile(model, native=by_library)
        layers = [part for part in compiled.modules() if isinstance(part, FoldedLayer)]
        assert {
            type(layer) for layer in layers
        } == proved  # a layer of another kind may round in other ways
        assert all(layer.outward for layer in layers if isinstance(layer, NativeFull))


@pytest.mark.skipif(not native.available, reason=native.reason)
@pytest.mark.parametrize("kind", ["usual", "cancelling"])
@torch.no_grad()
def test_torch_can_go_on_where_the_library_began(kind):
    # the block weight was dropped, and is made anew of the packed weights
    model, x = model_of("residual", kind, 0), inputs_of("residual", kind, 4, 0)
    compiled = natively(model)
    compiled(x)
    layers = [
        layer
        for layer in compiled.modules()
        if isinstance(layer, NativeFull) and layer.block is None
    ]
    assert len(layers) == 3
    for layer in layers:
        layer._fits = lambda *arguments: False
    assert count_misses(model, x, 0, [compiled]).missed == [0]
    assert None not in {layer.block for layer in layers}


def hidden_signal() -> CreINN:
    """Logits ``4 x`` and 2, the first by way of ``x + 2**30``, which swallows ``x`` in single precision."""
    network = torch.nn.Sequential(inn.Linear(1, 1), inn.ReLU(), inn.Linear(1, 2))
    model = CreINN(network, mode="sound", logit_norm=False).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        network[0].weight.fill_(1)
        network[0].bias.fill_(2.0**30)
        network[2].weight[0] = 4
        network[2].bias.copy_(torch.tensor([-(2.0**32), 2.0]))
    return model


def test_a_signal_that_large_numbers_swallow():
    # at x = 0.9 the logits are 3.6 and 2, and class 0 has 1 / (1 + exp(-1.6)) = 0.8320; floating point gives 0 and 2
    model, x = hidden_signal(), torch.tensor([[0.9]])
    real = 1 / (1 + np.exp(-1.6))
    for form in (model, creinn.compile(model), lambda x: model.predict(x)):
        assert form(x).upper[0, 0].item() == pytest.approx(0.1192, abs=1e-4)
    model.mode = "rigorous"
    for form in (model, creinn.compile(model), lambda x: model.predict(x)):
        assert form(x).lower[0, 0].item() <= real <= form(x).upper[0, 0].item()
    exact = model.double()(x.double())  # where nothing is swallowed
    assert exact.lower[0, 0].item() <= real <= exact.upper[0, 0].item()
    assert exact.width.amax() < 1e-3


def test_an_overflow_gives_the_vacuous_set():
    model = hidden_signal()
    model.mode = "rigorous"
    for form in (model.predict, *forms_of(model)):
        found = form(torch.tensor([[0.5], [3e38]]))
        assert found.upper[1].tolist() == [1, 1]
        assert found.lower[1].tolist() == [0, 0]


def test_flushed_subnormal_numbers_are_paid_for():
    model, x = model_of("perceptron", "denormal", 0), inputs_of("perceptron", "denormal", 2, 0)
    torch.set_flush_denormal(True)
    try:
        with torch.no_grad():
            sets = [form(x) for form in forms_of(model)]
    finally:
        torch.set_flush_denormal(False)
    assert count_misses(model, x, 0, [lambda x, s=s: s for s in sets]).missed == [0, 0, 0]


def test_other_algorithms_of_convolutions_are_kept_away():
    model, x = model_of("residual", "points", 1), inputs_of("residual", "points", 16, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about devices that are not there
        with torch.backends.mkldnn.flags(enabled=False), torch.no_grad():  # where NNPACK transforms
            sets = [form(x) for form in forms_of(model)]
    assert count_misses(model, x, 0, [lambda x, s=s: s for s in sets], ("centre",)).missed == [
        0,
        0,
        0,
    ]


def test_centres_that_were_rounded_elsewhere_are_not_taken():
    low = torch.full((1, 6), 1.0)
    x = Interval(low, low + 2.0**-23)
    assert x.moments is not None  # rounds: a centre between two neighbours is none of float32
    model = model_of("perceptron", "points", 3)
    fresh = Interval(x.lower, x.upper)
    assert torch.equal(model(x).lower, model(fresh).lower)


def test_mode_is_set_on_a_trained_model_saved_and_loaded(tmp_path):
    torch.manual_seed(0)
    model = CreINN(models.resnet8(num_classes=3, width=4, in_channels=1), mode="sound").eval()
    inn.scale_radii_(model, 1e-4)
    x = torch.rand(3, 1, 8, 8)
    sound = model.predict(x)
    model.mode = "rigorous"
    found = model.predict(x)
    assert bool((found.lower <= sound.lower).all() and (found.upper >= sound.upper).all())
    assert bool((found.width > sound.width).any())
    model.save(tmp_path)
    loaded = creinn.load(tmp_path)
    assert loaded.mode == "rigorous"
    torch.testing.assert_close(loaded(x).lower, model(x).lower)
    torch.testing.assert_close(Ensemble([model, loaded], "envelope")(x).lower, model(x).lower)
    model.mode = "paper"
    assert {norm.mode for norm in model.modules() if isinstance(norm, inn.BatchNorm2d)} == {"paper"}


@pytest.mark.parametrize("count", [3, 7])
def test_averages_of_rigorous_members_contain_the_real_average(count):
    members, x = (
        [model_of("perceptron", "usual", seed) for seed in range(count)],
        inputs_of("perceptron", "usual", 50, 0),
    )
    sets, found = [member(x) for member in members], Ensemble(members)(x)
    for name, is_inside in (("lower", Fraction.__le__), ("upper", Fraction.__ge__)):
        bounds = zip(*(getattr(s, name).flatten().tolist() for s in sets), strict=True)
        for value, ends in zip(getattr(found, name).flatten().tolist(), bounds, strict=True):
            assert is_inside(Fraction(value), sum(map(Fraction, ends)) / count)


def test_a_converted_network_is_enclosed():
    torch.manual_seed(0)
    source = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 3)
    )
    model = CreINN(
        creinn.convert(source.eval(), 1e-7, "rigorous"), mode="rigorous", logit_norm=False
    ).eval()
    x = torch.randn(20, 4)
    exact, found = source.double()(x.double()).softmax(1), model(x)
    assert bool((found.lower.double() <= exact).all() and (exact <= found.upper.double()).all())


def test_temperature_is_divided_by_outwards():
    torch.manual_seed(0)
    model = CreINN(inn.Linear(1, 2), mode="rigorous", logit_norm=False, temperature=True).eval()
    with torch.no_grad():
        model.network.weight_radius.zero_()
        model.temperature.value.fill_(0.7)
        x = torch.rand(200, 1)
        logits = x.double() * model.network.weight.double().T / model.temperature.value.double()
        found, exact = model(x), logits.softmax(1)
    assert bool((found.lower.double() <= exact).all() and (exact <= found.upper.double()).all())


def test_refusals(tmp_path):
    network = torch.nn.Sequential(
        inn.Linear(2, 4), inn.BatchNorm1d(4), inn.Dropout(), inn.ReLU(), inn.Linear(4, 3)
    )
    model, x = CreINN(network, mode="rigorous"), torch.zeros(6, 2)
    with pytest.raises(ValueError, match="train in mode 'sound'"):
        model(x)
    model.eval()
    with torch.autocast("cpu"), pytest.raises(ValueError, match="found autocast"):
        model(x)
    with pytest.raises(ValueError, match=r"found torch.bfloat16; cast the model"):
        CreINN(inn.Linear(2, 3), mode="rigorous").bfloat16().eval()(x.bfloat16())
    with pytest.raises(ValueError, match="found the device meta"):
        CreINN(inn.Linear(2, 3), mode="rigorous").to("meta").eval()(x.to("meta"))
    with pytest.raises(ValueError, match=r"torch\.compile may compute in another way"):
        creinn.compile(model, torch_compile=True)
    with pytest.raises(ValueError, match="export with mode = 'sound'"):
        creinn.export(model, tmp_path / "model.pt2")
    network[1].set_mode("paper")
    with pytest.raises(ValueError, match="but one is in mode 'paper'"):
        model(x)
    network[1].set_mode("sound")
    network[2].train()
    with pytest.raises(ValueError, match="Dropout in training has no rigorous bounds"):
        model(x)
