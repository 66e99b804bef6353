"""Options of all commands, with their help. Does not load torch, so that ``--help`` is fast."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from creinn.cli.parsing import option, setting

MethodName = Literal[
    "creinn-d", "creinn", "snn", "bnn-r", "bnn-f", "fsvi", "bnn-l", "deep-ensemble"
]
Network = Literal["resnet8", "resnet14", "resnet18", "resnet20", "resnet34", "resnet50"]

KEYWORDS = (
    "missing", "separator", "decimal", "thousands", "encoding", "comment", "dayfirst",
    "drop", "categorical", "max_categories", "max_classes", "drop_unlabelled",
)  # fmt: skip
"""Keywords of :mod:`creinn.data` that are options of the same name."""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Paths of a user's data, one path or lower and upper bounds, and how to read them."""

    data: Path | None = option(
        None,
        "data",
        "CSV table (plain or compressed), Parquet table, image, or folder or zip archive of "
        "images. Labelled images are in one folder per class.",
        positional=True,
    )
    lower: Path | None = option(
        None, "data", "Table or folder of lower bounds, with --upper, instead of data."
    )
    upper: Path | None = option(
        None, "data", "Table or folder of upper bounds, with the same columns and rows."
    )
    missing: tuple[str, ...] = option(
        ("auto",),
        "data",
        "Texts that mark a missing value, separated by commas. Empty cells are always missing. "
        "auto means NA, N/A, n/a, NaN, nan, NULL, null, None, ? and -, or, for a trained model, "
        "the marks of its training.",
    )
    decimal: str = option(
        "auto", "data", "Decimal mark, '.' or ','. auto detects it, or uses that of the training."
    )
    size: int | None = option(
        None,
        "data",
        "Side in pixels to which images are resized. By default all images must have one size, "
        "or are resized to the size of the training images.",
    )
    separator: str = setting(
        "auto", "data", "Character between cells of a CSV file. auto detects , ; tab and |."
    )
    thousands: str = setting("auto", "data", "Thousands separator, or none. auto: as for decimal.")
    encoding: str = setting(
        "auto", "data", "Encoding of a CSV file. auto tries UTF-8, UTF-16, cp1252."
    )
    comment: str = setting("", "data", "Character that starts a comment in a CSV file, such as #.")
    strict: bool = setting(
        False, "data", "Whether an unreadable image is an error, instead of a note."
    )
    batch_size: int | None = option(
        None, "method", "Rows per batch. By default 4096 rows of a table or 256 images."
    )
    device: str = setting("cpu", "training", "Device: cpu, cuda, cuda:1, mps, or auto.")

    @property
    def paths(self) -> list[Path]:
        """Paths that are given."""
        return [path for path in (self.data, self.lower, self.upper) if path is not None]

    @property
    def source(self) -> str:
        """Name of the data in messages."""
        return " and ".join(map(str, self.paths))


