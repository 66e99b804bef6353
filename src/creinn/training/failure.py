"""When the loss is no number: notice it without slowing the loop down, and say where it began."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.base import Inputs
from creinn.training.recording import is_finite, recording

_NEVER = 2**31 - 1


class Guard:
    """Watches losses and gradients on the device, and stops all updates from the first that is not finite.

    The optimiser must be a fused one: it skips a step whose ``found_inf`` is 1, without the host having to look. So the
    weights that led to the failure are still there when the host looks at last.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self._optimizer = optimizer
        self._first = torch.tensor(_NEVER, device=device)

    @torch.no_grad()
    def watch(self, step: int, loss: Tensor, gradients: Iterable[Tensor]) -> None:
        """Look at one step, between its backward pass and its update."""
        gradients = list(gradients)
        total = loss
        if gradients:
            total = loss + torch.nn.utils.get_total_norm(gradients, foreach=loss.device.type in ("cpu", "cuda"))
        self._first = torch.where(torch.isfinite(total), self._first, self._first.clamp_max(step))
        self._optimizer.found_inf = (self._first != _NEVER).float()  # type: ignore[attr-defined]

    def failed_step(self) -> int | None:
        """The first step that was not finite, if any; waits for the device."""
        first = int(self._first)
        return None if first == _NEVER else first


def explain_failure(
    model: torch.nn.Module,
    forward: Callable[[Inputs, Tensor], tuple[Any, Tensor]],
    index: Tensor,
    x: Inputs,
    y: Tensor,
) -> str:
    """Run the failed step again, without an update, and say what in it was not finite first.

    Args:
        model: The model, with the weights of that step.
        forward: ``forward(x, y)`` gives the prediction and the loss.
        index: Row numbers of the batch.
        x: Inputs of the batch, augmented.
        y: Targets of the batch.
    """
    finite_rows = torch.stack([torch.isfinite(t.flatten(1)).all(1) for t in _tensors(x)]).all(0).cpu()
    if not bool(finite_rows.all()):
        row = int(index[int((~finite_rows).nonzero()[0])])
        return f"Input row {row} of the training data, as the network gets it, holds a value that is not finite."
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"The parameter {name} held values that are not finite before this step."
    with recording(model) as calls:
        _, loss = forward(x, y)
    for call in calls:
        layer = f"{call.path} ({type(call.module).__name__})"
        if not is_finite(call.inputs):
            return f"It began between two layers: every output before layer {layer} is finite, its input is not."
        if not is_finite(call.output):
            return f"It began in layer {layer}: its input is finite, its output is not."
    if not bool(torch.isfinite(loss)):
        return "It began in the head or the loss: the output of every layer is finite."
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    bad = [name for name, g in zip(parameters, gradients, strict=True) if g is not None and not is_finite(g)]
    if bad:
        return f"The loss is finite, but its gradient is not; on the way back this shows first at {bad[-1]}."
    return "The loss and its gradient are too large to be summed."


def _tensors(x: Inputs) -> tuple[Tensor, ...]:
    return (x,) if isinstance(x, Tensor) else (x.lower, x.upper)
