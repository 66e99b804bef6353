"""Tests that folded networks and layers are equal to the original ones in float64."""

import copy
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from creinn import models
from creinn import nn as inn
from creinn.graph.checks import GraphError
from creinn.graph.fold import FoldedNetwork, fold
from creinn.graph.folded import (
    FoldedFull,
    FoldedLayer,
    FoldedRelative,
    Product,
    finish,
    sum_moments,
)
from creinn.interval import Interval, as_interval
from creinn.nn import functional as functions
from creinn.nn import registry as layers
from creinn.nn import relative
from creinn.nn.affine import one_pixel


class Tangle(torch.nn.Module):
    """Network with norms and ReLUs that can and cannot be folded, and with shared layers."""

    def __init__(self):
        super().__init__()
        self.stem = inn.Conv2d(3, 6, 3, padding=1, padding_mode="reflect")
        self.norm = inn.BatchNorm2d(6)
        self.drop = inn.Dropout2d(0.5)
        self.shared = inn.Conv2d(6, 6, 3, padding="same", groups=2)
        self.alone = inn.BatchNorm2d(6)
        self.gelu = inn.GELU()
        self.signed = inn.Conv2d(6, 4, 2, stride=2, bias=False)
        self.tokens = inn.Linear(4, 5)
        self.by_batch = inn.BatchNorm1d(5, track_running_stats=False)
        self.head = inn.Linear(5, 3)

    def forward(self, x):
        y = self.norm(self.stem(x))
        z = functions.relu(self.drop(y)) + y  # the output of the norm is used twice
        z = self.shared(functions.relu(self.shared(z)))
        z = functions.relu(self.alone(functions.max_pool2d(z, 2)) + 0.5)
        z = self.signed(self.gelu(z - 1))
        z = self.tokens(functions.transpose(functions.flatten(z, 2), 1, 2))  # (N, L, C)
        z = functions.relu(z) + functions.relu(-z)
        return self.head(functions.relu(self.by_batch(functions.mean(z, 1))))


def randomise(network):
    """Draw random weights and statistics."""
    for layer in network.modules():
        for parameter in layer.parameters(recurse=False):
            torch.nn.init.normal_(parameter, std=0.5)
        if getattr(layer, "running_var", None) is not None:
            layer.running_mean.normal_()
            if getattr(layer, "mode", None) == "scaled":
                layer.running_mean[layer.num_features :] = 0  # where it stays
            layer.running_var.uniform_(0.5, 2)
    return inn.project_(network).double().eval()


def inputs(*shape):
    x, w = torch.randn(*shape).double(), torch.rand(*shape).double()
    return [Interval._of_point(x), Interval(x - w, x + w), Interval(x.abs(), x.abs() + w)]


