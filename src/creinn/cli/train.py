"""``creinn train``: read, learn how to prepare inputs, train, save; or start from a saved model and its preparation."""

import inspect
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import fields, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, get_args

import torch

from creinn import models
from creinn.baselines.registry import build_classifier, build_ensemble
from creinn.baselines.snn import SNN
from creinn.classifier.base import Classifier
from creinn.classifier.creinn import CreINN
from creinn.classifier.methods import Method, find_method, is_ensemble
from creinn.cli import sources
from creinn.cli.coverage import calibrate, set_apart
from creinn.cli.options import MethodName, TrainOptions
from creinn.cli.parsing import options_yaml
from creinn.cli.sources import Rows, parts, takes_intervals
from creinn.data import RandomCropFlip
from creinn.data.dataset import Dataset, split
from creinn.data.numerals import counted, listed
from creinn.distributed import process_group, rank, single_process
from creinn.evaluation import summary
from creinn.files import write_bytes
from creinn.graph.convert import credal
from creinn.saving import CONFIG, WEIGHTS, read_config, save
from creinn.training import History, TrainConfig
from creinn.training.loop import fit_members

METHODS = {name: find_method(name) for name in get_args(MethodName)}
MEMBERS = 5  # of an ensemble, unless asked otherwise
PATIENCE = 10
A_SIXTH = 1 / 6  # is held out
FEWEST = 10  # on fewer rows accuracy says little, and when to stop would be chance
NEARLY_POINTS = 1e-3  # mean width of probability intervals
ONLY_CREDAL = ("distance", "combine", "mode", "loss", "from_", "coverage")
ONLY_NEW_TABLES = ("drop", "categorical", "max_categories", "max_classes", "dayfirst", "hidden")
ONLY_NEW_IMAGES = ("size", "channels", "network", "stem", "width")


def train(options: TrainOptions) -> int:
    """Train by ``options`` and write the model, on all processes that torchrun started; returns the exit code.

    Only the first of them speaks and writes.
    """
    with ExitStack() as stack:
        stack.enter_context(process_group(options.device))
        if rank() > 0:
            stack.enter_context(redirect_stdout(StringIO()))
            warnings.simplefilter("ignore")
        return _train(options)


