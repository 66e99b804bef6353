"""Rows that are held out of a training: which, and how well the model does on them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from creinn.classifier.base import Inputs
from creinn.cli.sources import Training
from creinn.data.dataset import Dataset, split
from creinn.data.decoding import listed
from creinn.data.tables.columns import counted
from creinn.evaluation import summary

A_SIXTH = 1 / 6
FEWEST = 10  # on fewer rows accuracy says little, and when to stop would be chance

Labelled = tuple[Inputs, Tensor]


def divided(data: Training, fraction: float | None, seed: int, is_new: bool) -> tuple[Labelled, Labelled | None]:
    """Rows to train on, and rows held out, if any.

    Args:
        data: All rows.
        fraction: Share to hold out. Where none is asked for (``None``) it is a sixth, or nothing if those would be few
            or the model may have seen them. A class that would have no row left is not divided. Both are said.
        seed: Of the draw.
        is_new: Whether the model has not been trained before.

    Raises:
        ValueError: If the share is less than a row.
    """
    x, labels = data.rows.x, data.rows.labels
    assert labels is not None
    reason = ""
    if fraction is None and not is_new:
        reason = "No row is held out, for the model to start from may have seen it"
    elif fraction is None and len(labels) * A_SIXTH < FEWEST:
        reason = f"{counted(len(labels), 'row')} are too few to hold some out"
    if reason:
        print(f"note: {reason}: no accuracy is measured. --validation-fraction 0.2 holds a fifth out")
    if reason or fraction == 0:
        return (x, labels), None
    numbers = Dataset("data", torch.arange(len(labels)).double(), labels, tuple(data.classes))
    drawn = split(numbers, fraction or A_SIXTH, seed)[0].inputs
    assert isinstance(drawn, Tensor)
    held = torch.zeros(len(labels), dtype=torch.bool)
    held[drawn.long()] = True
    total, lost = (torch.bincount(of, minlength=len(data.classes)) for of in (labels, labels[held]))
    emptied = (lost == total) & (total > 0)
    if emptied.any():
        names = [data.classes[number] for number in emptied.nonzero()[:, 0].tolist()]
        print(f"note: no row is held out of classes that would have none left: {listed(names, 'name')}")
        held &= ~emptied[labels]
    if not held.any():
        return (x, labels), None
    train, val = ((x[rows], labels[rows]) for rows in ((~held).nonzero()[:, 0], held.nonzero()[:, 0]))
    return train, val


def say_held_out(prediction: Any, y: Tensor, chosen: Sequence[str]) -> None:
    """Print how good a prediction of rows held out is, of classes ``y``; ``chosen`` is what was chosen by them."""
    found, sets = summary.quality(prediction, y), summary.sets(prediction, y, "maximality")
    correct = round(found["accuracy"] * len(y))
    print(f"validation accuracy {found['accuracy']:.4f} ({correct} of {counted(len(y), 'row')})")
    print(f"validation log loss {found['log_loss']:.4f}")
    if sets is not None:
        print(
            f"validation sets of classes: the true class is in {sets.coverage:.4f} of them, mean size {sets.size:.2f}"
        )
    if chosen:
        print(f"note: these rows have chosen {' and '.join(chosen)} too; new ones may fare worse")