def assert_same(got, expected):
    assert got.shape == expected.shape
    torch.testing.assert_close(got.lower, expected.lower, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(got.upper, expected.upper, rtol=1e-9, atol=1e-9)


def set_mode(network, mode):
    for layer in network.modules():
        if isinstance(layer, inn.BatchNorm1d | inn.BatchNorm2d) and layer.track_running_stats:
            layer.set_mode(mode)
    return network


@pytest.mark.parametrize("mode", ["paper", "scaled", "sound"])
@torch.no_grad()
def test_network_of_all_kinds_of_layers(mode):
    torch.manual_seed(0)
    network = randomise(set_mode(Tangle(), mode))
    folded = fold(network)
    for x in inputs(4, 3, 8, 8):
        assert_same(folded(x), network(x))


SEQUENCES = {
    "linear": (inn.Linear(3, 4), inn.BatchNorm1d(4), inn.ReLU(), (5, 3)),
    "linear on tokens": (inn.Linear(3, 4), inn.BatchNorm1d(4), inn.ReLU(), (5, 4, 3)),
    "no bias": (inn.Linear(3, 4, bias=False), inn.BatchNorm1d(4), (5, 3)),
    "no norm": (inn.Conv1d(3, 4, 3, padding=1), inn.ReLU(), (5, 3, 7)),
    "plain norm": (inn.Conv1d(3, 4, 3), inn.BatchNorm1d(4, affine=False), (5, 3, 7)),
    "batch statistics": (
        inn.Conv1d(3, 4, 3),
        inn.BatchNorm1d(4, track_running_stats=False),
        inn.ReLU(),
        (5, 3, 7),
    ),
    "groups": (inn.Conv2d(4, 6, 3, groups=2), inn.BatchNorm2d(6), inn.ReLU(), (3, 4, 5, 6)),
    "groups without norm": (inn.Conv2d(4, 6, 3, groups=2), inn.ReLU(), (3, 4, 5, 6)),
    "depthwise": (inn.Conv2d(4, 8, 3, groups=4, bias=False), inn.BatchNorm2d(8), (3, 4, 5, 6)),
    "circular": (
        inn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
        inn.BatchNorm2d(6),
        (3, 4, 5, 6),
    ),
    "volume": (
        inn.Conv3d(2, 3, 2, dilation=2, stride=2),
        inn.BatchNorm3d(3),
        inn.ReLU(),
        (2, 2, 5, 6, 4),
    ),
    "no batch": (inn.Conv2d(4, 6, 3), inn.ReLU(), (4, 5, 6)),
    "relative": (relative.Conv2d(4, 6, 3, groups=2), inn.BatchNorm2d(6), inn.ReLU(), (3, 4, 5, 6)),
    "relative linear": (relative.Linear(4, 6), inn.ReLU(), (3, 4)),
    "relative tokens": (
        relative.Linear(4, 6, bias=False),
        inn.BatchNorm1d(3),
        inn.ReLU(),
        (2, 3, 4),
    ),
}


@pytest.mark.parametrize("mode", ["paper", "scaled", "sound"])
@pytest.mark.parametrize("name", SEQUENCES)
@torch.no_grad()
def test_layer_with_norm_and_relu(name, mode):
    torch.manual_seed(0)
    *layers, shape = copy.deepcopy(SEQUENCES[name])
    network = randomise(set_mode(torch.nn.Sequential(*layers), mode))
    folded = fold(network)
    for x in inputs(*shape):
        y = folded(x)
        assert_same(y, network(x))
        assert bool((y.lower <= y.upper).all())
    assert len(list(folded.children())) == (
        3 if name in ("batch statistics", "relative tokens") else 1
    )


def test_layers_of_a_resnet():
    network = models.resnet18(3, "imagenet", width=4)
    folded = fold(torch.nn.Sequential(network, inn.BatchNorm1d(3)))
    calls = [node for node in folded.graph.nodes if node.op == "call_module"]
    called = [folded.get_submodule(node.target) for node in calls]
    kinds = [type(layer).__name__ for layer in called]
    assert (kinds.count("FoldedFull"), len(kinds)) == (21, 23)
    assert {"MaxPool2d", "AdaptiveAvgPool2d"} <= set(kinds)
    functions_called = [node.target for node in folded.graph.nodes if node.op == "call_function"]
    assert functions_called == [sum_moments] * 8
    assert all(node.kwargs["relu"] for node in folded.graph.nodes if node.target is sum_moments)
    general = [layer.general is not None for layer in called if isinstance(layer, FoldedFull)]
    assert general == [True, True] + [False] * 18 + [True]  # all layers that are not after a ReLU


@torch.no_grad()
def test_sum_with_a_negative_number():
    class Shifted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = (
                inn.Conv2d(1, 1, 1, bias=False),
                inn.BatchNorm2d(1, eps=0.0, mode="sound"),
            )
            self.conv.weight.fill_(1.0)
            self.conv.weight_radius.fill_(0.5)

        def forward(self, x):
            return self.norm(self.conv(functions.relu(x) + (-1.0)))

    network, x = Shifted().eval(), Interval(torch.zeros(1, 1, 1, 1), torch.full((1, 1, 1, 1), 0.5))
    for y in (network(x), fold(network)(x)):  # [0.5, 1.5] * [-1, -0.5]
        assert (y.lower.item(), y.upper.item()) == (-1.5, -0.25)


@pytest.mark.parametrize("family", [inn, relative])
@torch.no_grad()
def test_norm_over_another_dimension_is_not_folded(family):
    torch.manual_seed(0)
    network = randomise(
        torch.nn.Sequential(inn.ReLU(), family.Linear(4, 3), inn.BatchNorm2d(3), inn.ReLU())
    )
    folded = fold(network)
    for x in inputs(2, 3, 5, 4):
        assert_same(folded(x), network(x))


@torch.no_grad()
def test_layers_of_another_family_with_the_same_name(monkeypatch):
    class Dropout(torch.nn.Module):
        def forward(self, x):
            return x * 0.5

    monkeypatch.setitem(layers._FAMILIES, "halving", SimpleNamespace(Dropout=Dropout))
    network = torch.nn.Sequential(
        inn.Dropout(0.5), Dropout(), inn.Linear(3, 2), inn.Identity()
    ).eval()
    x = Interval._of_point(torch.randn(4, 3))
    assert_same(fold(network)(x), network(x))


def test_general_form_for_signed_inputs():
    network = torch.nn.Sequential(
        *(inn.Conv2d(2, 2, 1), inn.BatchNorm2d(2), inn.GELU()),
        *(inn.Conv2d(2, 2, 1), inn.BatchNorm2d(2), inn.ReLU()),
    )
    folded = [layer for layer in fold(network).modules() if isinstance(layer, FoldedLayer)]
    assert [layer.general is not None for layer in folded] == [True, True]
    assert [layer.relu for layer in folded] == [False, True]


@torch.no_grad()
def test_norms_of_ordinary_networks():
    torch.manual_seed(0)
    network = randomise(models.resnet18(3, "imagenet", width=4, layers=torch.nn))
    folded = fold(network)
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in folded.modules())
    x = torch.randn(3, 3, 32, 32).double()
    torch.testing.assert_close(folded(x), network(x))


