"""``creinn train``: read the data, train a new or a saved model, and write it."""

import inspect
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Any

import torch

from creinn import models
from creinn.baselines.registry import build_classifier, build_ensemble
from creinn.baselines.snn import SNN
from creinn.classifier.base import Classifier
from creinn.classifier.creinn import CreINN
from creinn.classifier.methods import Method, is_ensemble
from creinn.cli import sources
from creinn.cli.coverage import calibrate, calibration_split
from creinn.cli.options import TrainOptions, flag
from creinn.cli.parsing import options_yaml
from creinn.cli.sources import Rows, parts, takes_intervals
from creinn.cli.train_notes import print_data, print_training, print_validation
from creinn.cli.train_options import METHODS, check_directory, resolve_options, train_config
from creinn.data import RandomCropFlip
from creinn.data.dataset import Dataset, split
from creinn.distributed import process_group, rank, single_process
from creinn.files import write_bytes
from creinn.graph.convert import credal
from creinn.numerics import list_names, pluralize
from creinn.saving import save
from creinn.training import History, TrainConfig
from creinn.training.loop import fit_members

MEMBERS = 5  # the default size of an ensemble
A_SIXTH = 1 / 6  # the default validation fraction
FEWEST = 10  # the minimum number of rows for validation


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
    sources.check_paths(options)
    options = resolve_options(options, method)
    names = ("distance", "mode", "loss") if method.is_credal else ()
    form = {name: getattr(options, name) for name in names}
    form |= {} if options.temperature is None else {"temperature": options.temperature}
    config = train_config(options)
    check_directory(options.out)
    start, data = _load_start(options, form) if options.from_ else ([], sources.learn_rows(options))
    _check_data(options, data, takes_intervals(start[0]) if start else method.takes_intervals)
    print_data(data)
    spare = None
    if options.coverage is not None:
        data, spare = calibration_split(data, options.coverage, options.seed)
    new = options.from_ is None
    kept, held_out = train_val_split(data, options.validation_fraction, options.seed, new)
    if held_out is None:
        config = replace(config, patience=None, keep="last")
    members = options.members or len(start) or (MEMBERS if is_ensemble(options.method) else 1)
    build = iter(start).__next__ if start else _builder(options, method, form, data)
    networks, histories = _fit(options, build, members, kept, held_out, config)
    if histories and histories[-1].interrupted:
        if rank() == 0:
            again = " The same command resumes from the checkpoints." * bool(options.checkpoints)
            print(f"creinn train: stopped; no model was written.{again}", file=sys.stderr)
        return 130
    if rank() > 0:
        return 0
    combine = {"combine": options.combine} if method.is_credal else {}
    model = networks[0] if members == 1 else build_ensemble(method, networks, **combine)
    keeps_best = bool(histories) and config.keep == "best"
    print_training(model, histories, keeps_best)
    if held_out is not None:
        chosen = ["the epoch"] * keeps_best + _chosen(model)
        print_validation(held_out.predict(model).to("cpu"), held_out.labels, chosen)
    if spare is not None and options.coverage is not None:
        calibrate(model, spare, options.coverage)
    save(model, options.out, data.classes, data.preprocessing)
    fraction = 0.0 if held_out is None else options.validation_fraction or A_SIXTH
    used = replace(
        options, members=members, validation_fraction=fraction, patience=config.patience or 0
    )
    write_bytes(options.out / sources.OPTIONS, options_yaml("train", used).encode())
    print(f"wrote {options.out}")
    return 0


def train_val_split(
    data: Rows, fraction: float | None, seed: int, is_new: bool
) -> tuple[Rows, Rows | None]:
    """Split the rows into a training set and a validation set, which can be ``None``.

    The default fraction is a sixth. It is 0 if a sixth is too small, or if the model is not new and
    was possibly trained on the rows. These cases are reported in the notes. There is at least one
    row of each class in the training set.
    """
    labels = data.labels
    assert labels is not None
    reason = ""
    if fraction is None and not is_new:
        reason = "No row is held out: the model to start from may have seen it"
    elif fraction is None and len(labels) * A_SIXTH < FEWEST:
        reason = f"{pluralize(len(labels), 'row')} are too few to hold some out"
    if reason:
        print(
            f"note: {reason}. No accuracy is measured. To hold out a fifth of the rows, give "
            "--validation-fraction 0.2"
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
        print(f"note: classes with too few rows to hold some out: {list_names(names, 'name')}")
        held = held[~emptied[labels[held]]]
    if not len(held):
        return data, None
    kept = torch.ones(len(labels), dtype=torch.bool).index_fill(0, held, False).nonzero()[:, 0]
    return data.take(kept), data.take(held)


def _check_data(options: TrainOptions, data: Rows, intervals: bool) -> None:
    if data.is_interval and not intervals:
        able = " or ".join(
            f"--method {name}" for name, known in METHODS.items() if known.takes_intervals
        )
        raise ValueError(f"The method {options.method!r} does not support intervals. Use {able}.")
    if options.augment and data.preprocessing["kind"] != "images":
        raise ValueError(f"{flag('augment')} is for images, but the data are a table.")


def _fit(
    options: TrainOptions,
    build: Callable[[], Classifier],
    members: int,
    kept: Rows,
    held_out: Rows | None,
    config: TrainConfig,
) -> tuple[Sequence[Classifier], Sequence[History]]:
    """Train the networks, or only fit the distance if ``train=nothing``."""
    train_data, val_data = kept.to_fit(), None if held_out is None else held_out.to_fit()
    if options.train == "nothing":
        networks: list[Any] = [build() for _ in range(members)]
        with single_process():
            for network in networks:
                if network.distance_radius is not None:
                    network.fit_distance(
                        train_data, held_out=val_data, batch_size=options.batch_size
                    )
        return networks, []
    padding = max(1, kept.x.shape[-1] // 8)
    augment = RandomCropFlip(padding=padding) if options.augment else None
    return fit_members(build, members, train_data, val_data, config, augment)


def _chosen(model: Classifier) -> list[str]:
    """Return the settings that were chosen by validation, except the epoch."""
    scale = any(getattr(part, "distance", None) is True for part in parts(model))
    temperature = any(part.temperature.is_on for part in parts(model))
    return ["the temperature"] * temperature + ["the scale of the distance"] * scale


def _load_start(options: TrainOptions, form: dict[str, Any]) -> tuple[list[CreINN], Rows]:
    """Load the networks of ``--from`` as credal networks, and the rows for this model."""
    assert options.from_ is not None
    model = sources.read_model(options.from_, options.device)
    kinds = {type(part) for part in parts(model)}
    if not kinds <= {SNN, CreINN}:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(
            f"{options.from_} is a model of kind {found}. --from requires a model of the method "
            "creinn-d, creinn, snn or deep-ensemble."
        )
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
        raise ValueError(
            f"{options.network} is for small images; {flag('stem', options.stem)} is not available."
        )
    return partial(build_classifier, method, partial(build, **arguments), **form)
