"""Residual networks (He et al. 2016) for images ``(N, in_channels, H, W)``.

The parameters of ``resnet18``, ``resnet34`` and ``resnet50`` have the same names as in torchvision,
so that the weights of torchvision can be loaded. If a block changes the shape, its shortcut is a
1×1 convolution with batch norm. The convolutions have no bias.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from creinn.numerics import check_integers

Stem = Literal["cifar", "imagenet"]
Stride = Literal["3x3", "1x1"]
Convolutions = tuple[tuple[int, int, int], ...]  # channels, kernel size and stride


def _basic(width: int, stride: int) -> Convolutions:
    return (width, 3, stride), (width, 3, 1)


def _bottleneck(width: int, stride: int, stride_on: Stride) -> Convolutions:
    first, second = (stride, 1) if stride_on == "1x1" else (1, stride)
    return (width, 1, first), (width, 3, second), (4 * width, 1, 1)


class Block(torch.nn.Module):
    """Residual block of convolutions with batch norm and ReLU.

    The names of the convolutions are ``conv1``, ``conv2`` and so on.
    """

    def __init__(self, inputs: int, convolutions: Convolutions, layers: Any) -> None:
        super().__init__()
        self._count, channels, total = len(convolutions), inputs, 1
        for index, (outputs, kernel, stride) in enumerate(convolutions, 1):
            convolution = layers.Conv2d(
                channels, outputs, kernel, stride=stride, padding=kernel // 2, bias=False
            )
            self.add_module(f"conv{index}", convolution)
            self.add_module(f"bn{index}", layers.BatchNorm2d(outputs))
            channels, total = outputs, total * stride
        self.relu = layers.ReLU()
        self.downsample = layers.Identity()
        if channels != inputs or total != 1:
            shortcut = layers.Conv2d(inputs, channels, 1, stride=total, bias=False)
            self.downsample = torch.nn.Sequential(shortcut, layers.BatchNorm2d(channels))

    def forward(self, x: Any) -> Any:
        """Return the sum of the shortcut and the convolutions, after ReLU."""
        y = x
        for index in range(1, self._count + 1):
            y = getattr(self, f"bn{index}")(getattr(self, f"conv{index}")(y))
            y = self.relu(y) if index < self._count else y
        return self.relu(y + self.downsample(x))


class ResNet(torch.nn.Module):
    """Residual network with several stages of blocks.

    Each stage after the first doubles the width and halves the image.
    """

    config: dict[str, Any] | None

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
        kernel, stride = (3, 1) if stem == "cifar" else (7, 2)
        self.conv1 = layers.Conv2d(
            in_channels, width, kernel, stride=stride, padding=kernel // 2, bias=False
        )
        self.bn1 = layers.BatchNorm2d(width)
        self.relu = layers.ReLU()
        self.maxpool = (
            layers.Identity() if stem == "cifar" else layers.MaxPool2d(3, stride=2, padding=1)
        )
        channels = width
        self.stages = tuple(f"layer{stage + 1}" for stage in range(len(depths)))
        for stage, depth in enumerate(depths):
            blocks = []
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                convolutions = block(width << stage, stride)
                blocks.append(Block(channels, convolutions, layers))
                channels = convolutions[-1][0]
            self.add_module(self.stages[stage], torch.nn.Sequential(*blocks))
        self.avgpool = layers.AdaptiveAvgPool2d(1)
        self.flatten = layers.Flatten()
        self.fc = layers.Linear(channels, num_classes)

    @property
    def head(self) -> torch.nn.Module:
        """The last layer."""
        return self.fc

    def features(self, x: Any) -> Any:
        """Return the inputs of the head, of shape ``(N, channels)``."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        return self.flatten(self.avgpool(x))

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        return self.head(self.features(x))


def resnet8(
    num_classes: int, in_channels: int = 3, width: int = 16, layers: Any = "interval"
) -> ResNet:
    """Return ResNet-8, with three stages of one basic block; see :func:`resnet50`."""
    return ResNet(_basic, (1, 1, 1), num_classes, "cifar", in_channels, width, layers)


def resnet14(
    num_classes: int, in_channels: int = 3, width: int = 16, layers: Any = "interval"
) -> ResNet:
    """Return ResNet-14, with three stages of two basic blocks; see :func:`resnet50`."""
    return ResNet(_basic, (2, 2, 2), num_classes, "cifar", in_channels, width, layers)


def resnet20(
    num_classes: int, in_channels: int = 3, width: int = 16, layers: Any = "interval"
) -> ResNet:
    """Return ResNet-20, with three stages of three basic blocks; see :func:`resnet50`.

    Example:
        >>> resnet20(10, layers=torch.nn)(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 10])
    """
    return ResNet(_basic, (3, 3, 3), num_classes, "cifar", in_channels, width, layers)


def resnet18(
    num_classes: int,
    stem: Stem = "cifar",
    in_channels: int = 3,
    width: int = 64,
    layers: Any = "interval",
) -> ResNet:
    """Return ResNet-18, with four stages of two basic blocks; see :func:`resnet50`."""
    return ResNet(_basic, (2, 2, 2, 2), num_classes, stem, in_channels, width, layers)


def resnet34(
    num_classes: int,
    stem: Stem = "cifar",
    in_channels: int = 3,
    width: int = 64,
    layers: Any = "interval",
) -> ResNet:
    """Return ResNet-34, with stages of 3, 4, 6 and 3 basic blocks.

    See :func:`resnet50`.
    """
    return ResNet(_basic, (3, 4, 6, 3), num_classes, stem, in_channels, width, layers)


def resnet50(
    num_classes: int,
    stem: Stem = "cifar",
    in_channels: int = 3,
    width: int = 64,
    layers: Any = "interval",
    stride_on: Stride = "3x3",
) -> ResNet:
    """Return ResNet-50, with stages of 3, 4, 6 and 3 bottleneck blocks.

    Args:
        num_classes: The number of logits. Use 1 for a binary classifier.
        stem: The first layers. ``"cifar"`` is a 3×3 convolution with stride 1. ``"imagenet"`` is a
            7×7 convolution with stride 2, followed by 3×3 max pooling with stride 2.
        in_channels: The number of channels of the images.
        width: The number of channels of the first stage.
        layers: The family of layers: a namespace such as ``creinn.nn`` or ``torch.nn``, or its
            name.
        stride_on: The convolution of a bottleneck block that has the stride. ``"3x3"`` is the
            choice of torchvision, and ``"1x1"`` the one of He et al. (2016).

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If a number is smaller than 1, or if an option or the name of the family is
            unknown.
    """
    if stride_on not in ("3x3", "1x1"):
        raise ValueError(f"Unknown stride_on {stride_on!r}. Use '3x3' or '1x1'.")
    block = functools.partial(_bottleneck, stride_on=stride_on)
    return ResNet(block, (3, 4, 6, 3), num_classes, stem, in_channels, width, layers)
