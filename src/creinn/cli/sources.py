"""Tables, bounds or images of the user.

The preprocessing of the training data is stored in the model.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm import tqdm

from creinn.classifier.base import takes_intervals
from creinn.data.dataset import Dataset
from creinn.data.decoding import format_size
from creinn.data.encoder import Counts, TableEncoder, find_classes, labelled_rows, read_labels
from creinn.data.features import Missing
from creinn.data.images import is_image, is_tree, labels_of, open_tree, read_images
from creinn.data.lazy_images import KEPT, LazyImages
from creinn.data.reading import read_chunks
from creinn.data.table import Reading, Tables, check_cells
from creinn.data.transforms import ChannelStats, normalize
from creinn.distributed import rank
from creinn.interval import Interval
from creinn.numerics import pluralize

if TYPE_CHECKING:
    from creinn.cli.options import DataOptions, ModelOptions, TrainOptions

OPTIONS = "train.yaml"
"""File of the training options in the directory of a model."""
ClassNames = Sequence[str] | None
IMAGES, TABLE_ROWS = 256, 4096  # default batch sizes
MOST_ROWS, MOST_CELLS = 16_384, 2_000_000  # of a part


def check_paths(options: "DataOptions", prefix: str = "") -> None:
    """Raise an error if the paths are not valid."""
    pair = f"--{prefix}lower and --{prefix}upper"
    if (options.lower is None) != (options.upper is None):
        raise ValueError(f"{pair} must be given together.")
    if (options.data is None) == (options.lower is None):
        found = "neither" if options.data is None else "both"
        raise ValueError(f"Give a table or folder, or {pair}; found {found}.")
    for path in options.paths:
        if not path.exists():
            raise FileNotFoundError(f"There is no file or folder {path}.")
    if len(set(map(is_tree, options.paths))) == 2:
        raise ValueError(f"{pair} must both be tables or both be folders of images.")


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the data, which can be empty."""

    inputs: Any
    labels: Tensor | None
    ids: dict[str, Sequence[Any]]  # columns that identify the rows
    notes: Sequence[str]  # on parts so far
    share: float  # fraction of the data that is read
    unreadable: Sequence[str] = ()
    missing: Missing | None = None
    tables: Tables = ()
    distributions: Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs)


def print_notes(data: Dataset | Part) -> None:
    """Print the notes, and the unreadable files to stderr."""
    for note in data.notes:
        print(f"note: {note}")
    for message in data.unreadable:
        print(f"left out: {message}", file=sys.stderr)


def predict_rows(model: Any, data: Dataset | Part, batch_size: int | None = None) -> Any:
    """Return the predictions on the CPU."""
    if data.missing is None:
        return model.predict(data.inputs, batch_size or IMAGES).to("cpu")
    return data.missing.predict(model, data.inputs, batch_size or TABLE_ROWS).to("cpu")


def learn_data(options: "TrainOptions", preprocessing: dict[str, Any] | None = None) -> Dataset:
    """Read the training data and fit the preprocessing."""
    if is_tree(options.paths[0]):
        given = preprocessing or {"size": options.size, "channels": options.channels}
        classes = check_classes(options)
        parts = show_progress(image_parts(options, given, classes), options.progress, "images")
        data = _on_demand(options, classes, parts, given)
    else:
        data = _learn_tables(options)
    check_counts(data)
    return data


def read_data(options: "DataOptions", preprocessing: Any, classes: Sequence[str]) -> Dataset:
    """Read all labelled data."""
    if _check_kind(options, preprocessing) == "images":
        parts = _read_images(options, preprocessing, classes)
        return _on_demand(options, classes, parts, preprocessing)
    (part,) = _read_tables(options, preprocessing, classes, whole=True)
    assert part.labels is not None
    return Dataset(
        options.source,
        part.inputs,
        part.labels,
        classes,
        missing=part.missing,
        distributions=part.distributions,
        notes=part.notes,
        preprocessing={**preprocessing, "marks": part.tables[0].reading.marks},
    )


