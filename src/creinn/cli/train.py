"""``creinn train``: train a new or a saved model."""

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import fields, replace
from functools import partial
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from creinn import models
from creinn.baselines.factory import build_classifier, build_ensemble
from creinn.baselines.snn import SNN
from creinn.classifier.base import Classifier, members_of, takes_intervals
from creinn.classifier.creinn import CreINN
from creinn.classifier.methods import Method, find_method, is_ensemble
from creinn.cli.calibrate import SIXTH, calibrate, calibration_split
from creinn.cli.options import TrainOptions
from creinn.cli.parsing import options_yaml
from creinn.cli.photographs import (
    ADVICE,
    ENOUGH_IMAGES,
    FINETUNE_RATE,
    NETWORK,
    check_pretrained,
    learn_features,
)
from creinn.cli.sources import (
    OPTIONS,
    check_paths,
    learn_data,
    predict_rows,
    print_notes,
    read_data,
)
from creinn.data import RandomCropFlip
from creinn.data.dataset import Dataset, split
from creinn.device import choose_device
from creinn.distributed import process_group, rank, single_process
from creinn.evaluation import summary
from creinn.files import write_bytes
from creinn.graph.convert import credal
from creinn.numerics import list_names, pluralize
from creinn.saving import CONFIG, load, read_config, save
from creinn.training import History, TrainConfig
from creinn.training.frozen_features import Extractor, FeatureHead, attach_network
from creinn.training.loop import fit_members

MEMBERS = 5  # of an ensemble
PATIENCE = 10
MIN_VALIDATION_ROWS = 10
POINT_WIDTH = 1e-3  # mean width of intervals that are almost points
SHOWN_CLASSES = 20  # to print
CREDAL_OPTIONS = {"distance", "combine", "mode", "loss", "from", "coverage", "max_error"}
NEW_MODEL_OPTIONS = {
    *("drop", "categorical", "max_categories", "max_classes", "dayfirst", "hidden"),
    *("size", "channels", "network", "finetune", "stem", "width"),
}


def train(options: TrainOptions) -> int:
    """Run ``creinn train``; only the first process prints and writes files."""
    with ExitStack() as stack:
        stack.enter_context(process_group(options.device))
        if rank() > 0:
            stack.enter_context(redirect_stdout(StringIO()))
            warnings.simplefilter("ignore")
        return _train(options)


def _train(options: TrainOptions) -> int:
    method = find_method(options.method)
    check_paths(options)
    options = resolve_options(options, method)
    config = train_config(options)
    check_directory(options.out)
    start, data, extractor = _load(options)
    is_interval = takes_intervals(start[0]) if start else method.takes_intervals
    is_images = data.preprocessing["kind"] == "images"
    _check_data(options, data, is_images, is_interval)
    if is_images or is_interval:
        rate = config.learning_rate or (FINETUNE_RATE if options.finetune else 1e-3)
        config = replace(config, batch_size=config.batch_size or 64, learning_rate=rate)
    _print_data(data)
    calibration = None
    if options.coverage is not None or options.max_error is not None:
        data, calibration = calibration_split(data, options)
    train_data, val_data = train_val_split(data, options)
    config = config.for_rows(len(train_data))
    if val_data is None:
        config = replace(config, patience=None, keep="last")
    members = options.members or len(start) or (MEMBERS if is_ensemble(options.method) else 1)
    build = iter(start).__next__ if start else _builder(options, method, data, extractor)
    networks, histories = _fit(options, build, members, train_data, val_data, config)
    if histories and histories[-1].interrupted:
        if rank() == 0:
            print("creinn train: stopped; no model was written.", file=sys.stderr)
        return 130
    if rank() > 0:
        return 0
    combine = {"combine": options.combine} if method.is_credal else {}
    model = networks[0] if members == 1 else build_ensemble(method, networks, **combine)
    keeps_best = bool(histories) and config.keep == "best"
    _print_training(model, histories, keeps_best)
    if val_data is not None:
        _print_validation(model, val_data, keeps_best)
    failure = None if calibration is None else calibrate(model, calibration, options)
    if extractor is not None:
        attach_network(model, extractor)
    save(model, options.out, data.classes, data.preprocessing)
    fraction = 0.0 if val_data is None else options.validation_fraction or SIXTH
    used: dict[str, Any] = {"members": members, "validation_fraction": fraction}
    used["patience"] = config.patience or 0
    if histories:
        used |= {"batch_size": config.batch_size, "learning_rate": config.learning_rate}
    text = options_yaml("train", replace(options, **used))
    write_bytes(options.out / OPTIONS, text.encode())
    print(f"wrote {options.out}")
    if failure is not None:
        raise failure
    return 0


