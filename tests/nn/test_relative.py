"""Tests of layers with relative radii.

The tests in nn/test_contract.py also contain these layers.
"""

import copy
import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import reference
from cases import RELATIVE, LayerCase
from creinn import CreINN, cross_entropy, diagnose, load, models
from creinn import nn as inn
from creinn.graph.convert import convert
from creinn.graph.serialize import build, serialize
from creinn.interval import Interval
from creinn.nn import registry as layers
from creinn.nn import relative
from creinn.nn._product import widened
from creinn.nn.affine import project_, scale_radii_
from creinn.nn.relative import MAX_RELATIVE_RADIUS, RelativeParameters, valid_relative_radius
from experiments.tasks import describe_radii

# a warning of torch about copies
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
PARTS = st.floats(-10, 10)


def make(case: LayerCase, seed: int, largest: float = MAX_RELATIVE_RADIUS) -> nn.Module:
    torch.manual_seed(seed)
    layer = case.interval()
    nn.init.uniform_(layer.weight, -1, 1)
    for radius in layer.radii().values():
        nn.init.uniform_(radius, 0, largest)
    return layer.requires_grad_(False)


@pytest.mark.parametrize("case", RELATIVE, ids=lambda c: c.name)
@pytest.mark.parametrize("sign", ["any", "nonnegative", "one-signed", "point", "forgotten sign"])
def test_bounds_are_exact(case: LayerCase, sign: str) -> None:
    for seed in range(3):
        layer = make(case, seed)
        if sign == "point":
            x = Interval.point(case.point(seed))
        elif sign == "forgotten sign":  # the flag for non-negative intervals is removed
            x = case.input(seed, "nonnegative").map_monotone(lambda t: t, nonnegative=False)
        else:
            x = case.input(seed, sign)
        lower, upper = reference.affine_bounds(layer, x)
        result = layer(x)
        assert_close(result.lower, lower)
        assert_close(result.upper, upper)


def test_bounds_are_attained_by_members() -> None:
    layer = make(RELATIVE[0], 0)
    x = RELATIVE[0].input(0)
    y = layer(x)
    # The upper bound of output 0 of row 0 is the sum of the largest products.
    total = layer.bias[0] + layer.bias_radius[0]
    for j, rho in enumerate(layer.relative_radius):
        weights = [layer.weight[0, j] * (1 - rho), layer.weight[0, j] * (1 + rho)]
        total = total + max(w * a for w in weights for a in (x.lower[0, j], x.upper[0, j]))
    assert_close(y.upper[0, 0], total)


def test_linear_by_hand() -> None:
    layer = relative.Linear(2, 1)
    layer.weight.data = torch.tensor([[2.0, -1.0]])
    layer.relative_radius.data = torch.tensor([0.5, 0.25])
    layer.bias.data, layer.bias_radius.data = torch.tensor([1.0]), torch.tensor([0.5])
    assert layer.weight_radius.tolist() == [[1.0, 0.25]]
    assert layer.weight_interval.lower.tolist() == [[1.0, -1.25]]
    y = layer(torch.tensor([[3.0, -4.0]]))  # [1, 3] * 3 + [-1.25, -0.75] * -4 + [0.5, 1.5]
    assert (y.lower.item(), y.upper.item()) == (6.5, 15.5)
    # [1, 3] * [-1, 3] + [-1.25, -0.75] * [0, 4] + [0.5, 1.5]
    y = layer(Interval([[-1.0, 0.0]], [[3.0, 4.0]]))
    assert (y.lower.item(), y.upper.item()) == (-7.5, 10.5)
    # [1, 3] * [1, 3] + [-1.25, -0.75] * [0, 4] + [0.5, 1.5]
    y = layer(Interval([[1.0, 0.0]], [[3.0, 4.0]]))
    assert (y.lower.item(), y.upper.item()) == (-3.5, 10.5)


