"""Tests of the registry: layers are equal after a round trip through their arguments."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from creinn import nn as inn
from creinn.nn import registry as layers

MADE = {
    "AdaptiveAvgPool1d": (3,),
    "AdaptiveAvgPool2d": ((2, None),),
    "AdaptiveMaxPool1d": (3,),
    "AdaptiveMaxPool2d": ((2, 1),),
    "AvgPool1d": (3, 2, 1, True, False),
    "AvgPool2d": ((3, 2), 2, 1, True, False, 5),
    "BatchNorm1d": (3, 1e-3, None),
    "BatchNorm2d": (3, 1e-5, 0.2, False),
    "BatchNorm3d": (3, 1e-5, 0.1, True, False),
    "Conv1d": (4, 6, 3, 2, 1, 2, 2, False),
    "Conv2d": (4, 6, (3, 1), 1, "same", 1, 2, True, "reflect"),
    "Conv3d": (2, 2, 3),
    "Dropout": (0.3,),
    "Dropout1d": (0.3,),
    "Dropout2d": (0.3,),
    "ELU": (0.7,),
    "Flatten": (2, 3),
    "GELU": ("tanh",),
    "Hardswish": (),
    "Hardtanh": (-2.0, 0.5),
    "Identity": (),
    "LeakyReLU": (0.2,),
    "Linear": (3, 2, False),
    "MaxPool1d": (3, 2, 1, 1),
    "MaxPool2d": (3, (2, 1), 1, 2, False, True),
    "Mish": (),
    "ReLU": (),
    "ReLU6": (),
    "ReflectionPad2d": ((1, 2, 0, 1),),
    "ReplicationPad2d": (1,),
    "SELU": (),
    "SiLU": (),
    "Sigmoid": (),
    "Softplus": (2.0, 10.0),
    "Tanh": (),
    "ZeroPad1d": (1,),
    "ZeroPad2d": ((1, 0, 2, 1),),
    "ZeroPad3d": (1,),
}


def test_every_known_layer_has_a_case() -> None:
    assert set(MADE) == layers.LAYERS


@pytest.mark.parametrize("name", sorted(MADE))
@pytest.mark.parametrize("family", ["ordinary", "interval"])
def test_arguments_build_the_same_layer_again(name: str, family: str) -> None:
    layer = getattr(layers.family(family), name)(*MADE[name])
    assert layers.family_of(layer) == family
    arguments = json.loads(json.dumps(layers.arguments(layer), allow_nan=False))
    again = layers.build_layer(family, name, arguments)
    assert type(again) is type(layer)
    assert repr(again) == repr(layer)
    assert layers.arguments(again) == layers.arguments(layer)
    shapes = {key: value.shape for key, value in layer.state_dict().items()}
    assert {key: value.shape for key, value in again.state_dict().items()} == shapes


def test_arguments_by_hand() -> None:
    assert layers.arguments(inn.Conv1d(2, 4, 3, stride=2, bias=False)) == {
        "in_channels": 2,
        "out_channels": 4,
        "kernel_size": [3],
        "stride": [2],
        "padding": [0],
        "dilation": [1],
        "groups": 1,
        "bias": False,
        "padding_mode": "zeros",
    }


def test_batch_norm_keeps_its_mode() -> None:
    arguments = layers.arguments(inn.BatchNorm2d(3, mode="sound"))
    assert arguments["mode"] == "sound"
    assert layers.build_layer("interval", "BatchNorm2d", arguments).weight.shape == (3,)


@pytest.mark.parametrize("name", sorted(MADE))
def test_twin_with_radius_zero_equals_the_layer(name: str) -> None:
    torch.manual_seed(0)
    source = getattr(torch.nn, name)(*MADE[name]).double()
    if isinstance(source, nn.modules.batchnorm._BatchNorm):
        for tensor in source.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.5)
    twin = layers.twin(source.eval())
    assert type(twin) is getattr(inn, name)
    assert not twin.training
    for radius in twin.radii().values() if isinstance(twin, inn.IntervalParameters) else ():
        radius.data.zero_()
    dims = 3 if "3d" in name else 1 if "1d" in name else 2
    channels = {"Linear": 4, "BatchNorm1d": 3, "BatchNorm2d": 3, "BatchNorm3d": 3, "Conv3d": 2}.get(
        name, 4
    )
    x = torch.randn(2, channels, *(7,) * dims, dtype=torch.float64)
    if name == "Linear":
        x = torch.randn(5, 3, dtype=torch.float64)
    y = twin(x)
    assert_close(y.lower, source(x))
    assert_close(y.upper, source(x))


def test_twin_copies_dtype_and_requires_grad() -> None:
    source = nn.BatchNorm1d(2, affine=False).double().eval()
    assert layers.twin(source).running_mean.dtype == torch.float64
    frozen = nn.Linear(2, 3).double().requires_grad_(False)
    twin = layers.twin(frozen)
    assert twin.weight_radius.dtype == torch.float64
    assert not any(parameter.requires_grad for parameter in twin.parameters())
    assert layers.twin(nn.ReLU(inplace=True)).inplace is False


def test_unknown_layers_raise() -> None:
    class Mine(nn.Linear):
        pass

    assert layers.family_of(Mine(1, 1)) is None
    with pytest.raises(ValueError, match="LayerNorm"):
        layers.arguments(nn.LayerNorm(3))
    with pytest.raises(
        ValueError,
        match=r"creinn\.nn\.affine\.Linear",
    ):
        layers.twin(inn.Linear(1, 1))
    with pytest.raises(ValueError, match="'quantum'"):
        layers.build_layer("quantum", "Linear", {})
    with pytest.raises(ValueError, match="'Sequential'"):
        layers.build_layer("ordinary", "Sequential", {})
    with pytest.raises(ValueError, match="'device'"):
        layers.build_layer("ordinary", "ReLU", {"device": "cpu"})
    with pytest.raises(ValueError, match="in_features"):
        layers.build_layer("ordinary", "Linear", {"in_features": 2})


def test_register_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_FAMILIES", dict(layers._FAMILIES))

    class Linear(nn.Linear):
        def __init__(self, *args: object, prior: float = 1.0, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            self.prior = prior

    namespace = SimpleNamespace(Linear=Linear)
    layers.register_family("bayesian", namespace)
    layers.register_family("bayesian", namespace)
    assert {"ordinary", "interval", "bayesian"} <= set(layers.known_families())
    assert layers.known_families().count("bayesian") == 1
    assert layers.family_name(namespace) == "bayesian"
    layer = Linear(2, 3, prior=0.5)
    assert layers.family_of(layer) == "bayesian"
    assert layers.arguments(layer) == {
        "in_features": 2,
        "out_features": 3,
        "bias": True,
        "prior": 0.5,
    }
    assert layers.build_layer("bayesian", "Linear", layers.arguments(layer)).prior == 0.5
    with pytest.raises(ValueError, match="'interval'"):
        layers.register_family("interval", namespace)
