"""Tests that rigorous bounds contain exact members of small networks."""

import math
from fractions import Fraction

import flint
import numpy as np
import pytest
import torch
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

import creinn
from creinn import CreINN, Ensemble, Interval, models
from creinn import nn as inn
from creinn.graph import rigorous as module
from creinn.graph.rigorous import Evaluation, apply_layer, exact_box, exact_double
from creinn.graph.trace import trace
from creinn.nn import functional
from creinn.nn.registry import LAYERS
from reference_exact import BITS, draw_member, exact, misses, run
from rigorous_cases import NETWORKS, count_misses, every_kind, inputs_of, model_of, rigorous

EXPONENTS = (-149, -130, -60, -3, 0, 3, 40)


@pytest.mark.parametrize("name", NETWORKS)
def test_bounds_contain_members(name):
    widths = []
    for case, seed, model, x in every_kind(name, model_of, rows=2, wide=3):
        found = count_misses(model, x, seed, [rigorous(model)])
        assert (found.logits_missed, sum(found.missed)) == (0, 0), case
        widths += found.widths
    assert torch.cat([w.double() for w in widths]).amin() < 1e-3  # the bounds are not wide


def test_sound_mode_does_not_contain_all_members():
    model, x = model_of("convolutions", "points", 0), inputs_of("convolutions", "points", 4, 0)
    forms = rigorous(model), model, creinn.compile(model)
    missed = count_misses(model, x, 0, forms).missed
    assert missed[0] == 0
    assert min(missed[1:]) > 0


def test_wide_radii():
    # the bounds are attained by the members with the minimum and the maximum weights
    torch.manual_seed(0)
    network = torch.nn.Sequential(inn.Linear(6, 8), inn.ReLU(), inn.Linear(8, 40))
    model = CreINN(network, mode="sound", logit_norm=False).eval()
    inn.scale_radii_(network[0], 1e-30)
    x, rng = torch.randn(10, 6), np.random.default_rng(0)
    with torch.no_grad():
        found = {
            "sound": model._logits(model._inputs(x)),
            "rigorous": rigorous(model)._members[0].logits(exact_box(x))[1],
        }
    with flint.ctx.workprec(BITS):
        members = [
            run(network, exact(x), draw_member(network, kind, rng)) for kind in ("lower", "upper")
        ]
    missed = {
        mode: sum(misses(balls, y.lower, y.upper, -math.inf, math.inf) for balls in members)
        for mode, y in found.items()
    }
    assert missed["sound"] > 100
    assert missed["rigorous"] == 0


def test_all_layers_and_functions_are_supported():
    kinds = (
        *module._EXACT,
        *module._DROPOUT,
        *module._AVERAGE,
        *module._PRODUCT,
        *module._MONOTONE,
    )
    known = {kind.__name__ for kind in kinds}
    affine = {"Linear", *(f"Conv{n}d" for n in (1, 2, 3))}
    assert known | affine | {f"BatchNorm{n}d" for n in (1, 2, 3)} == set(LAYERS)
    exact_functions = {
        *("flatten", "reshape", "unsqueeze", "squeeze", "permute", "transpose", "contiguous"),
        *("size", "ndim", "neg", "getitem", "pad", "cat", "stack", "floordiv"),
    }
    named = {name for name, f in functional.FUNCTIONS.items() if not hasattr(f, "layer")}
    assert named == exact_functions | module._ROUNDED | module._SUMS


def hidden_signal() -> CreINN:
    """Return a model with the logits ``4 x`` and 2 that computes ``x + 2**30``."""
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


def test_cancellation_of_large_numbers():
    # the logits are 3.6 and 2 for x = 0.9, but they are 0 and 2 in single precision
    model, x = hidden_signal(), torch.tensor([[0.9]])
    real = 1 / (1 + np.exp(-1.6))
    for form in (model, creinn.compile(model), lambda x: model.predict(x)):
        assert form(x).upper[0, 0].item() == pytest.approx(0.1192, abs=1e-4)
    found = rigorous(model).predict(x)
    assert found.lower[0, 0].item() <= real <= found.upper[0, 0].item()
    assert found.width.amax() < 1e-3