def test_radii_of_a_grouped_convolution_by_hand() -> None:
    layer = relative.Conv1d(4, 2, 1, groups=2, bias=False)
    layer.weight.data = torch.tensor([[[1.0], [-2.0]], [[3.0], [-4.0]]])
    layer.relative_radius.data = torch.tensor([0.1, 0.2, 0.5, 0.25])  # channels 0, 1 | 2, 3
    assert layer.weight_radius.flatten().tolist() == pytest.approx([0.1, 0.4, 1.5, 1.0])


@given(PARTS, PARTS, st.floats(0, 1), st.booleans())
def test_widened_equals_the_product(a: float, b: float, rho: float, positive: bool) -> None:
    a, b = (abs(a), abs(b)) if positive else (a, b)
    lower, upper = (torch.tensor([t], dtype=torch.float64) for t in (min(a, b), max(a, b)))
    rule = (
        torch.tensor([1 - rho], dtype=torch.float64),
        torch.tensor([1 + rho], dtype=torch.float64),
    )
    expected = reference.product_bounds(lower, upper, *rule)
    center, radius = widened(Interval(lower, upper), torch.tensor([rho], dtype=torch.float64))
    assert_close(center - radius, expected[0], atol=1e-12, rtol=1e-12)
    assert_close(center + radius, expected[1], atol=1e-12, rtol=1e-12)
    center, radius = widened(Interval.point(lower), torch.tensor([rho], dtype=torch.float64))
    assert_close(torch.stack((center, radius)), torch.stack((lower, rho * lower.abs())))


def test_radius_zero_gives_width_zero() -> None:
    layer = relative.Linear(3, 2)
    layer.relative_radius.data.zero_()
    x = torch.full((1, 3), 1e6)
    for argument in (Interval(x, x), Interval(-x, -x), Interval.point(x)):
        assert not layer(argument).radius.any()


def test_valid_relative_radius() -> None:
    radius = torch.tensor([-2.0, 0.0, 0.3, 1.0, 7.0], requires_grad=True)
    valid = valid_relative_radius(radius)
    assert valid.tolist() == [
        0.0,
        0.0,
        pytest.approx(0.3),
        MAX_RELATIVE_RADIUS,
        MAX_RELATIVE_RADIUS,
    ]
    valid.sum().backward()
    assert radius.grad.tolist() == [1.0] * 5
    assert MAX_RELATIVE_RADIUS < 1
    assert torch.tensor(MAX_RELATIVE_RADIUS, dtype=torch.bfloat16).item() == MAX_RELATIVE_RADIUS


def test_projection_keeps_radii_in_their_range() -> None:
    net = nn.Sequential(relative.Linear(2, 3), inn.ReLU(), inn.Linear(3, 1))
    net[0].relative_radius.data = torch.tensor([-1.0, 2.0])
    net[0].bias_radius.data.fill_(-1.0)
    net[2].weight_radius.data.fill_(5.0)
    before = net(torch.ones(1, 2))
    project_(net)
    assert net[0].relative_radius.tolist() == [0.0, MAX_RELATIVE_RADIUS]
    assert not net[0].bias_radius.any()
    assert bool((net[2].weight_radius == 5).all())  # the absolute radius can be larger than 1
    assert_close(net(torch.ones(1, 2)).upper, before.upper)
    scale_radii_(net, 0.5)
    assert net[0].relative_radius.tolist() == [0.0, MAX_RELATIVE_RADIUS / 2]


@pytest.mark.parametrize(
    "layer", [relative.Linear(3, 2), relative.Conv2d(3, 2, 1)], ids=["Linear", "Conv2d"]
)
def test_wrong_number_of_features_raises(layer: nn.Module) -> None:
    shape = (4, 1) if isinstance(layer, nn.Linear) else (4, 1, 5, 5)  # one feature would broadcast
    with pytest.raises(ValueError, match=r"\(4, 1"):
        layer(torch.zeros(shape))
    with pytest.raises(ValueError, match=r"\(\)"):
        layer(torch.zeros(()))


