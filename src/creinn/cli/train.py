"""``creinn train``: train a new or a saved model on the data of the user."""

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
from creinn.cli.options import MethodName, TrainOptions, flag
from creinn.cli.parsing import options_yaml
from creinn.cli.sources import (
    OPTIONS,
    PreparedData,
    check_paths,
    learn_data,
    members_of,
    read_model,
    stream_data,
    takes_intervals,
)
from creinn.credal.conformal import check_share, rows_needed
from creinn.data import RandomCropFlip
from creinn.data.dataset import Dataset, split
from creinn.distributed import process_group, rank, single_process
from creinn.evaluation import summary
from creinn.files import write_bytes
from creinn.graph.convert import credal
from creinn.numerics import list_names, pluralize
from creinn.saving import CONFIG, WEIGHTS, read_config, save
from creinn.training import History, TrainConfig
from creinn.training.loop import fit_members

METHODS = {name: find_method(name) for name in get_args(MethodName)}
MEMBERS = 5  # the default size of an ensemble
PATIENCE = 10
SIXTH = 1 / 6  # the default fraction of the validation rows, and that of the calibration rows
MIN_VALIDATION_ROWS = 10
POINT_WIDTH = 1e-3  # a mean width of the probability intervals that is almost 0
MOST_CLASSES = 20  # in the description of the data
CREDAL_OPTIONS = ("distance", "combine", "mode", "loss", "from_", "coverage")
NEW_MODEL_OPTIONS = (
    *("drop", "categorical", "max_categories", "max_classes", "dayfirst", "hidden"),
    *("size", "channels", "network", "stem", "width"),
)


def train(options: TrainOptions) -> int:
    """Train a model in all processes of torchrun and return the exit code.

    Only the first process prints messages and writes files.
    """
    with ExitStack() as stack:
        stack.enter_context(process_group(options.device))
        if rank() > 0:
            stack.enter_context(redirect_stdout(StringIO()))
            warnings.simplefilter("ignore")
        return _train(options)


def _train(options: TrainOptions) -> int:
    method = METHODS[options.method]
    check_paths(options)
    options = resolve_options(options, method)
    names = ("distance", "mode", "loss") if method.is_credal else ()
    settings = {name: getattr(options, name) for name in names}
    settings |= {} if options.temperature is None else {"temperature": options.temperature}
    config = train_config(options)
    check_directory(options.out)
    start, data = _load_start(options, settings) if options.from_ else ([], learn_data(options))
    is_interval = takes_intervals(start[0]) if start else method.takes_intervals
    _check_data(options, data, is_interval)
    if data.preprocessing["kind"] == "images" or is_interval:
        rate = 1e-3 if config.learning_rate is None else config.learning_rate
        config = replace(config, batch_size=config.batch_size or 64, learning_rate=rate)
    _print_data(data)
    calibration = None
    if options.coverage is not None:
        data, calibration = calibration_split(data, options.coverage, options.seed)
    is_new = options.from_ is None
    train_data, val_data = train_val_split(data, options.validation_fraction, options.seed, is_new)
    config = config.for_rows(len(train_data))
    if val_data is None:
        config = replace(config, patience=None, keep="last")
    members = options.members or len(start) or (MEMBERS if is_ensemble(options.method) else 1)
    build = iter(start).__next__ if start else _builder(options, method, settings, data)
    networks, histories = _fit(options, build, members, train_data, val_data, config)
    if histories and histories[-1].interrupted:
        if rank() == 0:
            hint = " The same command resumes from the checkpoints." * bool(options.checkpoints)
            print(f"creinn train: stopped; no model was written.{hint}", file=sys.stderr)
        return 130
    if rank() > 0:
        return 0
    combine = {"combine": options.combine} if method.is_credal else {}
    model = networks[0] if members == 1 else build_ensemble(method, networks, **combine)
    keeps_best = bool(histories) and config.keep == "best"
    _print_training(model, histories, keeps_best)
    if val_data is not None:
        _print_validation(model, val_data, keeps_best)
    if calibration is not None and options.coverage is not None:
        _calibrate(model, calibration, options.coverage)
    save(model, options.out, data.classes, data.preprocessing)
    fraction = 0.0 if val_data is None else options.validation_fraction or SIXTH
    used: dict[str, Any] = {
        "members": members,
        "validation_fraction": fraction,
        "patience": config.patience or 0,
    }
    if histories:
        used |= {"batch_size": config.batch_size, "learning_rate": config.learning_rate}
    text = options_yaml("train", replace(options, **used))
    write_bytes(options.out / OPTIONS, text.encode())
    print(f"wrote {options.out}")
    return 0


