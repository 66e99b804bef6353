"""Messages of ``creinn train`` about data, training and validation."""

from collections.abc import Sequence
from typing import Any

import torch

from creinn.classifier.base import Classifier
from creinn.cli.sources import Rows, parts, takes_intervals
from creinn.evaluation import summary
from creinn.numerics import pluralize
from creinn.training import History

NEARLY_POINTS = 1e-3  # the mean width of the probability intervals
MOST_CLASSES = 20  # the number of classes in a line


def print_data(data: Rows) -> None:
    """Print the notes of the reader and the shape and classes of the data."""
    assert data.labels is not None
    shape = " x ".join(map(str, data.x.shape[1:]))
    kind = "intervals" if data.is_interval else "numbers"
    counts = torch.bincount(data.labels, minlength=len(data.classes)).tolist()
    shown = [f"{name} ({count})" for name, count in zip(data.classes, counts, strict=True)]
    if len(shown) > MOST_CLASSES:
        shown = [*shown[: MOST_CLASSES - 1], f"{len(shown) - MOST_CLASSES + 1} more"]
    data.print_notes()
    rows = f"{pluralize(len(data.x), 'row')} of {shape} {kind}"
    print(f"{rows}; {len(data.classes)} classes: {', '.join(shown)}")


def print_training(model: Classifier, histories: Sequence[History], keeps_best: bool) -> None:
    """Print epochs, temperature, scale of the distance and width of the intervals."""
    if histories:
        epochs = ", ".join(str(len(history)) for history in histories)
        best = ", ".join(str(history.best_epoch) for history in histories)
        kept = f" (best, and kept: {best})" if keeps_best else ""
        print(f"trained {pluralize(len(histories), 'network')}, epochs: {epochs}{kept}")
    members = parts(model)
    temperatures = [part.temperature.value for part in members if part.temperature.is_on]
    radii = [getattr(part, "distance_radius", None) for part in members]
    scales = [radius.scale for radius in radii if radius is not None]
    for name, values in (
        ("temperature of the logits", temperatures),
        ("scale of the distance", scales),
    ):
        if values:
            print(f"{name}: {', '.join(f'{float(value):.3g}' for value in values)}")
    widths = [width for history in histories if (width := history["width"][-1]) is not None]
    if widths and takes_intervals(model):
        width = sum(widths) / len(widths)
        print(f"mean width of the probability intervals in training: {width:.4f}")
        if width < NEARLY_POINTS and not scales:
            print(
                "note: the intervals are almost points, so epistemic uncertainty is almost 0; "
                "train for fewer epochs"
            )


def print_validation(prediction: Any, y: Any, chosen: Sequence[str]) -> None:
    """Print the measures on the validation rows, and the settings chosen by them."""
    found, sets = summary.quality(prediction, y), summary.sets(prediction, y, "maximality")
    correct = round(found["accuracy"] * len(y))
    print(f"validation accuracy {found['accuracy']:.4f} ({correct} of {pluralize(len(y), 'row')})")
    print(f"validation log loss {found['log_loss']:.4f}")
    if sets is not None:
        covered = f"the true class is in {sets.coverage:.4f} of them"
        print(f"validation sets of classes: {covered}, mean size {sets.size:.2f}")
    if chosen:
        names = " and ".join(filter(None, (", ".join(chosen[:-1]), chosen[-1])))
        print(f"note: these rows also chose {names}; results on new rows may be worse")
