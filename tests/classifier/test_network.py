"""Tests of the features of a network, which are the inputs of the head or the outputs of given layers."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import creinn
import reference
from creinn import CreINN, Interval, load, models
from creinn import nn as inn
from creinn.classifier.compile_cache import has_hooks
from creinn.classifier.credal import credal_set
from creinn.classifier.network import find_logits_layer, outputs_and_logits
from creinn.distance.feature_layers import pooled
from creinn.distance.radius import add_radius
from distance_cases import blobs


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), width=st.floats(0, 3), positions=st.integers(1, 5))
def test_pooled_features_contain_all_members(seed: int, width: float, positions: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    lower = torch.randn(3, 2, positions, generator=generator).double()
    box = Interval(lower, lower + width * torch.rand(3, 2, positions, generator=generator).double())
    whole = pooled(box)
    assert whole.shape == (3, 4)
    for member in reference.members(box, generator, 30):
        features = pooled(member)
        expected = np.concatenate([member.numpy().mean(2), member.numpy().std(2)], 1)
        np.testing.assert_allclose(features.numpy(), expected, atol=1e-12)
        assert bool(((whole.lower <= features + 1e-9) & (features <= whole.upper + 1e-9)).all())


@pytest.mark.parametrize("layers", [torch.nn, inn])
def test_stages_of_resnet(layers: object, tmp_path: object) -> None:
    """The distance is measured at the stages, by channel means and deviations, and at the head."""
    torch.manual_seed(0)
    x, y = torch.randn(90, 1, 8, 8), torch.arange(90) % 3
    network = models.resnet8(3, in_channels=1, width=2, layers=layers)
    model = CreINN(network, distance=0.01)
    model.train()(x)
    model.eval().fit_distance(x, y)
    assert model.feature_layers == ("layer1", "layer2", "layer3", "<head>")
    seen = {}
    for path in model.feature_layers[:-1]:
        network.get_submodule(path).register_forward_hook(
            lambda _, i, o, path=path: seen.update({path: o})
        )
    far = 2 * x[:20]
    network(far)
    stages = [
        seen[path] if layers is torch.nn else seen[path].center
        for path in model.feature_layers[:-1]
    ]
    for path in model.feature_layers[:-1]:
        network.get_submodule(path)._forward_hooks.clear()
    features = [
        torch.cat((maps.mean((2, 3)), maps.std((2, 3), correction=0)), 1) for maps in stages
    ]
    radius = model.distance_radius((*features, stages[-1].mean((2, 3))))
    assert radius.max() > 10 * radius.min() > 0
    prediction = model.predict(far)
    expected = credal_set(add_radius(model._scaled_logits(network(far)), radius), "paper")
    torch.testing.assert_close(prediction.lower, expected.lower, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(prediction.upper, expected.upper, atol=1e-5, rtol=1e-4)
    fast = creinn.compile(model, example=far)
    torch.testing.assert_close(fast.predict(far).lower, prediction.lower, atol=1e-5, rtol=1e-4)
    model.save(tmp_path)
    torch.testing.assert_close(
        load(tmp_path).predict(far).upper, prediction.upper, atol=1e-5, rtol=1e-4
    )
    state = model.state_dict()
    state["distance_radius.distances.1.means"] = torch.zeros(
        4, 8
    )  # with a different number of classes
    with pytest.raises(RuntimeError, match=r"distances\.1\.means"):
        CreINN(copy.deepcopy(network), distance=0.1).load_state_dict(state)
    program = torch.export.export(model, (far,), strict=False)
    torch.testing.assert_close(program.module()(far).lower, prediction.lower, atol=1e-5, rtol=1e-4)


def test_load_unnamed_feature_layer_requires_network(tmp_path: object) -> None:
    """A network of one's own is saved as a graph of its layers; a distance between them needs the network itself."""
    torch.manual_seed(0)

    def network() -> torch.nn.Module:
        block = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
        return torch.nn.Sequential(block, torch.nn.Linear(8, 3))

    x, y = blobs()
    model = CreINN(network(), distance=True, feature_layers=("0",)).eval().fit_distance(x, y)
    with pytest.warns(UserWarning, match="'0'"):
        model.save(tmp_path)
    with pytest.raises(ValueError, match="'0'"):
        load(tmp_path)
    torch.testing.assert_close(
        load(tmp_path, network=network()).predict(x).upper, model.predict(x).upper
    )


class Swapped(torch.nn.Module):
    """Network with layers that are not called in the order of their definition."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = torch.nn.Linear(8, 3), torch.nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu())


class Named(Swapped):
    """The same, with the names that tell."""

    @property
    def head(self) -> torch.nn.Module:
        return self.last

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x).relu()


class Lying(Named):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.last(self.first(x).relu())


class Sequence(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.unsqueeze(1).expand(-1, 5, -1)).mean(1)


def test_features_are_inputs_of_the_head() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4)
    mlp = models.mlp(4, 3, hidden=(8,), layers=torch.nn).eval()
    hooked = torch.nn.Sequential(*mlp.body, mlp.head)
    for network in (mlp, hooked, Named()):
        (features,), logits = outputs_and_logits(network, x)
        torch.testing.assert_close(find_logits_layer(network)(features), logits)
        torch.testing.assert_close(logits, network(x))
    torch.testing.assert_close(outputs_and_logits(hooked, x)[0][0], mlp.features(x))
    assert not has_hooks(hooked[-1])


def test_unknown_features_raise() -> None:
    x, y = blobs()
    with pytest.raises(ValueError, match="Conv2d"):
        CreINN(torch.nn.Conv2d(1, 3, 3), distance=True)
    with pytest.raises(ValueError, match="first, last"):
        CreINN(Swapped(), distance=True).fit_distance(x, y)
    with pytest.raises(ValueError, match="Lying"):
        CreINN(Lying(), distance=True).fit_distance(x, y)
    with pytest.raises(ValueError, match=r"\(32, 5, 4\)"):
        CreINN(Sequence(), distance=True).fit_distance(x, y)
    assert CreINN(Named(), distance=True).fit_distance(x, y).num_logits == 3
