"""Tests of rigorous bounds with a distance, compared with ball arithmetic."""

import copy
import math
from collections.abc import Sequence

import flint
import numpy as np
import pytest
import torch

import creinn
from creinn import CreINN, Ensemble, Interval
from creinn import nn as inn
from creinn.distance.feature_layers import pooled
from creinn.distance.fitting import FeatureBatch, fit_radius
from creinn.distance.radius import DistanceRadius
from creinn.graph import rigorous as module
from creinn.graph.rigorous import exact_box, probability_bounds, radius_bound
from distance_cases import blobs, ordinary
from reference_distance import pooled as exact_pooled
from reference_distance import radius_of
from reference_exact import BITS, Balls, draw_inputs, exact, misses
from rigorous_cases import every_kind, inputs_of, rigorous
from rigorous_distance import PLACES, count_misses, with_distance

FEATURES = ("usual", "cancelling", "huge", "tiny", "denormal", "constant", "mixed", "zero")


def outputs_of(
    kind: str, shapes: Sequence[tuple[int, ...]], seed: int, dtype: torch.dtype
) -> list[torch.Tensor]:
    """Return random outputs of feature layers; every fifth row is far away."""
    found, generator = [], torch.Generator().manual_seed(seed)
    sizes = {"huge": (1e8, 1e60), "tiny": (1e-30, 1e-60), "denormal": (1e-41, 1e-315)}
    for shape in shapes:
        x = torch.randn(60, *shape, generator=generator, dtype=torch.float64)
        x[::5] *= 3
        x = (x + 1e6 if kind == "cancelling" else x) * sizes.get(kind, (1.0, 1.0))[
            dtype == torch.float64
        ]
        if kind == "constant":
            x[:, 0] = 0.1
        if kind == "mixed":
            x *= 2.0 ** torch.randint(-30, 30, shape[:1], generator=generator).view(
                -1, *(1,) * (len(shape) - 1)
            )
        if kind == "zero":
            x[1::2] = 0
        found.append(x.to(dtype))
    return found


def fitted_to(outputs: Sequence[torch.Tensor], rank: int = 256) -> DistanceRadius:
    """Return a fitted radius of three classes."""
    radius = DistanceRadius(3).to(outputs[0].dtype)
    radius._make_distances(len(outputs) + min(len(outputs), 2))
    for distance in radius.distances:
        distance.rank = rank
    boxes, labels = tuple(Interval._of_point(pooled(one)) for one in outputs), torch.arange(60) % 3
    fit_radius(radius, [FeatureBatch(boxes, boxes[0], labels)], None, 0.01, lambda *_: None)
    return radius


CASES = (
    ([(3,)], 256),
    ([(4, 5), (6,)], 4),
    ([(2, 3, 3), (5,), (4,)], 256),
)  # shapes, and most directions


def bound_of(radius: DistanceRadius, outputs: Sequence, tokens: bool = False) -> torch.Tensor:
    boxes = [exact_box(one) for one in outputs]
    return radius_bound(copy.deepcopy(radius).double(), boxes, [tokens] * len(outputs))


