"""Training step, and the choice of the trained parameters."""

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm

from creinn import nn as inn
from creinn.classifier.base import Classifier
from creinn.classifier.network import recording
from creinn.distributed import all_sum, broadcast_object, broadcast_state, world_size
from creinn.nn import relative
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.training.config import TrainConfig
from creinn.training.data import Batch
from creinn.training.history import EpochSums


class Forward(torch.nn.Module):
    """Prediction and loss of a batch as a module, for ``DistributedDataParallel``."""

    def __init__(self, model: Classifier, config: TrainConfig, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self._precision: AbstractContextManager[Any] = nullcontext()
        if config.mixed_precision:
            dtype = torch.bfloat16 if device.type == "cpu" else torch.float16
            self._precision = torch.autocast(device.type, dtype)

    def forward(self, batch: Batch) -> tuple[Any, Tensor]:
        """Return the prediction and the loss."""
        with self._precision:
            return self.model.batch_loss(batch.x, batch.y, batch.weight)


class TrainStep:
    """Update of the weights with the gradients of all processes."""

    def __init__(self, forward: Forward, config: TrainConfig, device: torch.device) -> None:
        self._network: torch.nn.Module = forward
        self._model = forward.model
        self._parameters = [p for p in self._model.parameters() if p.requires_grad]
        self._idle: list[Parameter] | None = None  # biases with a gradient of zero
        rate = config.learning_rate_at(0)
        self.optimizer = torch.optim.Adam(self._parameters, rate, fused=True)
        self._is_on_cpu = device.type == "cpu"
        is_scaled = config.mixed_precision and device.type == "cuda"
        self.scaler = torch.amp.GradScaler(device.type, enabled=is_scaled)

    def start(self) -> None:
        """Copy the state of rank 0 and synchronize the gradients of the processes."""
        if world_size() > 1:
            self.broadcast()
            self._network = DistributedDataParallel(self._network, find_unused_parameters=True)

    def broadcast(self) -> None:
        """Copy the weights and the optimizer of rank 0 to all processes."""
        broadcast_state(self._model)
        if world_size() > 1:
            for part in (self.optimizer, self.scaler):
                part.load_state_dict(broadcast_object(part.state_dict))

    def __call__(self, batch: Batch, sums: EpochSums) -> None:
        """Update the weights, and add the metrics of the batch to ``sums``."""
        if self._idle is None:
            with zero_grad_biases(self._model) as self._idle:
                prediction, loss = self._network(batch)
        else:
            prediction, loss = self._network(batch)
        mass = sums.add(batch.y, batch.weight, prediction, loss)
        if world_size() > 1:  # the mean of the processes is the mean of all rows
            own = torch.as_tensor(mass, dtype=loss.dtype, device=loss.device)
            loss = loss * (world_size() * own / all_sum(own))
        for parameter in self._parameters:
            parameter.grad = None
        self.scaler.scale(loss).backward()
        for bias in self._idle:
            bias.grad = torch.zeros_like(bias)
        if self._is_on_cpu:
            adam_step(self.optimizer)
        else:
            self.scaler.step(self.optimizer)  # skips steps with infinite gradients if enabled
            self.scaler.update()
        self._model.after_step()

    def is_finite(self) -> bool:
        """Return whether the parameters and the state of Adam are finite."""
        squares = [state["exp_avg_sq"] for state in self.optimizer.state.values()]
        values = [parameter.detach() for parameter in self._parameters]
        return bool(get_total_norm(values + squares, torch.inf).isfinite())

    def close(self) -> None:
        """Release the process group, whose threads could otherwise abort the process later."""
        if isinstance(self._network, DistributedDataParallel):
            self._network = self._network.module
            gc.collect()


@torch.no_grad()
def adam_step(optimizer: torch.optim.Adam) -> None:
    """Do the step of a fused Adam on a CPU.

    The result is that of ``optimizer.step()``, whose hooks and groups of
    devices take longer than the update of a small network.
    """
    (group,) = optimizer.param_groups
    parameters = [p for p in group["params"] if p.grad is not None]
    states = [optimizer.state[p] for p in parameters]
    if not all(states):  # first step of a parameter
        optimizer.step()
        return
    names = ("exp_avg", "exp_avg_sq", "step")
    means, squares, counts = ([state[name] for state in states] for name in names)
    torch._foreach_add_(counts, [torch.ones((), device="cpu")] * len(counts))  # faster than 1
    options = {key: group[key] for key in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
    beta1, beta2 = group["betas"]
    lists: Any = (parameters, [p.grad for p in parameters], means, squares, [], counts)
    torch._fused_adam_(*lists, beta1=beta1, beta2=beta2, **options)


@contextmanager
def train_only(model: torch.nn.Module, part: str) -> Iterator[None]:
    """Freeze parameters that are not in ``part`` until exit; see :attr:`TrainConfig.train`."""
    if part == "all":
        yield
        return
    modules = list(model.modules())
    norms = [module for module in modules if isinstance(module, IntervalBatchNorm)]
    layers = [module for module in modules if isinstance(module, IntervalParameters)]
    radii = {radius for layer in layers for radius in layer.radii().values()}
    if not any(radius.requires_grad for radius in radii):
        found = "every radius has requires_grad=False" if radii else "there is no radius"
        raise ValueError(f"train='radii' cannot train {type(model).__name__}: {found}.")
    kept = radii | {p for norm in norms if norm.mode != "sound" for p in norm.parameters()}
    frozen = [p for p in model.parameters() if p.requires_grad and p not in kept]
    norms = [norm for norm in norms if not norm.center_frozen]
    try:
        _freeze(frozen, norms, True)
        yield
    finally:
        _freeze(frozen, norms, False)


def _freeze(parameters: list[Parameter], norms: list[IntervalBatchNorm], frozen: bool) -> None:
    for parameter in parameters:
        parameter.requires_grad_(not frozen)
    for norm in norms:
        norm.center_frozen = frozen


def set_train_mode(model: torch.nn.Module, part: str) -> None:
    """Set the model to training mode; for radii, ordinary batch norms stay in eval mode."""
    model.train()
    for layer in model.modules():
        is_ordinary = isinstance(layer, _NormBase) and not isinstance(layer, IntervalBatchNorm)
        if part == "radii" and is_ordinary:
            layer.eval()


@contextmanager
def zero_grad_biases(model: torch.nn.Module) -> Iterator[list[Parameter]]:
    """Find the biases with a gradient of zero in a forward pass; the list is filled on exit.

    If the layer is followed by batch norm, the gradient of its bias is
    zero, and in paper mode also that of the radius. The computed gradient
    is a rounding error, but a step of Adam does not depend on the scale of
    the gradient.
    """
    found: list[Parameter] = []
    norm: Any = getattr(model, "norm", None)
    if not (isinstance(norm, _NormBase) and norm.training):
        yield found
        return
    kinds = (torch.nn.Linear, inn.Linear, relative.Linear)
    layers = [layer for layer in model.modules() if type(layer) in kinds]
    with recording([*layers, norm]) as calls:
        yield found
    logits = [call.inputs[0] for call in calls if call.module is norm]
    heads = [call.module for call in calls if any(call.output is x for x in logits)]
    if len(logits) != 1 or len(heads) != 1 or sum(call.module is heads[0] for call in calls) != 1:
        return  # a layer between them, or called several times
    if getattr(logits[0], "_version", 0) > 0:
        return  # changed in place
    names = ("bias", "bias_radius") if getattr(norm, "mode", None) == "paper" else ("bias",)
    biases = (getattr(heads[0], name, None) for name in names)
    found += [bias for bias in biases if bias is not None and bias.requires_grad]
