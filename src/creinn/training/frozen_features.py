"""Training of the head of a frozen network on features that are computed once.

An :class:`Extractor` computes the features. A classifier with a
:class:`FeatureHead` is trained on them, and :func:`attach_network`
replaces the stored features by the network.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.base import members_of
from creinn.classifier.credal import CredalClassifier
from creinn.classifier.fitted_on import FittedOn
from creinn.classifier.network import find_feature_layers, outputs_and_logits
from creinn.distance.feature_layers import HEAD, pooled
from creinn.graph.fold import fold
from creinn.models.builders import Network

BATCH_SIZE = 16


class Extractor:
    """Compute the features ``(N, D)``, the pooled outputs of all feature layers of a network.

    Args:
        network: Network with a method ``features`` and a layer ``head``;
            it is put in eval mode.
        example: Inputs of the network.

    Attributes:
        layers: Feature layers. The last one is the input of the head.
        widths: Number of features of each layer.
    """

    def __init__(self, network: Network, example: Tensor) -> None:
        self.network = network.eval()
        self.layers = find_feature_layers(network, example)
        at = [network.head if layer == HEAD else layer for layer in self.layers]
        folded: Any = fold(network, at)
        self._folded = folded.to(memory_format=torch.channels_last)
        self.widths = [part.shape[1] for part in self._parts(example)]

    def __call__(self, x: Tensor) -> Tensor:
        """Compute the features of the rows."""
        return torch.cat([torch.cat(self._parts(part), 1) for part in x.split(BATCH_SIZE)])

    @torch.inference_mode()
    def _parts(self, x: Tensor) -> list[Any]:
        x = x.contiguous(memory_format=torch.channels_last)
        outputs, _ = outputs_and_logits(self._folded, x)
        return [pooled(output) for output in outputs]


class FeatureHead(Network):
    """Linear head on the stored features of the last layer.

    Args:
        widths: Number of features of each layer.
        num_logits: Number of logits.
        layers: Family of the head.
    """

    def __init__(self, widths: Sequence[int], num_logits: int, layers: Any = torch.nn) -> None:
        super().__init__()
        self.widths = list(widths)
        self.parts = torch.nn.ModuleList(torch.nn.Identity() for _ in self.widths[:-1])
        self.fc = layers.Linear(self.widths[-1], num_logits)

    @property
    def head(self) -> torch.nn.Module:  # type: ignore[override]
        """The last layer."""
        return self.fc

    @property
    def feature_layers(self) -> tuple[str, ...]:
        """The layers with the stored features."""
        return *(f"parts.{index}" for index in range(len(self.parts))), HEAD

    def features(self, x: Any) -> Any:
        """Return the inputs of the head."""
        *inner, last = x.split(self.widths, 1)
        for module, part in zip(self.parts, inner, strict=True):
            module(part)
        return last


def attach_network(model: Any, extractor: Extractor) -> None:
    """Replace the stored features of a model, or of its members, by the network."""
    for member in members_of(model):
        network: Any = copy.deepcopy(extractor.network)
        network.fc = member.network.fc
        member.network, member.is_checked = network, False
        if getattr(member, "distance_radius", None) is not None:
            member.feature_layers = extractor.layers
    classifiers = (part for part in model.modules() if isinstance(part, CredalClassifier))
    for part in classifiers:
        for mark in (getattr(part, "distance_fitted_on", None), part.calibration.fitted_on):
            if isinstance(mark, FittedOn) and mark.parts:
                mark.parts = part.part_hashes()
