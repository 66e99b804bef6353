"""``creinn train``: read, learn how to prepare inputs, train, save; or start from a saved model and its preparation."""

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from creinn import models
from creinn.classifier.base import Classifier, Inputs
from creinn.classifier.creinn import CreINN
from creinn.classifier.methods import RIVALS, Method, find_method, is_ensemble
from creinn.cli.heldout import A_SIXTH, Labelled, divided, say_held_out
from creinn.cli.options.train import TrainOptions
from creinn.cli.outputs import OPTIONS
from creinn.cli.parsing import options_yaml
from creinn.cli.saved import parts, takes_intervals
from creinn.cli.sources import Rows, Source, Training, learn_images, learn_tables, reading_of
from creinn.cli.start import read_again, read_start
from creinn.data import RandomCropFlip
from creinn.data.tables import MISSING, Reading
from creinn.data.tables.columns import counted
from creinn.files import write_bytes
from creinn.interval import Interval
from creinn.saving import CONFIG, WEIGHTS, read_config, save
from creinn.training import History, TrainConfig
from creinn.training.loop import fit_members
from creinn.training.start import credal

METHODS = {name: find_method(name) for name in ("creinn-d", "creinn", *RIVALS, "deep-ensemble")}
"""What ``--method`` takes."""

MEMBERS = 5  # of an ensemble, unless asked otherwise
PATIENCE = 10
NEARLY_POINTS = 1e-3  # mean width of probability intervals
ONLY_CREDAL = ("distance", "combine", "mode", "loss", "from_")
LIMITS = ("max_categories", "max_classes")
ONLY_NEW = ("drop", "categorical", *LIMITS, "size", "channels", "hidden", "network", "stem", "width")


def train(options: TrainOptions) -> int:
    """Train by ``options`` and write the model; returns the exit code.

    Raises:
        ValueError: If data or options are not as they must be.
        OSError: If a file cannot be read or written.
    """
    if options.method not in METHODS:
        raise ValueError(f"There is no method {options.method!r}; there are {', '.join(METHODS)}.")
    method = METHODS[options.method]
    inputs = (options.data, options.lower, options.upper)
    source = Source(*inputs, _reading(options), size=options.size, strict=options.strict)
    source.check()
    options = _resolved(options, method)
    form = {name: getattr(options, name) for name in ("distance", "mode", "loss") if method.is_credal}
    config = _train_config(options)
    _check_directory(options.out)
    started: list[CreINN] = []
    if options.from_ is None:
        data = _read(source, options)
    else:
        start = read_start(options.from_, options.device)
        needs_radii = options.method == "creinn" or options.train == "radii"
        started = [credal(part, form, needs_radii) for part in parts(start.model)]
        data = read_again(source, start, options.target)
    members = _count(options, started)
    _check_kind(data, options, takes_intervals(started[0]) if started else method.takes_intervals)
    _say_what(data)
    kept, apart = divided(data, options.validation_fraction, options.seed, options.from_ is None)
    train_data = (data.rows.complete(kept[0]), kept[1])
    val_data = None if apart is None else (data.rows.complete(apart[0]), apart[1])
    if val_data is None:
        config = replace(config, patience=None, keep="last")
    augment = _augmentation(options, data)
    builder: Callable[[], Classifier] = iter(started).__next__ if started else _builder(options, method, form, data)
    networks: Sequence[Classifier] = started
    histories: list[History] = []
    if options.train == "nothing":
        _fit_distances(started, train_data, val_data)
    else:
        networks, histories = fit_members(builder, members, train_data, val_data, config, augment)
    if histories and histories[-1].interrupted:
        again = "" if options.checkpoints is None else " The same command goes on from the checkpoints."
        print(f"creinn train: stopped; no model was written.{again}", file=sys.stderr)
        return 130
    combine = {"combine": options.combine} if method.is_credal else {}
    model = networks[0] if members == 1 else method.ensemble(networks, **combine)
    _say_result(model, histories, data.rows, apart, bool(histories) and config.keep == "best")
    save(model, options.out, data.classes, data.preprocessing)
    held_out = 0.0 if val_data is None else options.validation_fraction or A_SIXTH
    used = replace(options, members=members, validation_fraction=held_out, patience=config.patience or 0)
    write_bytes(options.out / OPTIONS, options_yaml("train", used).encode())
    print(f"wrote {options.out}")
    return 0


