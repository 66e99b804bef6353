"""Training step: the update of Adam, training of the radii only, and biases without effect."""

import copy

import pytest
import torch

from creinn import nn as inn
from creinn.baselines import BNN, local_reparameterization
from creinn.baselines.laplace import LaplaceBNN
from creinn.baselines.snn import SNN
from creinn.classifier.creinn import CreINN
from creinn.graph.convert import convert
from creinn.interval import as_interval
from creinn.nn import relative
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.training import TrainConfig, fit
from creinn.training.step import adam_step, set_train_mode, zero_grad_biases

G = torch.Generator().manual_seed(0)
X, Y = torch.randn(60, 1, 6, 6, generator=G), torch.randint(3, (60,), generator=G)


def creinn(mode="paper", seed=0, **options):
    torch.manual_seed(seed)
    layers = (
        *(
            inn.Conv2d(1, 4, 3),
            inn.BatchNorm2d(4, **options),
            inn.ReLU(),
            inn.AdaptiveAvgPool2d(2),
            inn.Flatten(),
        ),
        *(inn.Linear(16, 8), inn.BatchNorm1d(8), inn.ReLU(), inn.Dropout(0.2), inn.Linear(8, 3)),
    )
    model = CreINN(torch.nn.Sequential(*layers), mode=mode)
    if mode == "sound":
        inn.scale_radii_(model, 0.01)
    return model


def settings(directory=None, **changes):
    return TrainConfig(
        **(
            {
                "epochs": 3,
                "batch_size": 16,
                "progress": False,
                "directory": directory,
                "train": "radii",
            }
            | changes
        )
    )


def parts(model):
    """State of a model by name, as copies: what belongs to centres, and what belongs to radii."""
    radii = {}
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for path, layer in model.named_modules():
        if isinstance(layer, IntervalParameters):
            radii |= {f"{path}.{name}": state.pop(f"{path}.{name}") for name in layer.radii()}
        if isinstance(layer, IntervalBatchNorm):
            state.pop(f"{path}.num_batches_tracked", None)
            for name in ("weight", "bias", "running_mean", "running_var"):
                both = state.pop(f"{path}.{name}", None)
                if both is not None:
                    state[f"{path}.{name}"] = both[: layer.num_features]
                    radii[f"{path}.{name}"] = both[layer.num_features :]
    return state, radii


@torch.no_grad()
def logits_of_centres(model):
    """The same network with all radii 0."""
    point = copy.deepcopy(model).eval()
    for layer in point.modules():
        if isinstance(layer, IntervalParameters):
            for radius in layer.radii().values():
                radius.zero_()
        if isinstance(layer, IntervalBatchNorm):
            layer.set_mode("sound")
    logits = point.norm(point.network(as_interval(X)))
    torch.testing.assert_close(logits.lower, logits.upper)
    return logits.lower


def same(first, second):
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("paper", {}),
        ("scaled", {}),
        ("sound", {}),
        ("paper", {"momentum": None}),
        ("scaled", {"affine": False}),
    ],
    ids=str,
)
def test_radii_training_does_not_change_centres(mode, options):
    model = creinn(mode, **options)
    fit(
        model, (X, Y), None, settings(train="all", epochs=2)
    )  # all statistics are different from the initial values
    centres, radii = parts(model)
    logits = logits_of_centres(model)
    history = fit(model, (X, Y), (X, Y), settings(epochs=8, learning_rate=0.01))
    centres_now, radii_now = parts(model)
    assert same(centres, centres_now)
    torch.testing.assert_close(logits_of_centres(model), logits)
    moved = {name for name in radii if not torch.equal(radii[name], radii_now[name])}
    expected = {name for name, tensor in radii.items() if tensor.numel()}
    if mode == "scaled":
        expected -= {name for name in expected if name.endswith("running_mean")}  # stays 0
    assert moved == expected - (
        {"network.9.bias_radius"} if mode == "paper" else set()
    )  # without effect
    assert history["loss"][-1] < history["loss"][0]


def test_training_all_changes_centres():
    model = creinn()
    centres, _ = parts(model)
    fit(model, (X, Y), None, settings(train="all"))
    stayed = {
        name
        for name, now in parts(model)[0].items()
        if now.numel() and torch.equal(centres[name], now)
    } - {"calibration._extra_state"}
    assert stayed == {"network.9.bias", "temperature.value"}  # this has no effect and needs no data


def test_converted_network_preserves_predictions():
    torch.manual_seed(1)
    ordinary = torch.nn.Sequential(
        *(
            torch.nn.Flatten(),
            torch.nn.Linear(36, 8),
            torch.nn.BatchNorm1d(8),
            torch.nn.ReLU(),
            torch.nn.Linear(8, 3),
        )
    )
    fit(SNN(ordinary), (X, Y), None, settings(train="all", epochs=2))
    model = CreINN(convert(ordinary), logit_norm=False)
    before = model.predict(X)
    fit(model, (X, Y), None, settings(epochs=5, learning_rate=0.01))
    twin = copy.deepcopy(model.network)
    for layer in twin.modules():
        if isinstance(layer, IntervalBatchNorm):
            layer.set_mode("sound")
    for name, tensor in ordinary.state_dict().items():
        assert torch.equal(twin.state_dict()[name], tensor) or name.endswith("num_batches_tracked")
    assert (model.predict(X).lower != before.lower).any()


