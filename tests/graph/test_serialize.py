"""Tests of the conversion of architectures to JSON and back."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from creinn import models
from creinn import nn as inn
from creinn.graph.convert import convert
from creinn.graph.serialize import build, serialize
from creinn.interval import Interval, cat
from creinn.nn import registry as layers


class Custom(nn.Module):
    """Interval network with shared and unused layers, functions and slices."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = inn.Linear(2, 2)
        self.conv = inn.Conv2d(2, 4, 3, padding=1)
        self.norm = inn.BatchNorm2d(4, mode="sound")
        self.head = inn.Linear(8 + 16, 3)
        self.again = self.conv

    def forward(self, x: Any) -> Any:
        y = self.norm(self.conv(x))
        y += 2 * y[:, :, :, :]
        pooled = y.mean((2, 3), keepdim=True).squeeze(3).squeeze(2)
        flat = y[:, 0, ..., 1:].reshape(y.shape[0], -1)
        return self.head(cat([pooled, pooled, flat], 1))


def ordinary() -> nn.Module:
    class Ordinary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.out = nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            x = torch.nn.functional.dropout(torch.relu(self.fc(x)) - 1, 0.5, self.training)
            return self.out(x.flatten(1))

    return Ordinary()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "builder": (lambda: models.mlp(4, 3, hidden=(5,)), (6, 4)),
    "ordinary builder": (lambda: models.resnet8(3, width=2, layers=nn), (6, 3, 8, 8)),
    "sequential": (
        lambda: nn.Sequential(
            inn.Conv2d(1, 4, 3), inn.BatchNorm2d(4), inn.ReLU(), inn.Flatten(), inn.Linear(64, 3)
        ),
        (6, 1, 6, 6),
    ),
    "converted": (lambda: convert(models.resnet8(3, width=2, layers=nn)), (6, 3, 8, 8)),
    "custom": (Custom, (6, 2, 4, 5)),
    "ordinary": (ordinary, (6, 4)),
    "nested": (
        lambda: nn.Sequential(convert(models.mlp(4, 3, layers=nn)), inn.BatchNorm1d(3)),
        (6, 4),
    ),
    "layer": (lambda: inn.Linear(4, 3, bias=False), (6, 4)),
}


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_round_trip(name: str) -> None:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    network = make()
    x = torch.randn(shape)
    network(x)
    description = json.loads(json.dumps(serialize(network), allow_nan=False))
    again = build(description)
    assert list(again.state_dict()) == list(network.state_dict())
    again.load_state_dict(network.state_dict())
    expected, found = network.eval()(x), again.eval()(x)
    if isinstance(expected, Interval):
        torch.testing.assert_close(found.lower, expected.lower)
        torch.testing.assert_close(found.upper, expected.upper)
    else:
        torch.testing.assert_close(found, expected)
    assert serialize(again) == description


def test_forms() -> None:
    form = {name: sorted(serialize(make())) for name, (make, _) in NETWORKS.items()}
    assert form.pop("builder") == form.pop("ordinary builder") == ["arguments", "builder"]
    assert form.pop("layer") == ["layer"]
    assert set(map(tuple, form.values())) == {("graph", "layers")}


def test_description_by_hand() -> None:
    assert serialize(nn.Sequential(inn.Linear(2, 3), inn.ReLU())) == {
        "graph": [
            {"name": "x", "op": "input"},
            {"name": "_0", "op": "layer", "target": "0", "args": [{"node": "x"}]},
            {"name": "_1", "op": "layer", "target": "1", "args": [{"node": "_0"}]},
            {"op": "output", "args": [{"node": "_1"}]},
        ],
        "layers": [
            {
                "path": "0",
                "family": "interval",
                "class": "Linear",
                "arguments": {"in_features": 2, "out_features": 3, "bias": True},
            },
            {"path": "1", "family": "interval", "class": "ReLU", "arguments": {"inplace": False}},
        ],
    }


def test_shared_and_unused_layers() -> None:
    network = Custom()
    entries = {entry["path"]: entry for entry in serialize(network)["layers"]}
    assert list(entries) == ["unused", "conv", "norm", "head", "again"]
    assert entries["again"] == {"path": "again", "same_as": "conv"}
    again = build(serialize(network))
    assert again.again is again.conv
    assert [path for path, _ in again.named_modules()] == [
        path for path, _ in network.named_modules()
    ]


def test_functional_dropout_follows_the_mode() -> None:
    network = build(serialize(ordinary().eval()))
    assert isinstance(network.functional_dropout_0, nn.Dropout)


def test_random_state_and_network_are_not_changed() -> None:
    network = Custom()
    before = copy.deepcopy(network.state_dict())
    recorded = models.mlp(4, 3)
    state = torch.get_rng_state()
    serialize(network)
    serialize(recorded)
    assert torch.equal(torch.get_rng_state(), state)
    assert network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_sound_norms_of_a_builder() -> None:
    network = models.mlp(4, 3, hidden=(5,))
    network.body[1].set_mode("sound")
    description = serialize(network)
    assert description["norm_mode"] == "sound"
    assert build(description).body[1].mode == "sound"


