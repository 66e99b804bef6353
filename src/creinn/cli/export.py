"""``creinn export``: export a model to ONNX or ``torch.export``."""

import torch

from creinn.classifier.base import takes_intervals
from creinn.classifier.credal import Ensemble
from creinn.classifier.creinn import CreINN
from creinn.cli.options import ExportOptions
from creinn.graph.export import MOST_CLASSES, example_of, export
from creinn.interval import Interval
from creinn.numerics import pluralize
from creinn.saving import load


def export_model(options: ExportOptions) -> int:
    """Run ``creinn export``."""
    path = options.out or options.model / f"model.{options.format or 'onnx'}"
    if options.format is not None and path.suffix != f".{options.format}":
        raise ValueError(f"--format is {options.format}, but --out is {path}. Omit one.")
    if path.exists() and not options.force:
        raise ValueError(f"{path} exists. Replace it with --force.")
    model = load(options.model)
    if not isinstance(model, CreINN | Ensemble):
        raise ValueError(f"{options.model}: cannot export {type(model).__name__}.")
    if options.intervals and not takes_intervals(model):
        raise ValueError("--intervals requires a model of --method creinn.")
    known = model.preprocessing
    if isinstance(known, dict) and known.get("kind") == "images":
        x = torch.zeros(1, known["channels"], *known["size"])
    else:
        x = example_of(model)
    export(model, path, Interval(x, x) if options.intervals else x)
    print(f"wrote {path}: {pluralize(path.stat().st_size, 'byte')}")
    if known is not None:
        print("note: prepare the inputs as described by preprocessing in the metadata of the file")
    if model.num_classes > MOST_CLASSES:
        print("note: the graph has no AU and EU for this number of classes; see docs/export.md")
    return 0
