"""Standard neural network (SNN), the base class of the other baselines."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from creinn.baselines.predictive import Predictive
from creinn.classifier.base import Classifier, Inputs, Labelled, Prediction
from creinn.classifier.network import as_logits
from creinn.classifier.temperature import Temperature


class SNN(Classifier):
    """An ordinary network of logits ``(N, K)``; one logit makes a binary classifier.

    Args:
        network: Any module from inputs to logits.
        logits: Number of logits ``K``; by default that of the network's last parameter.
        logit_norm: Whether to put batch norm on the logits, as CreINN does.
        temperature: Whether to divide the logits by the number of least log loss on held-out data, of which training
            must be given some; see :mod:`creinn.classifier.temperature`.
    """

    prediction_type: type[Prediction] = Predictive

    def __init__(
        self,
        network: torch.nn.Module,
        logits: int | None = None,
        logit_norm: bool = False,
        temperature: bool = False,
    ) -> None:
        super().__init__()
        self.network = network
        *_, last = network.parameters()
        self.logits = last.shape[0] if logits is None else logits
        self.num_classes = max(self.logits, 2)
        self.logit_norm = logit_norm
        self.norm = torch.nn.BatchNorm1d(self.logits) if logit_norm else torch.nn.Identity()
        self.norm.to(last.device, last.dtype)
        self.temperature = Temperature(temperature).to(last)

    def options(self) -> dict[str, Any]:
        """The constructor's arguments after the network, by name."""
        options = super().options()
        return (
            {**options, "temperature": self.temperature.is_on}
            if "temperature" in options
            else options
        )

    def forward(self, x: Tensor) -> Predictive:
        """Predict one distribution per row."""
        return predict_logits(self.temperature(self.normed_logits(x)))

    def normed_logits(self, x: Tensor) -> Tensor:
        """Samples ``(S, N, K)`` of the logits, after their norm and before the temperature."""
        return self.norm(as_logits(self.network(x), self.logits)).unsqueeze(0)

    def before_training(self, data: Labelled, epochs: int) -> None:
        """Forget the temperature: it belongs to logits that are about to change."""
        self.temperature.forget()

    @torch.no_grad()
    def after_training(self, data: Labelled, held_out: Labelled | None = None) -> None:
        """Fit the temperature, if there is one, to the held-out data: least log loss of the mean of the samples."""
        if held_out is not None and self.temperature.is_on:
            self.eval()
            found = ((self.normed_logits(x).transpose(0, 1), y) for x, y in held_out)
            self.temperature.fit(
                found, lambda logits: predict_logits(logits.transpose(0, 1)).probabilities
            )

    def loss(self, prediction: Predictive, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Cross-entropy, averaged over the samples of the prediction."""
        logs = prediction.log_samples.mean(0)
        if weight is None or weight.ndim == 1:
            return F.nll_loss(logs, target, weight)
        return F.nll_loss(weight * logs, target, reduction="sum") / weight.sum()


def predict_logits(logits: Tensor) -> Predictive:
    """Samples of logits ``(S, N, K)`` to a prediction; one logit (``K = 1``) is that of class 1 of two.

    Example:
        >>> predict_logits(torch.zeros(1, 2, 1)).probabilities
        tensor([[0.5000, 0.5000], [0.5000, 0.5000]])
    """
    binary = logits.shape[-1] == 1
    logs = F.logsigmoid(torch.cat((-logits, logits), -1)) if binary else F.log_softmax(logits, -1)
    return Predictive(logs.exp(), logs)


def points(x: Inputs) -> Tensor:
    """Training inputs of a baseline, which are tensors; a ``TypeError`` if they are intervals."""
    if isinstance(x, Tensor):
        return x
    raise TypeError(
        f"The baselines of CreINN take tensors, not {type(x).__name__}; pass the centres, x.center."
    )


def head_inputs(features: Tensor, bias: bool) -> Tensor:
    """Features, with a column of ones if there is a bias, which so is one more weight."""
    return torch.cat((features, features.new_ones(len(features), 1)), 1) if bias else features