@pytest.mark.parametrize("change", ["head", "activation", "mode"])
def test_changed_network_of_a_builder_is_described_as_a_graph(change: str) -> None:
    network = models.mlp(4, 3, hidden=(5, 5))
    if change == "head":
        network.head = inn.Linear(5, 7)
    elif change == "activation":
        network.body[2] = inn.Tanh()
    else:
        network.body[1].set_mode("sound")
    description = serialize(network)
    assert "graph" in description
    again = build(description)
    again.load_state_dict(network.state_dict())
    x = torch.randn(6, 4)
    torch.testing.assert_close(again.eval()(x).lower, network.eval()(x).lower)


def test_registered_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_FAMILIES", dict(layers._FAMILIES))

    class Linear(nn.Linear):
        pass

    layers.register_family("mine", type("Mine", (), {"Linear": Linear}))
    network = nn.Sequential(Linear(2, 2), nn.ReLU())
    assert serialize(network)["layers"][0]["family"] == "mine"
    assert type(build(serialize(network)).get_submodule("0")) is Linear


# Errors.


def with_parameter() -> nn.Module:
    network = nn.Sequential(inn.Linear(2, 2))
    network.register_parameter("extra", nn.Parameter(torch.ones(3)))
    return network


def replaced_weight() -> nn.Module:
    network = nn.Sequential(inn.Linear(2, 2))
    network[0].weight = nn.Parameter(torch.ones(3, 2))
    return network


def infinite() -> nn.Module:
    return nn.Sequential(inn.Linear(2, 2), inn.Hardtanh(0.0, float("inf")))


@pytest.mark.parametrize(
    ("make", "token"),
    [
        (lambda: nn.Sequential(inn.Linear(2, 2), nn.LayerNorm(2)), "1: LayerNorm: .*statistics"),
        (with_parameter, "'extra'"),
        (replaced_weight, r"'0\.weight'"),
        (infinite, "JSON"),
    ],
)
def test_unknown_networks_raise(make: Callable[[], nn.Module], token: str) -> None:
    with pytest.raises(ValueError, match=f"Sequential: .*{token}.*creinn.load"):
        serialize(make())


def broken(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    description = copy.deepcopy(serialize(Custom()))
    change(description)
    return description


def node(description: dict[str, Any], op: str) -> dict[str, Any]:
    return next(entry for entry in description["graph"] if entry["op"] == op)


@pytest.mark.parametrize(
    ("change", "token"),
    [
        (lambda d: node(d, "function").update(target="os.system"), r"'os\.system'"),
        (lambda d: node(d, "function").update(target="__import__"), "'__import__'"),
        (lambda d: node(d, "function").update(kwargs={"x": 1}), "'x'"),
        (lambda d: node(d, "function").update(args=["os", 2]), "constants"),
        (lambda d: node(d, "layer").update(target="nowhere"), "'nowhere'"),
        (lambda d: node(d, "layer").update(args=[3]), "'layer'"),
        (lambda d: node(d, "layer").update(op="call_method"), "call_method"),
        (lambda d: node(d, "layer").update(args=[{"node": "later"}]), "'later'"),
        (lambda d: node(d, "layer").update(args=[{"code": "1"}]), "'code'"),
        (lambda d: d["graph"].pop(), "one output"),
        (lambda d: d["layers"][0].update({"class": "Module"}), "'Module' .*'interval'"),
        (lambda d: d["layers"][0].update(family="os"), "'os'"),
        (lambda d: d["layers"][0]["arguments"].update(hook="x"), "'hook'"),
        (lambda d: d["layers"][0].update(path='a"); import os; ("'), "letters"),
        (lambda d: d["layers"][-1].update(same_as="nowhere"), "'nowhere'"),
        (lambda d: d["layers"][0].pop("class"), "KeyError.*'class'"),
        (lambda d: d.update(graph=[{"name": "x"}]), "KeyError.*'op'"),
        (lambda d: d.update(layers=3), "TypeError"),
        (lambda d: d.pop("graph"), "'graph'"),
        (lambda d: d.update(builder="vgg"), "'vgg'.* mlp, resnet8"),
        (lambda d: d.update(builder="mlp", arguments={"x": 1}), "'in_features'"),
        (lambda d: d.update(builder="mlp", arguments=[1]), "TypeError"),
    ],
)
def test_unknown_names_raise(change: Callable[[dict[str, Any]], object], token: str) -> None:
    with pytest.raises(ValueError, match=token):
        build(broken(change))


@pytest.mark.parametrize("description", ["resnet18", 3])
def test_other_types_raise(description: Any) -> None:
    with pytest.raises(ValueError, match="TypeError"):
        build(description)
