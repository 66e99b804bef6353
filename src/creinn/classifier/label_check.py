"""Check that the labels of the training data agree with the predictions of a network.

In: labels and predicted classes, in batches. Out: a :class:`LabelWarning` if the labels seem to have
other class numbers, or another order of rows, than the network was trained with.
"""

import math
import warnings

import torch
from jaxtyping import Int
from torch import Tensor


class LabelWarning(UserWarning):
    """The labels do not suit the network: a class has no row, or the accuracy is that of chance."""


class Agreement:
    """Counts of labels, predicted classes and rows where both agree.

    Example:
        >>> agreement = Agreement(2)
        >>> agreement.add(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 0]))
        >>> agreement.is_chance()
        True
    """

    def __init__(self, num_classes: int) -> None:
        self.counts = torch.zeros(3, num_classes, dtype=torch.long)

    def add(self, labels: Int[Tensor, " rows"], predicted: Int[Tensor, " rows"]) -> None:
        """Count the rows of a batch."""
        self.counts = self.counts.to(labels.device)
        for row, classes in enumerate((labels, predicted, labels[labels == predicted])):
            self.counts[row] += torch.bincount(classes, minlength=self.counts.shape[1])

    def is_chance(self) -> bool:
        r"""Return whether the accuracy is at most one standard error above chance.

        Chance is the agreement of labels and predictions that are independent, with the shares
        :math:`p_k` and :math:`q_k` of the classes: :math:`c = \sum_k p_k q_k`, with the variance
        :math:`(c + c^2 - \sum_k p_k q_k (p_k + q_k)) / N` (Fleiss, Cohen and Everitt, 1969). If it
        is 0, because all labels or all predictions are the same, chance is :math:`1 / K`. So a
        network that always predicts the most frequent class of unequal ones is not at chance.
        """
        rows = int(self.counts[0].sum())
        labels, predicted, agreeing = (self.counts.double() / rows).unbind()
        accuracy, both = float(agreeing.sum()), labels * predicted
        chance = float(both.sum())
        variance = (chance + chance**2 - float((both * (labels + predicted)).sum())) / rows
        if variance < 1e-12:
            return accuracy <= 1 / len(labels)
        return accuracy < 1 and accuracy - chance <= math.sqrt(variance)

    def warn(self, stacklevel: int) -> None:
        """Warn if a class has no row, and if the accuracy is that of chance."""
        rows = int(self.counts[0].sum())
        if not rows:
            return
        if missing := (self.counts[0] == 0).nonzero().flatten().tolist():
            warnings.warn(
                f"The training data have no row of class {', '.join(map(str, missing))}. Rows of "
                "such a class count as far from the training data.",
                LabelWarning,
                stacklevel=stacklevel + 1,
            )
        if self.is_chance():
            warnings.warn(
                f"The network predicts the label of {int(self.counts[2].sum())} of {rows} rows, which "
                "is not better than chance. Check that the network is trained, and that the labels "
                "have its class numbers and the order of the inputs.",
                LabelWarning,
                stacklevel=stacklevel + 1,
            )
