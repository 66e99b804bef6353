"""Tests of the networks, and that radius 0 gives the ordinary network."""

from types import SimpleNamespace

import pytest
import torch

from creinn import models
from creinn import nn as inn
from creinn.nn import registry as layers

SMALL = {
    "mlp": {"in_features": 6, "num_classes": 3, "hidden": (8, 5)},
    "resnet8": {"num_classes": 3, "in_channels": 2, "width": 4},
    "resnet14": {"num_classes": 3, "width": 2},
    "resnet20": {"num_classes": 1, "width": 2},
    "resnet18": {"num_classes": 3, "width": 2},
    "resnet34": {"num_classes": 3, "width": 2, "stem": "imagenet"},
    "resnet50": {"num_classes": 3, "width": 2, "stem": "imagenet", "stride_on": "1x1"},
    "efficientnet_lite0": {"num_classes": 3, "dropout": 0.0},
}


def example(name: str) -> torch.Tensor:
    shape = (8, 6) if name == "mlp" else (8, SMALL[name].get("in_channels", 3), 32, 32)
    return torch.randn(shape, dtype=torch.float64)


def test_every_builder_has_a_case() -> None:
    assert set(SMALL) == set(models.BUILDERS)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_radius_zero_equals_the_ordinary_network(name: str, training: bool) -> None:
    torch.manual_seed(0)
    ordinary = models.BUILDERS[name](**SMALL[name], layers=torch.nn).double()
    interval = models.BUILDERS[name](**SMALL[name], layers=inn).double()
    x = example(name)
    ordinary(x)  # statistics other than those of a new network
    for path, layer in ordinary.named_modules():
        if layers.family_of(layer) is not None:
            layers.copy_centers_(interval.get_submodule(path), layer)
    for layer in interval.modules():
        if isinstance(layer, inn.IntervalParameters):
            for radius in layer.radii().values():
                radius.data.zero_()
    ordinary.train(training)
    y = interval.train(training)(x)
    expected = ordinary(x)
    assert expected.shape == (8, SMALL[name]["num_classes"])
    torch.testing.assert_close(y.lower, expected)
    torch.testing.assert_close(y.upper, expected)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_forward_is_head_of_features(name: str) -> None:
    torch.manual_seed(0)
    network = models.BUILDERS[name](**SMALL[name], layers=torch.nn).double().eval()
    x = example(name)
    features = network.features(x)
    assert features.shape == (8, network.head.in_features)
    torch.testing.assert_close(network.head(features), network(x))


@pytest.mark.parametrize("name", sorted(SMALL))
def test_config_builds_the_same_architecture(name: str) -> None:
    network = models.BUILDERS[name](**SMALL[name], layers="interval")
    assert network.config["builder"] == name
    assert network.config["arguments"]["layers"] == "interval"
    again = models.BUILDERS[name](**network.config["arguments"])
    assert repr(again) == repr(network)
    assert list(again.state_dict()) == list(network.state_dict())


@pytest.mark.parametrize(
    ("name", "count"),
    [("resnet18", 11_689_512), ("resnet34", 21_797_672), ("resnet50", 25_557_032)],
)
def test_parameter_counts_of_the_imagenet_networks(name: str, count: int) -> None:
    with torch.device("meta"):
        network = models.BUILDERS[name](1000, stem="imagenet", layers=torch.nn)
    assert sum(parameter.numel() for parameter in network.parameters()) == count


def test_parameter_count_of_resnet20() -> None:
    with torch.device("meta"):
        network = models.resnet20(10, layers=torch.nn)
    assert sum(parameter.numel() for parameter in network.parameters()) == 272_474


def test_state_keys_are_the_usual_ones() -> None:
    with torch.device("meta"):
        keys = models.resnet18(10, layers=torch.nn).state_dict().keys()
    for key in (
        "conv1.weight",
        "bn1.running_var",
        "layer2.0.downsample.0.weight",
        "layer4.1.bn2.bias",
        "fc.weight",
    ):
        assert key in keys
    assert "layer1.0.downsample.0.weight" not in keys
    assert "conv1.bias" not in keys