def test_overflow():
    found = rigorous(hidden_signal().double())(torch.tensor([[0.5], [1e308]]).double())
    assert found.upper[1].tolist() == [1, 1]
    assert found.lower[1].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["perceptron", "averages"])
def test_flushed_subnormal_numbers(name, dtype):
    model = model_of(name, "denormal", 0, dtype)
    x = inputs_of(name, "denormal", 2, 0, dtype)
    torch.set_flush_denormal(True)
    try:
        found = rigorous(model)(x)
    finally:
        torch.set_flush_denormal(False)
    assert count_misses(model, x, 0, [lambda x: found]).missed == [0]


def test_conversion_of_subnormal_numbers():
    x = torch.tensor([1e-40, -1e-44, 0.0, -0.0, 1.5, -3e38])
    expected = x.double()
    torch.set_flush_denormal(True)
    try:
        found = exact_double(x)
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(found, expected)


def test_rounded_centers_are_not_used():
    low = torch.full((1, 6), 1.0)
    x = Interval(low, low + 2.0**-23)
    assert x.center_radius is not None  # the center is not a number in float32
    model = rigorous(model_of("perceptron", "points", 3))
    assert torch.equal(model(x).lower, model(Interval(x.lower, x.upper)).lower)


def test_sets_contain_the_sound_sets():
    torch.manual_seed(0)
    model = CreINN(models.resnet8(num_classes=3, width=4, in_channels=1), mode="sound").double()
    inn.scale_radii_(model.eval(), 1e-4)
    x = torch.rand(3, 1, 8, 8).double()
    sound, form = model.predict(x), rigorous(model)
    found = form.predict(x)
    assert bool((found.lower <= sound.lower).all() and (found.upper >= sound.upper).all())
    torch.testing.assert_close(found.lower, sound.lower, rtol=0, atol=1e-6)
    assert torch.equal(found.label, sound.label)
    with torch.autocast("cpu"):
        assert torch.equal(form(x).lower, found.lower)
    assert torch.equal(rigorous(Ensemble([model, model], "envelope"))(x).lower, found.lower)
    assert bool(
        (form.predict(torch.full((1, 1, 8, 8), math.nan), missing="vacuous").width == 1).all()
    )


def test_results_in_float32():
    model, x = model_of("perceptron", "usual", 0), inputs_of("perceptron", "usual", 50, 0)
    narrow, wide = rigorous(model)(x), rigorous(model.double())(x.double())
    assert narrow.lower.dtype == torch.float32
    assert bool((narrow.lower.double() <= wide.lower).all())
    assert bool((narrow.upper.double() >= wide.upper).all())


@pytest.mark.parametrize("count", [3, 7])
def test_average_of_an_ensemble(count):
    dtype = torch.float64
    members = [model_of("perceptron", "usual", seed, dtype) for seed in range(count)]
    x = inputs_of("perceptron", "usual", 50, 0, dtype)
    sets, found = [rigorous(member)(x) for member in members], rigorous(Ensemble(members))(x)
    for name, is_inside in (("lower", Fraction.__le__), ("upper", Fraction.__ge__)):
        bounds = zip(*(getattr(s, name).flatten().tolist() for s in sets), strict=True)
        for value, ends in zip(getattr(found, name).flatten().tolist(), bounds, strict=True):
            assert is_inside(Fraction(value), sum(map(Fraction, ends)) / count)


def test_converted_network():
    torch.manual_seed(0)
    source = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 3)
    )
    twin = creinn.convert(source.eval(), 1e-7, "sound")
    x, model = torch.randn(20, 4), CreINN(twin, mode="sound", logit_norm=False).eval()
    exact, found = source.double()(x.double()).softmax(1), rigorous(model)(x)
    assert bool((found.lower.double() <= exact).all() and (exact <= found.upper.double()).all())


