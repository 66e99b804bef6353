"""The options of every command, as dataclasses that :mod:`creinn.cli.parsing` makes parsers of.

Their help texts are in ``help.yaml``. No torch here, so that ``--help`` is quick.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from creinn.cli.parsing import POSITIONAL

MethodName = Literal[
    "creinn-d", "creinn", "snn", "bnn-r", "bnn-f", "fsvi", "bnn-l", "deep-ensemble"
]
Network = Literal["resnet8", "resnet14", "resnet18", "resnet20", "resnet34", "resnet50"]

KEYWORDS = (
    "missing", "separator", "decimal", "thousands", "encoding", "comment", "dayfirst",
    "drop", "categorical", "max_categories", "max_classes", "drop_unlabelled",
)  # fmt: skip
"""Keywords of :mod:`creinn.data` that are options of the same name."""


def with_flags(message: str) -> str:
    """Replace keywords in a message by the options of the command line.

    Example:
        >>> with_flags("Pass dayfirst=False, max_classes=9 or missing=.")
        'Pass --dayfirst false, --max-classes 9 or --missing.'
    """

    def flag(found: re.Match[str]) -> str:
        name, value = f"--{found[1].replace('_', '-')}", found[2] or ""
        value = {"True": "", "False": "false"}.get(value, value)
        return f"{name} {value}".strip()

    return re.sub(rf"(?<![\w-])({'|'.join(KEYWORDS)})=('[^']*'|\w+)?", flag, message)


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where a user's data are, one path or lower and upper, and how to read them."""

    data: Path | None = field(default=None, metadata=POSITIONAL)
    lower: Path | None = None
    upper: Path | None = None
    missing: tuple[str, ...] = ("auto",)
    separator: str = "auto"
    decimal: str = "auto"
    thousands: str = "auto"
    encoding: str = "auto"
    comment: str = ""
    size: int | None = None
    strict: bool = False
    batch_size: int | None = None
    device: str = "cpu"

    @property
    def paths(self) -> list[Path]:
        """What is given."""
        return [path for path in (self.data, self.lower, self.upper) if path is not None]

    @property
    def source(self) -> str:
        """What to call the data."""
        return " and ".join(map(str, self.paths))


@dataclass(frozen=True, kw_only=True)
class TrainOptions(DataOptions):
    """Train a classifier on a CSV or Parquet table, a pair of tables of bounds, or a folder of images by class."""

    out: Path
    target: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    max_categories: int = 100
    max_classes: int | None = None
    dayfirst: bool | None = None
    drop_unlabelled: bool = False
    channels: int = 3
    augment: bool = False
    method: MethodName = "creinn-d"
    distance: bool | float | None = None
    members: int | None = None
    combine: Literal["average", "envelope"] = "average"
    mode: Literal["paper", "scaled", "sound"] = "paper"
    loss: Literal["intersection", "bounds"] = "intersection"
    temperature: bool | None = None
    from_: Path | None = None
    train: Literal["auto", "all", "radii", "nothing"] = "auto"
    hidden: tuple[int, ...] = (64, 64)
    network: Network = "resnet8"
    stem: Literal["cifar", "imagenet"] = "cifar"
    width: int | None = None
    epochs: int = 100
    batch_size: int = 64
    learning_rate: float = 1e-3
    milestones: tuple[int, ...] = ()
    class_weight: Literal["balanced", "none"] = "none"
    validation_fraction: float | None = None
    coverage: float | None = None
    patience: int | None = None
    seed: int = 0
    checkpoints: Path | None = None
    progress: bool = True


@dataclass(frozen=True, kw_only=True)
class ModelOptions(DataOptions):
    """What to ask a trained model."""

    model: Path = field(metadata=POSITIONAL)
    out: Path
    force: bool = False
    rule: Literal["maximality", "e-admissibility"] = "maximality"
    progress: bool = True


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ModelOptions):
    """Predict a CSV or Parquet table, a pair of tables of bounds, or a folder of images with a trained model.

    The result has one row per input: the class, the probability of every class with its lower and upper bound, the
    aleatoric, epistemic and total uncertainty (AU, EU, TU), and the set of classes that are not ruled out; of a model
    that was trained with coverage also conformal_set, which holds the true class that often on data like those it was
    trained on. Models that are no CreINN have no bounds and no sets.
    """

    keep: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions):
    """Measure a trained model on labelled data: classes, probabilities, sets, uncertainty, detecting foreign data."""

    out: Path = Path("evaluation.json")
    report: Path | None = None
    ood: Path | None = None
    ood_lower: Path | None = None
    ood_upper: Path | None = None
    drop_unlabelled: bool = False


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Write a trained CreINN as one graph, inputs to bounds, label, uncertainties and set, that runs without creinn.

    ONNX needs pip install "creinn[onnx]"; .pt2 is a program of torch.export. The names of the classes, and how inputs
    are prepared, stand in the metadata of the file.
    """

    model: Path = field(metadata=POSITIONAL)
    out: Path | None = None
    format: Literal["onnx", "pt2"] | None = None
    intervals: bool = False
    size: int | None = None
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Compare CreINNs and their ensembles with ordinary networks on handwritten digits; takes one or two minutes."""

    out: Path = Path("demo")
    members: int = 5
    epochs: int = 40
    seed: int = 0
    jobs: int = 2
    progress: bool = True
