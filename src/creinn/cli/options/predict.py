"""``creinn predict``: a model directory and new rows in, a table of predictions out."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from creinn.cli.parsing import POSITIONAL


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Predict a CSV table, a pair of tables of bounds, or a folder of images with a trained model.

    The result has one row per input: the class, the probability of every class with its lower and upper bound, the
    aleatoric, epistemic and total uncertainty (AU, EU, TU), and the set of classes that are not ruled out. Models that
    are no CreINN have no bounds and no set.

    Args:
        model: Directory that creinn train wrote.
        data: CSV table with the columns of the training table, an image, or a folder (or zip archive) of images.
        out: CSV file for the predictions; a file with the same name and the suffix .yaml holds the options.
        force: Whether to replace files of these names that creinn predict did not write; inputs never are.
        keep: Columns of the table that stand in the result too, such as a key, separated by commas.
        lower: Table of lower bounds, together with upper; instead of data.
        upper: Table of upper bounds, with the same columns and rows.
        rule: Which classes are ruled out: by dominance, by maximality, or by e-admissibility.
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

    model: Path = field(metadata=POSITIONAL)
    data: Path | None = field(default=None, metadata=POSITIONAL)
    out: Path
    force: bool = False
    keep: tuple[str, ...] = ()
    lower: Path | None = None
    upper: Path | None = None
    rule: Literal["dominance", "maximality", "e-admissibility"] = "maximality"
    missing: tuple[str, ...] = ()
    separator: str = "auto"
    decimal: str = "auto"
    thousands: str = "auto"
    encoding: str = "auto"
    size: int | None = None
    strict: bool = False
    batch_size: int = 256
    device: str = "cpu"


def run(options: PredictOptions) -> int:
    """Predict and write; returns the exit code.

    Raises:
        ValueError: If the model or the data are not as they must be.
        OSError: If a file cannot be read or written.
    """
    from creinn.cli.predict import predict

    return predict(options)
