"""Places that are found by themselves, for networks of several kinds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from creinn import CreINN, models
from creinn import nn as inn
from creinn.classifier.network import find_feature_layers, outputs_and_logits
from creinn.distance.feature_layers import HEAD, pooled

IMAGES = torch.zeros(2, 3, 16, 16)


class Transformer(nn.Module):
    """Tokens of patches, blocks, the mean of tokens."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(depth)
        )
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.fc(self.norm(x).mean(1))


class Padded(nn.Conv2d):
    """A convolution with a part of its own, which makes no block of it."""

    def __init__(self, *arguments: int) -> None:
        super().__init__(*arguments)
        self.padding_layer = nn.ZeroPad2d(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.padding_layer(x))


class Functional(nn.Module):
    """No module gives what enters a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.first(x).relu()).relu())


def plain_convolutions() -> nn.Module:
    block = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()]
    rest = [
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ]
    return nn.Sequential(*block, *rest, nn.Linear(6, 3))


def padded_convolutions() -> nn.Module:
    block = nn.Sequential(Padded(4, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    return nn.Sequential(
        Padded(3, 4, 3), block, nn.MaxPool2d(2), Padded(4, 6, 3), nn.Flatten(), nn.Linear(384, 3)
    )


def signals() -> nn.Module:
    layers = [nn.Conv1d(2, 4, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(4, 4, 3), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3))


def deep_perceptron() -> nn.Module:
    hidden = [layer for _ in range(9) for layer in (nn.Linear(4, 4), nn.Tanh())]
    return nn.Sequential(*hidden, nn.Linear(4, 3))


FOUND = {
    "residual network": (
        lambda: models.resnet8(3, width=2, layers=nn),
        IMAGES,
        ["layer1", "layer2", "layer3"],
    ),
    "of intervals": (
        lambda: models.resnet8(3, width=2, layers=inn),
        IMAGES,
        ["layer1", "layer2", "layer3"],
    ),
    "with a stem": (
        lambda: models.resnet18(3, stem="imagenet", width=2, layers=nn),
        torch.zeros(2, 3, 64, 64),
        ["layer1", "layer2", "layer3", "layer4"],
    ),
    "layers without blocks": (plain_convolutions, IMAGES, ["2", "5"]),
    "signals": (signals, torch.zeros(2, 2, 20), ["1", "2", "4"]),
    "perceptron": (
        lambda: models.mlp(4, 3, hidden=(8, 8), layers=nn),
        torch.zeros(2, 4),
        ["body.2"],
    ),
    "deep perceptron": (deep_perceptron, torch.zeros(2, 4), ["3", "7", "11", "15"]),
    "functions between layers": (Functional, torch.zeros(2, 4), []),
    "linear": (lambda: nn.Linear(4, 3), torch.zeros(2, 4), []),
    "padded convolutions": (padded_convolutions, IMAGES, ["1.1"]),
    "transformer": (lambda: Transformer(2), IMAGES, ["blocks.0:tokens", "blocks.1:tokens"]),
    "deep transformer": (
        lambda: Transformer(8),
        IMAGES,
        [f"blocks.{i}:tokens" for i in (1, 3, 5, 7)],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_feature_layers_of_several_networks(name: str) -> None:
    build, x, expected = FOUND[name]
    network = build().eval()
    assert find_feature_layers(network, x) == (*expected, HEAD)
    with torch.no_grad():
        outputs, logits = outputs_and_logits(network, x, (*expected, HEAD))
    assert logits.shape == (2, 3)
    for place, output in zip(expected, outputs, strict=False):
        assert pooled(output, place.endswith(":tokens")).shape[0] == 2


def test_tokens_are_pooled_over_tokens() -> None:
    tokens = torch.randn(5, 7, 3)
    expected = torch.cat((tokens.mean(1), tokens.std(1, correction=0)), 1)
    torch.testing.assert_close(pooled(tokens, tokens=True), expected)
    model = CreINN(Transformer(2), distance=True).fit_distance(
        torch.randn(60, 3, 16, 16), torch.arange(60) % 3
    )
    assert model.distance_radius.distances[0].origin.shape == (
        16,
    )  # means and deviations of eight features
    assert model.predict(torch.randn(4, 3, 16, 16)).lower.shape == (4, 3)


@given(st.integers(0, 10_000))
def test_masked_tokens_are_ignored(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(4, 6, 3, generator=generator)
    mask = torch.randint(0, 2, (4, 6), generator=generator)
    mask[:, 2] = 1
    found = pooled(tokens, tokens=True, mask=mask)
    for row, kept, features in zip(tokens, mask.bool(), found, strict=True):
        expected = torch.cat((row[kept].mean(0), row[kept].std(0, correction=0)))
        torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-4)


def test_mask_without_tokens_by_hand() -> None:
    tokens = torch.tensor([[[1.0], [5.0], [9.0]], [[2.0], [3.0], [4.0]]])
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    expected = torch.tensor([[3.0, 2.0], [0.0, 0.0]])
    torch.testing.assert_close(pooled(tokens, tokens=True, mask=mask), expected)
    of_other_tokens = pooled(tokens, tokens=True, mask=mask[:, :2])
    torch.testing.assert_close(of_other_tokens, pooled(tokens, tokens=True))
