"""Check and complete the options of ``creinn train``."""

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

from creinn.classifier.methods import Method, find_method
from creinn.cli.options import MethodName, TrainOptions, flag
from creinn.saving import CONFIG, WEIGHTS, read_config
from creinn.training import TrainConfig

METHODS = {name: find_method(name) for name in get_args(MethodName)}
PATIENCE = 10
ONLY_CREDAL = ("distance", "combine", "mode", "loss", "from_", "coverage")
ONLY_NEW_TABLES = ("drop", "categorical", "max_categories", "max_classes", "dayfirst", "hidden")
ONLY_NEW_IMAGES = ("size", "channels", "network", "stem", "width")


def resolve_options(options: TrainOptions, method: Method) -> TrainOptions:
    """Return the options with all defaults, and raise an error if there is a conflict."""
    for entry in fields(options):
        name = entry.name
        if getattr(options, name) == entry.default:
            continue
        if name in ONLY_CREDAL and not method.is_credal:
            able = " and ".join(name for name, known in METHODS.items() if known.is_credal)
            raise ValueError(f"{flag(name)} is for {able}, not for {options.method}.")
        if name == "temperature" and method.kind == "bnn-l":
            raise ValueError(f"{flag(name)} is not for bnn-l, which has no softmax.")
        if name in ONLY_NEW_TABLES + ONLY_NEW_IMAGES and options.from_ is not None:
            raise ValueError(
                f"{flag(name)} cannot be given with --from: the model to start from defines it."
            )
    if options.members is not None and options.members < 1:
        raise ValueError(f"--members must be at least 1, got {options.members}.")
    train, has_distance = options.train, method.options.get("distance", False)
    if options.from_ is None and train in ("radii", "nothing"):
        raise ValueError(f"{flag('train', train)} requires --from: a new network is untrained.")
    if train == "auto":
        train = "all" if options.from_ is None else "nothing" if has_distance else "radii"
    distance = has_distance if options.distance is None and method.is_credal else options.distance
    if has_distance and distance is False:
        raise ValueError(
            f"{options.method} requires a distance. Remove --distance false, or use "
            "--method creinn."
        )
    return replace(options, train=train, distance=distance)


def train_config(options: TrainOptions) -> TrainConfig:
    """Return the configuration of the training."""
    fraction = options.validation_fraction
    if options.patience and (fraction == 0 or (fraction is None and options.from_ is not None)):
        raise ValueError(
            f"{flag('patience')} requires --validation-fraction: early stopping uses the "
            "validation loss."
        )
    if fraction is not None and not 0 <= fraction < 1:
        raise ValueError(f"--validation-fraction must be at least 0 and below 1, got {fraction}.")
    patience = (PATIENCE if options.patience is None else options.patience) or None
    same = ("epochs", "batch_size", "learning_rate", "milestones", "seed", "device", "progress")
    return TrainConfig(
        **{name: getattr(options, name) for name in same},
        train="radii" if options.train == "radii" else "all",
        class_weight=None if options.class_weight == "none" else "balanced",
        directory=options.checkpoints,
        patience=patience,
        keep="last" if patience is None else "best",
    )


def check_directory(out: Path) -> None:
    """Raise an error, before any work, if the model cannot be written.

    It must not replace other files.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file. Give a directory for the model.")
    if any((out / name).exists() for name in (CONFIG, WEIGHTS)):
        try:
            read_config(out)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{out} contains a {CONFIG} or {WEIGHTS} that is not a creinn model: {error}"
            ) from error
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not os.access(there, os.W_OK):
        raise PermissionError(f"{there} is not writable, so no model can be written to {out}.")