@pytest.mark.parametrize("activation", [torch.nn.ReLU(), inn.ReLU(), torch.nn.GELU()], ids=repr)
@torch.no_grad()
def test_norms_of_ordinary_linear_layers(activation):
    torch.manual_seed(0)
    first = torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), activation
    network = randomise(torch.nn.Sequential(*first, torch.nn.Identity()))
    folded = fold(network)
    assert not any(isinstance(layer, torch.nn.BatchNorm1d) for layer in folded.children())
    for shape in ((5, 4), (5, 3, 4)):  # the norm is over the second dimension
        x = torch.randn(shape).double()
        got, expected = folded(x), network(x)
        assert type(got) is type(expected)
        torch.testing.assert_close(as_interval(got).lower, as_interval(expected).lower)


@pytest.mark.parametrize("layers", ["interval", "ordinary"])
@torch.no_grad()
def test_inputs_of_layers(layers):
    torch.manual_seed(0)
    network = randomise(models.resnet8(3, width=4, layers=layers))
    norm = randomise(inn.BatchNorm1d(3) if layers == "interval" else torch.nn.BatchNorm1d(3))
    folded = fold(torch.nn.Sequential(network, norm), [network.head])
    assert isinstance(folded, FoldedNetwork)
    x = torch.rand(4, 3, 8, 8).double()
    x = Interval._of_point(x) if layers == "interval" else x
    (features,), logits = folded.outputs_and_logits(x)
    for got, wanted in (
        (features, network.features(x)),
        (folded(x), norm(network(x))),
        (logits, norm(network(x))),
    ):
        if layers == "interval":
            assert_same(got, wanted)
        else:
            torch.testing.assert_close(got, wanted)


