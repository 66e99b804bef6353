"""The data and the models of the user.

The data are a table, two tables of bounds, or images. The preprocessing is fitted on the training
data and stored in the saved model.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm import tqdm

from creinn.classifier.base import takes_intervals
from creinn.data.dataset import Dataset
from creinn.data.decoding import format_size
from creinn.data.encoder import (
    Counts,
    TableEncoder,
    class_indices,
    find_classes,
    label_distributions,
    labelled_rows,
)
from creinn.data.features import Missing
from creinn.data.images import is_image, is_tree, labels_of, open_tree, read_images
from creinn.data.lazy_images import KEPT, LazyImages
from creinn.data.reading import read_chunks, read_pairs_of_chunks, read_table
from creinn.data.table import Reading, Table, Tables, check_cells
from creinn.data.transforms import ChannelStats, normalize
from creinn.distributed import rank
from creinn.interval import Interval
from creinn.numerics import pluralize

if TYPE_CHECKING:
    from creinn.cli.options import DataOptions, ModelOptions, TrainOptions

OPTIONS = "train.yaml"
"""The file in the directory of a model with the options of the training."""
IMAGES, TABLE_ROWS = 256, 4096  # the default batch sizes for prediction
MOST_ROWS, MOST_CELLS = 16_384, 2_000_000  # of a part of a table in memory


def check_paths(options: "DataOptions", prefix: str = "") -> None:
    """Raise an error if a path does not exist, or the number of paths is wrong."""
    pair = f"--{prefix}lower and --{prefix}upper"
    if (options.lower is None) != (options.upper is None):
        raise ValueError(f"{pair} must be given together, but there is only one of them.")
    if (options.data is None) == (options.lower is None):
        found = "neither" if options.data is None else "both"
        raise ValueError(f"Give a table or folder, or {pair}; found {found}.")
    for path in options.paths:
        if not path.exists():
            raise FileNotFoundError(f"There is no file or folder {path}.")
    if len(set(map(is_tree, options.paths))) == 2:
        raise ValueError(f"{pair} must both be tables or both be folders of images.")


@dataclass(frozen=True, eq=False)
class PreparedData(Dataset):
    """Labelled data of the user as inputs of a network, and how they were read."""

    notes: Sequence[str] = ()  # the decisions of the reader
    unreadable: Sequence[str] = ()  # a message for each file that cannot be read
    preprocessing: dict[str, Any] = field(default_factory=dict)  # of new rows
    distributions: Tensor | None = None  # of the labels (N, K), which are the most probable classes

    def take(self, index: Tensor) -> "PreparedData":
        """Return the samples at the given indices."""
        q = self.distributions
        return replace(super().take(index), distributions=None if q is None else q[index])

    def to_fit(self) -> Any:
        """Return the inputs and labels for training, with values for missing cells."""
        data = super().to_fit()
        return data if self.distributions is None else (data[0], self.distributions)


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the data of the user as inputs of a network. It can be empty."""

    inputs: Any
    labels: Tensor | None  # if the classes are given
    ids: dict[str, Sequence[Any]]  # columns that identify the rows
    notes: Sequence[str]  # the decisions of the reader so far
    share: float  # the fraction of the data that was read so far
    unreadable: Sequence[str] = ()  # a message for each file that cannot be read
    missing: Missing | None = None
    tables: Sequence[Table] = ()  # the original rows
    distributions: Tensor | None = None  # of the labels (N, K)

    def __len__(self) -> int:
        return len(self.inputs)


def print_notes(data: PreparedData | Part) -> None:
    """Print the notes, and print the unreadable files to stderr."""
    for note in data.notes:
        print(f"note: {note}")
    for message in data.unreadable:
        print(f"left out: {message}", file=sys.stderr)


def predict_rows(model: Any, data: PreparedData | Part, batch_size: int | None = None) -> Any:
    """Return the predictions of a model, on the CPU."""
    if data.missing is None:
        return model.predict(data.inputs, batch_size or IMAGES).to("cpu")
    return data.missing.predict(model, data.inputs, batch_size or TABLE_ROWS).to("cpu")


def learn_data(
    options: "TrainOptions", preprocessing: dict[str, Any] | None = None
) -> PreparedData:
    """Read the training data, and fit the preprocessing, unless that of images is given."""
    is_images = is_tree(options.paths[0])
    data = _learn_images(options, preprocessing) if is_images else _learn_tables(options)
    check_counts(data)
    return data


def read_data(options: "DataOptions", preprocessing: Any, classes: Sequence[str]) -> PreparedData:
    """Read all labelled data with the preprocessing of the training data."""
    kind = _check_kind(options, preprocessing)
    if kind == "images":
        parts = _read_images(options, preprocessing, classes)
        data, _ = _on_demand(options, classes, parts, preprocessing.get("crop"))
        return _normalize(data, preprocessing)
    (part,) = _read_tables(options, preprocessing, classes, whole=True)
    assert part.labels is not None
    preprocessing = {**preprocessing, "marks": part.tables[0].reading.marks}
    return PreparedData(
        options.source,
        part.inputs,
        part.labels,
        classes,
        missing=part.missing,
        notes=part.notes,
        preprocessing=preprocessing,
        distributions=part.distributions,
    )