@dataclass(frozen=True, kw_only=True)
class TrainOptions(DataOptions):
    """Train a classifier on a table, on two tables of bounds, or on a folder of images by class."""

    target: str | None = option(None, "data", "Column of the classes. Required for tables.")
    drop: tuple[str, ...] = option((), "data", "Columns to leave out, separated by commas.")
    categorical: tuple[str, ...] = option(
        (), "data", "Columns whose numbers or dates are categories, separated by commas."
    )
    dayfirst: bool | None = option(
        None, "data", "Whether 03/04/2021 starts with the day. By default dates must show it."
    )
    drop_unlabelled: bool = option(
        False, "data", "Drop rows without a class. Otherwise they are an error."
    )
    max_categories: int = setting(
        100, "data", "Most categories of a column; rarer ones are combined."
    )
    max_classes: int | None = setting(
        None,
        "data",
        "Most classes of a table. By default 1000, fewer if the target seems a quantity.",
    )
    channels: int = setting(3, "data", "3 for color images, 1 for gray images.")
    augment: bool = setting(
        False, "data", "Whether to shift and mirror images at random in training."
    )
    method: MethodName = option(
        "creinn-d",
        "method",
        "creinn-d (an ordinary network whose credal sets grow with the distance from the training "
        "data), creinn (an interval network, also for intervals), snn (an ordinary network), "
        "deep-ensemble, bnn-r, bnn-f, fsvi or bnn-l.",
    )
    network: Network = option(
        "resnet8", "method", "Network for images: resnet8, 14, 18, 20, 34 or 50."
    )
    hidden: tuple[int, ...] = option(
        (64, 64), "method", "Widths of the hidden layers for tables, separated by commas."
    )
    members: int | None = option(
        None, "method", "Number of networks to train and combine. By default 1, deep-ensemble: 5."
    )
    distance: bool | float | None = option(
        None,
        "method",
        "Whether credal sets grow with the distance from the training data, by default only for "
        "creinn-d. A number is the scale; otherwise training chooses the scale.",
    )
    from_: Path | None = option(
        None,
        "method",
        "Directory of a trained model (creinn-d, creinn, snn or deep-ensemble) to start from. "
        "Data are prepared as for that model. creinn-d needs one pass over the training data, "
        "creinn trains an interval for each weight.",
    )
    coverage: float | None = option(
        None,
        "method",
        "Calibrate sets of classes that contain the true class with this probability, such as "
        "0.95, on a sixth of the rows (creinn-d and creinn). It holds for data like these only.",
    )
    combine: Literal["average", "envelope"] = setting(
        "average",
        "method",
        "Combination of the members of creinn-d and creinn: average, or envelope, which contains "
        "the set of each member.",
    )
    mode: Literal["paper", "scaled", "sound"] = setting(
        "paper",
        "method",
        "Interval arithmetic of creinn: paper, scaled (normalization keeps the order of radii), "
        "or sound (intervals contain the output of every network inside the weight intervals).",
    )
    loss: Literal["intersection", "bounds"] = setting(
        "intersection",
        "method",
        "Loss of creinn-d and creinn: of the intersection, or of both bounds.",
    )
    temperature: bool | None = setting(
        None,
        "method",
        "Whether held-out rows choose a temperature of the logits. By default only for creinn-d; "
        "not available for bnn-l.",
    )
    stem: Literal["cifar", "imagenet"] = setting(
        "cifar", "method", "First layers of resnet18, 34, 50, for small or large images."
    )
    width: int | None = setting(
        None, "method", "Channels of the first stage. By default the usual number."
    )
    epochs: int = option(100, "training", "Largest number of passes over the training data.")
    batch_size: int = option(64, "training", "Rows per step.")
    validation_fraction: float | None = option(
        None,
        "training",
        "Fraction of each class to hold out, for accuracy, early stopping and the scale of the "
        "distance. By default a sixth; 0 with --from, or if a sixth is less than ten rows.",
    )
    class_weight: Literal["balanced", "none"] = option(
        "none", "training", "balanced: equal total weight of all classes. none: of all rows."
    )
    seed: int = option(0, "training", "Seed of all random numbers.")
    train: Literal["auto", "all", "radii", "nothing"] = setting(
        "auto",
        "training",
        "Parameters to train: all, radii or nothing. auto means all; with --from it means radii "
        "for creinn and nothing for creinn-d.",
    )
    learning_rate: float = setting(1e-3, "training", "Initial learning rate of Adam.")
    milestones: tuple[int, ...] = setting(
        (), "training", "Epochs after which the learning rate is divided by ten."
    )
    patience: int | None = setting(
        None,
        "training",
        "Stop after this number of epochs without a lower validation loss, and keep the best "
        "weights; 0 trains for all epochs. By default 10 if rows are held out.",
    )
    checkpoints: Path | None = setting(
        None, "training", "Directory of checkpoints, from which the same command resumes."
    )
    progress: bool = setting(
        True, "output", "Whether to show a progress bar, or lines if there is no terminal."
    )
    out: Path = option(
        group="output",
        help="Directory for the model (required). Its file train.yaml has all options.",
    )


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """Directory of a trained model."""

    model: Path = option(
        group="data", help="Directory written by creinn train (required).", positional=True
    )


