"""The multilayer perceptron, written once for every family of layers."""

import pytest
import torch

from creinn import models
from creinn import nn as inn


def test_structure() -> None:
    network = models.mlp(5, 3, hidden=(7, 4), dropout=0.1, layers=torch.nn)
    kinds = [type(part).__name__ for part in network.body]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU", "Dropout"] * 2
    assert network.body[0].bias is None
    assert network.head.bias is not None
    x = torch.randn(6, 5)
    network.eval()
    assert network.features(x).shape == (6, 4)
    torch.testing.assert_close(network(x), network.head(network.features(x)))


def test_parameter_count_by_hand() -> None:
    # 5 * 7 + (7 + 7) + 7 * 3 + 3
    assert sum(p.numel() for p in models.mlp(5, 3, hidden=(7,), layers=torch.nn).parameters()) == 73
    # twice the weights, twice the norm, twice the head's bias
    assert sum(p.numel() for p in models.mlp(5, 3, hidden=(7,), layers=inn).parameters()) == 146


def test_layers_without_batch_norm_have_bias() -> None:
    network = models.mlp(5, 3, hidden=(7,), batch_norm=False)
    assert [type(part) for part in network.body] == [inn.Linear, inn.ReLU]
    assert network.body[0].bias is not None


def test_no_hidden_layers() -> None:
    network = models.mlp(5, 3, hidden=(), layers=torch.nn)
    x = torch.randn(2, 5)
    torch.testing.assert_close(
        network(x), torch.nn.functional.linear(x, network.head.weight, network.head.bias)
    )


def test_config_contains_family() -> None:
    network = models.mlp(5, 1, hidden=(7,), layers="ordinary")
    assert network.config == {
        "builder": "mlp",
        "arguments": {
            "in_features": 5,
            "num_classes": 1,
            "hidden": [7],
            "batch_norm": True,
            "dropout": 0.0,
            "layers": "ordinary",
        },
    }
    again = models.BUILDERS["mlp"](**network.config["arguments"])
    assert repr(again) == repr(network)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"in_features": 0}, ValueError, "in_features"),
        ({"num_classes": -1}, ValueError, "num_classes"),
        ({"hidden": (4, 0)}, ValueError, r"hidden\[1\]"),
        ({"hidden": (4.5,)}, TypeError, r"hidden\[0\]"),
        ({"dropout": 1.0}, ValueError, "dropout"),
        ({"layers": "quantum"}, ValueError, "'quantum'"),
    ],
)
def test_invalid_arguments_raise(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        models.mlp(**{"in_features": 3, "num_classes": 2, **arguments})
