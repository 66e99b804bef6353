"""Function-space variational inference (FSVI; Rudner et al., NeurIPS 2022): a network in, sampled distributions out.

Weights are Gaussian and independent. The loss is the cross-entropy of sampled weights plus the KL divergence between
two Gaussians over functions at context points: the network linearised about its mean weights, and the prior.
Deviations from the paper, on purpose: context points are evaluated with batch norm in eval mode and are not joined
with the training batch.
"""

import copy
import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from creinn.classifier.base import Inputs, evaluating
from creinn.numerics import safe_sqrt
from creinn.rivals.function_space import diagonal_kl, full_kl, head_covariance, linearise
from creinn.rivals.gaussian import INITIAL_STD, inverse_softplus
from creinn.rivals.head import features_and_logits, last_linear, scale_and_shift, with_ones
from creinn.rivals.prediction import Predictive
from creinn.rivals.schedule import KLSchedule
from creinn.rivals.snn import SNN, points, predict_logits

JITTER = 1e-4
"""Share of the prior's mean variance that is added at every point to prior and posterior, to keep both regular."""


class FSVI(SNN):
    """A network with Gaussian weights whose prior is a Gaussian over functions.

    Args:
        network: An ordinary module from inputs to logits; its parameters are the means.
        samples: Sampled functions per prediction.
        stochastic: Which weights are Gaussian. ``"last"``: those of the last layer, which must be a ``Linear``;
            logits are then Gaussian without approximation and are sampled as such, so that the cost is one more
            forward pass on the context points. ``"all"``: every parameter, for small networks; the
            Jacobian at ``M`` context points takes ``M * K * P`` numbers, and predictions sample parameters of the
            network itself, not of its linearisation.
        context: Source of the context points: ``"train"`` draws training inputs, ``"noise"`` draws uniformly between
            the least and the greatest value of each channel in training, a tensor is a set of inputs to draw from.
            ``None``, for a model that is not trained any more.
        context_points: Number ``M`` of context points drawn at each step.
        prior: ``"independent"``: function values are ``N(0, prior_std ** 2)``, independent. ``"network"``: the
            network as it was initialised, linearised, with weights of standard deviation ``prior_std``; keeps a
            frozen copy of the network.
        prior_std: Standard deviation of the prior, of logits or of weights.
        covariance: Of the context points under each output: ``"full"`` or ``"diagonal"``.
        kl_weight: Weight of the KL divergence; 1 is the ELBO.
        warmup: Fraction of the training steps over which the KL weight rises from zero.
        logits: Number of logits ``K``; by default that of the network's last parameter.
        logit_norm: Whether to put batch norm on the logits, behind the noise of the weights. Its own parameters are
            not random, the KL divergence takes it with running statistics, and ``prior="network"`` goes without it.

    Raises:
        ValueError: If an option is unknown or a number out of range.
    """

    context: Literal["train", "noise"] | Tensor | None
    _pool: Tensor | None
    _range: tuple[Tensor, Tensor] | None

    def __init__(
        self,
        network: torch.nn.Module,
        samples: int = 10,
        stochastic: Literal["last", "all"] = "last",
        context: Literal["train", "noise"] | Tensor | None = "train",
        context_points: int = 32,
        prior: Literal["independent", "network"] = "independent",
        prior_std: float = 10.0,
        covariance: Literal["full", "diagonal"] = "full",
        kl_weight: float = 1.0,
        warmup: float = 0.25,
        logits: int | None = None,
        logit_norm: bool = False,
    ) -> None:
        super().__init__(network, logits, logit_norm)
        _check_choice("stochastic", stochastic, ("last", "all"))
        _check_choice("prior", prior, ("independent", "network"))
        _check_choice("covariance", covariance, ("full", "diagonal"))
        if isinstance(context, str):
            _check_choice("context", context, ("train", "noise"))
        if samples < 1 or context_points < 1:
            raise ValueError(f"samples and context_points must be at least 1, got {samples} and {context_points}.")
        if not prior_std > 0:
            raise ValueError(f"prior_std must be > 0, got {prior_std}.")
        self.samples = samples
        self.stochastic = stochastic
        self.context = context
        self.context_points = context_points
        self.prior = prior
        self.prior_std = prior_std
        self.covariance = covariance
        self.schedule = KLSchedule(kl_weight, warmup)
        self.rho = torch.nn.ParameterList(_initial_rho(parameter) for parameter in self._means(network).values())
        self.prior_network = copy.deepcopy(network).requires_grad_(False) if prior == "network" else None
        self._pool = context if isinstance(context, Tensor) else None
        self._range = None

    def options(self) -> dict[str, Any]:
        """Constructor arguments apart from the network, as plain values; a tensor of context points is left out."""
        return {
            **super().options(),
            "samples": self.samples,
            "stochastic": self.stochastic,
            "context": None if isinstance(self.context, Tensor) else self.context,
            "context_points": self.context_points,
            "prior": self.prior,
            "prior_std": self.prior_std,
            "covariance": self.covariance,
            "kl_weight": self.schedule.kl_weight,
            "warmup": self.schedule.warmup,
        }

    def before_training(self, x: Inputs, target: Tensor, steps: int) -> None:
        """Take the numbers of examples and steps, the context points, and the prior network's statistics."""
        x = points(x)
        self.schedule.start(len(x), steps)
        if isinstance(self.context, str):
            self._pool = x
            self._range = _channel_range(x) if self.context == "noise" else None
        if self.prior_network is not None and self.schedule.step == 0:
            _set_statistics(self.prior_network, x[torch.randperm(len(x))[:512]].to(self.rho[0]))

    def after_step(self) -> None:
        """Go on in the KL warm-up."""
        self.schedule.advance()

    def forward(self, x: Tensor) -> Predictive:
        """Predict one distribution per row in training, ``samples`` of them in eval mode."""
        count = 1 if self.training else self.samples
        return predict_logits(torch.stack([self.norm(logits) for logits in self._sample_logits(x, count)]))

    def loss(self, prediction: Predictive, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Cross-entropy averaged over samples; in training mode plus the weighted KL at fresh context points."""
        loss = super().loss(prediction, target, weight)
        return loss + self.schedule() * self.function_kl(self.draw_context()) if self.training else loss

    def draw_context(self) -> Tensor:
        """Draw ``context_points`` inputs from the source.

        Raises:
            RuntimeError: If there is no source, or it is the training data and they are not known.
        """
        if self._pool is None:
            if self.context is None:
                raise RuntimeError("There is no source of context points: pass context= to train this model.")
            raise RuntimeError(
                "Context points come from the training data, which are not known yet: "
                "call model.before_training(x, target, steps) first, as fit does."
            )
        rows = self._pool[torch.randint(len(self._pool), (self.context_points,), device=self._pool.device)]
        rows = rows.to(self.rho[0])
        if self._range is None:
            return rows
        low, high = (bound.to(rows) for bound in self._range)
        return low + (high - low) * torch.rand_like(rows)

    def function_kl(self, x: Tensor) -> Tensor:
        """KL divergence of the linearised network from the prior at inputs ``x``, summed over outputs, in nats."""
        with torch.autocast(x.device.type, enabled=False):  # Cholesky factors need full precision
            return self._function_kl(x)

    def _function_kl(self, x: Tensor) -> Tensor:
        mean, covariance = self.function_distribution(x)
        if self.prior_network is None:
            prior_mean = torch.zeros_like(mean)
            prior_covariance = torch.eye(len(x), dtype=mean.dtype, device=mean.device).expand_as(covariance)
            prior_covariance = prior_covariance * self.prior_std**2
        else:
            with torch.no_grad():
                ones = [torch.full_like(rho, self.prior_std**2) for rho in self.rho]
                prior_mean, prior_covariance = self._linearised(self.prior_network, ones, x)
        prior_variance = prior_covariance.diagonal(dim1=1, dim2=2)
        jitter = JITTER * prior_variance.mean()
        if self.covariance == "diagonal":
            variance = covariance.diagonal(dim1=1, dim2=2)
            return diagonal_kl(mean, variance + jitter, prior_mean, prior_variance + jitter)
        nugget = jitter * torch.eye(len(x), dtype=mean.dtype, device=mean.device)
        return full_kl(mean, covariance + nugget, prior_mean, prior_covariance + nugget)

    def function_distribution(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean ``(K, M)`` and covariance ``(K, M, M)`` of the linearised network at ``x``, with norms in eval mode."""
        mean, covariance = self._linearised(self.network, self._variances(), x)
        if not isinstance(self.norm, torch.nn.BatchNorm1d):
            return mean, covariance
        scale, shift = (values.unsqueeze(1) for values in scale_and_shift(self.norm))
        return scale * mean + shift, scale.square().unsqueeze(2) * covariance

    def _sample_logits(self, x: Tensor, count: int) -> Iterable[Tensor]:
        """Samples ``(N, K)`` of the logits, before the norm."""
        if self.stochastic == "all":
            return [functional_call(self.network, self._draw(), (x,)) for _ in range(count)]
        features, logits = features_and_logits(self.network, last_linear(self.network), x)
        std = safe_sqrt(self._head_inputs(features).square() @ _columns(self._variances()).T)
        return logits + std * torch.randn((count, *logits.shape), dtype=std.dtype, device=std.device)

    def _linearised(self, network: torch.nn.Module, variances: list[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        with evaluating(network):
            means = self._means(network)
            if self.stochastic == "all":
                return linearise(network, means, dict(zip(means, variances, strict=True)), x)
            features, logits = features_and_logits(network, last_linear(network), x)
            return logits.T, head_covariance(self._head_inputs(features), _columns(variances))

    def _means(self, network: torch.nn.Module) -> dict[str, Tensor]:
        if self.stochastic == "all":
            return dict(network.named_parameters())
        return dict(last_linear(network).named_parameters())

    def _variances(self) -> list[Tensor]:
        return [F.softplus(rho).square() for rho in self.rho]

    def _head_inputs(self, features: Tensor) -> Tensor:
        return with_ones(features) if len(self.rho) == 2 else features

    def _draw(self) -> dict[str, Tensor]:
        means = self._means(self.network)
        stds = (F.softplus(rho) for rho in self.rho)
        return {
            name: mean + std * torch.randn_like(mean) for (name, mean), std in zip(means.items(), stds, strict=True)
        }


def _channel_range(x: Tensor) -> tuple[Tensor, Tensor]:
    others = [dim for dim in range(x.ndim) if dim != 1]
    return x.amin(others, keepdim=True), x.amax(others, keepdim=True)


def _columns(variances: list[Tensor]) -> Tensor:
    """Variances of weight and bias, if there is one, as one matrix ``(K, D)``."""
    return torch.cat([v if v.ndim == 2 else v.unsqueeze(1) for v in variances], 1)


def _initial_rho(parameter: Tensor) -> torch.nn.Parameter:
    fan_in = parameter[0].numel() if parameter.ndim > 1 else len(parameter)
    return torch.nn.Parameter(torch.full_like(parameter, inverse_softplus(INITIAL_STD / math.sqrt(fan_in))))


def _set_statistics(network: torch.nn.Module, x: Tensor) -> None:
    """Set the batch norm statistics of ``network`` to those of one batch."""
    norms = [layer for layer in network.modules() if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train().momentum = 1.0
    with torch.no_grad():
        network(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.eval().momentum = momentum


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"Unknown {name} {value!r}; choose one of {', '.join(map(repr, choices))}.")