def _resolved(options: TrainOptions, method: Method) -> TrainOptions:
    """Options with what depends on others filled in; refuses those that do not go together."""
    defaults = {field.name: field.default for field in fields(TrainOptions)}
    given = {name for name, default in defaults.items() if getattr(options, name) != default}
    refused = [] if method.is_credal else [name for name in ONLY_CREDAL if name in given]
    if refused:
        able = " and ".join(name for name, known in METHODS.items() if known.is_credal)
        raise ValueError(f"--{refused[0].rstrip('_')} is for {able}, not for {options.method}.")
    refused = [] if options.from_ is None else [name for name in ONLY_NEW if name in given]
    if refused:
        raise ValueError(
            f"--{refused[0].replace('_', '-')} cannot be chosen with --from: it is that of the model to start from."
        )
    if options.from_ is None and options.train in ("radii", "nothing"):
        raise ValueError(f"--train {options.train} needs --from, for the centres of a new network have learnt nothing.")
    train, has_distance = options.train, method.options.get("distance", False)
    if train == "auto":
        train = "all" if options.from_ is None else "nothing" if has_distance else "radii"
    if not method.is_credal:
        return replace(options, train=train)
    distance = has_distance if options.distance is None else options.distance
    if has_distance and distance is False:
        raise ValueError(f"{options.method} is nothing without a distance: leave out --distance false, or take creinn.")
    return replace(options, train=train, distance=distance)


def _count(options: TrainOptions, started: list[CreINN]) -> int:
    members = len(started) or (MEMBERS if is_ensemble(options.method) else 1)
    if options.members is None:
        return members
    if options.members < 1:
        raise ValueError(f"--members must be at least 1, got {options.members}.")
    if started and options.members != members:
        raise ValueError(f"--members is {options.members}, but the model to start from has {members}.")
    return options.members


def _fit_distances(networks: Sequence[CreINN], train_data: tuple[Inputs, Tensor], val_data: Any) -> None:
    for network in networks:
        if network.distance_radius is not None:
            network.fit_distance(*train_data, held_out=val_data)


def _train_config(options: TrainOptions) -> TrainConfig:
    fraction = options.validation_fraction
    if options.patience and (fraction == 0 or (fraction is None and options.from_ is not None)):
        raise ValueError("--patience needs --validation-fraction: early stopping goes by the validation loss.")
    if fraction is not None and not 0 <= fraction < 1:
        raise ValueError(f"--validation-fraction must be at least 0 and below 1, got {fraction}.")
    patience = (PATIENCE if options.patience is None else options.patience) or None
    return TrainConfig(
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        train="radii" if options.train == "radii" else "all",
        milestones=options.milestones,
        seed=options.seed,
        class_weight=None if options.class_weight == "none" else "balanced",
        device=options.device,
        directory=options.checkpoints,
        patience=patience,
        keep="last" if patience is None else "best",
        progress=options.progress and sys.stderr.isatty(),
    )


