"""Test the error messages of failed training, and that it keeps the previous weights."""

import pytest
import torch

from creinn import nn as inn
from creinn.baselines.snn import SNN
from creinn.classifier.creinn import CreINN
from creinn.training import TrainConfig, fit
from creinn.training.checkpoint import read_checkpoint
from creinn.training.data import shuffled_batches
from creinn.training.loop import derived_seed

G = torch.Generator().manual_seed(0)
X, Y = torch.randn(40, 4, generator=G), torch.randint(3, (40,), generator=G)


def creinn():
    torch.manual_seed(0)
    return CreINN(torch.nn.Sequential(inn.Linear(4, 8), inn.ReLU(), inn.Linear(8, 3)))


def settings(**changes):
    return TrainConfig(**({"epochs": 3, "batch_size": 8, "progress": False} | changes))


class Rotten(torch.utils.data.Dataset):
    """Row 13 goes bad when it is read for the second time."""

    def __init__(self):
        self.read = 0

    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        self.read += index == 13
        return X[index] * (float("nan") if index == 13 and self.read > 1 else 1), Y[index]


def step_of(row, epoch):
    order = shuffled_batches(len(X), 8, derived_seed(0, epoch))
    return next(step for step, rows in enumerate(order, 1) if row in rows.tolist())


def test_non_finite_row_preserves_previous_weights(tmp_path):
    model, sound = creinn(), creinn()
    step = step_of(13, 2)
    assert step < 5  # later steps of the epoch must not touch the weights any more
    with pytest.raises(FloatingPointError, match=rf"epoch 2, step {step} of 5\. Input row 13"):
        fit(model, Rotten(), None, settings(directory=tmp_path))
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert len(read_checkpoint(tmp_path / "last.safetensors").rows) == 1

    def stop(x, generator):
        stop.steps += 1
        if stop.steps == 5 + step:
            raise KeyboardInterrupt
        return x

    stop.steps = 0
    assert fit(sound, (X, Y), None, settings(), stop).interrupted
    for a, b in zip(model.parameters(), sound.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_overflowing_layer_raises():
    model = creinn()
    with torch.no_grad():
        model.network[2].weight.fill_(3e38)
    with pytest.raises(FloatingPointError, match=r"network\.2"):
        fit(model, (X, Y), None, settings())


def test_non_finite_parameter_raises():
    model = creinn()
    with torch.no_grad():
        model.network[0].bias[1] = float("nan")
    with pytest.raises(FloatingPointError, match=r"parameter network\.0\.bias"):
        fit(model, (X, Y), None, settings())


class Root(torch.nn.Module):
    """Function that has an infinite derivative at zero."""

    def forward(self, x):
        return x.clamp_min(0).sqrt()


def test_non_finite_gradient_raises():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), Root(), torch.nn.Linear(8, 3))
    torch.nn.init.zeros_(network[0].weight), torch.nn.init.zeros_(network[0].bias)
    with pytest.raises(FloatingPointError, match=r"gradient of network\.0\.bias"):
        fit(SNN(network), (X, Y), None, settings())
    assert all(torch.isfinite(p).all() for p in network.parameters())


class Between(torch.nn.Module):
    """Divides by zero outside of any layer."""

    def __init__(self):
        super().__init__()
        self.first, self.last = inn.Linear(4, 5), inn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.first(x) / torch.zeros(()))


def test_non_finite_function_between_layers_raises():
    with pytest.raises(FloatingPointError, match=r"before layer network\.last"):
        fit(CreINN(Between()), (X, Y), None, settings())


class Undefined(SNN):
    def loss(self, prediction, target, weight=None):
        return super().loss(prediction, target, weight) * float("inf")


def test_non_finite_loss_raises():
    with pytest.raises(FloatingPointError, match="began in the loss"):
        fit(Undefined(torch.nn.Linear(4, 3)), (X, Y), None, settings())


def test_overflowing_gradient_norm_raises():
    model = SNN(torch.nn.Linear(4, 3, dtype=torch.float32))
    with pytest.raises(FloatingPointError, match="overflow"):
        fit(model, (X * 1e25, Y), None, settings())


class OfParts(torch.nn.Linear):
    def forward(self, parts):
        return super().forward(parts["x"])


def test_dict_inputs():
    network = OfParts(4, 3)
    torch.nn.init.constant_(network.bias, float("nan"))
    with pytest.raises(FloatingPointError, match=r"parameter network\.bias"):
        fit(SNN(network), ({"x": X, "ids": Y}, Y), None, settings())
