"""``creinn evaluate``: a model directory and labelled rows in, figures of merit out."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from creinn.cli.parsing import POSITIONAL


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Measure a trained model on labelled data: classes, probabilities, sets, uncertainty, detection of foreign data.

    Args:
        model: Directory that creinn train wrote.
        data: CSV table with the columns of the training table and the class, or a folder (or zip archive) of images
            by class.
        out: JSON file for all numbers; a file with the same name and the suffix .yaml holds the options.
        report: HTML page with what the numbers mean, and pictures of them; needs plotly.
        force: Whether to replace files of these names that creinn evaluate did not write; inputs never are.
        lower: Table of lower bounds, together with upper; instead of data.
        upper: Table of upper bounds, with the same columns and rows.
        ood: Data of another kind, without classes, which uncertainty should tell apart; a table or a folder.
        ood_lower: Lower bounds of such data, together with ood_upper; instead of ood.
        ood_upper: Upper bounds of such data.
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
    out: Path = Path("evaluation.json")
    report: Path | None = None
    force: bool = False
    lower: Path | None = None
    upper: Path | None = None
    ood: Path | None = None
    ood_lower: Path | None = None
    ood_upper: Path | None = None
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


def run(options: EvaluateOptions) -> int:
    """Evaluate, print and write; returns the exit code.

    Raises:
        ValueError: If the model or the data are not as they must be.
        OSError: If a file cannot be read or written.
    """
    from creinn.cli.evaluate import evaluate

    return evaluate(options)
