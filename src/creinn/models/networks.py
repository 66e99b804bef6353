"""Multilayer perceptrons and residual networks for any family of layers.

With ``stem="imagenet"``, the weights of torchvision for ``resnet18``,
``resnet34`` and ``resnet50`` (He et al. 2016) can be loaded.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from creinn.models.builders import Network, builder
from creinn.numerics import check_integers

Stem = Literal["cifar", "imagenet"]
Convolutions = tuple[tuple[int, int, int], ...]  # channels, kernel size and stride


class MLP(Network):
    """Multilayer perceptron; see :func:`mlp`."""

    def __init__(self, body: torch.nn.Sequential, head: torch.nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def features(self, x: Any) -> Any:
        """Return the inputs of the head ``(N, hidden[-1])``."""
        return self.body(x)


def _conv(layers: Any, inputs: int, outputs: int, kernel: int, stride: int) -> torch.nn.Module:
    return layers.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


def _basic(width: int, stride: int) -> Convolutions:
    return (width, 3, stride), (width, 3, 1)


def _bottleneck(width: int, stride: int, stride_on: str) -> Convolutions:
    first, second = (stride, 1) if stride_on == "1x1" else (1, stride)
    return (width, 1, first), (width, 3, second), (4 * width, 1, 1)


class Block(torch.nn.Module):
    """Residual block; the shortcut is a 1×1 convolution if shapes differ."""

    def __init__(self, inputs: int, convolutions: Convolutions, layers: Any) -> None:
        super().__init__()
        self._count, channels, total = len(convolutions), inputs, 1
        for index, (outputs, kernel, stride) in enumerate(convolutions, 1):
            self.add_module(f"conv{index}", _conv(layers, channels, outputs, kernel, stride))
            self.add_module(f"bn{index}", layers.BatchNorm2d(outputs))
            channels, total = outputs, total * stride
        self.relu = layers.ReLU()
        self.downsample = layers.Identity()
        if channels != inputs or total != 1:
            shortcut = _conv(layers, inputs, channels, 1, total)
            self.downsample = torch.nn.Sequential(shortcut, layers.BatchNorm2d(channels))

    def forward(self, x: Any) -> Any:
        """Return the output."""
        y = x
        for index in range(1, self._count + 1):
            y = getattr(self, f"bn{index}")(getattr(self, f"conv{index}")(y))
            y = self.relu(y) if index < self._count else y
        return self.relu(y + self.downsample(x))


class ResNet(Network):
    """Residual network; each later stage doubles width and halves the image."""

    def __init__(
        self,
        block: Callable[[int, int], Convolutions],
        depths: Sequence[int],
        num_classes: int,
        stem: Stem,
        in_channels: int,
        width: int,
        layers: Any,
    ) -> None:
        super().__init__()
        check_integers(num_classes=num_classes, in_channels=in_channels, width=width)
        if stem not in ("cifar", "imagenet"):
            raise ValueError(f"Unknown stem {stem!r}. Use 'cifar' or 'imagenet'.")
        is_cifar, channels = stem == "cifar", width
        kernel, stride = (3, 1) if is_cifar else (7, 2)
        self.conv1 = _conv(layers, in_channels, width, kernel, stride)
        self.bn1 = layers.BatchNorm2d(width)
        self.relu = layers.ReLU()
        self.maxpool = layers.Identity() if is_cifar else layers.MaxPool2d(3, stride=2, padding=1)
        self.stages = [f"layer{stage + 1}" for stage in range(len(depths))]
        for stage, depth in enumerate(depths):
            blocks = []
            for index in range(depth):
                convolutions = block(width << stage, 2 if stage > 0 and index == 0 else 1)
                blocks.append(Block(channels, convolutions, layers))
                channels = convolutions[-1][0]
            self.add_module(self.stages[stage], torch.nn.Sequential(*blocks))
        self.avgpool, self.flatten = layers.AdaptiveAvgPool2d(1), layers.Flatten()
        self.fc = layers.Linear(channels, num_classes)

    @property
    def head(self) -> torch.nn.Module:  # type: ignore[override]
        """The last layer."""
        return self.fc

    def features(self, x: Any) -> Any:
        """Return the inputs of the head ``(N, channels)``."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        return self.flatten(self.avgpool(x))