def stream_data(
    options: "DataOptions", preprocessing: Any, classes: ClassNames = None
) -> Iterator[Part]:
    """Read the data in parts, with labels if ``classes`` is given."""
    if _check_kind(options, preprocessing) == "table":
        yield from _read_tables(options, preprocessing, classes)
        return
    for part in _read_images(options, preprocessing, classes):
        x = normalize(part.inputs, preprocessing["mean"], preprocessing["std"])
        yield replace(part, inputs=x)


def _check_kind(options: "DataOptions", preprocessing: Any) -> str:
    kind = preprocessing.get("kind") if isinstance(preprocessing, dict) else None
    if kind not in ("table", "images"):
        model = getattr(options, "model", "The model")
        raise ValueError(f"{model} was not saved by creinn train. Use creinn.load.")
    if is_tree(options.paths[0]) != (kind == "images"):
        found = "a table" if kind == "images" else "images"
        raise ValueError(f"{options.source}: the model requires {kind}, got {found}.")
    return kind


def predict_parts(
    model: Any, options: "ModelOptions", classes: ClassNames = None
) -> Iterator[tuple[Part, Any]]:
    """Yield the parts with the predictions, and print the notes."""
    check_paths(options)
    parts = stream_data(options, model.preprocessing, classes)
    data = None
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for data in show_progress(parts, options.progress):
            if isinstance(data.inputs, Interval) and not takes_intervals(model):
                raise ValueError("The model does not support intervals. Use --method creinn.")
            if len(data):
                yield data, predict_rows(model, data, options.batch_size)
    assert data is not None
    print_notes(data)


def show_progress(parts: Iterator[Part], shown: bool, what: str | None = None) -> Iterator[Part]:
    """Yield the parts with a progress bar."""
    hidden = not (shown and rank() == 0 and sys.stderr.isatty())
    with tqdm(desc=what, unit=" rows", unit_scale=True, delay=0.5, disable=hidden) as bar:
        count = 0
        for data in parts:
            yield data
            count += len(data)
            bar.total = round(count / data.share)
            bar.update(len(data))


def _learn_tables(options: "TrainOptions") -> Dataset:
    (tables,) = read_chunks(options.paths, _reading(options))
    target, votes = options.target, options.target_columns
    if (target is None) != bool(votes):
        columns = ", ".join(map(str, tables[0].frame))
        found = "both" if votes else f"none of the columns {columns}"
        raise ValueError(f"Give --target or --target-columns; found {found}.")
    tables, notes = labelled_rows(tables, target, options.drop_unlabelled)
    encoder, column_notes = TableEncoder.fit(
        tables, target, (*options.drop, *votes), options.categorical, options.max_categories
    )
    classes = list(votes)
    if target is not None:
        texts = tables[0].texts(target)
        classes, class_notes = find_classes(texts, target, options.max_classes)
        notes += class_notes
    labels, distributions = read_labels(tables[0], target, classes)
    inputs, _ = encoder.encode(tables)
    return Dataset(
        options.source,
        inputs,
        labels,
        classes,
        missing=encoder.missing,
        distributions=distributions,
        notes=column_notes + notes,
        preprocessing={"kind": "table", **encoder.to_json(), "target_columns": votes},
    )