def too_low(real: Balls, bound: torch.Tensor) -> int:
    """Return the number of real radii that may be larger than the bound."""
    return sum(
        not (high == math.inf or value <= high)
        for value, high in zip(real, bound.tolist(), strict=True)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", FEATURES)
def test_radii_of_points(kind, dtype):
    ordinary_missed = 0
    for seed, (shapes, rank) in enumerate(CASES):
        outputs = outputs_of(kind, shapes, seed, dtype)
        radius = fitted_to(outputs, rank)
        bound = bound_of(radius, outputs)
        with flint.ctx.workprec(BITS):
            real = radius_of(radius, [exact(one) for one in outputs])
            assert too_low(real, bound) == 0
            ordinary_missed += too_low(real, radius([pooled(one) for one in outputs]).double())
            if kind in ("usual", "cancelling", "huge", "tiny", "constant"):
                assert all(
                    high <= 1.00001 * value + 1e-99
                    for value, high in zip(real, bound.tolist(), strict=True)
                )
    assert ordinary_missed > 0


@pytest.mark.parametrize("kind", FEATURES)
def test_radii_of_intervals(kind):
    rng = np.random.default_rng(0)
    for seed, (shapes, rank) in enumerate(CASES):
        outputs = outputs_of(kind, shapes, seed, torch.float64)
        radius = fitted_to(outputs, rank)
        boxes = []
        for x in outputs:
            reach = x.abs() * torch.as_tensor(
                10.0 ** rng.uniform(-9, -1, (60, *(1,) * (x.ndim - 1)))
            )
            boxes.append(Interval._of_parts(x - reach, x + reach))
        bound = bound_of(radius, boxes)
        for member in ("corner", "corner", "inside"):
            with flint.ctx.workprec(BITS):
                assert (
                    too_low(
                        radius_of(radius, [draw_inputs(box, member, rng) for box in boxes]), bound
                    )
                    == 0
                )
        if kind in ("usual", "constant"):
            sound = radius([pooled(box) for box in boxes])
            kept = bound < math.inf
            torch.testing.assert_close(bound[kept], sound[kept], rtol=1e-6, atol=1e-99)


def by_hand() -> DistanceRadius:
    """Return a radius of one feature and two classes with the means 0 and 9."""
    radius = DistanceRadius(2)
    radius._make_distances(2)
    for distance in radius.distances:
        distance.origin, distance.rest, distance.means = (
            torch.zeros(1),
            torch.ones(()),
            torch.tensor([[0.0], [9.0]]),
        )
        distance.directions, distance.deviations, distance.axes = (
            torch.eye(1),
            torch.ones(1),
            torch.eye(1),
        )
        distance.shares, distance.coordinates = torch.tensor([0.5]), distance.means
    radius.medians, radius.spreads, radius.sums = (
        torch.zeros(3),
        torch.ones(3),
        torch.tensor([[0.0, 1.0]] * 3),
    )
    radius.scale.fill_(0.125)
    return radius


def test_radius_by_hand():
    # f = 2: d = 4; its direction is 1, with d = 1 and d' = 1 - 1/2; z = 1 + 1/2 + 0.7 * 4 = 4.3
    radius = by_hand()
    bound = bound_of(radius, [torch.tensor([[2.0]])]).item()
    of_box = bound_of(radius, [Interval([[1.0]], [[2.0]])]).item()
    assert bound == pytest.approx(math.log(1 + math.exp(4.3)) ** 4 / 8, rel=1e-12)
    assert of_box == pytest.approx(bound, rel=1e-12)  # it is attained at 2
    with flint.ctx.workprec(BITS):
        (real,) = radius_of(radius, [exact(np.array([[2.0]]))])
        assert real <= bound


def test_infinite_bounds():
    # f = -1000: d = 1e6, z = 1 + 1/2 + 0.7 * 1e6, below 1e6; f = -2000 lies above
    radius, x = by_hand(), torch.tensor([[-1000.0], [-2000.0], [math.inf], [math.nan]])
    bound = bound_of(radius, [x])
    radius.scale.zero_()
    without = bound_of(radius, [x[:2]])
    assert bound.tolist() == [pytest.approx((1.5 + 0.7e6) ** 4 / 8, rel=1e-12), *[math.inf] * 3]
    assert without.amax() < 1e-99


@pytest.mark.parametrize("steps", [1, 2.0**20, 2.0**40])
def test_deviations_of_large_numbers(steps):
    # the mean is not a number in float64
    rng = np.random.default_rng(0)
    maps = torch.as_tensor(1e6 + 2.0**-33 * rng.integers(0, 3, (50, 4, 5)) * steps)
    found = module.pooled(Interval._of_point(maps), tokens=False)
    with flint.ctx.workprec(BITS):
        assert misses(exact_pooled(exact(maps)), found.lower, found.upper, 0.0, math.inf) == 0
    assert (found.upper - found.lower).amax() < 1e-7


def test_tokens():
    outputs = outputs_of("usual", [(4, 5)], 0, torch.float64)
    radius = fitted_to(outputs)
    bounds = [
        bound_of(radius, [x], tokens) for x, tokens in ((outputs[0], False), (outputs[0].mT, True))
    ]
    torch.testing.assert_close(*bounds)


# Whole models.


@pytest.mark.parametrize("name", PLACES)
def test_bounds_contain_members(name):
    widths = []
    for case, seed, model, x in every_kind(name, with_distance, rows=3, wide=2):
        count, missed, found = count_misses(model, x, [rigorous(model)], seed)
        assert count >= 60
        assert sum(missed) == 0, case
        widths += found
    assert torch.cat([w.double() for w in widths]).amin() < 1e-2  # not by being wide


@pytest.mark.parametrize("name", ["perceptron", "convolutions"])
def test_sets_are_not_wider_than_sound_sets(name):
    model = with_distance(name, "usual", 0, torch.float64)
    x = inputs_of(name, "usual", 200, 5, torch.float64)
    found, sound = rigorous(model)(x), model(x)
    assert bool((found.lower <= sound.lower).all() and (found.upper >= sound.upper).all())
    assert (found.width - sound.width).amax() < 1e-6
    assert sound.width.amin() < 1e-3 < 0.05 < sound.width.amax()  # rows near and far from the data
    assert torch.equal(found.label, sound.label)


def test_sound_mode_does_not_contain_all_members():
    model, x = (
        with_distance("one logit", "points", 1, torch.float64),
        inputs_of("one logit", "points", 20, 3).double(),
    )
    missed = count_misses(model, x, [rigorous(model), model, creinn.compile(model)], 0)[1]
    assert missed[0] == 0
    assert min(missed[1:]) > 0


def hidden_distance() -> CreINN:
    """Return a model with the features ``x`` and ``y`` that computes ``x + 2**30``."""
    network = torch.nn.Sequential(
        inn.Linear(2, 2), inn.ReLU(), inn.Linear(2, 2), inn.Linear(2, 2)
    ).double()
    model = CreINN(
        network, mode="sound", logit_norm=False, distance=0.01, feature_layers=("<head>",)
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for layer, sign in ((network[0], 1), (network[2], -1)):
            layer.weight.copy_(torch.eye(2))
            layer.bias[0] = sign * 2.0**30
    x = torch.randn(90, 2, generator=torch.Generator().manual_seed(0)).double() + torch.tensor(
        [0.0, 6.0]
    )
    return model.fit_distance(x, (x[:, 0] > 0).long()).float()


def test_cancellation_of_large_numbers():
    # the real set is vacuous for x = 40, but x is 0 in single precision
    model, x = hidden_distance(), torch.tensor([[40.0, 6.0]])
    for form in (model, creinn.compile(model), model.predict):
        assert form(x).width.amax() < 0.1
    assert count_misses(model, x, (rigorous(model), rigorous(model).predict), 0)[1] == [0, 0]
    with flint.ctx.workprec(BITS):
        (real,) = radius_of(model.distance_radius, [exact(x)])
        assert real > 1000
    assert rigorous(model)(torch.tensor([[0.0, 6.0]])).width.amax() < 0.1


def test_radii_of_exact_features():
    # only the radius is rounded, because the logits are 0
    network = torch.nn.Sequential(inn.Flatten(), inn.Linear(6, 2))
    model = CreINN(
        network, mode="sound", logit_norm=False, distance=0.01, feature_layers=("0",)
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.fit_distance(1000 + inputs_of("perceptron", "usual", 60, 0), torch.arange(60) % 2)
    x = 1000 + inputs_of("perceptron", "usual", 40, 1)
    missed = count_misses(model, x, [rigorous(model), model, creinn.compile(model)], 0)[1]
    assert missed[0] == 0
    assert min(missed[1:]) > 0


def test_large_radii():
    # the lower bound is 1 / (1 + exp(120)) = 7.7e-53 for the logits 0 and 0 and the radius 60
    ends = torch.full((1, 2), 60.0, dtype=torch.float64)
    lower, _ = probability_bounds(Interval._of_parts(-ends, ends))
    assert lower.amax().item() <= 1 / (1 + math.exp(120)) < 1e-50
    vacuous = probability_bounds(Interval._of_parts(-math.inf * ends, math.inf * ends))
    assert [t.tolist() for t in vacuous] == [[[0, 0]], [[1, 1]]]


@pytest.mark.parametrize("size", [1e160, 1e300])
def test_overflow_of_features(size):
    model = with_distance("perceptron", "usual", 0, torch.float64)
    x = inputs_of("perceptron", "usual", 3, 1, torch.float64)
    found = rigorous(model).predict(size * x)
    assert bool((found.lower == 0).all() and (found.upper == 1).all())
    model.distance_radius.scale.zero_()
    assert rigorous(model)(50 * x).width.amax() < 1  # no distance, however far


def test_flushed_subnormal_numbers():
    model, x = with_distance("averages", "denormal", 0), inputs_of("averages", "denormal", 2, 0)
    torch.set_flush_denormal(True)
    try:
        found = rigorous(model)(x)
    finally:
        torch.set_flush_denormal(False)
    assert count_misses(model, x, [lambda x: found], 0)[1] == [0]


def test_sets_contain_the_sound_sets():
    x, y = blobs()
    torch.manual_seed(0)
    network = inn.scale_radii_(creinn.models.mlp(4, 3, hidden=(8,), layers=inn), 1e-3)
    model = CreINN.from_options(network, mode="sound", temperature=True)
    model.fit_distance(x, y, held_out=blobs(90, seed=1))
    form = rigorous(model)
    found, expected = form.predict(x), model.double().predict(x.double())
    assert bool((found.lower <= expected.lower).all() and (found.upper >= expected.upper).all())
    torch.testing.assert_close(found.lower.double(), expected.lower, rtol=0, atol=1e-3)
    both = rigorous(Ensemble([model.float(), model], "envelope"))
    torch.testing.assert_close(both(x).lower, found.lower)
    wide = form(Interval(x - 0.01, x + 0.01))
    assert bool((wide.lower <= found.lower).all() and (wide.width > found.width).any())


def test_ordinary_network_raises():
    x, y = blobs()
    model = ordinary(mode="sound", distance=0.01).fit_distance(x, y)
    with pytest.raises(ValueError, match="convert"):
        rigorous(model)
    twin = creinn.convert(model.network, 1e-30, "sound")
    made = CreINN(twin, "sound", logit_norm=False, distance=0.01).double()
    made.fit_distance(x.double(), y)
    found, expected = rigorous(made)(x.double()), model.double().predict(x.double())
    torch.testing.assert_close(
        found.lower, expected.lower, rtol=0, atol=1e-4
    )  # the statistics are in float32


def test_distance_without_data_raises():
    model = CreINN(creinn.models.mlp(4, 3, layers=inn), "sound", distance=True).eval()
    with pytest.raises(RuntimeError, match="fitted"):
        rigorous(model)


def test_named_logits_layer():
    torch.manual_seed(0)
    network = torch.nn.Sequential(inn.Linear(4, 8), inn.ReLU(), inn.Linear(8, 3), inn.Sigmoid())
    options = {"logits_layer": "2", "logit_norm": False, "distance": 0.01}
    model = CreINN(inn.scale_radii_(network, 1e-3), "sound", **options)
    x, y = blobs()
    model.fit_distance(x, y)
    torch.testing.assert_close(rigorous(model)(x).lower, model(x).lower, rtol=0, atol=1e-3)