def test_temperature():
    torch.manual_seed(0)
    model = CreINN.from_options(
        inn.Linear(1, 2), mode="sound", logit_norm=False, temperature=True
    ).eval()
    with torch.no_grad():
        model.network.weight_radius.zero_()
        model.temperature.value.fill_(0.7)
        x = torch.rand(200, 1)
        logits = x.double() * model.network.weight.double().T / model.temperature.value.double()
        found, exact = rigorous(model)(x), logits.softmax(1)
    assert bool((found.lower.double() <= exact).all() and (exact <= found.upper.double()).all())


class Functions(torch.nn.Module):
    """A network of functions."""

    def __init__(self):
        super().__init__()
        self.one, self.two = inn.Conv2d(1, 2, 2), inn.Linear(4, 3)

    def forward(self, x):
        x = torch.nn.functional.gelu(self.one(x), approximate="tanh")
        x = torch.nn.functional.dropout(x, 0.5, self.training)
        x = torch.cat((x.mean((2, 3)), x.flatten(1)[:, :2] * 0.3 - 0.1), 1)
        return self.two(torch.relu(x).reshape(x.size(0), -1) / 3.7)


def test_functions_of_a_forward_pass():
    torch.manual_seed(0)
    model = CreINN(Functions(), mode="sound").double().eval()
    inn.scale_radii_(model, 1e-3)
    x = torch.rand(5, 1, 3, 3).double()
    sound, found = model(x), rigorous(model)(x)
    assert bool((found.lower <= sound.lower).all() and (found.upper >= sound.upper).all())
    torch.testing.assert_close(found.lower, sound.lower, rtol=0, atol=1e-10)


def test_errors(tmp_path):
    network = torch.nn.Sequential(
        inn.Linear(2, 4), inn.BatchNorm1d(4), inn.Dropout(), inn.ReLU(), inn.Linear(4, 3)
    )
    model, x = CreINN(network, mode="sound").eval(), torch.zeros(6, 2)
    form = rigorous(model)
    with pytest.raises(ValueError, match="trained"):
        form.train()
    with pytest.raises(TypeError, match="moved"):
        form.double()
    with pytest.raises(TypeError, match="RigorousModel"):
        form.save(tmp_path)
    with pytest.raises(TypeError, match="RigorousModel"):
        creinn.export(form, tmp_path / "model.pt2")
    with pytest.raises(ValueError, match="bfloat16"):
        rigorous(CreINN(inn.Linear(2, 3), mode="sound").bfloat16().eval())
    with pytest.raises(ValueError, match="meta"):
        rigorous(CreINN(inn.Linear(2, 3), mode="sound").to("meta").eval())
    with pytest.raises(ValueError, match="torch_compile"):
        creinn.compile(model, rigorous=True, torch_compile=True)
    with pytest.raises(ValueError, match="rigorous"):
        CreINN(network, mode="rigorous")
    network[1].set_mode("paper")
    with pytest.raises(ValueError, match="paper"):
        rigorous(model)
    with pytest.raises(ValueError, match="dropout"):
        apply_layer(inn.Dropout(), exact_box(x))


# Tests of the error bounds with rational arithmetic.


def numbers(rng: np.random.Generator, count: int, signed: bool = True) -> torch.Tensor:
    """Return numbers in float64 of very different sizes, with zeros and cancellation."""
    sizes = 2.0 ** rng.choice([8 * e for e in EXPONENTS[:4]] + [0, 3, 40], count)
    values = rng.standard_normal(count) * sizes * rng.choice([0.0, 1.0], count, p=[0.1, 0.9])
    if count > 1 and rng.random() < 0.5:
        values[1] = -values[0] * (1 + 2.0**-52)
    return torch.tensor(values if signed else np.abs(values))


def fractions(tensor: torch.Tensor) -> np.ndarray:
    return np.vectorize(Fraction, otypes=[object])(tensor.numpy())


