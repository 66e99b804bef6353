"""``creinn train``: a table, a pair of tables or a folder of images in, a model directory out."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from creinn.cli.parsing import POSITIONAL


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Train a classifier on a CSV table, on a pair of tables of bounds, or on a folder of images by class.

    Args:
        data: CSV table with a header line, plain or packed, or a folder (or zip archive) of images with one folder
            per class.
        out: Directory for the model; train.yaml in it holds all options that were used.
        target: Column of the classes, for tables.
        lower: Table of lower bounds, together with upper; instead of data.
        upper: Table of upper bounds, with the same columns and rows.
        drop: Columns to leave out, separated by commas.
        categorical: Columns whose numbers or dates are categories, separated by commas.
        max_categories: Of a column of a table; rare ones beyond that number are taken together.
        max_classes: Of a table; by default 1000, and fewer where the target looks like a quantity.
        missing: Texts that stand for a missing value, separated by commas; an empty cell always does.
        separator: Between the cells of a table; auto finds it among comma, semicolon, tab and bar.
        decimal: Sign before decimals, a point or a comma; auto finds it for each column.
        thousands: Sign between thousands, or none; auto finds it for each column.
        encoding: Of the text of a table; auto takes UTF-8, UTF-16 or, failing those, cp1252.
        size: Side in pixels to which images are stretched; by default they must agree already. Later images are
            stretched alike.
        channels: 3 for colour images, 1 for grey ones.
        strict: Whether an image file that cannot be read is an error; otherwise it is left out, and named.
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
    lower: Path | None = None
    upper: Path | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    max_categories: int = 100
    max_classes: int | None = None
    missing: tuple[str, ...] = ("NA", "NaN", "nan")
    separator: str = "auto"
    decimal: str = "auto"
    thousands: str = "auto"
    encoding: str = "auto"
    size: int | None = None
    channels: int = 3
    strict: bool = False
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
    device: str = "cpu"
    checkpoints: Path | None = None
    progress: bool = True


def run(options: TrainOptions) -> int:
    """Train and save; returns the exit code.

    Raises:
        ValueError: If data or options are not as they must be.
        OSError: If a file cannot be read or written.
    """
    from creinn.cli.train import train

    return train(options)
