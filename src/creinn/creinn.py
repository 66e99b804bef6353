"""CreINN and its ensemble: an interval network and a head that turns interval logits into a credal set.

In: a tensor or an :class:`Interval`. Out: a :class:`CredalSet`, differentiable. Sections "Credal-set interval neural
networks" and "Ensemble strategy".
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from creinn import nn as inn
from creinn.classifier import Classifier, common_classes
from creinn.credal import CredalSet, cross_entropy
from creinn.interval import Interval, as_interval
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.nn.parameters import IntervalParameters, project_
from creinn.probability import interval_softmax, one_logit_softmax

Mode = Literal["paper", "sound"]


class CreINN(Classifier):
    """Credal-set interval neural network.

    The logits pass Interval Batch Normalization, then Interval SoftMax (IntSoftMax); one logit makes a binary
    classifier. In mode ``"paper"`` both are the paper's, which are heuristics for containment. In mode ``"sound"``
    every batch norm and the softmax keep it: the credal set then contains the probabilities of every ordinary network
    inside the weight intervals. Sound networks need small radii; see :func:`creinn.nn.scale_radii_`.

    Args:
        network: A module from inputs to interval logits ``(N, K)``, built of :mod:`creinn.nn` layers.
        mode: ``"paper"`` or ``"sound"``. In sound mode the batch norms inside ``network`` are switched to sound, in
            place.
        logits: Number of logits ``K``; by default that of the network's last interval layer.
        logit_norm: Whether to put Interval Batch Normalization on the logits.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = CreINN(torch.nn.Sequential(inn.Linear(2, 8), inn.ReLU(), inn.Linear(8, 3))).eval()
        >>> prediction = model(torch.zeros(5, 2))
        >>> prediction.lower.shape, bool((prediction.lower <= prediction.upper).all())
        (torch.Size([5, 3]), True)
    """

    prediction_type = CredalSet

    def __init__(
        self, network: torch.nn.Module, mode: Mode = "paper", logits: int | None = None, logit_norm: bool = True
    ) -> None:
        super().__init__()
        if mode not in ("paper", "sound"):
            raise ValueError(f"Unknown mode {mode!r}; choose 'paper' or 'sound'.")
        self.network = network
        self.mode = mode
        self.logits = logits if logits is not None else _count_logits(network)
        self.logit_norm = logit_norm
        self.num_classes = max(self.logits, 2)
        self.norm = inn.BatchNorm1d(self.logits, mode=mode) if logit_norm else inn.Identity()
        for layer in network.modules():
            if isinstance(layer, IntervalBatchNorm):
                layer.set_mode(mode)
        reference = next(network.parameters())
        self.norm.to(reference.device, reference.dtype)

    def forward(self, x: Interval | Tensor) -> CredalSet:
        """Predict a credal set per row."""
        return credal_set(self.norm(self.network(as_interval(x))), self.mode)

    def loss(self, prediction: CredalSet, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Cross-entropy of the intersection probability (Section "Training procedure")."""
        return cross_entropy(prediction, target, weight, check=False)

    def after_step(self) -> None:
        """Project the radii onto ``>= 0``."""
        project_(self)


class Ensemble(Classifier):
    """Average of the members' reachable probability intervals (ensemble of CreINN); the result is reachable again.

    Args:
        members: CreINNs with the same number of classes.
    """

    prediction_type = CredalSet

    def __init__(self, members: Sequence[CreINN]) -> None:
        super().__init__()
        self.num_classes = common_classes(members)
        self.members = torch.nn.ModuleList(members)

    def forward(self, x: Interval | Tensor) -> CredalSet:
        """Predict the averaged credal set per row."""
        return CredalSet.average([member(x) for member in self.members])


def credal_set(logits: Interval, mode: Mode) -> CredalSet:
    """The head: interval logits ``(N, K)`` to credal sets; ``K = 1`` is a binary classifier."""
    lower, upper = logits.lower, logits.upper
    if logits.shape[1] == 1:
        return CredalSet._trusted(*one_logit_softmax(lower[:, 0], upper[:, 0]))
    return CredalSet._trusted(*interval_softmax(lower, upper, mode))


def _count_logits(network: torch.nn.Module) -> int:
    last = [layer for layer in network.modules() if isinstance(layer, IntervalParameters)]
    if not last:
        raise ValueError(
            "The network has no interval layer. Build it from creinn.nn, or make an interval twin of it with "
            "creinn.convert(network)."
        )
    return last[-1].weight.shape[0]