@torch.no_grad()
def test_outputs_of_modules():
    """Test the outputs of stages, of layers and of a layer that is used twice."""

    class Around(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = inn.Linear(3, 3), inn.Linear(3, 3)

        def forward(self, x):
            y = self.first(x)
            return self.head(functions.relu(y)) + y

    torch.manual_seed(0)
    network = randomise(Around())
    x = Interval._of_point(torch.randn(4, 3).double())
    (first, before), logits = (
        fold(network, ["first", network.head]).outputs_and_logits(x)[0],
        fold(network)(x),
    )
    assert_same(first, network.first(x))
    assert_same(before, functions.relu(network.first(x)))
    assert_same(logits, network(x))
    stages = randomise(models.resnet14(3, width=2))
    images = Interval._of_point(torch.rand(2, 3, 8, 8).double())
    seen = {}
    for path in ("layer1", "layer2.0.bn1", "layer3"):
        stages.get_submodule(path).register_forward_hook(
            lambda _, i, o, path=path: seen.update({path: o})
        )
    stages(images)
    for path in seen:
        stages.get_submodule(path)._forward_hooks.clear()
    for path, output in zip(
        seen, fold(stages, at=list(seen)).outputs_and_logits(images)[0], strict=True
    ):
        assert_same(output, seen[path])


def test_unknown_outputs_raise():
    network = torch.nn.Sequential(inn.Linear(3, 3), inn.ReLU())
    with pytest.raises(GraphError, match="Linear"):
        fold(network, [inn.Linear(3, 3)])


@torch.no_grad()
def test_outputs_of_functions_and_of_the_last_call():
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = inn.Linear(3, 3)

        def forward(self, x):
            return functions.relu(self.layer(self.layer(x)))

    torch.manual_seed(0)
    network = randomise(torch.nn.Sequential(Plain(), inn.Linear(3, 3)))
    x = Interval._of_point(torch.randn(4, 3).double())
    (last, output), logits = fold(network, at=["0.layer", "0"]).outputs_and_logits(x)
    layer = network[0].layer
    assert_same(last, layer(layer(x)))
    assert_same(output, network[0](x))
    assert_same(logits, network(x))


def test_norm_without_running_statistics_is_not_folded():
    norm = inn.BatchNorm1d(3, track_running_stats=False)
    folded = fold(torch.nn.Sequential(inn.Linear(2, 3), norm, inn.ReLU()))
    calls = [
        folded.get_submodule(node.target) for node in folded.graph.nodes if node.op == "call_module"
    ]
    assert [type(layer) for layer in calls] == [FoldedFull, inn.BatchNorm1d, inn.ReLU]


numbers = st.floats(-4, 4, width=32)


@given(numbers, numbers, st.booleans())
def test_relu_of_bounds(center, radius, relu):
    y = finish(torch.tensor([[[center], [radius]]]), magnitude=True, relu=relu)
    low, high = center - abs(radius), center + abs(radius)
    expected = (max(low, 0.0), max(high, 0.0)) if relu else (low, high)
    assert (y.lower.item(), y.upper.item()) == pytest.approx(expected, abs=1e-6)
    assert y.nonnegative == relu
    assert not relu or y.lower.item() >= 0


def test_relu_of_a_narrow_radius():
    y = finish(torch.tensor([[[1.0], [1e-12]]]), magnitude=False, relu=True)
    assert y.radius.item() == pytest.approx(1e-12)


@pytest.mark.parametrize(
    ("center", "radius"), [(-torch.inf, 1.0), (torch.inf, 1.0), (0.0, torch.inf), (torch.nan, 1.0)]
)
def test_relu_after_an_overflow(center, radius):
    y = finish(torch.tensor([[[center], [radius]]]), magnitude=True, relu=True)
    assert not bool(torch.isfinite(y.bounds).all())


def test_sums():
    x = Interval([[1.0, -2.0]], [[2.0, -1.0]])
    for a, b in (
        (x, x),
        (x, 1.5),
        (x, torch.ones(1, 2)),
        (x, Interval([[0.0]], [[1.0]])),
        (x[0], x[0]),
        (x[0], x),
    ):
        assert_same(sum_moments(a, b), a + b)
        assert_same(sum_moments(a, b, relu=True), functions.relu(a + b))
    assert sum_moments(2, 3) == 5


CONVOLUTIONS = [
    (torch.nn.Conv2d(3, 4, 3, padding=1), (1, 1)),
    (torch.nn.Conv2d(3, 4, 3, padding=1, stride=2), (2, 1)),
    (torch.nn.Conv2d(3, 4, 3, padding=1, stride=2, bias=False), (1, 2)),
    (torch.nn.Conv2d(3, 4, 1, stride=2), (2, 2)),
    (torch.nn.Conv2d(3, 4, (2, 3)), (2, 3)),
    (torch.nn.Conv2d(3, 4, 3, padding=2, dilation=2), (1, 1)),
    (torch.nn.Conv2d(3, 4, 2, dilation=3, stride=4), (5, 6)),
    (torch.nn.Conv2d(3, 4, (3, 5), padding="same"), (1, 1)),
    (torch.nn.Conv1d(3, 4, 5, padding=2), (1,)),
    (torch.nn.Conv3d(3, 4, 3, padding=1), (1, 1, 1)),
]


@pytest.mark.parametrize(("layer", "sizes"), CONVOLUTIONS, ids=lambda value: str(value))
@torch.no_grad()
def test_convolution_to_one_pixel(layer, sizes):
    torch.manual_seed(0)
    layer = copy.deepcopy(layer).double()
    x, other = (
        torch.randn(5, 3, *sizes).double(),
        torch.randn(5, 3, *(size + 4 for size in sizes)).double(),
    )
    expected, elsewhere = layer(x), layer(other)
    assert set(expected.shape[2:]) == {1}
    product = Product(layer, layer.weight, layer.bias)
    for _ in range(2):
        torch.testing.assert_close(product(x), expected)
    torch.testing.assert_close(product(other), elsewhere)
    if product.cropped.data_ptr() != product.weight.data_ptr():
        product.weight.fill_(torch.nan)  # the weight is not used after the first call
        torch.testing.assert_close(product(x), expected)


def test_convolutions_that_are_not_cropped():
    assert one_pixel(torch.nn.Conv2d(1, 1, 3, padding=1), (1, 2)) is None
    assert one_pixel(torch.nn.Conv2d(1, 1, 3), (2, 2)) is None  # nothing comes out
    assert (
        one_pixel(torch.nn.Conv2d(1, 1, 1, padding=1, stride=3), (1, 1)) is None
    )  # sees padding only
    assert one_pixel(torch.nn.Conv2d(1, 1, 3, padding=1), (1,)) is None
    assert one_pixel(torch.nn.Conv2d(1, 1, 3, padding=1), (1, 1)) == (
        (slice(1, 2),) * 2,
        (slice(0, 1, 1),) * 2,
    )


def test_relative_layers():
    folded = fold(torch.nn.Sequential(relative.Conv2d(2, 3, 1), inn.BatchNorm2d(3)))
    (layer,) = folded.children()
    assert isinstance(layer, FoldedRelative)
    assert layer.general is None
    assert [tuple(p.shape) for p in layer.parameters()] == [(3, 2, 1, 1), (3,), (3, 2, 1, 1), (3,)]
