"""Penultimate features: found, or refused."""

import pytest
import torch

from creinn import CreINN, models
from creinn.classifier.network import find_head, observe
from distance_cases import blobs


class Swapped(torch.nn.Module):
    """Layers in another order than they run in."""

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


def test_features_are_what_enters_the_head() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4)
    mlp = models.mlp(4, 3, hidden=(8,), layers=torch.nn).eval()
    hooked = torch.nn.Sequential(*mlp.body, mlp.head)
    for network in (mlp, hooked, Named()):
        (features,), logits = observe(network, x)
        torch.testing.assert_close(find_head(network)(features), logits)
        torch.testing.assert_close(logits, network(x))
    torch.testing.assert_close(observe(hooked, x)[0][0], mlp.features(x))
    assert not hooked[-1]._forward_hooks


def test_networks_whose_features_cannot_be_found_are_refused() -> None:
    x, y = blobs()
    with pytest.raises(ValueError, match=r"Conv2d has no linear layer.*method features\(x\) and a layer head"):
        CreINN(torch.nn.Conv2d(1, 3, 3), distance=True)
    with pytest.raises(ValueError, match=r"'first', should run once and after all others, .* order: first, last\."):
        CreINN(Swapped(), distance=True).fit_distance(x, y)
    with pytest.raises(ValueError, match=r"output of Lying is not head\(features\(x\)\)"):
        CreINN(Lying(), distance=True).fit_distance(x, y)
    with pytest.raises(ValueError, match=r"features of Sequence should have shape \(N, 4\).*got \(32, 5, 4\)"):
        CreINN(Sequence(), distance=True).fit_distance(x, y)
    assert CreINN(Named(), distance=True).fit_distance(x, y).logits == 3
