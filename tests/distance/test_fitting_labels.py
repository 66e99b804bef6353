"""Labels that do not suit the network are reported when a distance is fitted."""

import warnings

import pytest
import torch

from creinn import CreINN
from creinn.distance.fitting import Agreement, LabelWarning
from distance_cases import blobs

CHANCE = "not better than chance"


def trained(classes=3, rows=300):
    """Return a linear network with the class means as weights, and the data."""
    x, y = blobs(rows, classes)
    network = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, classes))
    means = torch.stack([x[y == k].mean(0) for k in range(classes)])
    with torch.no_grad():
        network[0].weight.copy_(torch.eye(4))
        network[0].bias.zero_()
        network[1].weight.copy_(means)
        network[1].bias.copy_(-means.square().sum(1) / 2)
    return CreINN(network, distance=0.01), x, y


def warned(model, x, y):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit_distance(x, y)
    return [str(entry.message) for entry in found if entry.category is LabelWarning]


def test_contradicting_labels_warn():
    model, x, y = trained()
    assert not warned(model, x, y)
    for wrong in ((y + 1) % 3, y.flip(0), torch.randint(3, (300,))):
        (message,) = warned(model, x, wrong)
        assert CHANCE in message


def test_class_without_rows_warns():
    model, x, y = trained()
    (message,) = warned(model, x[y != 1], y[y != 1])
    assert "no row of class 1" in message


@pytest.mark.parametrize("accuracy", [0.4, 0.5, 0.9])
def test_weak_network_does_not_warn(accuracy):
    labels = torch.arange(1000) % 3
    right = torch.arange(1000) < 1000 * accuracy
    agreement = Agreement(3)
    agreement.add(labels, torch.where(right, labels, (labels + 1) % 3))
    assert not agreement.is_chance()


def test_unequal_class_frequencies():
    labels = torch.tensor([0] * 95 + [1] * 5)
    for constant in (0, 1):
        agreement = Agreement(2)
        agreement.add(labels, torch.full_like(labels, constant))
        assert agreement.is_chance() == bool(constant)


def test_few_correct_rows_do_not_warn():
    for labels in (torch.tensor([0]), torch.tensor([0, 1])):
        agreement = Agreement(2)
        agreement.add(labels, labels)
        assert not agreement.is_chance()


def test_power_for_independent_labels():
    generator = torch.Generator().manual_seed(0)
    found = 0
    for _ in range(300):
        agreement = Agreement(4)
        agreement.add(*torch.randint(4, (2, 200), generator=generator))
        found += agreement.is_chance()
    assert 0.78 < found / 300 < 0.9
