"""Options of all commands; without torch, so that ``--help`` is fast."""

from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Literal

from jsonargparse.typing import PositiveInt

from creinn.cli.parsing import option, setting

MethodName = Literal[
    "creinn-d", "creinn", "snn", "bnn-r", "bnn-f", "fsvi", "bnn-l", "deep-ensemble",
    "effcre", "crerl",
]  # fmt: skip
Network = Literal[
    "efficientnet-lite0", "resnet8", "resnet14", "resnet18", "resnet20", "resnet34", "resnet50"
]

MODEL_FILES = ("config.json", "model.safetensors", "train.yaml")
DATA = """CSV table (plain or compressed), Parquet table, image, or folder or zip archive of
images. Labelled images are in one folder per class."""
MARKS_TEXT = """Marks of missing values, separated by commas; empty cells are always missing. auto
is the marks of the training, by default NA, N/A, n/a, NaN, nan, NULL, null, None, ? and -."""
METHOD = """creinn-d: an ordinary network, where the credal sets grow with the distance from the
training data. creinn: an interval network, also for intervals. The others are baselines."""
NETWORKS = """Network for images; default resnet8. efficientnet-lite0 is pretrained on ImageNet and
trains only its last layer, which is best for few photographs of any size."""
FROM = """Trained model (creinn-d, creinn, snn or deep-ensemble) to start from. creinn-d needs one
pass over the data; creinn trains an interval for each weight."""
DISTANCE = """Whether the credal sets grow with the distance from the training data; default true
for creinn-d only. A number is the scale, which is fitted otherwise."""
COVERAGE = """Calibrate sets of classes that contain the true class with this probability, such as
0.95, with a sixth of the rows. This holds for similar data only."""
MAX_ERROR = """Calibrate an acceptance with at most this error rate among accepted rows, such as
0.05, with a sixth of the rows. This holds for similar data only."""
VOTES = """Columns with the votes for each class, or probabilities, instead of --target."""
MODE = """Interval arithmetic of creinn: paper, scaled (normalization keeps the order of radii),
or sound (the intervals contain the output of every network in the weight intervals)."""
HELD_OUT = """Fraction of each class that is held out for the accuracy, early stopping and the
scale of the distance; default a sixth, or 0 with --from or for few rows."""
TRAIN = """Parameters to train: all, radii or nothing. auto is all for a new model; with --from
it is radii for creinn and nothing for creinn-d."""
PATIENCE_HELP = """Epochs without a lower validation loss before the training stops with the best
weights; default 10 with held-out rows. 0 trains for all epochs."""
RATE = """Initial learning rate of Adam; default 0.001, for ordinary networks on tables 0.002 to
0.004, and with --finetune 0.0001."""
BATCH = "Rows per step; default 64, for ordinary networks on tables 64 to 256."
UNLABELLED = "Drop rows without a class, which are an error otherwise."
DEVICE = "Device: cpu, cuda, cuda:1, mps or auto."
OOD = """Out-of-distribution table or folder; can be repeated. NAME=PATH adds it to a group, such
as near=other.csv. The report has the mean of each group."""
PREDICTIONS = """File for the predictions, Parquet if it ends in .parquet, otherwise CSV (required).
All options are in the same file with suffix .yaml."""


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Paths of the data and how to read them."""

    data: Path | None = option(None, "data", DATA, positional=True)
    lower: Path | None = option(None, "data", "Table or folder of lower bounds.")
    upper: Path | None = option(None, "data", "Upper bounds, with --lower.")
    missing: tuple[str, ...] = option(("auto",), "data", MARKS_TEXT)
    decimal: str = option("auto", "data", "Decimal mark, '.' or ','; auto detects it.")
    size: int | None = option(None, "data", "Side of images in pixels.")
    separator: str = setting("auto", "Character between cells; auto detects , ; tab or |.")
    encoding: str = setting("auto", "Encoding; auto tries UTF-8, UTF-16 and cp1252.")
    comment: str = setting("", "Character that starts a comment, such as #.")
    strict: bool = setting(False, "Whether an unreadable image is an error.")
    batch_size: int | None = option(None, "method", "Rows per batch.")
    device: str = setting("cpu", DEVICE)

    @property
    def paths(self) -> list[Path]:
        """Paths of the data."""
        return [path for path in (self.data, self.lower, self.upper) if path is not None]

    @property
    def source(self) -> str:
        """Name of the data."""
        return " and ".join(map(str, self.paths))


@dataclass(frozen=True, kw_only=True)
class TrainOptions(DataOptions):
    """Train a classifier on a table, two tables of bounds, or images."""

    target: str | None = option(None, "data", "Column of the classes of a table.")
    target_columns: tuple[str, ...] = option((), "data", VOTES)
    drop: tuple[str, ...] = option((), "data", "Columns to leave out, separated by commas.")
    categorical: tuple[str, ...] = setting((), "Number columns that are categories.")
    dayfirst: bool | None = setting(None, "Whether 03/04/2021 is in April.")
    drop_unlabelled: bool = setting(False, UNLABELLED)
    max_categories: int = setting(100, "Most categories of a column.")
    max_classes: int | None = setting(
        None, "Most classes; default 1000, or 50 for numbers with few rows."
    )
    channels: int = setting(3, "3 for color images, 1 for gray images.")
    augment: bool = setting(False, "Whether to shift and mirror images.")
    method: MethodName = option("creinn-d", "method", METHOD)
    network: Network | None = option(None, "method", NETWORKS)
    finetune: bool = option(False, "method", "Train all layers of the pretrained network.")
    hidden: tuple[int, ...] = option((64, 64), "method", "Widths of hidden layers for tables.")
    members: PositiveInt | None = option(None, "method", "Number of networks in an ensemble.")
    distance: bool | float | None = setting(None, DISTANCE)
    from_: Path | None = option(None, "method", FROM)
    coverage: float | None = option(None, "method", COVERAGE)
    max_error: float | None = option(None, "method", MAX_ERROR)
    confidence: float = option(0.95, "method", "Confidence of --max-error.")
    combine: Literal["average", "envelope"] = setting(
        "average", "Combination of several credal sets."
    )
    mode: Literal["paper", "scaled", "sound"] = setting("paper", MODE)
    loss: Literal["intersection", "bounds"] = setting(
        "intersection", "Loss of the intersection probability or of both bounds."
    )
    temperature: bool | None = setting(
        None, "Whether to fit a temperature; default true for creinn-d only."
    )
    stem: Literal["cifar", "imagenet"] = setting(
        "cifar", "First layers of a resnet, for small or large images."
    )
    width: int | None = setting(None, "Channels of the first stage.")
    epochs: int = option(100, "training", "Most passes over the training data.")
    batch_size: int | None = option(None, "training", BATCH)
    validation_fraction: float | None = option(None, "training", HELD_OUT)
    class_weight: Literal["balanced", "none"] = setting(
        "none", "balanced: all classes have the same total weight."
    )
    seed: int = option(0, "training", "Seed of all random numbers.")
    train: Literal["auto", "all", "radii", "nothing"] = setting("auto", TRAIN)
    learning_rate: float | None = setting(None, RATE)
    milestones: tuple[int, ...] = setting(
        (), "Epochs after which the learning rate is divided by ten."
    )
    patience: int | None = setting(None, PATIENCE_HELP)
    checkpoints: Path | None = setting(None, "Directory of checkpoints to resume from.")
    progress: bool = setting(True, "Whether to show the progress.")
    out: Path = option(help="Directory of the model and train.yaml, its options (required).")


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """Directory of a trained model."""

    model: Path = option(MISSING, "data", "Directory of a model (required).", positional=True)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(DataOptions, SavedModel):
    """Options of commands with predictions."""

    rule: Literal["maximality", "e-admissibility"] = option(
        "maximality", "method", "Decision rule for the set of classes."
    )
    device: str = option("cpu", "method", DEVICE)
    out: Path = option()
    force: bool = option(False, help="Replace other files. Inputs are never replaced.")
    progress: bool = option(True, help="Show a progress bar on a terminal.")

    @property
    def inputs(self) -> list[Path]:
        """Files that are read."""
        return [*self.paths, *(self.model / name for name in MODEL_FILES)]


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ModelOptions):
    """Predict a table, two tables of bounds, or images with a trained model.

    The result has one row per input: label, probability of each class, and
    aleatoric, epistemic and total uncertainty (AU, EU, TU). Credal methods
    (creinn-d, creinn, effcre and crerl) add lower and upper bounds, and
    the set of possible classes. Training with --coverage adds the column
    conformal_set, and --max-error the column accepted.
    """

    keep: tuple[str, ...] = option((), help="Columns to copy to the result, separated by commas.")
    out: Path = option(help=PREDICTIONS)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions):
    """Evaluate accuracy, probabilities, sets and uncertainty of a model."""

    ood: tuple[str, ...] = option((), "data", OOD, repeated=True)
    ood_lower: Path | None = option(None, "data", "Lower bounds of out-of-distribution data.")
    ood_upper: Path | None = option(None, "data", "Upper bounds of out-of-distribution data.")
    drop_unlabelled: bool = option(False, "data", UNLABELLED)
    out: Path = option(Path("evaluation.json"), help="JSON file for all numbers.")
    report: Path | None = option(None, help="HTML page with explanations and figures.")

    @property
    def ood_sets(self) -> list[tuple[str, "EvaluateOptions"]]:
        """Groups and options of the OOD data."""
        sets = []
        for text in self.ood:
            group, is_named, path = text.partition("=")
            if not is_named or Path(text).exists():
                group, path = "", text
            sets.append((group, replace(self, data=Path(path), lower=None, upper=None)))
        if self.ood_lower or self.ood_upper:
            bounds = replace(self, data=None, lower=self.ood_lower, upper=self.ood_upper)
            sets.append(("", bounds))
        return sets

    @property
    def inputs(self) -> list[Path]:
        """Files that are read."""
        return [*super().inputs, *(path for _, ood in self.ood_sets for path in ood.paths)]


@dataclass(frozen=True, kw_only=True)
class ExportOptions(SavedModel):
    """Export a trained CreINN or an ensemble as one graph.

    The outputs are the bounds, label, uncertainties and set of classes.
    ONNX requires pip install "creinn[onnx]"; .pt2 is a program of
    torch.export. The metadata contain the names of the classes and the
    preprocessing.
    """

    intervals: bool = option(False, "data", "Use bounds as inputs (interval networks only).")
    out: Path | None = option(None, help="File that ends in .onnx or .pt2.")
    format: Literal["onnx", "pt2"] | None = option(None, help="Format, if --out is not given.")
    force: bool = option(False, help="Replace an existing file.")


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Compare CreINNs and ensembles with ordinary networks on digits, in 1-2 minutes."""

    members: int = option(5, "method", "Members of an ensemble; twice as many for Deep Ensembles.")
    epochs: int = option(40, "training", "Passes over the training images.")
    seed: int = option(0, "training", "Seed of all random numbers.")
    jobs: int = option(2, "training", "Networks that are trained at once.")
    out: Path = option(Path("demo"), help="Folder for report.html, results.json and demo.yaml.")
    progress: bool = option(True, help="Show a progress bar.")
