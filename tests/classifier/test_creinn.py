"""Test CreINN and Ensemble from the inputs to the credal sets."""

import pytest
import torch

import reference
from creinn import CredalSet, CreINN, Ensemble, Interval, cross_entropy, load, models, project_
from creinn import nn as inn
from creinn.credal.loss import bounds_cross_entropy
from creinn.credal.probability import interval_softmax


def residual(layers: object) -> torch.nn.Module:
    """A small residual network with every kind of layer that keeps containment."""

    class Residual(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = layers.Conv2d(2, 4, 3, padding=1, bias=False)
            self.bn1 = layers.BatchNorm2d(4)
            self.conv2 = layers.Conv2d(4, 4, 3, padding=1, groups=2)
            self.act = layers.SiLU()
            self.relu = layers.ReLU()
            self.pool = layers.MaxPool2d(2)
            self.mean = layers.AdaptiveAvgPool2d(1)
            self.flatten = layers.Flatten()
            self.fc = layers.Linear(4, 3)

        def forward(self, x: object) -> object:
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.pool(y + self.act(self.conv2(y)))
            return self.fc(self.flatten(self.mean(y)))

    return Residual()


def sound_pair(radius: float) -> tuple[CreINN, torch.nn.Module]:
    """A sound CreINN with random statistics and its ordinary twin, norm on the logits included."""
    model = CreINN(residual(inn), mode="sound").double().eval()
    ordinary = torch.nn.Sequential(residual(torch.nn), torch.nn.BatchNorm1d(3)).double().eval()
    inn.scale_radii_(model, radius)
    for module in model.modules():
        if isinstance(module, inn.BatchNorm1d | inn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            torch.nn.init.normal_(module.weight)
            torch.nn.init.normal_(module.bias)
    ordinary[0].load_state_dict(model.network.state_dict(), strict=False)
    ordinary[1].load_state_dict(model.norm.state_dict())
    return model, ordinary


@pytest.mark.parametrize("radius", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("width", [0.0, 0.1, 1.0])
def test_sound_mode_contains_all_members(radius: float, width: float) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        model, ordinary = sound_pair(radius)
        x = torch.randn(4, 2, 6, 6).double()
        data = Interval(x, x + width * torch.rand_like(x))
        prediction = model(data)
        logits = model.norm(model.network(data))
        interval_net = torch.nn.Sequential(model.network, model.norm)
        for output in reference.member_outputs(interval_net, ordinary, data, generator, count=30):
            reference.assert_contains(logits, output)
            assert bool(prediction.contains(output.softmax(1), tolerance=1e-9).all())


def set_weights(layer: inn.Linear, center: list[list[float]], radius: list[list[float]]) -> None:
    """Set the weights to the given values and the biases to zero."""
    layer.weight.data.copy_(torch.tensor(center))
    layer.weight_radius.data.copy_(torch.tensor(radius))


def test_paper_softmax_does_not_contain_all_members() -> None:
    # erratum 4 through a whole network: logits [0, 0], [0, 2]
    layer = inn.Linear(1, 2)
    set_weights(layer, [[0.0], [1.0]], [[0.0], [1.0]])
    member = torch.tensor([[0.0, 2.0]]).softmax(1)
    assert not CreINN(layer, logit_norm=False)(torch.ones(1, 1)).contains(member)
    assert CreINN(layer, mode="sound", logit_norm=False)(torch.ones(1, 1)).contains(member)


def test_single_logit_is_binary_classifier() -> None:
    layer = inn.Linear(1, 1)
    set_weights(layer, [[0.0]], [[1.0]])
    model = CreINN(layer, logit_norm=False)
    assert model.num_classes == 2
    prediction = model(torch.ones(1, 1))
    torch.testing.assert_close(
        prediction.lower, torch.tensor([[0.2689, 0.2689]]), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(
        prediction.upper, torch.tensor([[0.7311, 0.7311]]), atol=1e-4, rtol=0
    )


def test_zero_radius_equals_ordinary_network() -> None:
    torch.manual_seed(0)
    model, ordinary = sound_pair(1e-300)
    for mode in ("sound", "paper"):
        twin = CreINN(model.network, mode=mode, logit_norm=False).eval()
        x = torch.randn(5, 2, 6, 6).double()
        torch.testing.assert_close(twin(x).intersection, ordinary[0](x).softmax(1))


def test_logits_norm_has_the_mode_of_the_model() -> None:
    model = CreINN(models.mlp(4, 3, batch_norm=True))
    assert (model.norm.num_features, model.norm.mode) == (3, "paper")
    sound = CreINN(models.mlp(4, 3, batch_norm=True), mode="sound")
    assert {m.mode for m in sound.modules() if isinstance(m, inn.BatchNorm1d)} == {"sound"}
    assert isinstance(CreINN(models.mlp(4, 3), logit_norm=False).norm, inn.Identity)


@pytest.mark.parametrize("mode", ["paper", "sound"])
def test_training_reduces_loss_and_preserves_intervals(mode: str) -> None:
    torch.manual_seed(0)
    model = CreINN(models.mlp(4, 3, hidden=(16,)), mode=mode)
    inn.scale_radii_(model, 0.1)
    x = torch.randn(64, 4)
    y = x[:, :3].argmax(1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        prediction = model(x)
        loss = model.loss(prediction, y)
        torch.testing.assert_close(loss, cross_entropy(prediction, y))
        loss.backward()
        optimizer.step()
        model.after_step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all((p >= 0).all() for n, p in model.named_parameters() if n.endswith("_radius"))
    assert prediction.width.max() > 0


def test_ensemble_averages_reachable_bounds() -> None:
    torch.manual_seed(0)
    members = [CreINN(models.mlp(4, 3)).eval() for _ in range(3)]
    ensemble = Ensemble(members).eval()
    x = torch.randn(6, 4)
    torch.testing.assert_close(ensemble(x).lower, sum(m(x).lower for m in members) / 3)
    torch.testing.assert_close(ensemble(x).upper, sum(m(x).upper for m in members) / 3)
    assert ensemble.num_classes == 3


def test_envelope_contains_all_members() -> None:
    torch.manual_seed(0)
    members = [CreINN(models.mlp(4, 3)).eval() for _ in range(3)]
    x = torch.randn(6, 4)
    whole, sets = Ensemble(members, combine="envelope").eval()(x), [member(x) for member in members]
    torch.testing.assert_close(whole.lower, torch.stack([s.lower for s in sets]).amin(0))
    torch.testing.assert_close(whole.upper, torch.stack([s.upper for s in sets]).amax(0))
    assert all(bool(whole.contains(s.intersection).all()) for s in sets)


def test_scaled_mode_uses_paper_softmax() -> None:
    torch.manual_seed(0)
    model = CreINN(models.mlp(4, 3), mode="scaled").eval()
    assert {m.mode for m in model.modules() if isinstance(m, inn.BatchNorm1d)} == {"scaled"}
    x = torch.randn(6, 4)
    logits = model.norm(model.network(x))
    expected = interval_softmax(logits.lower, logits.upper, "paper")
    torch.testing.assert_close(model(x).lower, CredalSet(*expected).lower)


def test_loss_by_name() -> None:
    torch.manual_seed(0)
    model = CreINN(models.mlp(4, 3), loss="bounds")
    x, y = torch.randn(8, 4), torch.arange(8) % 3
    weight = torch.tensor([1.0, 2.0, 3.0])
    prediction = model(x)
    assert prediction.width.max() > 0.01
    torch.testing.assert_close(
        model.loss(prediction, y, weight), bounds_cross_entropy(prediction, y, weight)
    )
    assert model.options()["loss"] == "bounds"


def test_prediction_does_not_depend_on_batch_size() -> None:
    torch.manual_seed(0)
    model = CreINN(models.mlp(4, 3, dropout=0.5))
    model(torch.randn(32, 4))
    model.network.eval()
    x = torch.randn(10, 4)
    data = Interval(x, x + 0.1)
    whole = model.predict(data)
    assert isinstance(whole, CredalSet)
    assert not whole.lower.requires_grad
    torch.testing.assert_close(model.predict(data, batch_size=3).lower, whole.lower)
    batches = torch.utils.data.DataLoader([(row, 0) for row in data], batch_size=4)
    torch.testing.assert_close(model.predict(batches).lower, whole.lower)
    torch.testing.assert_close(model.predict([x, x]).lower, model.predict(torch.cat([x, x])).lower)
    assert model.training  # the mode of each part is restored
    assert not model.network.training


def test_save_and_load(tmp_path: object) -> None:
    torch.manual_seed(0)
    model = CreINN(models.mlp(4, 3)).eval()
    model.save(tmp_path, classes=["a", "b", "c"])
    x = torch.randn(5, 4)
    torch.testing.assert_close(load(tmp_path)(x).lower, model(x).lower)


def test_sound_width_grows_with_input() -> None:
    torch.manual_seed(0)
    model, _ = sound_pair(0.01)
    x = torch.randn(4, 2, 6, 6).double()
    narrow, wide = model(Interval(x, x + 0.1)), model(Interval(x - 0.1, x + 0.2))
    assert bool((wide.lower <= narrow.lower + 1e-12).all())
    assert bool((wide.upper >= narrow.upper - 1e-12).all())


def test_invalid_arguments_raise() -> None:
    with pytest.raises(ValueError, match="'best'"):
        CreINN(models.mlp(4, 3), mode="best")
    with pytest.raises(ValueError, match=r"no interval layer.*creinn\.convert"):
        CreINN(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="there are no members"):
        Ensemble([])
    with pytest.raises(ValueError, match=r"members have \[3, 4\] classes"):
        Ensemble([CreINN(models.mlp(4, 3)), CreINN(models.mlp(4, 4))])
    model = CreINN(models.mlp(4, 3))
    with pytest.raises(ValueError, match="empty"):
        model.predict(torch.zeros(0, 4))
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        model.predict(torch.zeros(2, 4), batch_size=0)
    with pytest.raises(TypeError, match="Expected an Interval or a tensor"):
        model([1.0])
    assert project_(model) is model