def resolve_options(options: TrainOptions, method: Method) -> TrainOptions:
    """Check the options and set the defaults."""
    given = {e.name.strip("_") for e in fields(options) if getattr(options, e.name) != e.default}
    has_distance, train = method.options.get("distance", False), options.train
    if not method.is_credal and (found := sorted(given & CREDAL_OPTIONS)):
        expected = "only for --method creinn-d or creinn"
        raise ValueError(f"{', '.join(found)}: {expected}, not {options.method}.")
    if options.temperature is not None and method.classifier in ("LaplaceBNN", "EffCre", "CreRL"):
        raise ValueError(f"temperature: not for --method {options.method}.")
    if options.members is not None and not method.forms_ensembles:
        raise ValueError(f"members: {options.method} is one model. Omit the option.")
    if options.from_ is not None and (found := sorted(given & NEW_MODEL_OPTIONS)):
        raise ValueError(f"{', '.join(found)}: defined by --from. Omit this.")
    if options.from_ is None and train in ("radii", "nothing"):
        raise ValueError(f"train={train} requires --from.")
    if has_distance and options.distance is False:
        raise ValueError(f"{options.method} requires a distance. Use --method creinn.")
    if train == "auto":
        train = "all" if options.from_ is None else "nothing" if has_distance else "radii"
    distance = has_distance if options.distance is None and method.is_credal else options.distance
    return replace(options, train=train, distance=distance)


def train_config(options: TrainOptions) -> TrainConfig:
    """Return the settings of :func:`creinn.fit`."""
    fraction = options.validation_fraction
    if fraction is not None and not 0 <= fraction < 1:
        raise ValueError(f"--validation-fraction must be in [0, 1), got {fraction}.")
    if options.patience and (fraction == 0 or (fraction is None and options.from_ is not None)):
        raise ValueError("patience requires --validation-fraction above 0.")
    patience = (PATIENCE if options.patience is None else options.patience) or None
    names = ("epochs", "batch_size", "learning_rate", "milestones", "seed", "device", "progress")
    return TrainConfig(
        **{name: getattr(options, name) for name in names},
        train="radii" if options.train == "radii" else "all",
        class_weight=None if options.class_weight == "none" else "balanced",
        directory=options.checkpoints,
        patience=patience,
        keep="last" if patience is None else "best",
    )


