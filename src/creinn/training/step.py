"""One update of the weights: forward pass, loss, backward pass, Adam."""

import gc
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from creinn.classifier.base import Classifier, Prediction
from creinn.distributed import all_sum, broadcast_object, data_parallel, world_size
from creinn.training.config import TrainConfig
from creinn.training.data import Batch
from creinn.training.failure import Guard
from creinn.training.metrics import LOSS, MASS, batch_sums
from creinn.training.trainable import zero_grad_biases


class Forward(torch.nn.Module):
    """Prediction and loss of a batch, as the one module that DistributedDataParallel wraps."""

    def __init__(self, model: Classifier, config: TrainConfig, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self._precision: AbstractContextManager[Any] = nullcontext()
        if config.mixed_precision:
            dtype = torch.bfloat16 if device.type == "cpu" else torch.float16
            self._precision = torch.autocast(device.type, dtype)

    def forward(self, batch: Batch) -> tuple[Prediction, Tensor]:
        """Return both, in the precision of the configuration."""
        with self._precision:
            prediction = self.model(batch.x)
            return prediction, self.model.loss(prediction, batch.y, batch.weight)


class TrainStep:
    """Update the weights by one batch, together with the other processes."""

    def __init__(self, forward: Forward, optimizer: Any, scaler: torch.amp.GradScaler) -> None:
        self._model, self._optimizer, self._scaler = forward.model, optimizer, scaler
        if world_size() > 1:  # rank 0 has read the checkpoint
            for part in (optimizer, scaler):
                part.load_state_dict(broadcast_object(part.state_dict))
        self._network = data_parallel(forward)
        self._idle: list[Parameter] | None = None  # biases whose gradient is zero

    def __call__(self, step: int, batch: Batch, guard: Guard) -> Tensor:
        """Return the sums over the batch of all processes, see ``metrics``."""
        known = None if self._idle is None else nullcontext(self._idle)
        with known or zero_grad_biases(self._model) as self._idle:
            prediction, loss = self._network(batch)
        own = batch_sums(batch, prediction, loss)
        total = all_sum(own)
        if world_size() > 1:  # the mean over processes becomes the mean over all rows
            loss = loss * (world_size() * own[MASS] / total[MASS]).to(loss.dtype)
        self._optimizer.zero_grad()
        self._scaler.scale(loss).backward()
        for bias in self._idle:
            bias.grad = torch.zeros_like(bias)
        gradients = [p.grad for p in self._model.parameters() if p.grad is not None]
        # A scaler skips steps with infinite gradients by itself; these are part of the method.
        guard.watch(step, total[LOSS], [] if self._scaler.is_enabled() else gradients)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._model.after_step()
        return total

    def close(self) -> None:
        """Release all references to the process group."""
        if world_size() > 1:
            self._network = torch.nn.Identity()
            gc.collect()