@torch.no_grad()
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.sampled_from(("point", "above", "any")))
def test_affine_layers(seed, count, kind):
    rng = np.random.default_rng(seed)
    layer = inn.Linear(count, 2).double()
    for parameter in (layer.weight, layer.weight_radius, layer.bias, layer.bias_radius):
        is_radius = parameter is layer.weight_radius or parameter is layer.bias_radius
        parameter.copy_(numbers(rng, parameter.numel(), not is_radius).view(parameter.shape))
    low, high = torch.stack((numbers(rng, 3 * count), numbers(rng, 3 * count))).sort(0).values
    low, high = low.view(3, count), high.view(3, count)
    if kind == "above":
        low, high = torch.minimum(low.abs(), high.abs()), torch.maximum(low.abs(), high.abs())
    high = low if kind == "point" else high
    is_above = kind == "above"
    x = Interval._of_point(low) if kind == "point" else Interval._of_parts(low, high, is_above)
    y = module._Affine(layer)(x)
    w, r, b, d = map(fractions, (layer.weight, layer.weight_radius, layer.bias, layer.bias_radius))
    ends = [p * fractions(t)[:, None] for p in (w - r, w + r) for t in (low, high)]
    assert (fractions(y.lower) <= np.minimum.reduce(ends).sum(-1) + b - d).all()
    assert (fractions(y.upper) >= np.maximum.reduce(ends).sum(-1) + b + d).all()


def test_weights_by_hand():
    # n = 2: k = 42, g = 42 u / (1 - 84 u)
    u, one = 2.0**-53, torch.ones(1, 2, dtype=torch.float64)
    v, b, d = module.rigorous_weights(one, 0 * one, (None, None))
    assert v[0, 0].item() == pytest.approx(42 * u / (1 - 84 * u), rel=1e-6)
    assert b.item() == 0
    assert d.item() == pytest.approx(8 * 2.0**-510)


OPERATIONS = {
    "+": (lambda x, y: x + y, lambda p, q: p + q),
    "-": (lambda x, y: x - y, lambda p, q: p - q),
    "*": (lambda x, y: x * y, lambda p, q: p * q),
    "/": (lambda x, y: x / 3.7, lambda p, q: p / Fraction(3.7)),
    "0.1": (lambda x, y: x + 0.1, lambda p, q: p + Fraction(0.1)),
    "sum": (lambda x, y: x.sum(1), lambda p, q: p.sum(1)),
    "mean": (lambda x, y: x.mean(1), lambda p, q: p.sum(1) / Fraction(20)),
}


class Operation(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.flip = function, inn.Identity()

    def forward(self, x):
        return self.function(self.flip(x), x[:, [1, 0, *range(2, 20)]])


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic(name, flush):
    function, real = OPERATIONS[name]
    traced = trace(Operation(function), ("interval",))
    a = numbers(np.random.default_rng(0), 400).view(20, 20)
    torch.set_flush_denormal(flush)
    try:
        found = Evaluation(traced.module()).run(Interval._of_point(a))
    finally:
        torch.set_flush_denormal(False)
    p = fractions(a)
    expected = real(p, p[:, [1, 0, *range(2, 20)]])
    assert (fractions(found.lower) <= expected).all()
    assert (fractions(found.upper) >= expected).all()


@pytest.mark.parametrize("layer", [inn.AvgPool1d(4), inn.AdaptiveAvgPool1d(5)])
def test_average_pooling(layer):
    values = numbers(np.random.default_rng(1), 40).view(2, 20)
    result = apply_layer(layer, Interval._of_point(values))
    expected = fractions(values).reshape(2, 5, 4).sum(2) / Fraction(4)
    assert (fractions(result.lower) <= expected).all()
    assert (fractions(result.upper) >= expected).all()


def test_functions_for_all_sizes():
    x = torch.cat((torch.logspace(-40, 2, 60), -torch.logspace(-40, 2, 60))).double()
    found = apply_layer(inn.Tanh(), Interval._of_point(x))
    with flint.ctx.workprec(200):
        for value, low, high in zip(
            x.tolist(), found.lower.tolist(), found.upper.tolist(), strict=True
        ):
            assert low <= arb(value).tanh() <= high


def test_calibration():
    torch.manual_seed(0)
    model = CreINN(models.mlp(2, 3), mode="sound").eval()
    x, y = torch.randn(100, 2), torch.arange(100) % 3
    model.calibrate(x, y, coverage=0.9)
    found = rigorous(model).predict(x).classes("conformal")
    assert found[torch.arange(100), y].double().mean() >= 0.9