def check_directory(out: Path) -> None:
    """Raise an error if other files would be replaced."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file. Give a directory.")
    if (out / CONFIG).exists():
        read_config(out)  # check that it is of creinn


def train_val_split(data: Dataset, options: TrainOptions) -> tuple[Dataset, Dataset | None]:
    """Split the data into training and validation rows.

    By default, a sixth is held out, or nothing of few rows or with
    ``--from``. The training set has at least one row of each class.
    """
    labels, fraction, is_new = data.labels, options.validation_fraction, options.from_ is None
    if fraction is None and not (is_new and len(labels) * SIXTH >= MIN_VALIDATION_ROWS):
        reason = f"there are only {pluralize(len(labels), 'row')}" if is_new else "of --from"
        print(f"note: no rows are held out, because {reason}; see --validation-fraction")
        fraction = 0
    if fraction == 0:
        return data, None
    rows = Dataset("data", torch.arange(len(labels)).double(), labels, data.classes)
    drawn, rest = split(rows, fraction or SIXTH, options.seed)
    is_lost = (torch.tensor(rest.counts) == 0) & (torch.tensor(drawn.counts) > 0)
    if is_lost.any():
        names = [data.classes[index] for index in is_lost.nonzero()[:, 0].tolist()]
        print(f"note: classes with too few rows for validation: {list_names(names, 'name')}")
    held_out = drawn.inputs.long()[~is_lost[drawn.labels]]
    if not len(held_out):
        return data, None
    is_kept = torch.ones(len(labels), dtype=torch.bool).index_fill(0, held_out, False)
    return data.take(is_kept.nonzero()[:, 0]), data.take(held_out)


def _fit(
    options: TrainOptions,
    build: Callable[[], Classifier],
    members: int,
    train_data: Dataset,
    val_data: Dataset | None,
    config: TrainConfig,
) -> tuple[Sequence[Classifier], Sequence[History]]:
    """Train the networks or fit the distance."""
    data, held_out = train_data.to_fit(), None if val_data is None else val_data.to_fit()
    if options.train != "nothing":
        padding = max(1, train_data.inputs.shape[-1] // 8)
        augment = RandomCropFlip(padding=padding) if options.augment else None
        return fit_members(build, members, data, held_out, config, augment)
    networks: list[Any] = [build() for _ in range(members)]
    size = options.batch_size or 256
    with single_process():
        for network in networks:
            if network.distance_radius is not None:
                network.fit_distance(data, held_out=held_out, batch_size=size)
    return networks, []


def _load(options: TrainOptions) -> tuple[list[CreINN], Dataset, Extractor | None]:
    if options.from_ is not None:
        return *_load_start(options, options.from_), None
    preprocessing = check_pretrained(options)
    if preprocessing is not None and not options.finetune:
        return [], *learn_features(options, preprocessing)
    data = learn_data(options, preprocessing)
    is_images = data.preprocessing["kind"] == "images" and not data.is_interval
    if is_images and options.network is None and len(data) < ENOUGH_IMAGES:
        print(f"note: there are only {pluralize(len(data), 'image')}; {ADVICE}")
    return [], data, None


def _load_start(options: TrainOptions, path: Path) -> tuple[list[CreINN], Dataset]:
    model = load(path, choose_device(options.device))
    members = members_of(model)
    for member in members:
        if type(member) not in (SNN, CreINN):
            expected = "creinn-d, creinn, snn or deep-ensemble"
            raise ValueError(f"{path} is a {type(member).__name__}. --from requires {expected}.")
    if options.members not in (None, len(members)):
        raise ValueError(f"--members is {options.members}, but {path} has {len(members)}.")
    needs_radii = options.method == "creinn" or options.train == "radii"
    networks = [credal(member, _settings(options, True), needs_radii) for member in members]
    data = read_data(options, model.preprocessing, model.class_names)
    known = data.preprocessing.get("target") or data.preprocessing.get("target_columns")
    given = options.target or list(options.target_columns) or known
    if given != known:
        raise ValueError(f"--target is {given!r}, but {path} predicts {known!r}.")
    return networks, data


def _settings(options: TrainOptions, is_credal: bool) -> dict[str, Any]:
    names = ["distance", "mode", "loss"] if is_credal else []
    names += [] if options.temperature is None else ["temperature"]
    return {name: getattr(options, name) for name in names}


def _builder(
    options: TrainOptions, method: Method, data: Dataset, extractor: Extractor | None
) -> Callable[[], Classifier]:
    logits = 1 if len(data.classes) == 2 else len(data.classes)
    settings = _settings(options, method.is_credal)
    network: Callable[..., torch.nn.Module]
    if data.missing is not None:
        size = data.missing.num_features
        network = partial(models.mlp, size, logits, hidden=options.hidden)
    elif extractor is not None:
        network = partial(FeatureHead, extractor.widths, logits)
        if method.is_credal:
            settings["feature_layers"] = network().feature_layers
    elif options.network == NETWORK:
        network = partial(models.efficientnet_lite0, logits, pretrained=True)
    else:
        build = models.BUILDERS[options.network or "resnet8"]
        width = {} if options.width is None else {"width": options.width}
        network = partial(build, logits, options.stem, options.channels, **width)
    return partial(build_classifier, method, network, **settings)


def _check_data(options: TrainOptions, data: Dataset, is_images: bool, is_interval: bool) -> None:
    if data.is_interval and not is_interval:
        raise ValueError(f"{options.method} does not support intervals. Use --method creinn.")
    if options.augment and not is_images:
        raise ValueError("augment is for images; the data are a table.")
    if options.target_columns and is_images:
        raise ValueError("--target-columns is for tables; the data are images.")


def _print_data(data: Dataset) -> None:
    shape = " x ".join(map(str, data.inputs.shape[1:]))
    kind = "intervals" if data.is_interval else "numbers"
    shown = [f"{name} ({n})" for name, n in zip(data.classes, data.counts, strict=True)]
    if len(shown) > SHOWN_CLASSES:
        shown = [*shown[: SHOWN_CLASSES - 1], f"{len(shown) - SHOWN_CLASSES + 1} more"]
    print_notes(data)
    rows = f"{pluralize(len(data), 'row')} of {shape} {kind}"
    print(f"{rows}; {len(data.classes)} classes: {', '.join(shown)}")


def _print_training(model: Classifier, histories: Sequence[History], keeps_best: bool) -> None:
    if histories:
        epochs = ", ".join(str(len(history)) for history in histories)
        if keeps_best:
            best = ", ".join(str(history.best_epoch) for history in histories)
            epochs += f" (best, and kept: {best})"
        print(f"trained {pluralize(len(histories), 'network')}, epochs: {epochs}")
    members = members_of(model)
    radii = [getattr(member, "distance_radius", None) for member in members]
    scales = [radius.scale for radius in radii if radius is not None]
    temperatures = [m.temperature.value for m in members if m.temperature.is_on]
    for name, values in (("temperature", temperatures), ("scale of the distance", scales)):
        if values:
            print(f"{name}: {', '.join(f'{float(value):.3g}' for value in values)}")
    widths = [width for history in histories if (width := history["width"][-1]) is not None]
    if not widths or not takes_intervals(model):
        return
    width = fmean(widths)
    print(f"mean width of the probability intervals in training: {width:.4f}")
    if width < POINT_WIDTH and not scales:
        print("note: the intervals are almost points; train for fewer epochs to measure EU")


def _print_validation(model: Classifier, data: Dataset, keeps_best: bool) -> None:
    prediction, y = predict_rows(model, data), data.labels
    found, sets = summary.quality(prediction, y), summary.sets(prediction, y, "maximality")
    correct = f"{round(found['accuracy'] * len(y))} of {pluralize(len(y), 'row')}"
    print(f"validation accuracy {found['accuracy']:.4f} ({correct})")
    print(f"validation log loss {found['log_loss']:.4f}")
    if sets is not None:
        print(f"validation sets of classes: coverage {sets.coverage:.4f}, size {sets.size:.2f}")
    members = members_of(model)
    chosen = ["epoch"] if keeps_best else []
    if any(member.temperature.is_on for member in members):
        chosen.append("temperature")
    if any(getattr(member, "distance", None) is True for member in members):
        chosen.append("scale of the distance")
    if chosen:
        names = ", ".join(chosen)
        print(f"note: these rows also selected the {names}; results on new rows may be worse")
