"""``creinn export``: export a trained model to ONNX or ``torch.export``."""

from pathlib import Path
from typing import Any

import torch

from creinn.classifier.base import Inputs
from creinn.classifier.credal import Ensemble
from creinn.classifier.creinn import CreINN
from creinn.cli.options import ExportOptions
from creinn.cli.sources import read_model, takes_intervals
from creinn.graph.export import MOST_CLASSES, example_of, export
from creinn.interval import Interval
from creinn.numerics import pluralize


def export_model(options: ExportOptions) -> int:
    """Export a model and return the exit code."""
    path = _path(options)
    model = read_model(options.model, "cpu")
    if not isinstance(model, CreINN | Ensemble):
        raise ValueError(
            f"{options.model} is a model of kind {type(model).__name__}. Only a CreINN can be "
            "exported."
        )
    if options.intervals and not takes_intervals(model):
        raise ValueError(
            "The model has an ordinary network, which does not support intervals. "
            "Remove --intervals."
        )
    x = _example(model)
    export(model, path, Interval(x, x) if options.intervals else x)
    print(f"wrote {path}: {pluralize(path.stat().st_size, 'byte')}")
    if model.preprocessing is not None:
        print(
            "note: the inputs of the graph must be prepared as described in its metadata under "
            "preprocessing"
        )
    if model.num_classes > MOST_CLASSES:
        print("note: the graph has no AU and EU for this number of classes; see docs/export.md")
    return 0


def _path(options: ExportOptions) -> Path:
    """Return the path of the output, based on the suffix or the format."""
    path = options.out or options.model / f"model.{options.format or 'onnx'}"
    if options.format is not None and path.suffix != f".{options.format}":
        raise ValueError(
            f"--format is {options.format}, but {path} has the suffix {path.suffix!r}. "
            "Remove one of them."
        )
    if path.exists() and not options.force:
        raise ValueError(f"{path} exists. Choose another file, or replace it with --force.")
    return path


def _example(model: Any) -> Inputs:
    known = model.preprocessing
    if isinstance(known, dict) and known.get("kind") == "images":
        return torch.zeros(1, known["channels"], *known["size"])
    return example_of(model)