@dataclass(frozen=True, kw_only=True)
class ModelOptions(DataOptions, SavedModel):
    """Options of commands that predict with a trained model."""

    rule: Literal["maximality", "e-admissibility"] = option(
        "maximality", "method", "Rule for the set of classes: maximality or e-admissibility."
    )
    device: str = option("cpu", "method", "Device: cpu, cuda, cuda:1, mps, or auto.")
    out: Path = option(group="output")
    force: bool = option(
        False, "output", "Replace files of other origin. Inputs are never replaced."
    )
    progress: bool = option(True, "output", "Show a progress bar on a terminal.")


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ModelOptions):
    """Predict a table, two tables of bounds, or images with a trained model.

    The result has one row per input: label, probability with lower and upper bound of each class,
    aleatoric, epistemic and total uncertainty (AU, EU, TU), and the set of possible classes.
    Models trained with --coverage add the column conformal_set. Baselines have no bounds or sets.
    """

    keep: tuple[str, ...] = option(
        (), "output", "Columns to copy to the result, such as a key, separated by commas."
    )
    out: Path = option(
        group="output",
        help="File for the predictions (required): Parquet if it ends in .parquet, otherwise CSV. "
        "A file with the same name and the suffix .yaml has all options.",
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions):
    """Evaluate a trained model on labelled data: accuracy, probabilities, sets and uncertainty."""

    ood: Path | None = option(
        None, "data", "Out-of-distribution data without classes: a table or folder."
    )
    ood_lower: Path | None = option(
        None, "data", "Lower bounds of out-of-distribution data, with --ood-upper."
    )
    ood_upper: Path | None = option(None, "data", "Upper bounds of out-of-distribution data.")
    drop_unlabelled: bool = option(
        False, "data", "Drop rows without a class. Otherwise they are an error."
    )
    out: Path = option(
        Path("evaluation.json"),
        "output",
        "JSON file for all numbers. The options are beside it (.yaml).",
    )
    report: Path | None = option(
        None, "output", "HTML page with explanations and figures. Requires plotly."
    )


@dataclass(frozen=True, kw_only=True)
class ExportOptions(SavedModel):
    """Export a trained CreINN as one graph that runs without creinn.

    The graph computes bounds, label, uncertainties and the set of classes. ONNX requires
    pip install "creinn[onnx]"; .pt2 is a program of torch.export. The metadata of the file has the
    names of the classes and the preparation of the inputs.
    """

    intervals: bool = option(
        False, "data", "Take lower and upper bounds of the inputs (interval networks only)."
    )
    size: int | None = option(None, "data", "Side of the images in pixels, if the model has none.")
    out: Path | None = option(
        None, "output", "File that ends in .onnx or .pt2. By default model.onnx beside the model."
    )
    format: Literal["onnx", "pt2"] | None = option(
        None, "output", "Format, if --out is not given: onnx or pt2."
    )
    force: bool = option(False, "output", "Replace an existing file.")


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Compare CreINNs and ensembles with ordinary networks on handwritten digits (1-2 minutes)."""

    members: int = option(
        5, "method", "Members of the CreINN ensembles. The Deep Ensemble has twice as many."
    )
    epochs: int = option(40, "training", "Passes over the training images.")
    seed: int = option(0, "training", "Seed of all random numbers.")
    jobs: int = option(
        2, "training", "Networks trained at the same time. It does not change the result."
    )
    out: Path = option(
        Path("demo"), "output", "Folder for report.html, results.json and demo.yaml."
    )
    progress: bool = option(True, "output", "Show a progress bar.")


SETTINGS = {entry.name for entry in fields(TrainOptions) if "setting" in entry.metadata}


def flag(name: str, value: object = None) -> str:
    """Return how to write an option of ``creinn train``, with a value if one is given.

    Example:
        >>> flag("max_classes", 9), flag("batch_size", 8), flag("from_")
        ('--set max_classes=9', '--batch-size 8', '--from')
    """
    name = name.removesuffix("_")
    text = "" if value is None else str(value)
    if name in SETTINGS:
        return f"--set {name}={text}" if text else f"--set {name}"
    return f"--{name.replace('_', '-')} {text}".rstrip()


def with_flags(message: str) -> str:
    """Replace keywords in a message by the options of the command line.

    Example:
        >>> with_flags("Pass dayfirst=False, max_classes=9 or missing=.")
        'Pass --dayfirst false, --set max_classes=9 or --missing.'
    """

    def replace(found: re.Match[str]) -> str:
        value = {"True": "true", "False": "false"}.get(found[2], found[2])
        return flag(found[1], value)

    return re.sub(rf"(?<![\w-])({'|'.join(KEYWORDS)})=('[^']*'|\w+)?", replace, message)
