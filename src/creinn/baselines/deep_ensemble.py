"""Deep Ensembles (Lakshminarayanan, Pritzel and Blundell 2017), of any baseline."""

from collections.abc import Sequence

import torch
from torch import Tensor

from creinn.baselines.predictive import Predictive
from creinn.baselines.snn import SNN
from creinn.classifier.base import Classifier, common_classes


class DeepEnsemble(Classifier):
    """Ensemble of independently trained networks of one baseline.

    The prediction pools the samples of all members: ``M`` members with ``S`` samples each give
    ``M * S`` samples.
    """

    prediction_type = Predictive

    def __init__(self, members: Sequence[SNN]) -> None:
        super().__init__()
        self.num_classes = common_classes(members)
        self.members = torch.nn.ModuleList(members)
        self._take_mode_of_members()

    def forward(self, x: Tensor) -> Predictive:
        """Predict the distributions of all members per row."""
        return Predictive.pool([member(x) for member in self.members])
