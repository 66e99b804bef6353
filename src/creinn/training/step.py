"""Training step, and the choice of the trained parameters."""

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.modules.batchnorm import _NormBase
from torch.optim.adam import adam

from creinn import nn as inn
from creinn.classifier.base import Classifier
from creinn.classifier.network import recording
from creinn.distributed import all_sum, broadcast_object, data_parallel, world_size
from creinn.nn import relative
from creinn.nn.affine import IntervalParameters
from creinn.nn.batchnorm import IntervalBatchNorm
from creinn.training.config import TrainConfig
from creinn.training.data import Batch
from creinn.training.history import EpochSums


class Forward(torch.nn.Module):
    """Module that computes the prediction and the loss of a batch.

    It is a module because it is wrapped by ``DistributedDataParallel``.
    """

    def __init__(self, model: Classifier, config: TrainConfig, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self._precision: AbstractContextManager[Any] = nullcontext()
        if config.mixed_precision:
            dtype = torch.bfloat16 if device.type == "cpu" else torch.float16
            self._precision = torch.autocast(device.type, dtype)

    def forward(self, batch: Batch) -> tuple[Any, Tensor]:
        """Return the prediction and the loss, in the precision of the configuration."""
        with self._precision:
            return self.model.batch_loss(batch.x, batch.y, batch.weight)


class TrainStep:
    """Update of the weights for a batch, with the gradients of all processes."""

    def __init__(
        self, forward: Forward, optimizer: torch.optim.Adam, scaler: torch.amp.GradScaler
    ) -> None:
        self._model, self._optimizer, self._scaler = forward.model, optimizer, scaler
        self.broadcast_optimizer()
        self._parameters: list[Parameter] = optimizer.param_groups[0]["params"]
        self._network = data_parallel(forward)
        self._idle: list[Parameter] | None = None  # biases with a gradient of zero

    def broadcast_optimizer(self) -> None:
        """Copy the state of the optimizer from rank 0, which reads the checkpoints."""
        if world_size() > 1:
            for part in (self._optimizer, self._scaler):
                part.load_state_dict(broadcast_object(part.state_dict))

    def __call__(self, batch: Batch, sums: EpochSums) -> None:
        """Update the weights, and add the metrics of the batch to ``sums``."""
        known = None if self._idle is None else nullcontext(self._idle)
        with known or zero_grad_biases(self._model) as self._idle:
            prediction, loss = self._network(batch)
        mass = sums.add(batch.y, batch.weight, prediction, loss)
        if world_size() > 1:  # the mean over the processes is then the mean over all rows
            own = torch.as_tensor(mass, dtype=loss.dtype, device=loss.device)
            loss = loss * (world_size() * own / all_sum(own))
        for parameter in self._parameters:
            parameter.grad = None
        self._scaler.scale(loss).backward()
        for bias in self._idle:
            bias.grad = torch.zeros_like(bias)
        if self._scaler.is_enabled():  # it skips steps with infinite gradients
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            _adam_step(self._optimizer)
        self._model.after_step()

    def is_finite(self) -> bool:
        """Return whether the trained parameters and their averages are finite.

        This synchronizes with the device.
        """
        averages = (value for state in self._optimizer.state.values() for value in state.values())
        values = [tensor.isfinite().all() for tensor in (*self._parameters, *averages)]
        return bool(torch.stack([value.cpu() for value in values]).all())

    def close(self) -> None:
        """Release all references to the process group."""
        if world_size() > 1:
            self._network = torch.nn.Identity()
            gc.collect()


@torch.no_grad()
def _adam_step(optimizer: torch.optim.Adam) -> None:
    """Call ``optimizer.step()`` without hooks.

    For a network with small layers, the hooks take a third of the time of a step.
    """
    (group,) = optimizer.param_groups
    parameters = [p for p in group["params"] if p.grad is not None]
    states = [optimizer.state[p] for p in parameters]
    if not all(states):
        optimizer.step()  # creates the states
        return
    (beta1, beta2), names = group["betas"], ("exp_avg", "exp_avg_sq", "step")
    means, squares, steps = ([state[name] for state in states] for name in names)
    rates = {name: group[name] for name in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
    gradients: Any = [p.grad for p in parameters]
    adam(parameters, gradients, means, squares, [], steps, fused=True,
         beta1=beta1, beta2=beta2, **rates)  # fmt: skip


@contextmanager
def train_only(model: torch.nn.Module, part: str) -> Iterator[None]:
    """Freeze the parameters that are not in ``part``, and restore them on exit.

    See :attr:`TrainConfig.train`. If a parameter is already frozen, it is not trained.
    """
    if part == "all":
        yield
        return
    modules = list(model.modules())
    norms = {
        layer: layer.center_frozen for layer in modules if isinstance(layer, IntervalBatchNorm)
    }
    layers = [layer for layer in modules if isinstance(layer, IntervalParameters)]
    radii = {radius for layer in layers for radius in layer.radii().values()}
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    if not any(before[radius] for radius in radii):
        name = type(model).__name__
        found = f"every radius of {name} has requires_grad=False" if radii else f"{name} has none"
        raise ValueError(f"train='radii' needs radii that can be trained, but {found}.")
    kept = radii | {p for norm in norms if norm.mode != "sound" for p in norm.parameters()}
    try:
        for parameter, value in before.items():
            parameter.requires_grad_(value and parameter in kept)
        for norm in norms:
            norm.center_frozen = True
        yield
    finally:
        for parameter, value in before.items():
            parameter.requires_grad_(value)
        for norm, was_frozen in norms.items():
            norm.center_frozen = was_frozen


def set_train_mode(model: torch.nn.Module, part: str) -> None:
    """Set the model to training mode.

    If only the radii are trained, the ordinary batch norms are set to eval mode.
    """
    model.train()
    if part == "radii":
        for layer in model.modules():
            if isinstance(layer, _NormBase) and not isinstance(layer, IntervalBatchNorm):
                layer.eval()


@contextmanager
def zero_grad_biases(model: torch.nn.Module) -> Iterator[list[Parameter]]:
    """Find the biases with a gradient of zero in a forward pass in training mode.

    The list is filled on exit. If the last linear layer is followed by batch norm, the gradient of
    the bias is zero. The computed gradient is a rounding error, but the step of Adam does not
    depend on the scale of the gradient. In paper mode, the mean of the radii is also subtracted in
    the batch norm, so the gradient of the radius of the bias is also zero.
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
        return  # there is a layer between them, or a layer is called several times
    if getattr(logits[0], "_version", 0) > 0:
        return  # changed in place
    names = ("bias", "bias_radius") if getattr(norm, "mode", None) == "paper" else ("bias",)
    biases = (getattr(heads[0], name, None) for name in names)
    found += [bias for bias in biases if bias is not None and bias.requires_grad]
