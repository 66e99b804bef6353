"""``creinn export``: export a trained model to ONNX or ``torch.export``."""

from pathlib import Path
from typing import Any

import torch

from creinn.classifier.base import Inputs
from creinn.classifier.creinn import CreINN, Ensemble
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
            f"{options.model} is a model of kind {type(model).__name__}. Only a CreINN can be exported."
        )
    export(model, path, _example(model, options))
    print(f"wrote {path}: {pluralize(path.stat().st_size, 'byte')}")
    if model.preprocessing is not None:
        print(
            "note: inputs of the graph are prepared inputs; its metadata describe the preparation "
            "under preprocessing"
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


def _example(model: Any, options: ExportOptions) -> Inputs:
    if options.intervals and not takes_intervals(model):
        raise ValueError(
            "The model has an ordinary network, which has no interval inputs. Remove --intervals."
        )
    said = model.preprocessing if isinstance(model.preprocessing, dict) else {}
    size = said.get("size") or options.size  # the size is not in the models of older versions
    if said.get("kind") == "images":
        if size is None:
            raise ValueError(
                "The model does not contain the size of its training images. Give --size."
            )
        x = torch.zeros(1, said["channels"], *(size if isinstance(size, list) else [size, size]))
    else:
        x = example_of(model)
    return Interval(x, x) if options.intervals else x
