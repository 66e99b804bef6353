"""Residual networks (He et al. 2016): images ``(N, in_channels, H, W)`` in, logits ``(N, num_classes)`` out.

``resnet18/34/50`` have the parameter names of torchvision's, so that their weights load into the ordinary network.
Wherever the shape changes, the shortcut is a 1×1 convolution with batch norm; so convolutions have no bias.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch

from creinn.numerics import at_least_one

Stem = Literal["cifar", "imagenet"]
Stride = Literal["3x3", "1x1"]


class BasicBlock(torch.nn.Module):
    """Two 3×3 convolutions, the first with the stride."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, layers: Any) -> None:
        super().__init__()
        self.conv1 = layers.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = layers.BatchNorm2d(width)
        self.relu = layers.ReLU()
        self.conv2 = layers.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = layers.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride, layers)

    def forward(self, x: Any) -> Any:
        """Residual sum."""
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.downsample(x))


class Bottleneck(torch.nn.Module):
    """1×1, 3×3 and 1×1 convolutions; the stride is on the 3×3 or on the first 1×1."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, layers: Any, stride_on: Stride = "3x3") -> None:
        super().__init__()
        first, second = (stride, 1) if stride_on == "1x1" else (1, stride)
        self.conv1 = layers.Conv2d(inputs, width, 1, stride=first, bias=False)
        self.bn1 = layers.BatchNorm2d(width)
        self.conv2 = layers.Conv2d(width, width, 3, stride=second, padding=1, bias=False)
        self.bn2 = layers.BatchNorm2d(width)
        self.conv3 = layers.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = layers.BatchNorm2d(4 * width)
        self.relu = layers.ReLU()
        self.downsample = _shortcut(inputs, 4 * width, stride, layers)

    def forward(self, x: Any) -> Any:
        """Residual sum."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + self.downsample(x))


class ResNet(torch.nn.Module):
    """Stem, stages of residual blocks that double the width and halve the image, global average, linear head."""

    config: dict[str, Any] | None

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        num_classes: int,
        stem: Stem,
        in_channels: int,
        width: int,
        layers: Any,
        **block_arguments: Any,
    ) -> None:
        super().__init__()
        at_least_one(num_classes=num_classes, in_channels=in_channels, width=width)
        if stem not in ("cifar", "imagenet"):
            raise ValueError(f"Unknown stem {stem!r}; choose 'cifar' or 'imagenet'.")
        kernel, stride = (3, 1) if stem == "cifar" else (7, 2)
        self.conv1 = layers.Conv2d(in_channels, width, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.bn1 = layers.BatchNorm2d(width)
        self.relu = layers.ReLU()
        self.maxpool = layers.Identity() if stem == "cifar" else layers.MaxPool2d(3, stride=2, padding=1)
        channels = width
        self.stages = tuple(f"layer{stage + 1}" for stage in range(len(depths)))  # where a distance can be measured
        for stage, depth in enumerate(depths):
            blocks = []
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(channels, width << stage, stride, layers, **block_arguments))
                channels = (width << stage) * block.expansion
            self.add_module(self.stages[stage], torch.nn.Sequential(*blocks))
        self.avgpool = layers.AdaptiveAvgPool2d(1)
        self.flatten = layers.Flatten()
        self.fc = layers.Linear(channels, num_classes)

    @property
    def head(self) -> torch.nn.Module:
        """The last layer, from features to logits."""
        return self.fc

    def features(self, x: Any) -> Any:
        """What the head sees: one average per channel, ``(N, channels)``."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        return self.flatten(self.avgpool(x))

    def forward(self, x: Any) -> Any:
        """Logits."""
        return self.head(self.features(x))


def resnet8(num_classes: int, in_channels: int = 3, width: int = 16, layers: Any = "interval") -> ResNet:
    """ResNet-8 for small images: three stages of one basic block; arguments as in :func:`resnet50`."""
    return ResNet(BasicBlock, (1, 1, 1), num_classes, "cifar", in_channels, width, layers)


def resnet14(num_classes: int, in_channels: int = 3, width: int = 16, layers: Any = "interval") -> ResNet:
    """ResNet-14 for small images: three stages of two basic blocks; arguments as in :func:`resnet50`."""
    return ResNet(BasicBlock, (2, 2, 2), num_classes, "cifar", in_channels, width, layers)


def resnet20(num_classes: int, in_channels: int = 3, width: int = 16, layers: Any = "interval") -> ResNet:
    """ResNet-20 for small images: three stages of three basic blocks; arguments as in :func:`resnet50`.

    Example:
        >>> resnet20(10, layers=torch.nn)(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 10])
    """
    return ResNet(BasicBlock, (3, 3, 3), num_classes, "cifar", in_channels, width, layers)


def resnet18(
    num_classes: int, stem: Stem = "cifar", in_channels: int = 3, width: int = 64, layers: Any = "interval"
) -> ResNet:
    """ResNet-18: four stages of two basic blocks; see :func:`resnet50`."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, stem, in_channels, width, layers)


def resnet34(
    num_classes: int, stem: Stem = "cifar", in_channels: int = 3, width: int = 64, layers: Any = "interval"
) -> ResNet:
    """ResNet-34: four stages of 3, 4, 6 and 3 basic blocks; see :func:`resnet50`."""
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes, stem, in_channels, width, layers)


def resnet50(
    num_classes: int,
    stem: Stem = "cifar",
    in_channels: int = 3,
    width: int = 64,
    layers: Any = "interval",
    stride_on: Stride = "3x3",
) -> ResNet:
    """ResNet-50: four stages of 3, 4, 6 and 3 bottleneck blocks.

    Args:
        num_classes: Number of logits; 1 makes a binary classifier.
        stem: ``"cifar"``, a 3×3 convolution of stride 1; or ``"imagenet"``, a 7×7 and a 3×3 max pool, both of stride 2.
        in_channels: Channels of the images.
        width: Channels of the first stage.
        layers: Family of layers: a namespace such as ``creinn.nn`` or ``torch.nn``, or its name.
        stride_on: Which convolution of a bottleneck halves the image: ``"3x3"``, or ``"1x1"`` as in the first paper.

    Raises:
        ValueError: If a number is smaller than 1, or the stem, the place of the stride or the family's name is unknown.
        TypeError: If a number is not an integer.
    """
    if stride_on not in ("3x3", "1x1"):
        raise ValueError(f"Unknown stride_on {stride_on!r}; choose '3x3' or '1x1'.")
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, stem, in_channels, width, layers, stride_on=stride_on)


def _shortcut(inputs: int, outputs: int, stride: int, layers: Any) -> torch.nn.Module:
    if inputs == outputs and stride == 1:
        return layers.Identity()
    convolution = layers.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
    return torch.nn.Sequential(convolution, layers.BatchNorm2d(outputs))
