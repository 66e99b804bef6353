"""Standard neural network (SNN), and Deep Ensembles."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creinn.baselines.predictive import Predictive
from creinn.classifier.base import Classifier, Inputs, Labelled, Prediction, common_classes
from creinn.classifier.inputs import as_logits, run
from creinn.classifier.network import features_and_logits, logits_cross_entropy
from creinn.classifier.temperature import Temperature


class SNN(Classifier):
    """Classifier with an ordinary network, which is binary if it has one logit.

    Args:
        network: A module that returns logits ``(N, K)``.
        num_logits: Number of logits; by default the size of the last
            parameter.
        logit_norm: Whether to apply batch norm to the logits.
        temperature: Whether to fit a temperature to the validation data.
    """

    prediction_type: type[Prediction] = Predictive

    def __init__(
        self,
        network: nn.Module,
        num_logits: int | None = None,
        logit_norm: bool = False,
        temperature: bool = False,
    ) -> None:
        super().__init__()
        self.network = network
        *_, last = network.parameters()
        self.num_logits = len(last) if num_logits is None else num_logits
        self.num_classes = max(self.num_logits, 2)
        self.logit_norm = logit_norm
        self.norm = nn.BatchNorm1d(self.num_logits) if logit_norm else nn.Identity()
        self.norm.to(last.device, last.dtype)
        self.temperature = Temperature(temperature).to(last)

    def options(self) -> dict[str, Any]:
        """Return the arguments of the constructor except for the network."""
        options = super().options()
        if "temperature" in options:
            options["temperature"] = self.temperature.is_on
        return options

    def forward(self, x: Tensor) -> Predictive:
        """Return the prediction, with one sample for each row."""
        return predict_logits(self.temperature(self.normed_logits(x)))

    def normed_logits(self, x: Tensor) -> Tensor:
        """Return samples of the logits ``(S, N, K)``."""
        return self.norm(as_logits(run(self.network, x), self.num_logits)).unsqueeze(0)

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Reset the temperature."""
        self.temperature.reset()

    @torch.no_grad()
    def after_training(self, data: Labelled, held_out: Labelled | None = None) -> None:
        """Fit the temperature to the validation data."""
        if held_out is not None and self.temperature.is_on:
            self.eval()
            rows = ((self.normed_logits(x).transpose(0, 1), y) for x, y in held_out)
            self.temperature.fit(rows, lambda z: predict_logits(z.transpose(0, 1)).probabilities)

    def batch_loss(self, x: Inputs, target: Tensor, weight: Tensor | None) -> tuple[Any, Tensor]:
        """Return the prediction or the logits, and the loss."""
        if type(self).loss is not SNN.loss:
            return super().batch_loss(x, target, weight)
        logits = self.temperature(self.normed_logits(x).squeeze(0))
        return logits, logits_cross_entropy(logits, target, weight)

    def loss(self, prediction: Predictive, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the cross-entropy, averaged over the samples."""
        logs = prediction.log_samples.mean(0)
        if weight is None or weight.ndim == 1:
            return F.nll_loss(logs, target, weight)
        return F.nll_loss(weight * logs, target, reduction="sum") / weight.sum()


class DeepEnsemble(Classifier):
    """Deep Ensemble (Lakshminarayanan et al. 2017) of any baseline."""

    prediction_type = Predictive

    def __init__(self, members: Sequence[SNN]) -> None:
        super().__init__()
        self.num_classes = common_classes(members)
        self.members = nn.ModuleList(members)
        self._take_mode_of_members()

    def forward(self, x: Tensor) -> Predictive:
        """Pool the samples of all members."""
        return Predictive.pool([member(x) for member in self.members])


def predict_logits(logits: Tensor) -> Predictive:
    """Return the prediction for samples of logits ``(S, N, K)``.

    A single logit belongs to class 1 of two classes.

    Example:
        >>> predict_logits(torch.zeros(1, 1, 1)).probabilities
        tensor([[0.5000, 0.5000]])
    """
    binary = logits.shape[-1] == 1
    logs = F.logsigmoid(torch.cat((-logits, logits), -1)) if binary else F.log_softmax(logits, -1)
    return Predictive(logs.exp(), logs)


def check_tensor(x: Inputs) -> Tensor:
    """Return ``x``, or raise a ``TypeError`` if it is not a tensor."""
    if isinstance(x, Tensor):
        return x
    raise TypeError(f"Expected a tensor, got {type(x).__name__}. Use x.center of an Interval.")


def last_layer(network: nn.Module, x: Tensor, bias: bool) -> tuple[Tensor, Tensor]:
    """Return the features, with a one for a bias, and the logits."""
    features, logits = features_and_logits(network, x)
    return F.pad(features, (0, int(bias)), value=1.0), logits
