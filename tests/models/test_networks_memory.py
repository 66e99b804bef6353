"""A training step saves at most twice the activations of the ordinary network."""

import pytest
import torch

from benchmarks.memory import saved_bytes
from creinn import CreINN, models
from creinn import nn as inn
from creinn.baselines import SNN
from creinn.nn import relative


def kept(model, rows):
    x, target = rows, torch.zeros(len(rows), dtype=torch.long)
    known = [*model.parameters(), *model.buffers(), x, target]
    return saved_bytes(lambda: model.loss(model(x), target), known)


def kept_per_row(model, shape):
    x = torch.rand(8, *shape)
    few, many = kept(model.train(), x[:4]), kept(model.train(), x)
    return (many - few) / 4, 2 * few - many


NETWORKS = {
    "resnet8": (lambda layers: models.resnet8(10, layers=layers), (3, 16, 16)),
    "resnet18, authors' stem": (
        lambda layers: models.resnet18(10, stem="imagenet", width=8, layers=layers),
        (3, 64, 64),
    ),
    "mlp": (lambda layers: models.mlp(20, 10, (256, 256), layers=layers), (20,)),
}
FORMS = {"paper": (inn, {}), "scaled": (inn, {"mode": "scaled"}), "relative": (relative, {})}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_training_saves_at_most_twice_the_activations(name, form):
    network, shape = NETWORKS[name]
    layers, options = FORMS[form]
    ordinary, _ = kept_per_row(SNN(network(torch.nn)), shape)
    interval, fixed = kept_per_row(CreINN(network(layers), **options), shape)
    logits = 10 * 10 * 4  # Interval SoftMax and the loss save ten numbers for each class
    assert interval <= 2 * ordinary + logits
    weights = sum(p.numel() * p.element_size() for p in network(inn).parameters())
    assert fixed <= weights / 4