@builder
def mlp(
    in_features: int,
    num_classes: int,
    hidden: Sequence[int] = (64, 64),
    layers: Any = "interval",
    batch_norm: bool = True,
    dropout: float = 0.0,
) -> MLP:
    """Return a multilayer perceptron.

    Args:
        in_features: The number of inputs.
        num_classes: The number of logits, 1 for a binary classifier.
        hidden: The widths of the hidden layers.
        layers: A family such as ``creinn.nn`` or ``torch.nn``, or its
            name.
        batch_norm: Whether the layers have batch norm instead of a bias.
        dropout: The probability of dropout.

    Example:
        >>> mlp(4, 3, layers=torch.nn)(torch.zeros(2, 4)).shape
        torch.Size([2, 3])
    """
    widths = {f"hidden[{index}]": width for index, width in enumerate(hidden)}
    check_integers(in_features=in_features, num_classes=num_classes, **widths)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {dropout}.")
    parts: list[torch.nn.Module] = []
    features = in_features
    for width in hidden:
        parts.append(layers.Linear(features, width, bias=not batch_norm))
        parts += [layers.BatchNorm1d(width)] if batch_norm else []
        parts.append(layers.ReLU())
        parts += [layers.Dropout(dropout)] if dropout > 0 else []
        features = width
    return MLP(torch.nn.Sequential(*parts), layers.Linear(features, num_classes))


def _basic_resnet(name: str, depths: Sequence[int], width: int) -> Callable[..., ResNet]:

    def build(
        num_classes: int,
        stem: Stem = "cifar",
        in_channels: int = 3,
        width: int = width,
        layers: Any = "interval",
    ) -> ResNet:
        return ResNet(_basic, depths, num_classes, stem, in_channels, width, layers)

    stages = ", ".join(map(str, depths))
    build.__doc__ = f"Return a residual network with {stages} basic blocks per stage."
    build.__name__ = build.__qualname__ = name
    return builder(build)


resnet8 = _basic_resnet("resnet8", (1, 1, 1), width=16)
resnet14 = _basic_resnet("resnet14", (2, 2, 2), width=16)
resnet20 = _basic_resnet("resnet20", (3, 3, 3), width=16)
resnet18 = _basic_resnet("resnet18", (2, 2, 2, 2), width=64)
resnet34 = _basic_resnet("resnet34", (3, 4, 6, 3), width=64)


@builder
def resnet50(
    num_classes: int,
    stem: Stem = "cifar",
    in_channels: int = 3,
    width: int = 64,
    layers: Any = "interval",
    stride_on: Literal["3x3", "1x1"] = "3x3",
) -> ResNet:
    """Return ResNet-50, with stages of 3, 4, 6 and 3 bottleneck blocks.

    Args:
        num_classes: The number of logits, 1 for a binary classifier.
        stem: ``"cifar"`` is a 3×3 convolution, and ``"imagenet"`` a 7×7
            convolution and max pooling, both with stride 2.
        in_channels: The number of channels of the images.
        width: The number of channels of the first stage.
        layers: A family of layers, or its name.
        stride_on: The convolution with the stride: ``"3x3"`` as in
            torchvision, or ``"1x1"`` as in He et al. (2016).

    Example:
        >>> resnet50(10, width=8, layers=torch.nn)(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 10])
    """
    if stride_on not in ("3x3", "1x1"):
        raise ValueError(f"Unknown stride_on {stride_on!r}. Use '3x3' or '1x1'.")
    block = functools.partial(_bottleneck, stride_on=stride_on)
    return ResNet(block, (3, 4, 6, 3), num_classes, stem, in_channels, width, layers)
