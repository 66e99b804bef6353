"""``creinn export``: a trained model as one ONNX graph, or a program of ``torch.export``."""

from pathlib import Path
from typing import Any

import torch

from creinn.classifier.base import Inputs
from creinn.classifier.creinn import CreINN, Ensemble
from creinn.cli.options import ExportOptions
from creinn.cli.sources import read_model, takes_intervals
from creinn.data.numerals import counted
from creinn.graph.export import MOST_CLASSES, example_of, export
from creinn.interval import Interval


def export_model(options: ExportOptions) -> int:
    """Export by ``options``; returns the exit code."""
    path = _path(options)
    model = read_model(options.model, "cpu")
    if not isinstance(model, CreINN | Ensemble):
        raise ValueError(
            f"{options.model} holds a model of the kind {type(model).__name__}; only a CreINN can be exported."
        )
    export(model, path, _example(model, options))
    print(f"wrote {path}: {counted(path.stat().st_size, 'byte')}")
    if model.preprocessing is not None:
        print(
            "note: the graph takes what the network takes; its metadata say, under preprocessing, how to get there"
        )
    if model.num_classes > MOST_CLASSES:
        print("note: AU and EU are not in the graph for this number of classes; see docs/export.md")
    return 0


def _path(options: ExportOptions) -> Path:
    """Where to write, by the ending or the format that is asked for."""
    path = options.out or options.model / f"model.{options.format or 'onnx'}"
    if options.format is not None and path.suffix != f".{options.format}":
        raise ValueError(
            f"--format is {options.format}, but {path} ends in {path.suffix or 'nothing'}. Leave one out."
        )
    if path.exists() and not options.force:
        raise ValueError(f"{path} is there already. Name another file, or replace it with --force.")
    return path


def _example(model: Any, options: ExportOptions) -> Inputs:
    if options.intervals and not takes_intervals(model):
        raise ValueError(
            "The model takes no intervals: its network is an ordinary one. Leave --intervals out."
        )
    said = model.preprocessing if isinstance(model.preprocessing, dict) else {}
    size = said.get("size") or options.size  # models of older versions do not know theirs
    if said.get("kind") == "images":
        if size is None:
            raise ValueError(
                "The model does not say which size its training images had: give it, --size."
            )
        x = torch.zeros(1, said["channels"], *(size if isinstance(size, list) else [size, size]))
    else:
        x = example_of(model)
    return Interval(x, x) if options.intervals else x