def _read_tables(
    options: "DataOptions", preprocessing: Any, classes: ClassNames, whole: bool = False
) -> Iterator[Part]:
    encoder = TableEncoder.from_json(preprocessing)
    target, missing = encoder.target, encoder.missing
    reading = _reading(options).complete(encoder.decimal, encoder.marks)
    kept_columns = getattr(options, "keep", ())
    if "row" in kept_columns:
        raise ValueError("--keep: the result has a column 'row'.")
    batch_size = options.batch_size or TABLE_ROWS
    most = min(MOST_ROWS, MOST_CELLS // missing.num_features)
    rows = None if whole else batch_size * max(1, most // batch_size)
    numbers = encoder.numbers.difference(kept_columns)
    counts: Counts = {}
    dropped = 0
    for tables in read_chunks(options.paths, reading, rows, numbers):
        labels = distributions = None
        if classes is not None:
            count = len(tables[0])
            tables, _ = labelled_rows(tables, target, getattr(options, "drop_unlabelled", False))
            labels, distributions = read_labels(tables[0], target, classes)
            dropped += count - len(labels)
        first = tables[0]
        inputs, notes = encoder.encode(tables, counts)
        if dropped:
            notes.append(f"{first.name}: {pluralize(dropped, 'row')} without a class dropped")
        ids: dict[str, Any] = {"row": first.frame.index + 1}
        for column in kept_columns:
            first.check_column(column)
            check_cells(tables, column)
            ids[column] = first.frame[column].array
        yield Part(inputs, labels, ids, notes, first.share, (), missing, tables, distributions)


def _reading(options: "DataOptions") -> Reading:
    names = {field.name for field in fields(Reading)}
    return Reading(**{name: value for name, value in vars(options).items() if name in names})


def _on_demand(
    options: "DataOptions", classes: Sequence[str], parts: Iterator[Part], preprocessing: Any
) -> Dataset:
    """Return images that are decoded on demand."""
    stats, files = ChannelStats(), list[str]()
    for data in parts:
        files += data.ids["file"]
        if len(data):
            stats.add(data.inputs)
            channels, *size = data.inputs.shape[1:]
    mean, std = stats.mean_and_std()
    preprocessing = {"kind": "images", "mean": mean, "std": std, **preprocessing, "size": size}
    how: Any = {"size": size, "channels": channels, "keep": KEPT, "crop": preprocessing.get("crop")}
    x = LazyImages(options.paths[0], upper=options.upper, files=files, classes=classes, **how)
    notes = list(data.notes)
    if not x.fits:
        notes.append(f"{options.source}: only {KEPT / 2**30:g} GiB of images stay in memory")
    return Dataset(
        options.source,
        x.normalized(preprocessing["mean"], preprocessing["std"]),
        x.labels,
        classes,
        notes=notes,
        unreadable=data.unreadable,
        preprocessing=preprocessing,
    )


def _read_images(options: "DataOptions", preprocessing: Any, classes: ClassNames) -> Iterator[Part]:
    if getattr(options, "keep", ()):
        raise ValueError(f"--keep is for columns of a table; {options.source} has images.")
    size = preprocessing["size"]
    if options.size is not None and size != [options.size, options.size]:
        found = f"--size is {options.size}, but the model requires {format_size(size)}"
        raise ValueError(f"{found}. Omit it.")
    if classes is not None:
        check_classes(options, classes)
    return image_parts(options, preprocessing, classes)


def check_classes(options: "DataOptions", expected: ClassNames = None) -> Sequence[str]:
    """Return the expected classes, or the names of the folders."""
    first = options.paths[0]
    if first.is_file() and is_image(first.name):
        raise ValueError(f"{first} is one image. Give one folder per class.")
    with open_tree(first) as tree:
        return tree.classes(expected)


def check_counts(data: Dataset) -> None:
    """Raise an error if a class has no images or is the only one."""
    if len(data.classes) < 2:
        raise ValueError(f"{data.name} has only the class {data.classes[0]!r}.")
    for name, count in zip(data.classes, data.counts, strict=True):
        if count == 0 and data.unreadable:
            found = f"no image of the class {name!r} can be read"
            raise ValueError(f"{data.name}: {found}. {data.unreadable[0]}")


def image_parts(options: "DataOptions", preprocessing: Any, classes: ClassNames) -> Iterator[Part]:
    """Yield batches of images in [0, 1]."""
    step = options.batch_size or IMAGES
    with open_tree(options.paths[0]) as tree:
        own_notes, total, count = tree.notes, len(tree.images), 0
    how = (preprocessing["size"], preprocessing["channels"], options.strict, step)
    for x, files, sides in read_images(options.paths, *how, preprocessing.get("crop")):
        count += step
        labels = None if classes is None else labels_of(files, classes)
        notes = own_notes + [note for side in sides for note in side.notes()]
        unreadable = [message for side in sides for message in side.unreadable.values()]
        yield Part(x, labels, {"file": files}, notes, min(1.0, count / total), unreadable)
