"""What the user has, as inputs of a network: a table, a pair of tables of bounds, or images.

In: paths and, after training, how the training inputs were prepared (plain JSON from the saved model). Out: tensors or
intervals, labels, and what each row is called.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from creinn.classifier.base import Inputs
from creinn.data.decoding import Size, decode_all
from creinn.data.images import is_image, labels_of, open_tree, read_pair
from creinn.data.missing import Missing, predict
from creinn.data.tables import Reading, Table, TableEncoder, check_same_texts, classes_of, is_packed_table, read_table
from creinn.data.transforms import normalize
from creinn.interval import Interval

Notes = list[str]


@dataclass(frozen=True)
class Source:
    """Where data are: one path, or lower and upper.

    Args:
        data: A table, an image, or a folder or zip archive of images.
        lower: Table or images of lower bounds.
        upper: Table or images of upper bounds.
        reading: How to read tables.
        option: Prefix of the options' names, for messages.
        keep: Columns of a table that go into the names of its rows.
        size: Side in pixels to which images are stretched, for training and for models that do not know theirs.
        strict: Whether an image that cannot be read is an error; otherwise it is left out.
    """

    data: Path | None = None
    lower: Path | None = None
    upper: Path | None = None
    reading: Reading = field(default_factory=Reading)
    option: str = ""
    keep: Sequence[str] = ()
    size: int | None = None
    strict: bool = False

    def check(self) -> None:
        """Refuse too few or too many paths.

        Raises:
            ValueError: If neither or both of one path and a pair are given, or half a pair, or there is no such path.
        """
        pair = f"--{self.option}lower and --{self.option}upper"
        if (self.lower is None) != (self.upper is None):
            raise ValueError(f"{pair} are two halves of a pair, but only one is given.")
        if (self.data is None) == (self.lower is None):
            found = "neither is given" if self.data is None else "both are"
            raise ValueError(f"Data are one table or folder, or {pair}, but {found}.")
        for path in (self.data, self.lower, self.upper):
            if path is not None and not path.exists():
                raise FileNotFoundError(f"There is no file or folder {path}.")
        if self.lower is not None and self.upper is not None and _is_tree(self.lower) != _is_tree(self.upper):
            raise ValueError(f"{pair} must both be tables or both be folders of images.")

    @property
    def is_images(self) -> bool:
        """Whether it is an image, or a folder or archive of such."""
        first = self.data or self.lower
        return first is not None and _is_tree(first)

    @property
    def name(self) -> str:
        """What to call it."""
        return str(self.data) if self.data is not None else f"{self.lower} and {self.upper}"

    def tables(self) -> list[Table]:
        """One table, or lower and upper."""
        paths = [path for path in (self.data, self.lower, self.upper) if path is not None]
        return [read_table(path, self.reading) for path in paths]


def reading_of(options: Any) -> Reading:
    """How to read tables, by the options of a command."""
    return Reading(**{entry.name: getattr(options, entry.name) for entry in fields(Reading)})


@dataclass(frozen=True)
class Rows:
    """Inputs of a network.

    Args:
        x: One input per row.
        labels: Number of the class per row; ``None`` if not asked for.
        names: What each row is called.
        notes: What was found out or left out.
        unreadable: Why files were left out, one message for each.
        missing: What stands for missing cells, which are NaN in ``x``; ``None`` if there are none.
    """

    x: Inputs
    labels: Tensor | None
    names: dict[str, Sequence[Any]]
    notes: Notes
    unreadable: Sequence[str] = ()
    missing: Missing | None = None

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


@dataclass(frozen=True)
class Training:
    """Rows to learn from, their classes, and how to prepare further rows alike."""

    rows: Rows
    classes: list[str]
    preprocessing: dict[str, Any]


def learn_tables(
    source: Source,
    target: str | None,
    drop: Sequence[str],
    categorical: Sequence[str],
    max_categories: int,
    max_classes: int | None,
) -> Training:
    """Read a training table, or a pair, and learn how its columns become numbers.

    Raises:
        ValueError: If there is no target, or a table is not as it must be.
    """
    tables = source.tables()
    if target is None:
        raise ValueError(f"--target is needed: the column of the classes, one of {', '.join(tables[0].columns)}.")
    encoder, notes = TableEncoder.fit(tables, target, drop, categorical, max_categories)
    labels = encoder.labels(tables)
    classes = classes_of(labels, target, max_classes)
    features = list(map(torch.from_numpy, encoder.encode(tables)[0]))
    missing = Missing.learn(torch.cat(features), encoder.widths)
    record = {"kind": "table", **encoder.to_json(), "marks": list(source.reading.missing), "missing": missing.to_json()}
    numbers = _numbers(labels, classes, tables[0], encoder)
    return Training(Rows(_inputs(features, missing), numbers, {}, notes, missing=missing), classes, record)


def learn_images(source: Source, channels: int) -> Training:
    """Read images by class; colours, of intervals their centres, are scaled to mean 0 and deviation 1 per channel.

    Raises:
        ValueError: If the folder or an image is not as it must be.
    """
    rows, classes = _images(source, source.size, channels, labelled=True)
    assert rows.labels is not None
    for name, count in zip(classes, torch.bincount(rows.labels, minlength=len(classes)), strict=True):
        if count == 0:
            raise ValueError(f"{source.name}: no image of the class {name!r} can be read. {rows.unreadable[0]}")
    center = rows.x.center if isinstance(rows.x, Interval) else rows.x
    mean, std = center.mean((0, 2, 3)), center.std((0, 2, 3), correction=0)
    std = torch.where(std > 0, std, torch.ones_like(std))
    preprocessing = {
        "kind": "images",
        "size": list(center.shape[2:]),
        "channels": channels,
        "mean": mean.tolist(),
        "std": std.tolist(),
    }
    return Training(replace(rows, x=_normalized(rows.x, preprocessing)), list(classes), preprocessing)


def read_rows(source: Source, preprocessing: Any, classes: Sequence[str] | None) -> Rows:
    """Read data and prepare them as the training data were.

    Args:
        source: Where they are.
        preprocessing: From the saved model.
        classes: Names of the classes if labels are needed; ``None`` if not.

    Raises:
        ValueError: If the data are not as they must be, or of another kind than the training data.
    """
    kind = preprocessing.get("kind") if isinstance(preprocessing, dict) else None
    if kind not in ("table", "images"):
        raise ValueError(
            "The model does not say how its inputs are prepared, so it was not saved by creinn train. "
            "Load it in Python with creinn.load."
        )
    if source.is_images != (kind == "images"):
        wanted = (
            "images, but this is a table" if kind == "images" else "a table, but this is an image, folder or archive"
        )
        raise ValueError(f"{source.name}: the model was trained on {wanted}.")
    if source.keep and kind == "images":
        raise ValueError(f"--keep is for columns of a table, but {source.name} holds images.")
    return (
        _read_images(source, preprocessing, classes)
        if kind == "images"
        else _read_tables(source, preprocessing, classes)
    )


def _read_tables(source: Source, preprocessing: dict[str, Any], classes: Sequence[str] | None) -> Rows:
    if "marks" not in preprocessing:
        raise ValueError(
            "The model was saved by an older creinn, which took missing values for known ones. Train it again."
        )
    encoder, missing = TableEncoder.from_json(preprocessing), Missing.from_json(preprocessing["missing"])
    marks = source.reading.missing or tuple(preprocessing["marks"])
    tables = replace(source, reading=replace(source.reading, missing=marks)).tables()
    features, notes = encoder.encode(tables)
    labels = None
    if classes is not None:
        labels = _numbers(encoder.labels(tables), classes, tables[0], encoder)
    names: dict[str, Sequence[Any]] = {"row": range(1, len(tables[0]) + 1)}
    for column in source.keep:
        if column in names:
            raise ValueError(f"The column {column!r} cannot be kept: the result has a column of that name.")
        tables[0].check_column(column)
        check_same_texts(tables, column)
        names[column] = tables[0].frame[column].tolist()
    return Rows(_inputs(list(map(torch.from_numpy, features)), missing), labels, names, notes, missing=missing)


def _read_images(source: Source, preprocessing: dict[str, Any], classes: Sequence[str] | None) -> Rows:
    known = preprocessing["size"]  # height and width; the side of a square, or null, in older models
    known = [known, known] if isinstance(known, int) else known
    if known is not None and source.size is not None and known != [source.size, source.size]:
        raise ValueError(
            f"--size is {source.size}, but the model was trained on images of {known[1]} x {known[0]} pixels and "
            f"stretches all others to that. Leave it out."
        )
    rows, _ = _images(source, known or source.size, preprocessing["channels"], classes is not None, classes)
    unknown = "the model does not say which size its training images had; these are taken as they are, {} x {} pixels"
    unknown = unknown.format(*rows.x.shape[:1:-1]) + ". --size stretches them to another"
    notes = [*rows.notes, *([unknown] if known is None and source.size is None else [])]
    return replace(rows, x=_normalized(rows.x, preprocessing), notes=notes)


def _images(
    source: Source, size: Size, channels: int, labelled: bool, classes: Sequence[str] | None = None
) -> tuple[Rows, tuple[str, ...]]:
    """Images in [0, 1], points or intervals, and names of the classes; ``classes`` are those expected, if any."""
    first = source.data or source.lower
    assert first is not None
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
    return Rows(x, labels, {"file": files}, notes, [text for side in sides for text in side.unreadable]), order


def _is_tree(path: Path) -> bool:
    packed_images = path.suffix.lower() == ".zip" and not is_packed_table(path)
    return path.is_dir() or packed_images or is_image(path.name)


def _normalized(x: Inputs, preprocessing: dict[str, Any]) -> Inputs:
    return normalize(x, preprocessing["mean"], preprocessing["std"])


def _inputs(features: list[Tensor], missing: Missing) -> Inputs:
    return features[0] if len(features) == 1 else missing.intervals(*features)


def _numbers(labels: Any, classes: Sequence[str], table: Table, encoder: TableEncoder) -> Tensor:
    index = {name: number for number, name in enumerate(classes)}
    for row, label in enumerate(labels):
        if label not in index:
            known = ", ".join(classes)
            raise ValueError(f"{table.at(row, encoder.target)}: the model has no class {label!r}, only {known}.")
    return torch.from_numpy(np.array([index[label] for label in labels], dtype=np.int64))