def test_requires_grad_and_norms_are_restored():
    model = creinn()
    model.network[0].weight.requires_grad_(False)
    model.network[5].weight_radius.requires_grad_(False)
    model.network[6].weight.requires_grad_(False)
    before = {name: p.requires_grad for name, p in model.named_parameters()}
    _, radii = parts(model)
    fit(model, (X, Y), None, settings())
    assert {name: p.requires_grad for name, p in model.named_parameters()} == before
    assert not any(
        layer.center_frozen for layer in model.modules() if isinstance(layer, IntervalBatchNorm)
    )
    now = parts(model)[1]
    stayed = {name for name in radii if torch.equal(radii[name], now[name])}
    untrained = {"network.5.weight_radius", "network.6.weight"}  # what could not be trained before
    assert stayed == untrained | {"network.9.bias_radius"}  # without effect


def test_model_is_restored_after_error():
    model, seen = creinn(), []

    def broken(x, generator):
        seen.extend(
            name
            for name, p in model.named_parameters()
            if p.requires_grad and name.startswith("network.0")
        )
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(model, (X, Y), None, settings(), broken)
    assert seen == ["network.0.weight_radius", "network.0.bias_radius"]
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("mode", ["paper", "scaled"])
def test_resumed_run_equals_uninterrupted_run(tmp_path, mode):
    whole, part, rest = creinn(mode), creinn(mode), creinn(mode)
    fit(whole, (X, Y), (X[:20], Y[:20]), settings(epochs=4))
    fit(part, (X, Y), (X[:20], Y[:20]), settings(tmp_path, epochs=2))
    fit(rest, (X, Y), (X[:20], Y[:20]), settings(tmp_path, epochs=4))
    assert same(whole.state_dict(), rest.state_dict())
    assert not same(whole.state_dict(), part.state_dict())
    with pytest.raises(ValueError, match="train=radii"):
        fit(creinn(mode), (X, Y), (X[:20], Y[:20]), settings(tmp_path, epochs=4, train="all"))


def test_models_without_radii_raise():
    with pytest.raises(ValueError, match="SNN"):
        fit(
            SNN(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3))),
            (X, Y),
            None,
            settings(),
        )
    model = creinn()
    for layer in model.modules():
        if isinstance(layer, IntervalParameters):
            for radius in layer.radii().values():
                radius.requires_grad_(False)
    with pytest.raises(ValueError, match="requires_grad"):
        fit(model, (X, Y), None, settings())


def test_ordinary_norms_use_eval_mode():
    layers = (
        torch.nn.BatchNorm1d(2),
        torch.nn.InstanceNorm1d(2),
        inn.BatchNorm1d(2),
        torch.nn.ReLU(),
    )
    model = torch.nn.Sequential(*layers)
    set_train_mode(model, "radii")
    assert [layer.training for layer in model] == [False, False, True, True]
    set_train_mode(model, "all")
    assert all(layer.training for layer in model)


def ending(*layers, kind=SNN, **options):
    torch.manual_seed(0)
    return kind(torch.nn.Sequential(torch.nn.Flatten(), *layers), **options).double().train()


class Beside(torch.nn.Module):
    """Gives what its head gives, and something else, or something more."""

    def __init__(self, more=False):
        super().__init__()
        self.fc, self.more = torch.nn.Linear(36, 3), more

    def forward(self, x):
        logits = self.fc(x.flatten(1))
        return logits + self.fc(x.flatten(1).square()) if self.more else {"logits": logits}


