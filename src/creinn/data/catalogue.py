"""Data sets known by name: a name and a folder in, a checked :class:`~creinn.data.dataset.Dataset` out.

``catalogue.json`` says of each its classes, the folders to look in, and of each part the editions there are: images of
each class and, where pixels do not depend on a decoder, SHA-256 of pixels and labels. The first edition of chest X-rays
keeps 16 training images apart as "val", the second does not; compact Fashion-MNIST has the first 20,000 to train on.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from creinn.data import formats
from creinn.data.dataset import Dataset, resize, to_grey, to_rgb
from creinn.data.formats import Arrays
from creinn.data.images import open_tree, read_classes

_KNOWN: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
NAMES = tuple(_KNOWN)


def load(
    name: str,
    directory: str | Path,
    split: str = "train",
    *,
    size: int | None = None,
    channels: int | None = None,
    complete: bool = True,
) -> Dataset:
    """Find a known data set below a folder, read it and check that it is whole.

    Args:
        name: ``"cifar10"``, ``"svhn"``, ``"chest-xray"``, ``"mnist"`` or ``"fashion-mnist"``.
        directory: Folder to look in.
        split: ``"train"`` or ``"test"``; ``"val"`` too for chest X-rays.
        size: Side in pixels to which images are stretched; by default 224 for chest X-rays, as they are for others.
        channels: 1 for grey, 3 for RGB; by default 1 for chest X-rays, as they are for others.
        complete: Whether to insist on the published number of images of each class and on the checksum.

    Raises:
        FileNotFoundError: If nothing is found; the message lists what was looked for.
        ValueError: If there is no such data set or split, a file is damaged, or the copy is not whole.
    """
    directory = Path(directory)
    if name not in NAMES:
        raise ValueError(f"There is no data set {name!r}. Known are {', '.join(NAMES)}.")
    parts = _KNOWN[name]["editions"]
    if split not in parts:
        raise ValueError(
            f"{name} has the parts {', '.join(parts)}, not {split!r}. "
            f"A validation set can be divided off with creinn.data.split."
        )
    if channels not in (None, 1, 3):
        raise ValueError(f"Images can be read in 1 (grey) or 3 (RGB) channels, not {channels}.")
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} is not a folder, so {name} cannot be in it.")
    looked_for = [f"Found no {name} ({split}) in {directory}. Looked there for one of:"]
    for layout in _layouts(name, split, size or 224, channels or 1):
        found = layout.find(directory)
        missing = [file for file in layout.files if file not in found]
        if not missing or (found and layout.divisible and not complete):
            paths = list(found.values())
            images, labels = map(torch.from_numpy, layout.read(paths))
            data = Dataset(name, images, labels, tuple(_KNOWN[name]["classes"]), split)
            if complete:
                _check_whole(data, paths[0])
            if channels is not None:
                data = to_grey(data) if channels == 1 else to_rgb(data)
            return data if size is None else resize(data, size)
        looked_for.append("  " + ", ".join(layout.files) + (f"  (missing: {', '.join(missing)})" if found else ""))
    raise FileNotFoundError("\n".join(looked_for))


def available(directory: str | Path) -> dict[str, tuple[str, ...]]:
    """Known data sets below a folder, and which parts of each; judged by file names alone."""

    def is_there(name: str, split: str) -> bool:
        return any(len(layout.find(Path(directory))) == len(layout.files) for layout in _layouts(name, split, 1, 1))

    found = {name: tuple(split for split in _KNOWN[name]["editions"] if is_there(name, split)) for name in NAMES}
    return {name: splits for name, splits in found.items() if splits}


def _check_whole(data: Dataset, path: Path) -> None:
    published = _KNOWN[data.name]["editions"][data.split]
    editions = [edition for edition in published if tuple(edition["counts"]) == data.counts]
    advice = "Pass complete=False to read it all the same."
    if not editions:
        raise ValueError(
            f"{path}: not a whole copy of {data.name} ({data.split}). Images of each class are {data.counts}, "
            f"published are {' or '.join(str(tuple(edition['counts'])) for edition in published)}. {advice}"
        )
    checksums = [edition.get("sha256") for edition in editions]
    if None not in checksums and _checksum(data) not in checksums:
        raise ValueError(
            f"{path}: pixels or labels of {data.name} ({data.split}) differ from the published ones, by their "
            f"checksum. The copy is damaged or changed. {advice}"
        )


def _checksum(data: Dataset) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(data.inputs).data)
    digest.update(data.labels.to(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True)
class _Layout:
    """One way in which a part of a data set may lie below a folder.

    Args:
        files: Files or folders that must be there, relative to the folder; a final ``[.gz]`` may be missing.
        read: Reads them, given their paths.
        divisible: Whether some of the files make sense without the others.
    """

    files: tuple[str, ...]
    read: Callable[[list[Path]], Arrays]
    divisible: bool = False

    def find(self, directory: Path) -> dict[str, Path]:
        """The files that are there."""
        found = {}
        for file in self.files:
            for ending in (".gz", ""):  # if both are there, the plain one
                path = directory / file.replace("[.gz]", ending)
                if path.exists():
                    found[file] = path
        return found


def _layouts(name: str, split: str, size: int, channels: int) -> list[_Layout]:
    """Where the part may lie, the likeliest places first; ``size`` and ``channels`` are for chest X-rays."""
    of_one_place: dict[str, Callable[[str, str], list[_Layout]]] = {
        "cifar10": _cifar10,
        "svhn": _svhn,
        "chest-xray": partial(_chest, size=size, channels=channels),
        "mnist": _idx,
        "fashion-mnist": partial(_idx, compact=True),
    }
    found = [layout for place in _KNOWN[name]["places"] for layout in of_one_place[name](place, split)]
    return sorted(found, key=lambda layout: layout.files[0].endswith("archive.zip"))  # a name that says little: last


def _cifar10(place: str, split: str) -> list[_Layout]:
    names = ("test_batch",) if split == "test" else tuple(f"data_batch_{i}" for i in range(1, 6))
    loose = tuple(f"{place}{name}" for name in names)
    sheets = (*(f"{name}.webp" for name in loose), f"{place}labels.npz")
    return [
        _Layout(tuple(f"{place}cifar-10-batches-py/{name}" for name in names), formats.read_batches, divisible=True),
        _Layout((f"{place}cifar-10-python.tar.gz",), lambda paths: formats.read_batches_archive(paths[0], names)),
        _Layout(loose, formats.read_batches, divisible=True),
        _Layout(sheets, partial(formats.read_cifar10_sheets, split=split)),
    ]


def _svhn(place: str, split: str) -> list[_Layout]:
    return [
        _Layout((f"{place}{split}_32x32.mat",), lambda paths: formats.read_mat(paths[0])),
        _Layout((f"{place}{split}_32x32.webp", f"{place}{split}_labels.npz"), formats.read_svhn_sheet),
    ]


def _idx(place: str, split: str, compact: bool = False) -> list[_Layout]:
    prefixes = ["t10k"] if split == "test" else ["train", "train20k"] if compact else ["train"]
    return [
        _Layout(
            (f"{place}{prefix}-images-idx3-ubyte[.gz]", f"{place}{prefix}-labels-idx1-ubyte[.gz]"),
            formats.read_idx_pair,
        )
        for prefix in prefixes
    ]


def _chest(place: str, split: str, size: int, channels: int) -> list[_Layout]:
    archives = ("chest_xray", "chest-xray-pneumonia", "ChestXRay2017", "chest_xray_224_jpeg", "archive")
    classes = _KNOWN["chest-xray"]["classes"]
    read = partial(_read_chest, split=split, size=size, channels=channels)
    folders = [tuple(f"{place}{root}{split}/{name}" for name in classes) for root in ("chest_xray/", "")]
    return [_Layout(files, read) for files in (*folders, *((f"{place}{archive}.zip",) for archive in archives))]


def _read_chest(paths: list[Path], split: str, size: int, channels: int) -> Arrays:
    """Read two class folders that lie side by side, or an archive with such somewhere in it."""
    classes = _KNOWN["chest-xray"]["classes"]
    with open_tree(paths[0] if len(paths) == 1 else paths[0].parent) as tree:
        if len(paths) == 1:
            ends = [f"{split}/{name}/" for name in classes]
            roots = [tree.roots(end) for end in ends]
            if not (common := roots[0] & roots[1]):
                raise ValueError(f"{paths[0]} holds no {ends[0]} with {ends[1]} beside it.")
            # the archive may hold the whole tree twice, once deeper
            tree = tree.below(f"{min(common, key=len)}{split}/")
        pixels, labels, _ = read_classes(tree, size, channels, classes)
    return pixels, labels.numpy()