def _train(options: TrainOptions) -> int:
    method = METHODS[options.method]
    sources.check_paths(options)
    options = _resolved(options, method)
    form = {
        name: getattr(options, name) for name in ("distance", "mode", "loss") if method.is_credal
    }
    form |= {} if options.temperature is None else {"temperature": options.temperature}
    config = _train_config(options)
    _check_directory(options.out)
    started, data = _started(options, form) if options.from_ else ([], sources.learn_rows(options))
    members = options.members or len(started) or (MEMBERS if is_ensemble(options.method) else 1)
    if data.is_interval and not (
        takes_intervals(started[0]) if started else method.takes_intervals
    ):
        able = " or ".join(
            f"--method {name}" for name, known in METHODS.items() if known.takes_intervals
        )
        raise ValueError(f"The method {options.method!r} takes no intervals; take {able}.")
    _say_what(data)
    spare = None
    if options.coverage is not None:
        data, spare = set_apart(data, options.coverage, options.seed)
    kept, apart = divided(data, options.validation_fraction, options.seed, options.from_ is None)
    train_data, val_data = kept.to_fit(), None if apart is None else apart.to_fit()
    if apart is None:
        config = replace(config, patience=None, keep="last")
    if options.augment and data.preprocessing["kind"] != "images":
        raise ValueError("--augment is for images, but the data are a table.")
    augment = RandomCropFlip(padding=max(1, data.x.shape[-1] // 8)) if options.augment else None
    networks: Sequence[Classifier] = started
    histories: list[History] = []
    if options.train == "nothing":
        with single_process():
            for network in started:
                if network.distance_radius is not None:
                    network.fit_distance(
                        train_data, held_out=val_data, batch_size=options.batch_size
                    )
    else:
        build = iter(started).__next__ if started else _builder(options, method, form, data)
        networks, histories = fit_members(build, members, train_data, val_data, config, augment)
    stopped = bool(histories) and histories[-1].interrupted
    if rank() > 0:
        return 130 if stopped else 0
    if stopped:
        again = (
            "" if options.checkpoints is None else " The same command goes on from the checkpoints."
        )
        print(f"creinn train: stopped; no model was written.{again}", file=sys.stderr)
        return 130
    combine = {"combine": options.combine} if method.is_credal else {}
    model = networks[0] if members == 1 else build_ensemble(method, networks, **combine)
    keeps_best = bool(histories) and config.keep == "best"
    _say_result(model, histories, keeps_best)
    if apart is not None:
        scale = any(
            getattr(network, "distance", None) is True for network in parts(model)
        )  # not given as a number
        chosen = ["the epoch"] * keeps_best + ["the temperature"] * any(
            part.temperature.is_on for part in parts(model)
        )
        chosen += ["the scale of the distance"] * scale
        _say_held_out(apart.predict(model).to("cpu"), apart.labels, chosen)
    if spare is not None:
        assert options.coverage is not None
        calibrate(model, spare, options.coverage)
    save(model, options.out, data.classes, data.preprocessing)
    held_out = 0.0 if apart is None else options.validation_fraction or A_SIXTH
    used = replace(
        options, members=members, validation_fraction=held_out, patience=config.patience or 0
    )
    write_bytes(options.out / sources.OPTIONS, options_yaml("train", used).encode())
    print(f"wrote {options.out}")
    return 0


def divided(
    data: Rows, fraction: float | None, seed: int, is_new: bool
) -> tuple[Rows, Rows | None]:
    """Rows to train on, and rows held out, if any.

    Where no ``fraction`` is asked for it is a sixth, or nothing if those would be few or the model, not being new, may
    have seen them. A class that would have no row left is not divided. Both are said.
    """
    labels = data.labels
    assert labels is not None
    reason = ""
    if fraction is None and not is_new:
        reason = "No row is held out, for the model to start from may have seen it"
    elif fraction is None and len(labels) * A_SIXTH < FEWEST:
        reason = f"{counted(len(labels), 'row')} are too few to hold some out"
    if reason:
        print(
            f"note: {reason}: no accuracy is measured. --validation-fraction 0.2 holds a fifth out"
        )
    if reason or fraction == 0:
        return data, None
    numbers = Dataset("data", torch.arange(len(labels)).double(), labels, tuple(data.classes))
    drawn: Any = split(numbers, fraction or A_SIXTH, seed)[0]
    held = drawn.inputs.long()
    total, lost = (torch.bincount(of, minlength=len(data.classes)) for of in (labels, labels[held]))
    emptied = (lost == total) & (total > 0)
    if emptied.any():
        names = [data.classes[number] for number in emptied.nonzero()[:, 0].tolist()]
        print(
            f"note: no row is held out of classes that would have none left: {listed(names, 'name')}"
        )
        held = held[~emptied[labels[held]]]
    if not len(held):
        return data, None
    kept = torch.ones(len(labels), dtype=torch.bool).index_fill(0, held, False).nonzero()[:, 0]
    return data.take(kept), data.take(held)


def _resolved(options: TrainOptions, method: Method) -> TrainOptions:
    """Options with what depends on others filled in; refuses those that do not go together."""
    for name in [
        entry.name for entry in fields(options) if getattr(options, entry.name) != entry.default
    ]:
        option = name.rstrip("_").replace("_", "-")
        if name in ONLY_CREDAL and not method.is_credal:
            able = " and ".join(name for name, known in METHODS.items() if known.is_credal)
            raise ValueError(f"--{option} is for {able}, not for {options.method}.")
        if name == "temperature" and method.kind == "bnn-l":
            raise ValueError("--temperature is not for bnn-l, which predicts by no softmax.")
        if name in ONLY_NEW_TABLES + ONLY_NEW_IMAGES and options.from_ is not None:
            raise ValueError(
                f"--{option} cannot be chosen with --from: it is that of the model to start from."
            )
    if options.members is not None and options.members < 1:
        raise ValueError(f"--members must be at least 1, got {options.members}.")
    if options.from_ is None and options.train in ("radii", "nothing"):
        raise ValueError(
            f"--train {options.train} needs --from, for the centres of a new network have learnt nothing."
        )
    train, has_distance = options.train, method.options.get("distance", False)
    if train == "auto":
        train = "all" if options.from_ is None else "nothing" if has_distance else "radii"
    distance = has_distance if options.distance is None and method.is_credal else options.distance
    if has_distance and distance is False:
        raise ValueError(
            f"{options.method} is nothing without a distance: leave out --distance false, or take creinn."
        )
    return replace(options, train=train, distance=distance)


def _train_config(options: TrainOptions) -> TrainConfig:
    fraction = options.validation_fraction
    if options.patience and (fraction == 0 or (fraction is None and options.from_ is not None)):
        raise ValueError(
            "--patience needs --validation-fraction: early stopping goes by the validation loss."
        )
    if fraction is not None and not 0 <= fraction < 1:
        raise ValueError(f"--validation-fraction must be at least 0 and below 1, got {fraction}.")
    patience = (PATIENCE if options.patience is None else options.patience) or None
    same = ("epochs", "batch_size", "learning_rate", "milestones", "seed", "device")
    return TrainConfig(
        **{name: getattr(options, name) for name in same},
        train="radii" if options.train == "radii" else "all",
        class_weight=None if options.class_weight == "none" else "balanced",
        directory=options.checkpoints,
        patience=patience,
        keep="last" if patience is None else "best",
        progress=options.progress,
    )


def _check_directory(out: Path) -> None:
    """Refuse, before any work, a directory that cannot be written or that belongs to something else."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file. Name a directory for the model.")
    if any((out / name).exists() for name in (CONFIG, WEIGHTS)):
        try:
            read_config(out)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{out} holds a {CONFIG} or {WEIGHTS} that is no model of ours: {error}"
            ) from error
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not os.access(there, os.W_OK):
        raise PermissionError(f"{there} is not writable, so no model can be written to {out}.")


def _started(options: TrainOptions, form: dict[str, Any]) -> tuple[list[CreINN], Rows]:
    """``--from``: the networks of a trained model made credal, and rows prepared as for that model."""
    assert options.from_ is not None
    model = sources.read_model(options.from_, options.device)
    kinds = {type(part) for part in parts(model)}
    if not kinds <= {SNN, CreINN}:
        found = f"a model of kind {', '.join(sorted(kind.__name__ for kind in kinds))}, which nothing can start from"
        able = "the methods creinn-d, creinn, snn and deep-ensemble give models that can"
        raise ValueError(f"{options.from_} holds {found}; {able}.")
    if options.members not in (None, len(parts(model))):
        raise ValueError(
            f"--members is {options.members}, but the model to start from has {len(parts(model))}."
        )
    needs_radii = options.method == "creinn" or options.train == "radii"
    started = [credal(part, form, needs_radii) for part in parts(model)]
    rows = sources.read_rows(options, model.preprocessing, model.class_names)
    known = rows.preprocessing.get("target")
    if known is not None and options.target not in (None, known):
        raise ValueError(
            f"--target is {options.target!r}, but the model to start from was trained for {known!r}."
        )
    return started, rows


def _builder(
    options: TrainOptions, method: Method, form: dict[str, Any], data: Rows
) -> Callable[[], Classifier]:
    logits = 1 if len(data.classes) == 2 else len(data.classes)
    if data.missing is not None:
        table = partial(models.mlp, data.missing.num_features, logits, hidden=options.hidden)
        return partial(build_classifier, method, table, **form)
    build: Callable[..., torch.nn.Module] = models.BUILDERS[options.network]
    arguments: dict[str, Any] = {"num_classes": logits, "in_channels": options.channels}
    arguments |= {} if options.width is None else {"width": options.width}
    if "stem" in inspect.signature(build).parameters:
        arguments["stem"] = options.stem
    elif options.stem != "cifar":
        raise ValueError(f"{options.network} is for small images and has no stem {options.stem!r}.")
    return partial(build_classifier, method, partial(build, **arguments), **form)


def _say_what(data: Rows) -> None:
    assert data.labels is not None
    shape = " x ".join(map(str, data.x.shape[1:]))
    kind = "intervals" if data.is_interval else "numbers"
    counts = torch.bincount(data.labels, minlength=len(data.classes)).tolist()
    shown = [f"{name} ({count})" for name, count in zip(data.classes, counts, strict=True)]
    if len(shown) > 20:
        shown = [*shown[:19], f"{len(shown) - 19} more"]
    data.say()
    print(
        f"{counted(len(data.x), 'row')} of {shape} {kind}; {len(data.classes)} classes: {', '.join(shown)}"
    )


def _say_result(model: Classifier, histories: list[History], keeps_best: bool) -> None:
    if histories:
        epochs = ", ".join(str(len(history)) for history in histories)
        best = (
            f" (best, and kept: {', '.join(str(history.best_epoch) for history in histories)})"
            if keeps_best
            else ""
        )
        print(f"trained {counted(len(histories), 'network')}, epochs: {epochs}{best}")
    radii = [
        radius
        for part in parts(model)
        if (radius := getattr(part, "distance_radius", None)) is not None
    ]
    if temperatures := [
        float(part.temperature.value) for part in parts(model) if part.temperature.is_on
    ]:
        print(f"temperature of the logits: {', '.join(f'{value:.3g}' for value in temperatures)}")
    if radii:
        print(
            f"scale of the distance: {', '.join(f'{float(radius.scale):.3g}' for radius in radii)}"
        )
    widths = [width for history in histories if (width := history["width"][-1]) is not None]
    if widths and takes_intervals(model):
        width = sum(widths) / len(widths)
        print(f"mean width of the probability intervals in training: {width:.4f}")
        if width < NEARLY_POINTS and not radii:
            print(
                "note: these are hardly more than points, and so is epistemic uncertainty; train for fewer epochs"
            )


def _say_held_out(prediction: Any, y: Any, chosen: Sequence[str]) -> None:
    """How good a prediction of rows held out is, of classes ``y``; ``chosen`` is what was chosen by them."""
    found, sets = summary.quality(prediction, y), summary.sets(prediction, y, "maximality")
    correct = round(found["accuracy"] * len(y))
    print(f"validation accuracy {found['accuracy']:.4f} ({correct} of {counted(len(y), 'row')})")
    print(f"validation log loss {found['log_loss']:.4f}")
    if sets is not None:
        covered = f"the true class is in {sets.coverage:.4f} of them"
        print(f"validation sets of classes: {covered}, mean size {sets.size:.2f}")
    if chosen:
        all_of_them = " and ".join(filter(None, (", ".join(chosen[:-1]), chosen[-1])))
        print(f"note: these rows have chosen {all_of_them} too; new ones may fare worse")
