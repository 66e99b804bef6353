"""The options of every command, as dataclasses that :mod:`creinn.cli.parsing` makes parsers of.

No torch here, so that ``--help`` is quick. Fields and help texts of a base class hold for all its subclasses that do
not say otherwise.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from creinn.cli.parsing import POSITIONAL


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where a user's data are, and how to read them.

    Args:
        lower: Table of lower bounds, together with upper; instead of data.
        upper: Table of upper bounds, with the same columns and rows.
        missing: Texts that stand for a missing value, separated by commas; by default those of the training.
        separator: Between the cells of a table; auto finds it among comma, semicolon, tab and bar.
        decimal: Sign before decimals, a point or a comma; auto takes those of the training.
        thousands: Sign between thousands, or none; auto takes those of the training.
        encoding: Of the text of a table; auto takes UTF-8, UTF-16 or, failing those, cp1252.
        size: Side in pixels to which images are stretched, for models of older versions that do not know theirs.
        strict: Whether an image file that cannot be read is an error; otherwise it is left out, and named.
        batch_size: Rows at once.
        device: Where to predict: cpu, cuda, cuda:1, mps, or auto.
    """

    lower: Path | None = None
    upper: Path | None = None
    missing: tuple[str, ...] = ()
    separator: str = "auto"
    decimal: str = "auto"
    thousands: str = "auto"
    encoding: str = "auto"
    size: int | None = None
    strict: bool = False
    batch_size: int = 256
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class TrainOptions(DataOptions):
    """Train a classifier on a CSV table, on a pair of tables of bounds, or on a folder of images by class.

    Args:
        data: CSV table with a header line, plain or packed, or a folder (or zip archive) of images with one folder
            per class.
        out: Directory for the model; train.yaml in it holds all options that were used.
        target: Column of the classes, for tables.
        drop: Columns to leave out, separated by commas.
        categorical: Columns whose numbers or dates are categories, separated by commas.
        max_categories: Of a column of a table; rare ones beyond that number are taken together.
        max_classes: Of a table; by default 1000, and fewer where the target looks like a quantity.
        missing: Texts that stand for a missing value, separated by commas; an empty cell always does.
        decimal: Sign before decimals, a point or a comma; auto finds it for each column.
        thousands: Sign between thousands, or none; auto finds it for each column.
        size: Side in pixels to which images are stretched; by default they must agree already. Later images are
            stretched alike.
        channels: 3 for colour images, 1 for grey ones.
        augment: Whether to move images by a few pixels and mirror them at random in training.
        method: creinn-d (recommended: an ordinary network whose credal sets grow with the distance from the training
            data), creinn (an interval network; also for intervals), snn (an ordinary network), deep-ensemble, bnn-r,
            bnn-f, fsvi or bnn-l.
        distance: Whether credal sets grow with the distance from the training data, by default for creinn-d only; a
            number is the scale, which is otherwise chosen.
        members: Networks to train and combine; by default 1, for deep-ensemble 5.
        combine: How members of creinn-d and creinn make one prediction: average, or envelope, which contains each.
        mode: Of an interval network: paper, scaled (norms keep the order of radii), or sound (intervals contain every
            network inside the weight intervals).
        loss: Of creinn-d and creinn: of the intersection probability, or of both bounds.
        from_: Directory of a trained model to start from instead of new weights, of method creinn-d, creinn, snn or
            deep-ensemble; data are prepared as for that model. An ordinary network becomes credal: by creinn-d in one
            pass over its training data, by creinn with an interval for each weight.
        train: What to train: all, the radii alone, or nothing. By default (auto) all; with from the radii for creinn,
            and nothing for creinn-d.
        hidden: Widths of the hidden layers for tables, separated by commas.
        network: Architecture for images: resnet8, resnet14, resnet18, resnet20, resnet34 or resnet50.
        stem: First layers of resnet18, 34 and 50: cifar for small images, imagenet for large ones.
        width: Channels of the first stage of that network; by default the usual number.
        epochs: Passes over the training data, at most; the intervals that creinn learns grow narrower with them.
        batch_size: Rows per step.
        learning_rate: Of Adam, at the start.
        milestones: Epochs after which the learning rate falls to a tenth, separated by commas.
        class_weight: balanced gives every class the same total weight in the loss; none gives it to every row.
        validation_fraction: Share of the rows of each class that is kept from training, to measure accuracy, to stop,
            and to choose the scale of the distance on; rows that a model to start from was not trained on either. By
            default a sixth; with from, or if that is less than ten rows, nothing.
        patience: Stop after so many epochs without a better validation loss, and keep the best weights; 0 trains for
            all epochs. By default 10 if rows are held out.
        seed: Decides everything random.
        device: Where to train: cpu, cuda, cuda:1, mps, or auto.
        checkpoints: Directory for checkpoints; the same command goes on from there after an interruption.
        progress: Whether to show a progress bar, if there is a terminal.
    """

    data: Path | None = field(default=None, metadata=POSITIONAL)
    out: Path
    target: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    max_categories: int = 100
    max_classes: int | None = None
    missing: tuple[str, ...] = ("NA", "NaN", "nan")
    channels: int = 3
    augment: bool = False
    method: str = "creinn-d"
    distance: bool | float | None = None
    members: int | None = None
    combine: Literal["average", "envelope"] = "average"
    mode: Literal["paper", "scaled", "sound"] = "paper"
    loss: Literal["intersection", "bounds"] = "intersection"
    from_: Path | None = None
    train: Literal["auto", "all", "radii", "nothing"] = "auto"
    hidden: tuple[int, ...] = (64, 64)
    network: str = "resnet8"
    stem: Literal["cifar", "imagenet"] = "cifar"
    width: int | None = None
    epochs: int = 100
    batch_size: int = 64
    learning_rate: float = 1e-3
    milestones: tuple[int, ...] = ()
    class_weight: Literal["balanced", "none"] = "none"
    validation_fraction: float | None = None
    patience: int | None = None
    seed: int = 0
    checkpoints: Path | None = None
    progress: bool = True