def test_initialization() -> None:
    torch.manual_seed(0)
    layer = relative.Linear(2000, 50)
    assert 0.25 <= layer.relative_radius.min() < 0.26
    assert 0.74 < layer.relative_radius.max() <= 0.75
    assert not layer.bias.any()
    assert not layer.bias_radius.any()
    assert layer.weight.abs().max() <= math.sqrt(6 / 2050)
    x = torch.randn(20, 2000)
    share = layer(x).radius.mean() / inn.Linear(2000, 50)(x).radius.mean()
    assert share.item() == pytest.approx(0.5, abs=0.02)
    layer.reset_parameters()
    assert bool((layer.relative_radius > 0).all())


@pytest.mark.parametrize("kind", ["point", "signed", "nonnegative"])
@pytest.mark.parametrize("start", ["fresh", "zero", "negative", "above"])
def test_all_radii_have_a_gradient(kind: str, start: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        relative.Conv1d(2, 4, 2, padding=1), inn.Softplus(), relative.Conv1d(4, 4, 1, groups=2), inn.Tanh(),
        inn.Flatten(), relative.Linear(16, 3),
    )  # fmt: skip
    radii = {name: p for name, p in net.named_parameters() if name.endswith("_radius")}
    with torch.no_grad():
        for radius in radii.values():
            if start != "fresh":
                radius.fill_({"zero": 0.0, "negative": -0.01, "above": 1.5}[start])
    x = torch.randn(32, 2, 3)
    data = {
        "point": x,
        "signed": Interval(x - 0.1, x + 0.1),
        "nonnegative": Interval(x.abs(), x.abs() + 0.1),
    }[kind]
    y = net(data)
    assert bool((y.lower <= y.upper).all())
    (F.cross_entropy(y.lower, torch.randint(3, (32,))) - y.upper.logsumexp(1).mean()).backward()
    assert len(radii) == 6
    assert {name for name, radius in radii.items() if bool((radius.grad == 0).any())} == set()


def test_gradients_equal_those_of_the_exact_bounds() -> None:
    case = RELATIVE[6]
    layer = make(case, 0, largest=0.9).requires_grad_(True)
    x = case.input(0)
    y = layer(x)
    (y.lower.sum() + 2 * y.upper.square().sum()).backward()
    got = {name: p.grad.clone() for name, p in layer.named_parameters()}
    layer.zero_grad()
    lower, upper = reference.affine_bounds(layer, x)
    (lower.sum() + 2 * upper.square().sum()).backward()
    for name, p in layer.named_parameters():
        assert_close(got[name], p.grad, msg=lambda text, name=name: f"{name}: {text}")


# The family: networks by name, saving, converting.


def test_family_has_all_layers() -> None:
    assert layers.family("relative") is relative
    for name in layers.LAYERS:
        own = name in ("Linear", "Conv1d", "Conv2d", "Conv3d")
        assert (getattr(relative, name) is getattr(inn, name)) != own
    assert layers.family_of(relative.Linear(1, 1)) == "relative"
    assert layers.family_of(relative.ReLU()) == "interval"
    with pytest.raises(AttributeError, match="'LayerNorm'"):
        _ = relative.LayerNorm
    with pytest.raises(AttributeError, match="'_hidden'"):
        _ = relative._hidden


@pytest.mark.parametrize("case", RELATIVE, ids=lambda c: c.name)
def test_arguments_build_the_same_layer(case: LayerCase) -> None:
    layer = case.interval()
    again = layers.build_layer(
        "relative", case.layer, json.loads(json.dumps(layers.arguments(layer)))
    ).double()
    assert repr(again) == repr(layer)
    again.load_state_dict(layer.state_dict())
    assert_close(again(case.point(0)).upper, layer(case.point(0)).upper)


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("space", ["relative", relative], ids=["name", "module"])
def test_number_of_parameters(space: object) -> None:
    network = models.resnet18(10, width=8, layers=space)
    assert network.config["arguments"]["layers"] == "relative"
    full = models.resnet18(10, width=8, layers="interval")
    ours = [layer for layer in network.modules() if isinstance(layer, RelativeParameters)]
    assert len(ours) == sum(isinstance(layer, inn.IntervalParameters) for layer in full.modules())
    weights = sum(layer.weight.numel() for layer in ours)
    inputs = sum(layer.relative_radius.numel() for layer in ours)
    assert count(network) == count(full) - weights + inputs
    assert inputs < 0.02 * weights
    mlp = models.mlp(6, 3, hidden=(8,), batch_norm=False, layers="relative")
    assert count(mlp) == (6 * 8 + 8 * 3) + (6 + 8) + 2 * (8 + 3)


