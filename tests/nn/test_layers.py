"""Tests of single layers: dropout masks, errors, initialization and gradients of radii."""

import inspect

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from creinn import nn as inn
from creinn.interval import Interval
from creinn.nn.affine import IntervalParameters, valid_radius
from creinn.nn.registry import LAYERS


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (inn.Dropout(0.4), (20, 50)),
        (inn.Dropout1d(0.4), (20, 50, 4)),
        (inn.Dropout2d(0.4), (20, 50, 2, 3)),
    ],
)
def test_dropout_uses_one_mask_for_both_bounds(layer: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = Interval(torch.full(shape, 1.0), torch.full(shape, 3.0))
    y = layer(x)
    kept = y.upper > 0
    assert_close(y.lower, kept / 0.6)
    assert_close(y.upper, kept * 3 / 0.6)
    assert 0.5 < kept.float().mean() < 0.7
    if len(shape) > 2:
        assert torch.equal(kept.flatten(2).all(2), kept.flatten(2).any(2))  # whole channels
    layer.eval()
    assert layer(x) is x
    assert inn.Dropout(0.0)(x) is x


def test_unsupported_pooling_raises() -> None:
    with pytest.raises(ValueError, match="indices"):
        inn.MaxPool2d(2, return_indices=True)
    with pytest.raises(ValueError, match="divisor_override"):
        inn.AvgPool2d(2, divisor_override=-1)


def test_initialization_equals_the_paper() -> None:
    torch.manual_seed(0)
    layer = inn.Linear(300, 200)
    limit = (6 / 500) ** 0.5
    assert layer.weight.abs().max() <= limit
    assert layer.weight.mean().abs() < 0.05 * limit
    assert layer.weight_radius.min() >= 0
    assert layer.weight_radius.max() <= limit
    assert abs(layer.weight_radius.mean() / limit - 0.5) < 0.01
    assert not layer.bias.any()
    assert not layer.bias_radius.any()
    conv = inn.Conv2d(8, 8, 3, bias=False)
    assert conv.bias_radius is None
    assert (conv.weight_radius > 0).float().mean() > 0.99


def test_weight_interval() -> None:
    layer = inn.Linear(2, 1)
    layer.weight_radius.data.fill_(-1.0)
    assert torch.equal(layer.weight_interval.width, torch.zeros(1, 2))


NETWORKS = {
    "linear": lambda: nn.Sequential(inn.Linear(6, 3)),
    "mlp": lambda: nn.Sequential(inn.Linear(6, 8), inn.ReLU(), inn.Linear(8, 3)),
    "mlp-gelu": lambda: nn.Sequential(
        inn.Linear(6, 8), inn.GELU(), inn.Linear(8, 8), inn.Tanh(), inn.Linear(8, 3)
    ),
    "mlp-norm": lambda: nn.Sequential(
        inn.Linear(6, 8, bias=False), inn.BatchNorm1d(8), inn.ReLU(), inn.Linear(8, 3)
    ),
    "conv": lambda: nn.Sequential(
        inn.Flatten(), Unflatten(), inn.Conv1d(2, 4, 2, padding=1), inn.ReLU(), inn.MaxPool1d(2),
        inn.Conv1d(4, 4, 1, groups=2), inn.SiLU(), inn.Flatten(), inn.Linear(8, 3)
    ),
}  # fmt: skip


class Unflatten(nn.Module):
    def forward(self, x: Interval) -> Interval:
        return x.reshape(-1, 2, 3)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["point", "signed", "nonnegative"])
@pytest.mark.parametrize("start", ["fresh", "zero", "negative"])
def test_all_radii_are_trained(name: str, kind: str, start: str) -> None:
    torch.manual_seed(0)
    net = NETWORKS[name]()
    radii = {
        f"{path}.{key}": radius
        for path, layer in net.named_modules()
        if isinstance(layer, IntervalParameters)
        for key, radius in layer.radii().items()
    }
    with torch.no_grad():
        for radius in radii.values():
            if start != "fresh":
                radius.fill_(0.0 if start == "zero" else -0.01)
    x = torch.randn(32, 6)
    data = {
        "point": x,
        "signed": Interval(x - 0.1, x + 0.1),
        "nonnegative": Interval(x.abs(), x.abs() + 0.1),
    }[kind]
    target = torch.randint(3, (32,))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    before = {key: radius.detach().clone() for key, radius in radii.items()}
    for step in range(10):
        optimizer.zero_grad()
        y = net(data)
        loss = nn.functional.cross_entropy(y.lower, target) - y.upper.logsumexp(1).mean()
        loss.backward()
        if step == 0:
            assert {key for key, radius in radii.items() if not radius.grad.any()} == set()
        optimizer.step()
        assert bool((y.lower <= y.upper).all())
    assert {key for key, radius in radii.items() if torch.equal(radius, before[key])} == set()


def test_negative_radii_give_valid_bounds() -> None:
    torch.manual_seed(0)
    net = NETWORKS["mlp-norm"]()
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, IntervalParameters):
                for radius in layer.radii().values():
                    radius.normal_()
    y = net(torch.randn(16, 6))
    assert bool((y.lower <= y.upper).all())


def test_projection_and_scaling_of_radii() -> None:
    torch.manual_seed(0)
    net = NETWORKS["mlp"]()
    net[0].weight_radius.data[0] = -1.0
    center = net[0].weight.detach().clone()
    expected = net[0].weight_radius.detach().clamp_min(0)
    assert inn.project_(net) is net
    assert torch.equal(net[0].weight_radius, expected)
    inn.scale_radii_(net, 0.5)
    assert torch.equal(net[0].weight_radius, expected / 2)
    assert torch.equal(net[0].weight, center)
    with pytest.raises(ValueError, match="factor must be > 0, got 0"):
        inn.scale_radii_(net, 0)


def test_valid_radius_has_gradient_one() -> None:
    radius = torch.tensor([-2.0, 0.0, 3.0], requires_grad=True)
    valid = valid_radius(radius)
    assert valid.tolist() == [0.0, 0.0, 3.0]
    valid.sum().backward()
    assert radius.grad.tolist() == [1.0, 1.0, 1.0]


def test_ordinary_state_dict_loads() -> None:
    ordinary, interval = nn.Conv2d(2, 3, 3), inn.Conv2d(2, 3, 3)
    missing = interval.load_state_dict(ordinary.state_dict(), strict=False)
    assert sorted(missing.missing_keys) == ["bias_radius", "weight_radius"]
    assert torch.equal(interval.weight, ordinary.weight)


def test_repr() -> None:
    assert (
        repr(inn.Conv2d(2, 4, 3, groups=2))
        == "Conv2d(2, 4, kernel_size=(3, 3), stride=(1, 1), groups=2)"
    )
    assert "mode='paper'" in repr(inn.BatchNorm1d(2))


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_signatures_equal_torch(name):
    ours, theirs = (
        list(inspect.signature(getattr(home, name)).parameters) for home in (inn, torch.nn)
    )
    assert (
        set(ours) ^ set(theirs) <= {"mode", "bias"}
        if "Norm" in name
        else ours == theirs[: len(ours)]
    )