@dataclass(frozen=True, kw_only=True)
class ModelOptions(DataOptions):
    """What to ask a trained model.

    Args:
        model: Directory that creinn train wrote.
        force: Whether to replace files of these names that this command did not write; inputs never are.
        rule: Which classes are ruled out: by dominance, by maximality, or by e-admissibility.
    """

    model: Path = field(metadata=POSITIONAL)
    data: Path | None = field(default=None, metadata=POSITIONAL)
    out: Path
    force: bool = False
    rule: Literal["dominance", "maximality", "e-admissibility"] = "maximality"


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ModelOptions):
    """Predict a CSV table, a pair of tables of bounds, or a folder of images with a trained model.

    The result has one row per input: the class, the probability of every class with its lower and upper bound, the
    aleatoric, epistemic and total uncertainty (AU, EU, TU), and the set of classes that are not ruled out. Models that
    are no CreINN have no bounds and no set.

    Args:
        data: CSV table with the columns of the training table, an image, or a folder (or zip archive) of images.
        out: CSV file for the predictions; a file with the same name and the suffix .yaml holds the options.
        keep: Columns of the table that stand in the result too, such as a key, separated by commas.
    """

    out: Path
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions):
    """Measure a trained model on labelled data: classes, probabilities, sets, uncertainty, detection of foreign data.

    Args:
        data: CSV table with the columns of the training table and the class, or a folder (or zip archive) of images
            by class.
        out: JSON file for all numbers; a file with the same name and the suffix .yaml holds the options.
        report: HTML page with what the numbers mean, and pictures of them; needs plotly.
        ood: Data of another kind, without classes, which uncertainty should tell apart; a table or a folder.
        ood_lower: Lower bounds of such data, together with ood_upper; instead of ood.
        ood_upper: Upper bounds of such data.
    """

    out: Path = Path("evaluation.json")
    report: Path | None = None
    ood: Path | None = None
    ood_lower: Path | None = None
    ood_upper: Path | None = None


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Compare CreINNs and their ensembles with ordinary networks on handwritten digits; takes one or two minutes.

    Args:
        out: Folder for report.html and results.json; demo.yaml in it holds all options that were used.
        members: Members of the CreINN ensembles; the Deep Ensemble has twice as many.
        epochs: Passes over the training images.
        seed: Decides everything random.
        jobs: Networks that are trained at the same time; the result does not depend on it.
        progress: Whether to show a progress bar.
    """

    out: Path = Path("demo")
    members: int = 5
    epochs: int = 40
    seed: int = 0
    jobs: int = 2
    progress: bool = True


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """List the experiments with their size."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Run an experiment: what is not yet recorded in the folder of results. Run it again to go on after a stop.

    Args:
        name: Name of the experiment; see creinn experiment list.
        data: Folder of the data sets.
        out: Folder of the results; experiments that share it share their trained networks.
        jobs: Processes that work at the same time, each with its share of the cores.
        device: Where to compute: cpu, cuda, cuda:1, or auto for a GPU if there is one.
        methods: Methods instead of those of the experiment, for example snn,creinn,bnn-r,bnn-r-ensemble.
        ood: Out-of-distribution sets instead of those of the experiment, for example mnist,cifar10.
        seeds: Runs of each method.
        epochs: Passes over the training images; the learning rate falls after the same shares of them.
        batch_size: Images per step.
        width: Channels of the first stage of the network.
        train_images: Training and validation images that are drawn.
        test_images: Test images that are drawn.
        options: Further arguments of a method's classifier, by method, for example {bnn-r: {kl_weight: 0.1}}.
        steps: Only show that the experiment runs: so many steps of its own size, one run, few test images.
        complete: Insist on whole copies of the published data sets.
        progress: Show a progress bar.
    """

    name: str = field(metadata=POSITIONAL)
    data: Path
    out: Path
    jobs: int = 1
    device: str = "cpu"
    methods: tuple[str, ...] = ()
    ood: tuple[str, ...] = ()
    seeds: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    width: int | None = None
    train_images: int | None = None
    test_images: int | None = None
    options: dict[str, dict[str, Any]] | None = None
    steps: int | None = None
    complete: bool = True
    progress: bool = True


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Write report.md and report.html: tables and figures of the paper, ours beside the published ones.

    Args:
        directory: Folder of the results.
    """

    directory: Path = field(metadata=POSITIONAL)


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """Time predictions of the forms of CreINN beside those of the ordinary network, in turns in one process.

    Args:
        network: Architecture: resnet8, resnet14, resnet18, resnet20, resnet34 or resnet50.
        size: Side of the images in pixels.
        batches: Images of a call, separated by commas.
        seconds: Time for each number of images.
        threads: Threads of torch; its own choice if none is given.
        device: Where to compute: cpu, cuda, cuda:1, or auto for a GPU if there is one.
    """

    network: str = "resnet18"
    size: int = 32
    batches: tuple[int, ...] = (1, 32)
    seconds: float = 5.0
    threads: int | None = None
    device: str = "cpu"
