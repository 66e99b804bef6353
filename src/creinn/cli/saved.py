"""Model directories as commands use them: read, asked about a user's data, and never written over by mistake."""

import os
from pathlib import Path
from typing import Any

import torch
import yaml

from creinn.cli.options import ModelOptions
from creinn.cli.sources import Rows, Source, read_rows
from creinn.interval import Interval
from creinn.saving import CONFIG, WEIGHTS, load
from creinn.training.loop import choose_device

OPTIONS = "train.yaml"
"""File in a model directory with the options of its training."""

READ, WRITTEN = ("data", "lower", "upper", "ood", "ood_lower", "ood_upper"), ("out", "report")
"""Names of options that are files."""


def read_model(directory: Path, device: str) -> Any:
    """The classifier in a model directory, with ``class_names`` and ``preprocessing``."""
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no model directory {directory}.")
    model = load(directory, choose_device(device))
    model.class_names = [str(name) for name in model.class_names or range(model.num_classes)]
    return model


def ask(model: Any, source: Source, labelled: bool, batch_size: int) -> tuple[Rows, Any]:
    """Rows of a source, and what a saved model says of them."""
    source.check()
    rows = read_rows(source, model.preprocessing, model.class_names if labelled else None)
    if isinstance(rows.x, Interval) and not takes_intervals(model):
        raise ValueError(
            f"{source.name} hold intervals, but the model takes none. Train one for them with --method creinn."
        )
    rows.say()
    with torch.random.fork_rng():
        torch.manual_seed(0)  # methods that predict by sampling shall say the same every time
        return rows, rows.predict(model, rows.x, batch_size).to("cpu")


def parts(model: Any) -> list[Any]:
    """The members of an ensemble, or the one model that there is."""
    return list(getattr(model, "members", [model]))


def takes_intervals(model: Any) -> bool:
    """Whether inputs of a model may be intervals."""
    return all(getattr(part, "is_interval", False) for part in parts(model))


def check_outputs(command: str, options: ModelOptions) -> None:
    """Refuse, before any work, to replace inputs, the model and, but for ``--force``, files of another origin.

    The options are kept beside the first output, with the suffix ``.yaml``; they tell later what this command wrote.
    """
    outputs = [path for name in WRITTEN if (path := getattr(options, name, None)) is not None]
    kept = options.out.with_suffix(".yaml")
    if kept in outputs:
        raise ValueError(f"{kept} is where the options are kept. Give the result another suffix.")
    inputs = [getattr(options, name, None) for name in READ]
    read = [path for path in (*inputs, *(options.model / name for name in (CONFIG, WEIGHTS, OPTIONS))) if path]
    ours = _written_before(kept, command)
    for path in (*outputs, kept):
        if not path.exists():
            continue
        if path.is_dir():
            raise ValueError(f"{path} is a directory. Name a file to write.")
        places = [path] if path in ours else [path, *path.absolute().parents]
        if any(os.path.samefile(source, place) for source in read if source.exists() for place in places):
            raise ValueError(f"{path} is an input of this command, or part of one. Name another file to write.")
        if path not in ours and not options.force:
            raise ValueError(
                f"{path} is there already, and creinn {command} did not write it. Name another file, or replace it "
                f"with --force."
            )
        print(f"note: {path} is there already and will be replaced")


def _written_before(kept: Path, command: str) -> set[Path]:
    """The files that an earlier run names in its options, and these."""
    try:
        text = kept.read_text(encoding="utf-8")
        named = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return set()
    if f"; again: creinn {command} " not in text.partition("\n")[0] or not isinstance(named, dict):
        return set()
    return {kept, *(Path(named[key]) for key in WRITTEN if named.get(key))}
