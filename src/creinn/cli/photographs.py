"""Features of a pretrained network for photographs."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from creinn import models
from creinn.cli.sources import check_classes, check_counts, image_parts, show_progress
from creinn.data.dataset import Dataset
from creinn.data.images import is_tree, open_tree
from creinn.data.transforms import normalize
from creinn.distributed import rank
from creinn.files import read_tensors, write_tensors
from creinn.models.efficientnet import PREPROCESSING
from creinn.training.frozen_features import Extractor

if TYPE_CHECKING:
    from creinn.cli.options import TrainOptions

NETWORK = "efficientnet-lite0"
METHODS_FOR_FEATURES = ("creinn-d", "snn", "deep-ensemble")
FEATURES = "features.safetensors"  # in the directory of the model
ENOUGH_IMAGES = 5000
FINETUNE_RATE = 1e-4
ADVICE = f"--network {NETWORK} is usually more accurate and faster (pip install creinn[pretrained])"


def check_pretrained(options: "TrainOptions") -> dict[str, Any] | None:
    """Check the options, and return the preprocessing."""
    if options.network != NETWORK:
        if options.finetune:
            raise ValueError(f"--finetune requires --network {NETWORK}.")
        return None
    if options.method not in METHODS_FOR_FEATURES:
        raise ValueError(
            f"{NETWORK} supports --method {', '.join(METHODS_FOR_FEATURES)}, not {options.method}."
        )
    if options.data is None or not is_tree(options.data):
        raise ValueError(f"{NETWORK} requires a folder of images, got {options.source}.")
    if options.stem != "cifar" or options.width is not None or options.channels != 3:
        raise ValueError(f"stem, width and channels: not with {NETWORK}.")
    if options.augment and not options.finetune:
        raise ValueError(f"augment requires --finetune with {NETWORK}.")
    size = {} if options.size is None else {"size": [options.size, options.size]}
    return {"kind": "images", **PREPROCESSING, **size}


def learn_features(
    options: "TrainOptions", preprocessing: dict[str, Any]
) -> tuple[Dataset, Extractor]:
    """Compute the features of all images, or read them."""
    classes = check_classes(options)
    logits = 1 if len(classes) == 2 else len(classes)
    network: Any = models.efficientnet_lite0(logits, pretrained=True)
    extract = Extractor(network, torch.zeros(1, 3, *preprocessing["size"]))
    header: dict[str, Any] = {"images": _digest(options.paths[0]), "preprocessing": preprocessing}
    header |= {"layers": list(extract.layers), "strict": options.strict}
    path = options.out / FEATURES
    tensors, found = read_tensors(path) if path.exists() else ({}, {})
    if not found.items() >= header.items():  # none, or of other images
        tensors, notes = _compute(options, preprocessing, classes, extract)
        found = header | notes
        if rank() == 0:
            write_tensors(path, tensors, found)
    rows, labels = tensors["features"], tensors["labels"]
    about: Any = {name: found[name] for name in ("notes", "unreadable")}
    about["preprocessing"] = preprocessing
    data = Dataset(options.source, rows, labels, classes, **about)
    check_counts(data)
    return data, extract


def _compute(
    options: "TrainOptions",
    preprocessing: dict[str, Any],
    classes: Sequence[str],
    extract: Extractor,
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    rows: list[torch.Tensor] = []
    labels: list[Any] = []
    parts = image_parts(options, preprocessing, classes)
    for part in show_progress(parts, options.progress, "features"):
        if len(part):
            x: Any = normalize(part.inputs, preprocessing["mean"], preprocessing["std"])
            rows.append(extract(x))
            labels.append(part.labels)
    about = {"notes": list(part.notes), "unreadable": list(part.unreadable)}
    return {"features": torch.cat(rows), "labels": torch.cat(labels)}, about


def _digest(path: Path) -> str:
    """Return a checksum of the names, sizes and times of the files."""
    with open_tree(path) as tree:
        files = [path / name for name in tree.images] if path.is_dir() else [path]
    states = ((file, file.stat()) for file in files)
    about = [(file.as_posix(), state.st_size, state.st_mtime_ns) for file, state in states]
    return f"{zlib.crc32(repr(about).encode()):08x}"
