"""The data and the models of the user.

The data are a table, two tables of bounds, or images. The input is the options and, after training,
the preprocessing in the saved model. The output is a :class:`Rows` with the inputs of the network,
the labels and the names of the rows. The inputs are tensors, intervals, or images that are read
when they are needed.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from torch import Tensor
from tqdm import tqdm

from creinn.classifier.base import Inputs
from creinn.cli.options import DataOptions, ModelOptions, PredictOptions, TrainOptions, with_flags
from creinn.data.columns import ColumnStats
from creinn.data.decoding import Size, format_size
from creinn.data.encoder import TableEncoder, find_classes, labelled_rows
from creinn.data.features import Missing
from creinn.data.images import (
    KEPT,
    LazyImages,
    is_image,
    labels_of,
    open_tree,
    read_images,
    read_pairs,
)
from creinn.data.reading import is_zipped_table, read_chunks, read_pairs_of_chunks, read_table
from creinn.data.table import Reading, Table, Tables, check_same_texts
from creinn.data.transforms import ChannelStats, normalize
from creinn.device import choose_device
from creinn.distributed import rank
from creinn.interval import Interval
from creinn.numerics import pluralize
from creinn.saving import load

OPTIONS = "train.yaml"
"""The file in the directory of a model with the options of the training."""
IMAGES, TABLE_ROWS = 256, 4096  # the default batch sizes for prediction
SOON = 0.5  # the time in seconds before a progress bar is shown
MOST_ROWS, MOST_CELLS = (
    16_384,
    2_000_000,
)  # the number of rows of a table in memory if it is predicted in parts


def read_model(directory: Path, device: str) -> Any:
    """Return the model in a directory, with ``class_names`` and ``preprocessing``."""
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no model directory {directory}.")
    model = load(directory, choose_device(device))
    model.class_names = [str(name) for name in model.class_names or range(model.num_classes)]
    return model


def trained_on(options: ModelOptions) -> bool:
    """Return whether the paths of the data are those of the training data."""
    kept = options.model / OPTIONS
    if not kept.is_file():
        return False
    used = yaml.safe_load(kept.read_text(encoding="utf-8"))
    paths = [Path(used[name]) for name in ("data", "lower", "upper") if used.get(name)]
    return any(a.exists() and b.exists() and a.samefile(b) for a in paths for b in options.paths)


def parts(model: Any) -> list[Any]:
    """Return the members of an ensemble, or a list of the model."""
    return list(getattr(model, "members", [model]))


def takes_intervals(model: Any) -> bool:
    """Return whether the inputs of a model can be intervals."""
    return all(getattr(part, "is_interval", False) for part in parts(model))


def check_paths(options: DataOptions, prefix: str = "") -> None:
    """Raise an error if a path does not exist, or the number of paths is wrong."""
    pair = f"--{prefix}lower and --{prefix}upper"
    if (options.lower is None) != (options.upper is None):
        raise ValueError(f"{pair} are two halves of a pair, but only one is given.")
    if (options.data is None) == (options.lower is None):
        found = "neither is given" if options.data is None else "both are"
        raise ValueError(f"Data are one table or folder, or {pair}, but {found}.")
    for path in options.paths:
        if not path.exists():
            raise FileNotFoundError(f"There is no file or folder {path}.")
    if len(set(map(_is_tree, options.paths))) == 2:
        raise ValueError(f"{pair} must both be tables or both be folders of images.")


@dataclass(frozen=True)
class Rows:
    """The inputs of a network."""

    x: Inputs  # or LazyImages
    labels: Tensor | None  # the index of the class for each row, or None
    classes: Sequence[str] = ()
    names: dict[str, Sequence[Any]] = field(default_factory=dict)  # the names of each row
    notes: Sequence[str] = ()  # the guesses and the omissions of the reader
    unreadable: Sequence[str] = ()  # a message for each file that is not used
    missing: Missing | None = None  # the values for missing cells, which are NaN in x
    preprocessing: dict[str, Any] = field(default_factory=dict)  # the preprocessing of new rows
    share: float = 1.0  # the fraction of the data that is read
    tables: Sequence[Table] = ()  # the original rows of the table or tables

    def print_notes(self) -> None:
        """Print the notes, and print the unreadable files to stderr."""
        for note in self.notes:
            print(f"note: {with_flags(note)}")
        for message in self.unreadable:
            print(f"left out: {message}", file=sys.stderr)

    @property
    def is_interval(self) -> bool:
        """Whether the inputs are intervals."""
        return isinstance(self.x, Interval) or (
            isinstance(self.x, LazyImages) and self.x.is_interval
        )

    def take(self, index: Tensor) -> "Rows":
        """Return the rows with these indices, without the names."""
        x = self.x.take(index) if isinstance(self.x, LazyImages) else self.x[index]
        return replace(
            self, x=x, labels=None if self.labels is None else self.labels[index], names={}
        )

    def to_fit(self) -> Any:
        """Return the data for :func:`creinn.fit`, with values for missing cells."""
        if isinstance(self.x, LazyImages):
            return self.x
        return self.x if self.missing is None or self.is_interval else self.missing.fill(
            self.x
        ), self.labels

    def predict(self, model: Any, batch_size: int | None = None) -> Any:
        """Return the predictions of a model."""
        if self.missing is None:
            return model.predict(self.x, batch_size or IMAGES)
        return self.missing.predict(model, self.x, batch_size or TABLE_ROWS)


def learn_rows(options: TrainOptions) -> Rows:
    """Read the training data, and fit the preprocessing."""
    rows = _learn_images(options) if _is_tree(options.paths[0]) else _learn_tables(options)
    if len(rows.classes) < 2:
        raise ValueError(
            f"{options.source} has one class only, {rows.classes[0]!r}. There is nothing to tell apart."
        )
    return rows


def read_rows(options: DataOptions, preprocessing: Any, classes: Sequence[str]) -> Rows:
    """Read labelled data with the preprocessing of the training data."""
    (rows,) = stream_rows(options, preprocessing, classes)
    return rows


def stream_rows(
    options: DataOptions,
    preprocessing: Any,
    classes: Sequence[str] | None = None,
    whole: bool = True,
) -> Iterator[Rows]:
    """Read data as in :func:`read_rows`, in one part if ``whole``, else in parts.

    The notes are for all parts up to this one. A part can be empty. If ``classes`` is ``None``,
    there are no labels, and ``whole`` must be false.
    """
    kind = preprocessing.get("kind") if isinstance(preprocessing, dict) else None
    if kind not in ("table", "images"):
        why = "The model does not say how its inputs are prepared, so it was not saved by creinn train."
        raise ValueError(f"{why} Load it in Python with creinn.load.")
    if _is_tree(options.paths[0]) != (kind == "images"):
        found = (
            "images, but this is a table"
            if kind == "images"
            else "a table, but this is an image, folder or archive"
        )
        raise ValueError(f"{options.source}: the model was trained on {found}.")
    return (_read_tables if kind == "table" else _read_images)(
        options, preprocessing, classes, whole
    )


def counting(parts: Iterator[Rows], shown: bool, what: str | None = None) -> Iterator[Rows]:
    """Yield the parts, and show a progress bar in a terminal if ``shown`` is true."""
    hidden = not (shown and rank() == 0 and sys.stderr.isatty())
    with tqdm(desc=what, unit=" rows", unit_scale=True, delay=SOON, disable=hidden) as bar:
        count = 0
        for rows in parts:
            yield rows
            count += len(rows.x)
            bar.total = round(count / rows.share)
            bar.update(len(rows.x))


def _learn_tables(options: TrainOptions) -> Rows:
    reading = _reading(options, options.missing, options.dayfirst)
    tables: Tables = [read_table(path, reading) for path in options.paths]
    first = tables[0]
    if (target := options.target) is None:
        known = ", ".join(first.columns)
        raise ValueError(f"--target is required: the column of the classes, one of {known}.")
    if len(first) == 1:
        raise ValueError(
            f"{first.name} has one row only, in line 2. Training needs rows of at least two "
            "classes. Pass separator= or encoding= if the file has more."
        )
    tables, labels, unlabelled = labelled_rows(tables, target, options.drop_unlabelled)
    encoder, notes = TableEncoder.fit(
        tables, target, options.drop, options.categorical, options.max_categories
    )
    classes, about_classes = find_classes(labels, target, options.max_classes)
    features, _ = encoder.encode(tables)
    missing = Missing.fit(torch.from_numpy(np.concatenate(features)), encoder.widths)
    learnt = {
        "kind": "table",
        **encoder.to_json(),
        "marks": list(reading.marks),
        "missing": missing.to_json(),
    }
    return Rows(
        _inputs(features, missing),
        _numbers(labels, classes, tables[0], target),
        classes,
        notes=notes + unlabelled + about_classes,
        missing=missing,
        preprocessing=learnt,
    )


def _read_tables(
    options: DataOptions, preprocessing: dict[str, Any], classes: Sequence[str] | None, whole: bool
) -> Iterator[Rows]:
    encoder = TableEncoder.from_json(preprocessing)
    missing, stats = Missing.from_json(preprocessing["missing"]), dict[str, ColumnStats]()
    learnt = tuple(preprocessing["marks"])
    marks = tuple(
        mark for name in options.missing for mark in (learnt if name == "auto" else (name,))
    )
    reading, used = _reading(options, marks), {**preprocessing, "marks": list(marks)}
    kept = options.keep if isinstance(options, PredictOptions) else ()
    if "row" in kept:
        raise ValueError("The column 'row' cannot be kept: the result has a column of that name.")
    at_once = options.batch_size or TABLE_ROWS
    most = min(MOST_ROWS, MOST_CELLS // missing.num_features)
    rows = None if whole else at_once * max(1, most // at_once)
    fast = encoder.plain_numbers(reading).difference(kept)  # not the kept columns
    dropped: Counter[str] = Counter()
    tables: Tables
    for tables in read_pairs_of_chunks(
        *(read_chunks(path, reading, rows, fast) for path in options.paths)
    ):
        labels: Tensor | None = None
        if classes is not None:
            assert encoder.target is not None
            drops = getattr(options, "drop_unlabelled", False)
            before = len(tables[0])
            tables, texts, _ = labelled_rows(tables, encoder.target, drops)
            labels = _numbers(texts, classes, tables[0], encoder.target)
            dropped["rows"] += before - len(texts)
        first = tables[0]
        features, notes = encoder.encode(tables, stats)
        if dropped["rows"]:
            found = f"{pluralize(dropped['rows'], 'row')} without a class dropped"
            notes.append(f"{first.name}: {found}")
        names: dict[str, Any] = {"row": first.frame.index + 1}
        for column in kept:
            first.check_column(column)
            check_same_texts(tables, column)
            names[column] = first.frame[column].array
        x = _inputs(features, missing)
        yield Rows(x, labels, classes or (), names, notes, (), missing, used, first.share, tables)


def _reading(options: DataOptions, marks: Sequence[str], dayfirst: bool | None = None) -> Reading:
    how = ("separator", "decimal", "thousands", "encoding", "comment")
    given = {name: getattr(options, name) for name in how}
    return Reading(tuple(marks), **given, dayfirst=dayfirst)


def _inputs(features: Sequence[Any], missing: Missing) -> Inputs:
    points, *upper = map(torch.from_numpy, features)
    return missing.intervals(points, *upper) if upper else points


def _numbers(labels: Any, classes: Sequence[str], table: Table, target: str) -> Tensor:
    """Return the indices of the classes."""
    numbers = pd.Index(classes, dtype=object).get_indexer(labels)
    if (numbers < 0).any():
        row = int((numbers < 0).argmax())
        unknown = f"{table.at(row, target)}: the model has no class {labels[row]!r}"
        raise ValueError(f"{unknown}, only {', '.join(classes)}.")
    return torch.from_numpy(numbers)


def _learn_images(options: TrainOptions) -> Rows:
    """Read images by class, and scale each channel to mean 0 and standard deviation 1.

    For intervals, the mean and the standard deviation are those of the centers.
    """
    colours = ChannelStats()
    rows = _survey(
        options, _images(options, options.size, options.channels, (), options.batch_size), colours
    )
    assert rows.labels is not None
    for name, count in zip(
        rows.classes, torch.bincount(rows.labels, minlength=len(rows.classes)), strict=True
    ):
        if count == 0:
            raise ValueError(
                f"{options.source}: no image of the class {name!r} can be read. {rows.unreadable[0]}"
            )
    mean, std = colours.mean_and_std()
    return _normalized(
        rows, {"kind": "images", "channels": options.channels, "mean": mean, "std": std}
    )


def _survey(options: DataOptions, parts: Iterator[Rows], colours: ChannelStats) -> Rows:
    """Return all images, to be read when they are needed, and count ``colours``."""
    files: list[str] = []
    for rows in counting(parts, getattr(options, "progress", False), "looking at images"):
        files += rows.names["file"]
        if len(rows.x):
            colours.add(rows.x)
            channels, *size = rows.x.shape[1:]
    first, *upper = options.paths
    pair = {"upper": upper[0]} if upper else {}
    lazy = LazyImages(
        first, size=size, channels=channels, classes=rows.classes, files=files, keep=KEPT, **pair
    )
    notes = list(rows.notes)
    if not lazy.fits:
        notes.append(
            f"{options.source}: only {KEPT / 2**30:g} GiB of images stay in memory; others are decoded again"
        )
    return replace(rows, x=lazy, labels=lazy.labels, names={"file": files}, notes=notes)


def _read_images(
    options: DataOptions, preprocessing: dict[str, Any], classes: Sequence[str] | None, whole: bool
) -> Iterator[Rows]:
    if isinstance(options, PredictOptions) and options.keep:
        raise ValueError(f"--keep is for columns of a table, but {options.source} holds images.")
    known = preprocessing["size"]  # height and width; in older models the side of a square, or null
    known = [known, known] if isinstance(known, int) else known
    if known is not None and options.size is not None and known != [options.size, options.size]:
        why = f"the model was trained on images of {format_size(known)} pixels and stretches all others to that"
        raise ValueError(f"--size is {options.size}, but {why}. Leave it out.")
    count = options.batch_size or IMAGES
    parts = _images(options, known or options.size, preprocessing["channels"], classes, count)
    for rows in [_survey(options, parts, ChannelStats())] if whole else parts:
        if known is None and options.size is None:
            unknown = "the model does not say which size its training images had; these are taken as they are"
            note = f"{unknown}, {format_size(rows.x.shape[2:])} pixels. --size stretches them to another"
            rows = replace(rows, notes=[*rows.notes, note])
        yield _normalized(rows, preprocessing)


def _images(
    options: DataOptions, size: Size, channels: int, classes: Sequence[str] | None, count: int
) -> Iterator[Rows]:
    """Yield images in [0, 1] as points or intervals, ``count`` at a time.

    ``classes`` is the expected classes. If it is empty, all classes are used. If it is ``None``,
    there are no labels.
    """
    first = options.paths[0]
    with open_tree(first) as tree:
        if classes is not None and first.is_file() and is_image(first.name):
            raise ValueError(
                f"{first} is one image. Give a folder with one folder of images per class."
            )
        order = () if classes is None else tree.classes(classes or None)
        parts: Iterator[Any] = read_images(tree, size, channels, options.strict, count)
        if options.lower is not None and options.upper is not None:
            parts = read_pairs(options.lower, options.upper, size, channels, options.strict, count)
        total = len(tree.images)
        for number, (x, *sides) in enumerate(parts, start=1):
            files = sides[0].files
            labels = None if classes is None else labels_of(files, order)
            notes = tree.notes + [note for side in sides for note in side.notes]
            unreadable = [text for side in sides for text in side.unreadable]
            share = min(1.0, number * count / total)
            yield Rows(x, labels, list(order), {"file": files}, notes, unreadable, share=share)


def _normalized(rows: Rows, preprocessing: dict[str, Any]) -> Rows:
    scale = preprocessing["mean"], preprocessing["std"]
    x = rows.x.normalized(*scale) if isinstance(rows.x, LazyImages) else normalize(rows.x, *scale)
    return replace(rows, x=x, preprocessing={**preprocessing, "size": list(x.shape[2:])})


def _is_tree(path: Path) -> bool:
    packed_images = path.suffix.lower() == ".zip" and not is_zipped_table(path)
    return path.is_dir() or packed_images or is_image(path.name)
