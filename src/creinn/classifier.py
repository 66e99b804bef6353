"""What every classifier shares, interval network or rival: a forward pass, its loss, batched prediction.

A prediction (:class:`creinn.CredalSet`, :class:`creinn.rivals.Predictive`) has ``label``, ``probabilities``, ``total``,
``aleatoric`` and ``epistemic``, so that training, evaluation and reports treat every method alike.
"""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from creinn.interval import Interval
from creinn.saving import save

Inputs = Tensor | Interval


class Classifier(torch.nn.Module):
    """Base of all classifiers: ``model(x)`` gives a prediction of type :attr:`prediction_type`."""

    prediction_type: Any
    num_classes: int
    preprocessing: Any = None
    """What must be done to inputs first, as plain JSON: kept by :func:`creinn.save`, for the caller to do."""

    def loss(self, prediction: Any, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Training loss of a prediction, averaged over the batch; ``weight`` of classes ``(K,)`` or rows ``(N, 1)``."""
        raise NotImplementedError(f"{type(self).__name__} defines no loss.")

    def before_training(self, x: Inputs, target: Tensor, steps: int) -> None:
        """Look at the training data once, before the first of ``steps`` optimiser steps."""

    def after_training(
        self, x: Inputs, target: Tensor, held_out: Iterable[tuple[Inputs, Tensor]] | None = None
    ) -> None:
        """Finish on the training data after the last step, as post-hoc methods do; ``held_out``: validation batches."""

    @property
    def needs_data_in_memory(self) -> bool:
        """Whether the data are looked at before or after training, for which they must be tensors."""
        hooks = (Classifier.before_training, Classifier.after_training)
        return (type(self).before_training, type(self).after_training) != hooks

    def after_step(self) -> None:
        """What to restore after each optimiser step, such as constraints on parameters."""

    def predict(self, x: Inputs | Iterable[Any], batch_size: int = 256) -> Any:
        """Predict in batches, in eval mode and without gradients; results stay on the model's device.

        Args:
            x: Inputs ``(N, ...)`` as a tensor or an :class:`Interval`, or an iterable of batches such as a DataLoader.
                Of a batch that is a tuple or
                list, the first entry is taken.
            batch_size: Rows of a tensor or interval that are predicted at once.

        Raises:
            ValueError: If there is nothing to predict, or ``batch_size`` is not positive.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        device = next(self.parameters()).device
        with evaluating(self), torch.no_grad():
            parts = [self(batch.to(device)) for batch in _batches(x, batch_size)]
        if not parts:
            raise ValueError("Nothing to predict: the data are empty.")
        return self.prediction_type.concatenate(parts)

    def options(self) -> dict[str, Any]:
        """The constructor's arguments after the network or the members, by name."""
        names = list(inspect.signature(type(self)).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def save(self, directory: str | PathLike[str], classes: Sequence[str | int] | None = None, **about: Any) -> None:
        """Write the model to a directory that :func:`creinn.load` reads; see :func:`creinn.saving.save`."""
        save(self, directory, classes, **about)


def common_classes(members: Sequence[Classifier]) -> int:
    """The number of classes of all members of an ensemble.

    Raises:
        ValueError: If there are no members, or they differ.
    """
    counts = {member.num_classes for member in members}
    if len(counts) != 1:
        found = f"members have {sorted(counts)} classes" if counts else "there are no members"
        raise ValueError(f"An ensemble needs at least one member and one number of classes, but {found}.")
    return counts.pop()


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Put ``module`` into eval mode for a while, and each of its parts back into the mode it was in."""
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in training.items():
            part.training = mode


def _batches(x: Inputs | Iterable[Any], batch_size: int) -> Iterator[Inputs]:
    if isinstance(x, Tensor | Interval):
        for start in range(0, len(x), batch_size):
            yield x[start : start + batch_size]
        return
    for batch in x:
        yield batch[0] if isinstance(batch, tuple | list) else batch