def stream_data(
    options: "DataOptions", preprocessing: Any, classes: Sequence[str] | None = None
) -> Iterator[Part]:
    """Read data in parts with the preprocessing of the training data.

    If ``classes`` is not given, the labels are not read.
    """
    if _check_kind(options, preprocessing) == "table":
        yield from _read_tables(options, preprocessing, classes)
        return
    for part in _read_images(options, preprocessing, classes):
        scale = (preprocessing["mean"], preprocessing["std"])
        yield replace(part, inputs=normalize(part.inputs, *scale))


def _check_kind(options: "DataOptions", preprocessing: Any) -> str:
    kind = preprocessing.get("kind") if isinstance(preprocessing, dict) else None
    if kind not in ("table", "images"):
        raise ValueError(
            f"{getattr(options, 'model', 'The model')} was not saved by creinn train, so the "
            "preparation of its inputs is unknown. Load it in Python with creinn.load."
        )
    if is_tree(options.paths[0]) != (kind == "images"):
        kinds = ("a table", "images") if kind == "images" else ("images", "a table")
        raise ValueError(f"{options.source}: found {kinds[0]}, but the model requires {kinds[1]}.")
    return kind


def predict_parts(
    model: Any, options: "ModelOptions", classes: Sequence[str] | None = None
) -> Iterator[tuple[Part, Any]]:
    """Yield the parts of the data with the predictions, and then print the notes."""
    check_paths(options)
    parts = stream_data(options, model.preprocessing, classes)
    data = None
    with torch.random.fork_rng():
        torch.manual_seed(0)  # the result of methods that use sampling is reproducible
        for data in show_progress(parts, options.progress):
            if isinstance(data.inputs, Interval) and not takes_intervals(model):
                raise ValueError(
                    f"{options.source} contains intervals, but the model does not support them. "
                    "Train a model with --method creinn."
                )
            if len(data):
                yield data, predict_rows(model, data, options.batch_size)
    assert data is not None
    print_notes(data)


def show_progress(parts: Iterator[Part], shown: bool, what: str | None = None) -> Iterator[Part]:
    """Yield the parts, and show a progress bar in a terminal."""
    hidden = not (shown and rank() == 0 and sys.stderr.isatty())
    with tqdm(desc=what, unit=" rows", unit_scale=True, delay=0.5, disable=hidden) as bar:
        count = 0
        for data in parts:
            yield data
            count += len(data)
            bar.total = round(count / data.share)
            bar.update(len(data))


def _learn_tables(options: "TrainOptions") -> PreparedData:
    reading = _reading(options, options.dayfirst)
    tables: Tables = [read_table(path, reading) for path in options.paths]
    first, target, votes = tables[0], options.target, options.target_columns
    if (target is None) != bool(votes):
        known = f"the columns are {', '.join(map(str, first.frame))}"
        found = "both are given" if votes else known
        raise ValueError(f"Give --target or --target-columns, the columns of the classes; {found}.")
    label_notes: list[str] = []
    if target is not None:
        tables, texts, label_notes = labelled_rows(tables, target, options.drop_unlabelled)
    encoder, notes = TableEncoder.fit(
        tables, target, (*options.drop, *votes), options.categorical, options.max_categories
    )
    distributions, classes = None, list(votes)
    if target is None:
        distributions = label_distributions(first, votes)
        labels = distributions.argmax(1)
    else:
        classes, class_notes = find_classes(texts, target, options.max_classes)
        labels = class_indices(texts, classes, tables[0], target)
        label_notes = label_notes + class_notes
    inputs, _ = encoder.encode(tables)
    return PreparedData(
        options.source,
        inputs,
        labels,
        classes,
        missing=encoder.missing,
        notes=notes + label_notes,
        preprocessing={"kind": "table", **encoder.to_json(), "target_columns": votes},
        distributions=distributions,
    )


