"""What the user has, as inputs of a network: a table, a pair of tables of bounds, or images.

In: paths and, after training, how the training inputs were prepared (plain JSON from the saved model). Out:
:class:`Rows`, with tensors or intervals, labels, and what each row is called.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from creinn.classifier.base import Inputs
from creinn.cli.options import TrainOptions
from creinn.data.decoding import Size, decode_all
from creinn.data.encoder import TableEncoder, classes_of
from creinn.data.images import is_image, labels_of, open_tree, read_pair
from creinn.data.missing import Missing, predict
from creinn.data.table import Reading, Table, check_same_texts, is_packed_table, read_table
from creinn.data.transforms import normalize
from creinn.interval import Interval


@dataclass(frozen=True)
class Source:
    """Where data are, one path or lower and upper; and how to read them."""

    data: Path | None = None  # a table, an image, or a folder or zip archive of images
    lower: Path | None = None
    upper: Path | None = None
    reading: Reading = field(default_factory=Reading)  # of tables
    size: int | None = None  # side in pixels to which images are stretched, unless the model knows better
    strict: bool = False  # whether an image that cannot be read is an error; otherwise it is left out
    keep: Sequence[str] = ()  # columns of a table that go into the names of its rows
    prefix: str = ""  # of the options' names, for messages

    @classmethod
    def of(cls, options: Any, prefix: str = "") -> "Source":
        """Of the options of a command: ``data``, ``lower`` and ``upper``, or ``ood`` and so on for ``"ood_"``."""
        names = (prefix[:-1] or "data", f"{prefix}lower", f"{prefix}upper")
        data, lower, upper = (getattr(options, name) for name in names)
        reading = Reading(**{entry.name: getattr(options, entry.name) for entry in fields(Reading)})
        keep = getattr(options, "keep", ())
        return cls(data, lower, upper, reading, options.size, options.strict, keep, prefix.replace("_", "-"))

    @property
    def paths(self) -> list[Path]:
        """What is given."""
        return [path for path in (self.data, self.lower, self.upper) if path is not None]

    @property
    def name(self) -> str:
        """What to call it."""
        return " and ".join(map(str, self.paths))

    @property
    def is_images(self) -> bool:
        """Whether it is an image, or a folder or archive of such."""
        return _is_tree(self.paths[0])

    def check(self) -> None:
        """Refuse too few or too many paths, and such as are not there."""
        pair = f"--{self.prefix}lower and --{self.prefix}upper"
        if (self.lower is None) != (self.upper is None):
            raise ValueError(f"{pair} are two halves of a pair, but only one is given.")
        if (self.data is None) == (self.lower is None):
            found = "neither is given" if self.data is None else "both are"
            raise ValueError(f"Data are one table or folder, or {pair}, but {found}.")
        for path in self.paths:
            if not path.exists():
                raise FileNotFoundError(f"There is no file or folder {path}.")
        if len(set(map(_is_tree, self.paths))) == 2:
            raise ValueError(f"{pair} must both be tables or both be folders of images.")


@dataclass(frozen=True)
class Rows:
    """Inputs of a network."""

    x: Inputs
    labels: Tensor | None  # number of the class per row; None if not asked for
    classes: Sequence[str] = ()
    names: dict[str, Sequence[Any]] = field(default_factory=dict)  # what each row is called
    notes: Sequence[str] = ()  # what was found out or left out
    unreadable: Sequence[str] = ()  # why files were left out, one message for each
    missing: Missing | None = None  # what stands for missing cells, which are NaN in x
    preprocessing: dict[str, Any] = field(default_factory=dict)  # how to prepare further rows alike

    def say(self) -> None:
        """Print the notes, and on stderr each file that was left out."""
        for note in self.notes:
            print(f"note: {note}")
        for message in self.unreadable:
            print(f"left out: {message}", file=sys.stderr)

    def complete(self, x: Inputs) -> Inputs:
        """Some of the rows, with something in place of missing cells, to train on."""
        return x if self.missing is None or isinstance(x, Interval) else self.missing.fill(x)

    def predict(self, model: Any, x: Inputs, batch_size: int = 256) -> Any:
        """What a model says of some of the rows."""
        return model.predict(x, batch_size) if self.missing is None else predict(model, x, self.missing, batch_size)


def learn_rows(source: Source, options: TrainOptions) -> Rows:
    """Read training data, and learn how they become numbers."""
    rows = _learn_images(source, options.channels) if source.is_images else _learn_tables(source, options)
    if len(rows.classes) < 2:
        raise ValueError(f"{source.name} has one class only, {rows.classes[0]!r}. There is nothing to tell apart.")
    return rows


def read_rows(source: Source, preprocessing: Any, classes: Sequence[str] | None) -> Rows:
    """Read data and prepare them as the training data were; ``classes`` are ``None`` if no labels are needed."""
    kind = preprocessing.get("kind") if isinstance(preprocessing, dict) else None
    if kind not in ("table", "images"):
        raise ValueError(
            "The model does not say how its inputs are prepared, so it was not saved by creinn train. "
            "Load it in Python with creinn.load."
        )
    if source.is_images != (kind == "images"):
        other = "a table, but this is an image, folder or archive"
        wanted = "images, but this is a table" if kind == "images" else other
        raise ValueError(f"{source.name}: the model was trained on {wanted}.")
    if source.keep and kind == "images":
        raise ValueError(f"--keep is for columns of a table, but {source.name} holds images.")
    read = _read_images if kind == "images" else _read_tables
    return read(source, preprocessing, classes)


def _learn_tables(source: Source, options: TrainOptions) -> Rows:
    tables = [read_table(path, source.reading) for path in source.paths]
    target = options.target
    if target is None:
        raise ValueError(f"--target is needed: the column of the classes, one of {', '.join(tables[0].columns)}.")
    encoder, notes = TableEncoder.fit(tables, target, options.drop, options.categorical, options.max_categories)
    labels = encoder.labels(tables)
    classes = classes_of(labels, target, options.max_classes)
    features, _ = encoder.encode(tables)
    missing = Missing.learn(torch.from_numpy(np.concatenate(features)), encoder.widths)
    marks = {"marks": list(source.reading.missing), "missing": missing.to_json()}
    return Rows(
        _inputs(features, missing),
        _numbers(labels, classes, tables[0], target),
        classes,
        notes=notes,
        missing=missing,
        preprocessing={"kind": "table", **encoder.to_json(), **marks},
    )


def _read_tables(source: Source, preprocessing: dict[str, Any], classes: Sequence[str] | None) -> Rows:
    if "marks" not in preprocessing:
        raise ValueError(
            "The model was saved by an older creinn, which took missing values for known ones. Train it again."
        )
    encoder, missing = TableEncoder.from_json(preprocessing), Missing.from_json(preprocessing["missing"])
    marks = source.reading.missing or tuple(preprocessing["marks"])
    tables = [read_table(path, replace(source.reading, missing=marks)) for path in source.paths]
    features, notes = encoder.encode(tables)
    labels = None if classes is None else _numbers(encoder.labels(tables), classes, tables[0], encoder.target)
    names: dict[str, Sequence[Any]] = {"row": range(1, len(tables[0]) + 1)}
    for column in source.keep:
        if column in names:
            raise ValueError(f"The column {column!r} cannot be kept: the result has a column of that name.")
        tables[0].check_column(column)
        check_same_texts(tables, column)
        names[column] = tables[0].frame[column].tolist()
    used = {**preprocessing, "marks": list(marks)}
    return Rows(_inputs(features, missing), labels, classes or (), names, notes, (), missing, used)


def _inputs(features: Sequence[Any], missing: Missing) -> Inputs:
    points, *upper = map(torch.from_numpy, features)
    return missing.intervals(points, *upper) if upper else points


def _numbers(labels: Any, classes: Sequence[str], table: Table, target: str) -> Tensor:
    """Classes as their numbers."""
    numbers = pd.Index(classes, dtype=object).get_indexer(labels)
    if (numbers < 0).any():
        row = int((numbers < 0).argmax())
        known = ", ".join(classes)
        raise ValueError(f"{table.at(row, target)}: the model has no class {labels[row]!r}, only {known}.")
    return torch.from_numpy(numbers)


def _learn_images(source: Source, channels: int) -> Rows:
    """Images by class; colours, of intervals their centres, are scaled to mean 0 and deviation 1 per channel."""
    rows = _images(source, source.size, channels, labelled=True)
    assert rows.labels is not None
    for name, count in zip(rows.classes, torch.bincount(rows.labels, minlength=len(rows.classes)), strict=True):
        if count == 0:
            raise ValueError(f"{source.name}: no image of the class {name!r} can be read. {rows.unreadable[0]}")
    center = rows.x.center if isinstance(rows.x, Interval) else rows.x
    mean, std = center.mean((0, 2, 3)), center.std((0, 2, 3), correction=0)
    scale = {"mean": mean.tolist(), "std": torch.where(std > 0, std, 1).tolist()}
    return _normalized(rows, {"kind": "images", "channels": channels, **scale})


def _read_images(source: Source, preprocessing: dict[str, Any], classes: Sequence[str] | None) -> Rows:
    known = preprocessing["size"]  # height and width; the side of a square, or null, in older models
    known = [known, known] if isinstance(known, int) else known
    if known is not None and source.size is not None and known != [source.size, source.size]:
        raise ValueError(
            f"--size is {source.size}, but the model was trained on images of {known[1]} x {known[0]} pixels and "
            f"stretches all others to that. Leave it out."
        )
    rows = _images(source, known or source.size, preprocessing["channels"], classes is not None, classes)
    if known is None and source.size is None:
        size = "{} x {} pixels".format(*rows.x.shape[:1:-1])
        unknown = f"the model does not say which size its training images had; these are taken as they are, {size}"
        rows = replace(rows, notes=[*rows.notes, f"{unknown}. --size stretches them to another"])
    return _normalized(rows, preprocessing)


def _images(source: Source, size: Size, channels: int, labelled: bool, classes: Sequence[str] | None = None) -> Rows:
    """Images in [0, 1], points or intervals; ``classes`` are those expected, if any."""
    first = source.paths[0]
    with open_tree(first) as tree:
        if labelled and first.is_file() and is_image(first.name):
            raise ValueError(f"{first} is one image. Give a folder with one folder of images per class.")
        order = tree.classes(classes) if labelled else ()
        notes = tree.notes
        if source.data is not None:
            sides = [decode_all(tree.images, tree.read, tree.where, size, channels, source.strict)]
            x: Inputs = torch.from_numpy(sides[0].pixels).float() / 255
    if source.lower is not None and source.upper is not None:
        x, *sides = read_pair(source.lower, source.upper, size, channels, source.strict)
    files = sides[0].files
    labels = labels_of(files, order) if labelled else None
    notes += [note for side in sides for note in side.notes]
    return Rows(x, labels, list(order), {"file": files}, notes, [text for side in sides for text in side.unreadable])


def _normalized(rows: Rows, preprocessing: dict[str, Any]) -> Rows:
    x = normalize(rows.x, preprocessing["mean"], preprocessing["std"])
    return replace(rows, x=x, preprocessing={**preprocessing, "size": list(x.shape[2:])})


def _is_tree(path: Path) -> bool:
    packed_images = path.suffix.lower() == ".zip" and not is_packed_table(path)
    return path.is_dir() or packed_images or is_image(path.name)
