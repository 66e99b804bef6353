"""Messages on losses and gradients that are not finite."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.inputs import find_not_finite, rows_not_finite
from creinn.classifier.recording import recording
from creinn.numerics import first_index
from creinn.training.data import Batch
from creinn.training.diagnose import calls_with_paths, is_finite, layers_of


def failure_message(epoch: int, step: int, steps: int | None, cause: str) -> str:
    """Return the message of the error that ends training."""
    where = f"epoch {epoch}, step {step}" + ("" if steps is None else f" of {steps}")
    return (
        f"The loss or its gradient is NaN or infinite at {where}. {cause} The model has the "
        "weights from before that step. A smaller learning rate or smaller radii may help."
    )


def explain_failure(
    model: torch.nn.Module, forward: Callable[[Batch], tuple[Any, Tensor]], batch: Batch
) -> str:
    """Repeat a failed step without an update and return a sentence on the first bad value."""
    if find_not_finite(batch.x):
        (first,) = first_index(rows_not_finite(batch.x).cpu())
        row = int(batch.rows[first])
        return f"Input row {row} of the training data is not finite, maybe after augmentation."
    for name, parameter in model.named_parameters():
        if not is_finite(parameter):
            return f"The parameter {name} was not finite before this step."
    with recording(layers_of(model)) as calls:
        _, loss = forward(batch)
    for path, call in calls_with_paths(model, calls):
        layer = f"{path} ({type(call.module).__name__})"
        if not is_finite(call.inputs):
            return (
                f"It began before layer {layer}: all earlier outputs are finite, its input is not."
            )
        if not is_finite(call.output):
            return f"It began in layer {layer}: its input is finite, its output is not."
    if not is_finite(loss):
        return "It began in the loss: the output of every layer is finite."
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    bad = [name for name, g in zip(parameters, gradients, strict=True) if not is_finite(g)]
    if bad:
        return f"The loss is finite, but the gradient of {bad[-1]} is not."
    return "The loss and its gradient overflow when they are summed."
