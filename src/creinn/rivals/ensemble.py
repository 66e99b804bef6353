"""Ensembles of any rival: Deep Ensembles of ordinary networks, and the same of Bayesian ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from creinn.classifier.base import Classifier, common_classes
from creinn.rivals.prediction import Predictive
from creinn.rivals.snn import SNN


class DeepEnsemble(Classifier):
    """Independently trained classifiers whose samples are pooled: ``M`` members of ``S`` samples give ``M * S``.

    Members are trained one by one, each with its own loss and hooks.

    Args:
        members: Rivals with the same number of classes; of one kind, so that each has the same number of samples and
            the same weight.
    """

    prediction_type = Predictive

    def __init__(self, members: Sequence[SNN]) -> None:
        super().__init__()
        self.num_classes = common_classes(members)
        self.members = torch.nn.ModuleList(members)

    def forward(self, x: Tensor) -> Predictive:
        """Predict the distributions of all members per row."""
        return Predictive.pool([member(x) for member in self.members])
