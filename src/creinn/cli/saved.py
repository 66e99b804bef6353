"""A model that ``creinn train`` wrote, with all that is needed to ask it about a user's data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from creinn.classifier.creinn import CreINN, Ensemble
from creinn.cli.sources import Rows, Source, read_rows
from creinn.interval import Interval
from creinn.rivals import DeepEnsemble
from creinn.saving import load, read_config
from creinn.training.loop import choose_device


@dataclass(frozen=True)
class Saved:
    """A model and its context.

    Args:
        model: The classifier.
        classes: Names of its classes.
        preprocessing: How its inputs are prepared.
    """

    model: Any
    classes: list[str]
    preprocessing: Any

    def ask(self, source: Source, labelled: bool, batch_size: int) -> tuple[Rows, Any]:
        """Rows of a source, and what the model says of them.

        Raises:
            ValueError: If the data are not as they must be, or intervals for a model that takes none.
        """
        source.check()
        rows = read_rows(source, self.preprocessing, self.classes if labelled else None)
        if isinstance(rows.x, Interval) and not all(takes_intervals(part) for part in parts(self.model)):
            raise ValueError(
                f"{source.name} hold intervals, but the model takes none. Train one for them with --method creinn."
            )
        rows.say()
        with torch.random.fork_rng():
            torch.manual_seed(0)  # methods that predict by sampling shall say the same every time
            return rows, rows.predict(self.model, rows.x, batch_size).to("cpu")


def parts(model: Any) -> list[Any]:
    """The members of an ensemble, or the one model that there is."""
    return list(model.members) if isinstance(model, Ensemble | DeepEnsemble) else [model]


def takes_intervals(model: Any) -> bool:
    """Whether a model that is no ensemble takes intervals."""
    return isinstance(model, CreINN) and model.is_interval


def read_saved(directory: Path, device: str) -> Saved:
    """Read a model directory.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is not a saved model, or the device cannot be used.
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no model directory {directory}.")
    config = read_config(directory)
    model = load(directory, choose_device(device))
    classes = config["classes"] or [str(k) for k in range(model.num_classes)]
    return Saved(model, [str(name) for name in classes], config["preprocessing"])