def test_stems_and_strides() -> None:
    x = torch.zeros(1, 3, 32, 32)
    sizes = {}
    for stem in ("cifar", "imagenet"):
        network = models.resnet18(2, stem=stem, width=2, layers=torch.nn).eval()
        sizes[stem] = [network.maxpool(network.conv1(x)).shape[-1], network.conv1.kernel_size[0]]
    assert sizes == {"cifar": [32, 3], "imagenet": [8, 7]}
    block = models.resnet50(2, width=2, layers=torch.nn).layer2[0]
    assert (block.conv1.stride, block.conv2.stride) == ((1, 1), (2, 2))
    block = models.resnet50(2, width=2, layers=torch.nn, stride_on="1x1").layer2[0]
    assert (block.conv1.stride, block.conv2.stride) == ((2, 2), (1, 1))


def test_config_is_none_for_an_unregistered_family() -> None:
    namespace = SimpleNamespace(**{name: getattr(torch.nn, name) for name in layers.LAYERS})
    assert models.resnet8(2, width=2, layers=namespace).config is None


def test_mlp_structure() -> None:
    network = models.mlp(5, 3, hidden=(7, 4), dropout=0.1, layers=torch.nn)
    kinds = [type(part).__name__ for part in network.body]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU", "Dropout"] * 2
    assert network.body[0].bias is None
    assert network.head.bias is not None
    x = torch.randn(6, 5)
    network.eval()
    assert network.features(x).shape == (6, 4)
    torch.testing.assert_close(network(x), network.head(network.features(x)))


def test_mlp_parameter_count() -> None:
    # 5 * 7 + (7 + 7) + 7 * 3 + 3
    assert sum(p.numel() for p in models.mlp(5, 3, hidden=(7,), layers=torch.nn).parameters()) == 73
    # twice the weights, twice the norm, twice the head's bias
    assert sum(p.numel() for p in models.mlp(5, 3, hidden=(7,), layers=inn).parameters()) == 146


def test_mlp_without_batch_norm_has_biases() -> None:
    network = models.mlp(5, 3, hidden=(7,), batch_norm=False)
    assert [type(part) for part in network.body] == [inn.Linear, inn.ReLU]
    assert network.body[0].bias is not None


def test_mlp_without_hidden_layers_is_linear() -> None:
    network = models.mlp(5, 3, hidden=(), layers=torch.nn)
    x = torch.randn(2, 5)
    torch.testing.assert_close(
        network(x), torch.nn.functional.linear(x, network.head.weight, network.head.bias)
    )


def test_config_by_hand() -> None:
    config = models.mlp(5, 1, hidden=(7,), layers="ordinary").config
    assert (config["builder"], config["arguments"]["hidden"]) == ("mlp", [7])
    assert config["arguments"]["layers"] == "ordinary"


@pytest.mark.parametrize(
    ("builder", "arguments", "error", "token"),
    [
        ("mlp", {"in_features": 0}, ValueError, "in_features"),
        ("mlp", {"num_classes": -1}, ValueError, "num_classes"),
        ("mlp", {"hidden": (4, 0)}, ValueError, r"hidden\[1\]"),
        ("mlp", {"hidden": (4.5,)}, TypeError, r"hidden\[0\]"),
        ("mlp", {"dropout": 1.0}, ValueError, "dropout"),
        ("mlp", {"layers": "quantum"}, ValueError, "'quantum'"),
        ("resnet18", {"stem": "mnist"}, ValueError, "'mnist'"),
        ("resnet50", {"stride_on": "5x5"}, ValueError, "'5x5'"),
        ("resnet20", {"width": 0}, ValueError, "width"),
        ("resnet8", {"in_channels": 0}, ValueError, "in_channels"),
        ("resnet34", {"num_classes": 2.0}, TypeError, "num_classes"),
        ("resnet14", {"layers": "quantum"}, ValueError, "'quantum'"),
    ],
)
def test_bad_arguments(
    builder: str, arguments: dict[str, object], error: type[Exception], token: str
) -> None:
    needed = {"num_classes": 2, **({"in_features": 3} if builder == "mlp" else {})}
    with pytest.raises(error, match=token):
        models.BUILDERS[builder](**{**needed, **arguments})