IDLE = {
    "SNN": (lambda: ending(torch.nn.Linear(36, 3), logit_norm=True), {"network.1.bias"}),
    "one layer": (lambda: SNN(torch.nn.Linear(36, 3), logit_norm=True).double(), {"network.bias"}),
    "Laplace": (
        lambda: ending(torch.nn.Linear(36, 3), kind=LaplaceBNN, logit_norm=True),
        {"network.1.bias"},
    ),
    "distance": (
        lambda: ending(torch.nn.Linear(36, 3), kind=CreINN, distance=True, logit_norm=True),
        {"network.1.bias"},
    ),
    "head": (
        lambda: CreINN(Beside(), distance=True, logits_layer="fc", logit_norm=True).double(),
        {"network.fc.bias"},
    ),
    "paper": (lambda: creinn().double(), {"network.9.bias", "network.9.bias_radius"}),
    "scaled": (lambda: creinn("scaled").double(), {"network.9.bias"}),
    "sound": (lambda: creinn("sound").double(), {"network.9.bias"}),
    "relative": (
        lambda: ending(relative.Linear(36, 3), kind=CreINN, mode="scaled"),
        {"network.1.bias"},
    ),
    "no norm": (lambda: ending(torch.nn.Linear(36, 3)), set()),
    "dropout": (
        lambda: ending(torch.nn.Linear(36, 3), torch.nn.Dropout(0.5), logit_norm=True),
        set(),
    ),
    "twice": (lambda: SNN(Beside(more=True), num_logits=3, logit_norm=True).double(), set()),
    "in place": (
        lambda: ending(torch.nn.Linear(36, 3), torch.nn.ReLU(inplace=True), logit_norm=True),
        set(),
    ),
    "KL": (
        lambda: ending(local_reparameterization.Linear(36, 3), kind=BNN, logit_norm=True),
        set(),
    ),
}


@pytest.mark.parametrize("name", IDLE)
def test_biases_without_effect_have_no_gradient(name):
    model = IDLE[name][0]()
    x = X.flatten(1).double() if name == "one layer" else X.double()
    model.train()
    with zero_grad_biases(model) as idle:
        prediction = model(x)
    names = {
        name
        for name, parameter in model.named_parameters()
        if any(parameter is bias for bias in idle)
    }
    assert names == IDLE[name][1]
    if name == "KL":
        return
    model.loss(prediction, Y).backward()
    gradients = {name: parameter.grad.abs().max() for name, parameter in model.named_parameters()}
    assert all(gradients[name] < 1e-14 for name in names)
    if name in ("scaled", "sound"):
        assert gradients["network.9.bias_radius"] > 1e-6
    if name in ("no norm", "dropout", "in place"):
        assert gradients["network.1.bias"] > 1e-6


@pytest.mark.parametrize("part", ["all", "radii"])
def test_biases_without_effect_do_not_change(part):
    model = creinn()
    with torch.no_grad():
        model.network[9].bias.fill_(0.3)
        model.network[9].bias_radius.fill_(0.1)
    fit(model, (X, Y), config=settings(train=part))
    assert model.network[9].bias.tolist() == [pytest.approx(0.3)] * 3
    assert model.network[9].bias_radius.tolist() == [pytest.approx(0.1)] * 3
    assert all(parameter.requires_grad for parameter in model.network[9].parameters())


def test_bias_is_trained_if_norm_is_frozen():
    model = ending(torch.nn.Linear(36, 3), kind=CreINN, distance=1.0).float()
    before = model.network[1].bias.clone()
    model.norm.train = lambda mode: model.norm  # stays in eval mode
    model.norm.training = False
    fit(model, (X, Y), config=settings(train="all"))
    assert (model.network[1].bias - before).abs().min() > 1e-4


def trained_by_adam(step):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape, **options):
        return torch.randn(shape, generator=generator, **options)

    tensors = normal(16, 5), normal(3), normal(), normal(4, 6).t(), normal(7, dtype=torch.double)
    parameters = [torch.nn.Parameter(tensor) for tensor in tensors]
    optimizer = torch.optim.Adam(parameters, fused=True)
    for count in range(30):
        for index, p in enumerate(parameters):  # one of them has no gradient
            p.grad = None if (index + count) % 8 == 0 else normal(*p.shape).to(p)
        optimizer.param_groups[0]["lr"] = 0.1 / (count + 1)
        if count == 15:
            optimizer.load_state_dict(optimizer.state_dict())
        step(optimizer)
    return [*parameters, *(t for state in optimizer.state.values() for t in state.values())]


def test_adam_step_equals_that_of_torch():
    expected, found = trained_by_adam(torch.optim.Adam.step), trained_by_adam(adam_step)
    assert len(expected) == len(found) == 5 * 4
    torch.testing.assert_close(found, expected)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(trained_by_adam(lambda optimizer: None)[:5], expected[:5])


def ordinary():
    layers = (torch.nn.Linear(36, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
    return ending(*layers, torch.nn.Dropout(0.1), torch.nn.Linear(8, 3)).float()


@pytest.mark.parametrize(
    ("build", "changes"),
    [(creinn, {}), (creinn, {"train": "radii"}), (ordinary, {"mixed_precision": True})],
    ids=["interval", "radii", "mixed precision"],
)
def test_training_equals_that_with_the_step_of_torch(monkeypatch, build, changes):
    found, expected = build(), build()
    options = settings(**{"train": "all"} | changes)
    losses = fit(found, (X, Y), (X, Y), options)["val_loss"]
    monkeypatch.setattr("creinn.training.step.adam_step", torch.optim.Adam.step)
    torch.testing.assert_close(
        losses, fit(expected, (X, Y), (X, Y), options)["val_loss"], rtol=1e-4, atol=0
    )
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=1e-3, atol=1e-5)