def _read_tables(
    options: "DataOptions", preprocessing: Any, classes: Sequence[str] | None, whole: bool = False
) -> Iterator[Part]:
    encoder = TableEncoder.from_json(preprocessing)
    counts: Counts = {}
    reading = encoder.complete(_reading(options))
    kept_columns = getattr(options, "keep", ())
    if "row" in kept_columns:
        raise ValueError("The column 'row' cannot be kept: the result has a column of that name.")
    batch_size = options.batch_size or TABLE_ROWS
    most = min(MOST_ROWS, MOST_CELLS // encoder.missing.num_features)
    rows = None if whole else batch_size * max(1, most // batch_size)
    fast = encoder.plain_numbers(reading).difference(kept_columns)
    dropped = 0
    chunks = [read_chunks(path, reading, rows, fast) for path in options.paths]
    for chunk in read_pairs_of_chunks(*chunks):
        tables: Tables = chunk
        labels = distributions = None
        if classes is not None and encoder.target is None:
            distributions = label_distributions(tables[0], classes)
            labels = distributions.argmax(1)
        elif classes is not None:
            drop_unlabelled = getattr(options, "drop_unlabelled", False)
            tables, texts, _ = labelled_rows(chunk, preprocessing["target"], drop_unlabelled)
            labels = class_indices(texts, classes, tables[0], preprocessing["target"])
            dropped += len(chunk[0]) - len(texts)
        first = tables[0]
        inputs, notes = encoder.encode(tables, counts)
        if dropped:
            notes.append(f"{first.name}: {pluralize(dropped, 'row')} without a class dropped")
        ids: dict[str, Any] = {"row": first.frame.index + 1}
        for column in kept_columns:
            first.check_column(column)
            check_cells(tables, column)
            ids[column] = first.frame[column].array
        more: Any = {"tables": tables, "distributions": distributions}
        yield Part(inputs, labels, ids, notes, first.share, missing=encoder.missing, **more)


def _reading(options: "DataOptions", dayfirst: bool | None = None) -> Reading:
    names = ("missing", "separator", "decimal", "encoding", "comment")
    return Reading(**{name: getattr(options, name) for name in names}, dayfirst=dayfirst)


def _learn_images(options: "TrainOptions", preprocessing: dict[str, Any] | None) -> PreparedData:
    """Read images by class, and by default scale each channel to mean 0 and standard deviation 1.

    For intervals, the mean and the standard deviation are those of the centers.
    """
    given = preprocessing or {"size": options.size, "channels": options.channels}
    classes = check_classes(options)
    parts = show_progress(image_parts(options, given, classes), options.progress, "images")
    data, stats = _on_demand(options, classes, parts, given.get("crop"))
    mean, std = stats.mean_and_std()
    return _normalize(data, {"kind": "images", "mean": mean, "std": std, **given})


def _on_demand(
    options: "DataOptions", classes: Sequence[str], parts: Iterator[Part], crop: float | None
) -> tuple[PreparedData, ChannelStats]:
    """Return all images, which are decoded again when they are used, and their statistics."""
    stats = ChannelStats()
    files: list[str] = []
    for data in parts:
        files += data.ids["file"]
        if len(data):
            stats.add(data.inputs)
            channels, *size = data.inputs.shape[1:]
    about: Any = {"size": size, "channels": channels, "classes": classes}
    about |= {"keep": KEPT, "crop": crop}
    x = LazyImages(options.paths[0], upper=options.upper, files=files, **about)
    notes = list(data.notes)
    if not x.fits:
        limit = f"{KEPT / 2**30:g} GiB"
        notes.append(f"{options.source}: only {limit} of images stay in memory")
    about = {"notes": notes, "unreadable": data.unreadable}
    return PreparedData(options.source, x, x.labels, classes, **about), stats


def _read_images(
    options: "DataOptions", preprocessing: Any, classes: Sequence[str] | None
) -> Iterator[Part]:
    if getattr(options, "keep", ()):
        raise ValueError(f"--keep is for columns of a table, but {options.source} has images.")
    size = preprocessing["size"]
    if options.size is not None and size != [options.size, options.size]:
        found = f"--size is {options.size}, but the model resizes images to {format_size(size)}"
        raise ValueError(f"{found} pixels. Leave it out.")
    if classes is not None:
        check_classes(options, classes)
    return image_parts(options, preprocessing, classes)


def check_classes(options: "DataOptions", expected: Sequence[str] | None = None) -> Sequence[str]:
    """Return the expected classes, or those of the folders. Other folders raise an error."""
    first = options.paths[0]
    if first.is_file() and is_image(first.name):
        advice = "Give a folder with one folder of images per class."
        raise ValueError(f"{first} is one image. {advice}")
    with open_tree(first) as tree:
        return tree.classes(expected)


def check_counts(data: PreparedData) -> None:
    """Raise an error if there is only one class, or if no image of a class can be read."""
    if len(data.classes) < 2:
        raise ValueError(f"{data.name} has only the class {data.classes[0]!r}.")
    for name, count in zip(data.classes, data.counts, strict=True):
        if count == 0:
            found = f"{data.name}: no image of the class {name!r} can be read"
            raise ValueError(f"{found}. {data.unreadable[0]}")


def image_parts(
    options: "DataOptions", preprocessing: dict[str, Any], classes: Sequence[str] | None
) -> Iterator[Part]:
    """Yield images in [0, 1] as points or intervals, in batches."""
    step = options.batch_size or IMAGES
    with open_tree(options.paths[0]) as tree:
        notes, total, count = tree.notes, len(tree.images), 0
    how = (preprocessing["size"], preprocessing["channels"], options.strict, step)
    for x, files, sides in read_images(options.paths, *how, preprocessing.get("crop")):
        count += step
        yield Part(
            x,
            None if classes is None else labels_of(files, classes),
            {"file": files},
            notes + [note for side in sides for note in side.notes()],
            min(1.0, count / total),
            [text for side in sides for text in side.unreadable.values()],
        )


def _normalize(data: PreparedData, preprocessing: dict[str, Any]) -> PreparedData:
    x = data.inputs.normalized(preprocessing["mean"], preprocessing["std"])
    return replace(data, inputs=x, preprocessing={**preprocessing, "size": list(x.shape[2:])})