def _check_directory(out: Path) -> None:
    """Refuse, before any work, a directory that cannot be written or that belongs to something else."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file. Name a directory for the model.")
    if any((out / name).exists() for name in (CONFIG, WEIGHTS)):
        try:
            read_config(out)
        except (OSError, ValueError) as error:
            raise ValueError(f"{out} holds a {CONFIG} or {WEIGHTS} that is no model of ours: {error}") from error
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not os.access(there, os.W_OK):
        raise PermissionError(f"{there} is not writable, so no model can be written to {out}.")


def _read(source: Source, options: TrainOptions) -> Training:
    if source.is_images:
        data = learn_images(source, options.channels)
    else:
        limits = {name: getattr(options, name) for name in LIMITS}
        data = learn_tables(source, options.target, options.drop, options.categorical, **limits)
    if len(data.classes) < 2:
        raise ValueError(f"{source.name} has one class only, {data.classes[0]!r}. There is nothing to tell apart.")
    return data


def _check_kind(data: Training, options: TrainOptions, takes: bool) -> None:
    if isinstance(data.rows.x, Interval) and not takes:
        able = " or ".join(f"--method {name}" for name, method in METHODS.items() if method.takes_intervals)
        raise ValueError(f"The method {options.method!r} takes no intervals; take {able}.")


def _reading(options: TrainOptions) -> Reading:
    reading = reading_of(options)
    same = options.from_ is not None and reading.missing == MISSING  # as for the model to start from
    return replace(reading, missing=()) if same else reading


def _augmentation(options: TrainOptions, data: Training) -> RandomCropFlip | None:
    if not options.augment:
        return None
    if data.preprocessing["kind"] != "images":
        raise ValueError("--augment is for images, but the data are a table.")
    return RandomCropFlip(padding=max(1, data.rows.x.shape[-1] // 8))


def _builder(options: TrainOptions, method: Method, form: dict[str, Any], data: Training) -> Callable[[], Classifier]:
    logits = 1 if len(data.classes) == 2 else len(data.classes)
    if data.preprocessing["kind"] == "table":
        assert data.rows.missing is not None
        table = partial(models.mlp, data.rows.missing.num_features, logits, hidden=options.hidden)
        return lambda: method.build(table, **form)
    networks = sorted(set(models.BUILDERS) - {"mlp"})
    if options.network not in networks:
        raise ValueError(f"There is no network {options.network!r} for images; there are {', '.join(networks)}.")
    build: Callable[..., torch.nn.Module] = models.BUILDERS[options.network]
    arguments: dict[str, Any] = {"num_classes": logits, "in_channels": options.channels}
    arguments |= {} if options.width is None else {"width": options.width}
    if "stem" in inspect.signature(build).parameters:
        arguments["stem"] = options.stem
    elif options.stem != "cifar":
        raise ValueError(f"{options.network} is for small images and has no stem {options.stem!r}.")
    return lambda: method.build(partial(build, **arguments), **form)


def _say_what(data: Training) -> None:
    x, labels = data.rows.x, data.rows.labels
    assert labels is not None
    shape = " x ".join(map(str, x.shape[1:]))
    kind = "intervals" if isinstance(x, Interval) else "numbers"
    counts = torch.bincount(labels, minlength=len(data.classes)).tolist()
    shown = [f"{name} ({count})" for name, count in zip(data.classes, counts, strict=True)]
    if len(shown) > 20:
        shown = [*shown[:19], f"{len(shown) - 19} more"]
    data.rows.say()
    print(f"{counted(len(x), 'row')} of {shape} {kind}; {len(data.classes)} classes: {', '.join(shown)}")


def _say_result(
    model: Classifier, histories: list[History], rows: Rows, held_out: Labelled | None, keeps_best: bool
) -> None:
    networks = parts(model)
    if histories:
        epochs = ", ".join(str(len(history)) for history in histories)
        best = f" (best, and kept: {', '.join(str(history.best_epoch) for history in histories)})" if keeps_best else ""
        print(f"trained {counted(len(histories), 'network')}, epochs: {epochs}{best}")
    radii = [network.distance_radius for network in networks if getattr(network, "distance_radius", None) is not None]
    if radii:
        print(f"scale of the distance: {', '.join(f'{float(radius.scale):.3g}' for radius in radii)}")
    widths = [width for history in histories if (width := history["width"][-1]) is not None]
    if widths and takes_intervals(networks[0]):
        width = sum(widths) / len(widths)
        print(f"mean width of the probability intervals in training: {width:.4f}")
        if width < NEARLY_POINTS and not radii:
            print("note: these are hardly more than points, and so is epistemic uncertainty; train for fewer epochs")
    if held_out is not None:
        scale = any(getattr(network, "distance", None) is True for network in networks)  # not given as a number
        chosen = ["the epoch"] * keeps_best + ["the scale of the distance"] * scale
        say_held_out(rows.predict(model, held_out[0]).to("cpu"), held_out[1], chosen)