@pytest.mark.parametrize("form", ["built", "graph"])
def test_save_and_load(form: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 3, 8, 8)
    if form == "built":
        network: nn.Module = models.resnet8(4, width=4, layers="relative")
    else:
        network = convert(
            models.resnet8(4, width=4, layers=torch.nn), radius=0.1, layers="relative"
        )
    model = CreINN(network)
    assert model.num_classes == 4
    model(x)  # statistics that are not those of a new network
    model.eval().save(tmp_path / "model")
    again = load(tmp_path / "model")
    parts = [layer for layer in again.modules() if isinstance(layer, inn.IntervalParameters)]
    assert parts
    assert all(isinstance(layer, RelativeParameters) for layer in parts)
    assert_close(again(x).lower, model(x).lower)
    assert_close(again(x).upper, model(x).upper)


def test_serialize_a_layer() -> None:
    description = serialize(relative.Linear(2, 3, bias=False))
    assert description["layer"]["family"] == "relative"
    assert isinstance(build(description), relative.Linear)


def test_twins_of_layers() -> None:
    source = nn.Conv2d(4, 6, 3, groups=2).double()
    source.weight.requires_grad_(False)
    twin = layers.twin(source, "relative")
    assert type(twin) is relative.Conv2d
    assert torch.equal(twin.weight, source.weight)
    assert twin.relative_radius.dtype == torch.float64
    flags = {name: parameter.requires_grad for name, parameter in twin.named_parameters()}
    assert flags == {"weight": False, "bias": True, "relative_radius": False, "bias_radius": True}
    with pytest.raises(ValueError, match="'ordinary'"):
        layers.twin(source, "ordinary")


# Looking inside, training.


def test_diagnose_and_describe_radii() -> None:
    torch.manual_seed(0)
    model = CreINN(models.resnet8(3, width=4, layers="relative"))
    first = next(layer for layer in model.modules() if isinstance(layer, relative.Conv2d))
    first.relative_radius.data[1:] = 0.0
    found = diagnose(model, torch.randn(6, 3, 8, 8))
    row = next(row for row in found.layers if row.kind == "Conv2d")
    assert row.zero_radii == pytest.approx(2 / 3)
    assert row.no_gradient == 0
    assert not any(row.inverted or row.nonfinite for row in found.layers)
    radii = describe_radii(model)
    assert radii is not None
    assert radii["shape"] == list(first.weight.shape)
    assert radii["matrix"][0][0] == pytest.approx(
        (first.weight.abs() * first.relative_radius[0])[0, 0, 0, 0].item()
    )


@pytest.mark.parametrize("name", ["mlp", "plain", "resnet8"])
def test_networks_learn(name: str) -> None:
    torch.manual_seed(0)
    y = torch.randint(3, (96,))
    x = torch.randn(96, 12) + 2 * F.one_hot(y, 12)
    if name == "resnet8":
        x = x.view(-1, 3, 2, 2).repeat(1, 1, 3, 3)
        network = models.resnet8(3, width=4, layers="relative")
    else:
        network = models.mlp(12, 3, hidden=(16,), batch_norm=name == "mlp", layers="relative")
    model = CreINN(network)
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        project_(model)
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    for key, tensor in model.state_dict().items():
        if key.endswith("relative_radius"):
            assert not torch.equal(tensor, before[key])
            assert bool((tensor >= 0).all())
            assert bool((tensor <= MAX_RELATIVE_RADIUS).all())