def resolve_options(options: TrainOptions, method: Method) -> TrainOptions:
    """Return the options with all defaults, and raise an error if there is a conflict."""
    changed = [e.name for e in fields(options) if getattr(options, e.name) != e.default]
    for name in changed:
        if name in CREDAL_OPTIONS and not method.is_credal:
            able = " or ".join(name for name, known in METHODS.items() if known.is_credal)
            raise ValueError(f"{flag(name)} requires --method {able}, not {options.method}.")
        if name == "temperature" and method.kind == "bnn-l":
            raise ValueError(f"{flag(name)} is not available for bnn-l, which has no softmax.")
        if name in NEW_MODEL_OPTIONS and options.from_ is not None:
            raise ValueError(
                f"{flag(name)} is not available with --from, because it is defined by the model."
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
    """Raise an error if the model cannot be written or would replace other files."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file. Give a directory for the model.")
    if any((out / name).exists() for name in (CONFIG, WEIGHTS)):
        try:
            read_config(out)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{out} contains a {CONFIG} or {WEIGHTS} that is not a creinn model: {error}"
            ) from error
    parent = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not os.access(parent, os.W_OK):
        raise PermissionError(f"{parent} is not writable. No model can be written to {out}.")


def calibration_split(
    data: PreparedData, coverage: float, seed: int
) -> tuple[PreparedData, PreparedData]:
    """Split off a random sixth of the rows for calibration, or raise an error.

    The encoding of the columns is fitted on all rows without the labels.
    """
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    count = round(len(order) * SIXTH)
    if count < (needed := rows_needed(check_share("coverage", coverage))):
        raise ValueError(
            f"--coverage {coverage:g} needs at least {needed} rows for the calibration, but a "
            f"sixth of {pluralize(len(order), 'row')} is {count}. Use a larger data set or a lower "
            "coverage."
        )
    return data.take(order[count:].sort().values), data.take(order[:count].sort().values)


def train_val_split(
    data: PreparedData, fraction: float | None, seed: int, is_new: bool
) -> tuple[PreparedData, PreparedData | None]:
    """Split the rows into a training set and a validation set, which can be ``None``.

    The default fraction is a sixth. It is 0 if a sixth is too small, or if the model is not new and
    was possibly trained on the rows. These cases are reported in the notes. There is at least one
    row of each class in the training set.
    """
    labels = data.labels
    assert labels is not None
    reason = ""
    if fraction is None and not is_new:
        reason = "The model to start from may have been trained on the rows"
    elif fraction is None and len(labels) * SIXTH < MIN_VALIDATION_ROWS:
        reason = f"There are only {pluralize(len(labels), 'row')}"
    if reason:
        print(
            f"note: {reason}, so no rows are held out and the accuracy is not measured. "
            "--validation-fraction 0.2 holds out a fifth of the rows"
        )
    if reason or fraction == 0:
        return data, None
    rows = Dataset("data", torch.arange(len(labels)).double(), labels, tuple(data.classes))
    drawn: Any = split(rows, fraction or SIXTH, seed)[0]
    held_out = drawn.inputs.long()
    counts, lost = (
        torch.bincount(of, minlength=len(data.classes)) for of in (labels, labels[held_out])
    )
    is_emptied = (lost == counts) & (counts > 0)
    if is_emptied.any():
        names = [data.classes[index] for index in is_emptied.nonzero()[:, 0].tolist()]
        print(f"note: classes with too few rows for validation: {list_names(names, 'name')}")
        held_out = held_out[~is_emptied[labels[held_out]]]
    if not len(held_out):
        return data, None
    is_kept = torch.ones(len(labels), dtype=torch.bool).index_fill(0, held_out, False)
    return data.take(is_kept.nonzero()[:, 0]), data.take(held_out)


def _check_data(options: TrainOptions, data: PreparedData, intervals: bool) -> None:
    if data.is_interval and not intervals:
        able = [f"--method {name}" for name, known in METHODS.items() if known.takes_intervals]
        raise ValueError(
            f"The method {options.method!r} does not support intervals. Use {' or '.join(able)}."
        )
    if options.augment and data.preprocessing["kind"] != "images":
        raise ValueError(f"{flag('augment')} is for images, but the data are a table.")


def _fit(
    options: TrainOptions,
    build: Callable[[], Classifier],
    members: int,
    train_data: PreparedData,
    val_data: PreparedData | None,
    config: TrainConfig,
) -> tuple[Sequence[Classifier], Sequence[History]]:
    """Train the networks, or only fit the distance if ``train=nothing``."""
    data, held_out = train_data.to_fit(), None if val_data is None else val_data.to_fit()
    if options.train == "nothing":
        networks: list[Any] = [build() for _ in range(members)]
        with single_process():
            for network in networks:
                if network.distance_radius is not None:
                    size = options.batch_size or 256
                    network.fit_distance(data, held_out=held_out, batch_size=size)
        return networks, []
    padding = max(1, train_data.inputs.shape[-1] // 8)
    augment = RandomCropFlip(padding=padding) if options.augment else None
    return fit_members(build, members, data, held_out, config, augment)


def _load_start(
    options: TrainOptions, settings: dict[str, Any]
) -> tuple[list[CreINN], PreparedData]:
    """Load the networks of ``--from`` as credal networks, and the rows for this model."""
    assert options.from_ is not None
    model = read_model(options.from_, options.device)
    members = members_of(model)
    kinds = {type(member) for member in members}
    if not kinds <= {SNN, CreINN}:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(
            f"{options.from_} is a model of kind {found}. --from requires a model of the method "
            "creinn-d, creinn, snn or deep-ensemble."
        )
    if options.members not in (None, len(members)):
        raise ValueError(
            f"--members is {options.members}, but the model to start from has {len(members)}."
        )
    needs_radii = options.method == "creinn" or options.train == "radii"
    networks = [credal(member, settings, needs_radii) for member in members]
    data = next(stream_data(options, model.preprocessing, model.class_names, whole=True))
    known = data.preprocessing.get("target")
    if known is not None and options.target not in (None, known):
        raise ValueError(
            f"--target is {options.target!r}, but the model to start from has the target {known!r}."
        )
    return networks, data


def _builder(
    options: TrainOptions, method: Method, settings: dict[str, Any], data: PreparedData
) -> Callable[[], Classifier]:
    logits = 1 if len(data.classes) == 2 else len(data.classes)
    if data.missing is not None:
        table = partial(models.mlp, data.missing.num_features, logits, hidden=options.hidden)
        return partial(build_classifier, method, table, **settings)
    build: Callable[..., torch.nn.Module] = models.BUILDERS[options.network]
    arguments: dict[str, Any] = {"num_classes": logits, "in_channels": options.channels}
    arguments |= {} if options.width is None else {"width": options.width}
    if "stem" in inspect.signature(build).parameters:
        arguments["stem"] = options.stem
    elif options.stem != "cifar":
        raise ValueError(
            f"{options.network} is for small images; {flag('stem', options.stem)} is not available."
        )
    return partial(build_classifier, method, partial(build, **arguments), **settings)


def _print_data(data: PreparedData) -> None:
    assert data.labels is not None
    shape = " x ".join(map(str, data.inputs.shape[1:]))
    kind = "intervals" if data.is_interval else "numbers"
    counts = torch.bincount(data.labels, minlength=len(data.classes)).tolist()
    shown = [f"{name} ({count})" for name, count in zip(data.classes, counts, strict=True)]
    if len(shown) > MOST_CLASSES:
        shown = [*shown[: MOST_CLASSES - 1], f"{len(shown) - MOST_CLASSES + 1} more"]
    data.print_notes()
    rows = f"{pluralize(len(data), 'row')} of {shape} {kind}"
    print(f"{rows}; {len(data.classes)} classes: {', '.join(shown)}")


def _print_training(model: Classifier, histories: Sequence[History], keeps_best: bool) -> None:
    """Print epochs, temperature, scale of the distance and width of the intervals."""
    if histories:
        epochs = ", ".join(str(len(history)) for history in histories)
        best = ", ".join(str(history.best_epoch) for history in histories)
        kept = f" (best, and kept: {best})" if keeps_best else ""
        print(f"trained {pluralize(len(histories), 'network')}, epochs: {epochs}{kept}")
    temperatures = [m.temperature.value for m in members_of(model) if m.temperature.is_on]
    radii = [getattr(member, "distance_radius", None) for member in members_of(model)]
    scales = [radius.scale for radius in radii if radius is not None]
    shown = {"temperature of the logits": temperatures, "scale of the distance": scales}
    for name, values in shown.items():
        if values:
            print(f"{name}: {', '.join(f'{float(value):.3g}' for value in values)}")
    widths = [width for history in histories if (width := history["width"][-1]) is not None]
    if widths and takes_intervals(model):
        width = sum(widths) / len(widths)
        print(f"mean width of the probability intervals in training: {width:.4f}")
        if width < POINT_WIDTH and not scales:
            print(
                "note: the intervals are almost points, so epistemic uncertainty is almost 0; "
                "train for fewer epochs"
            )


def _print_validation(model: Classifier, data: PreparedData, keeps_best: bool) -> None:
    """Print the measures on the validation rows, and the settings chosen by them."""
    prediction, y = data.predict(model), data.labels
    assert y is not None
    found, sets = summary.quality(prediction, y), summary.sets(prediction, y, "maximality")
    correct = f"{round(found['accuracy'] * len(y))} of {pluralize(len(y), 'row')}"
    print(f"validation accuracy {found['accuracy']:.4f} ({correct})")
    print(f"validation log loss {found['log_loss']:.4f}")
    if sets is not None:
        print(f"validation sets of classes: coverage {sets.coverage:.4f}, size {sets.size:.2f}")
    members = members_of(model)
    chosen = ["the epoch"] * keeps_best
    chosen += ["the temperature"] * any(m.temperature.is_on for m in members)
    chosen += ["the scale of the distance"] * any(
        getattr(member, "distance", None) is True for member in members
    )
    if chosen:
        names = " and ".join(filter(None, (", ".join(chosen[:-1]), chosen[-1])))
        print(f"note: these rows also selected {names}; results on new rows may be worse")


def _calibrate(model: Any, data: PreparedData, coverage: float) -> None:
    """Calibrate the model, and print the size of the sets."""
    prediction = data.predict(model)
    model.calibrate_predictions(prediction, data.labels, coverage)
    size = summary.set_size(prediction.with_conformal(model.calibration.conformal), "conformal")
    rows = pluralize(len(prediction), "row")
    print(f"calibrated on {rows} for a coverage of {coverage:g}: mean size of a set {size:.2f}")
    print("note: the coverage is guaranteed for data like these, not for other data")
