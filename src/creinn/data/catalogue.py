"""Data sets known by name: a name and a folder in, a checked :class:`~creinn.data.dataset.Dataset` out.

What was read is compared with the published number of images of each class and, where pixels do not depend on a
decoder, with a checksum of pixels and labels.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from creinn.data.dataset import Dataset, resize, to_grey, to_rgb
from creinn.data.layouts import CHEST_CLASSES, Layout, layouts

_DIGITS = tuple("0123456789")
_CLASSES: dict[str, tuple[str, ...]] = {
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "svhn": _DIGITS,
    "chest-xray": CHEST_CLASSES,
    "mnist": _DIGITS,
    "fashion-mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
}
NAMES = tuple(_CLASSES)


class Edition(NamedTuple):
    """What a whole copy holds: images of each class; SHA-256 of pixels and labels, if the same in all copies."""

    counts: tuple[int, ...]
    sha256: str | None = None


_EDITIONS: dict[tuple[str, str], tuple[Edition, ...]] = {
    ("cifar10", "train"): (Edition((5000,) * 10, "1e91790dbaf241617ca1f29a9aba08eb9a62df84cc90676b47edd05ad2ab3c94"),),
    ("cifar10", "test"): (Edition((1000,) * 10, "9a4c74f5c8b6f2c4e13d3a1dfb43a5a8cda8a9da515e99fd620d2013a1a6287a"),),
    ("svhn", "train"): (Edition((4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659)),),
    ("svhn", "test"): (Edition((1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595)),),
    # The first edition keeps 16 training images apart as "val", the second does not.
    ("chest-xray", "train"): (Edition((1341, 3875)), Edition((1349, 3883))),
    ("chest-xray", "val"): (Edition((8, 8)),),
    ("chest-xray", "test"): (Edition((234, 390)),),
    ("mnist", "train"): (
        Edition(
            (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            "edc0d1098aa497be14ace79ddd5171e5a3dcf9c4d196c015389203eb3ba1f59b",
        ),
    ),
    ("mnist", "test"): (
        Edition(
            (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
            "c3f9adf9c66efb572b1f9326c3a511b45910c7173b97be66ceceeeeaef6b802b",
        ),
    ),
    ("fashion-mnist", "train"): (
        Edition((6000,) * 10),
        Edition(
            (1935, 2025, 1982, 2011, 1967, 2010, 2068, 2003, 1971, 2028),
            "71bb7a4420f9a4dc329740bf41730a82bee233a37c812d5491970eefac21f596",
        ),
    ),
    ("fashion-mnist", "test"): (
        Edition((1000,) * 10, "9f1ec356a747bfe4ebab3cfb722d3694c9ca737e2570f6f90cf31d7b6fd689d4"),
    ),
}


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
    _check_request(name, split, channels)
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} is not a folder, so {name} cannot be in it.")
    candidates = layouts(name, split, size or 224, channels or 1)
    for layout in candidates:
        found = layout.find(directory)
        if len(found) == len(layout.files) or (found and layout.divisible and not complete):
            paths = list(found.values())
            images, labels = layout.read(paths)
            data = Dataset(name, torch.from_numpy(images), torch.from_numpy(labels), _CLASSES[name], split)
            if complete:
                _check_whole(data, paths[0])
            return _as_asked(data, size, channels)
    raise FileNotFoundError(_nothing_found(name, directory, split, candidates))


def available(directory: str | Path) -> dict[str, tuple[str, ...]]:
    """Known data sets below a folder, and which parts of each; judged by file names alone."""
    found = {
        name: tuple(
            split
            for split in _splits(name)
            if any(len(layout.find(Path(directory))) == len(layout.files) for layout in layouts(name, split, 1, 1))
        )
        for name in NAMES
    }
    return {name: splits for name, splits in found.items() if splits}


def _splits(name: str) -> tuple[str, ...]:
    return tuple(split for key, split in _EDITIONS if key == name)


def _check_request(name: str, split: str, channels: int | None) -> None:
    if name not in NAMES:
        raise ValueError(f"There is no data set {name!r}. Known are {', '.join(NAMES)}.")
    if split not in _splits(name):
        raise ValueError(
            f"{name} has the parts {', '.join(_splits(name))}, not {split!r}. "
            f"A validation set can be divided off with creinn.data.split."
        )
    if channels not in (None, 1, 3):
        raise ValueError(f"Images can be read in 1 (grey) or 3 (RGB) channels, not {channels}.")


def _check_whole(data: Dataset, path: Path) -> None:
    editions = [e for e in _EDITIONS[data.name, data.split] if e.counts == data.counts]
    advice = "Pass complete=False to read it all the same."
    if not editions:
        published = " or ".join(str(e.counts) for e in _EDITIONS[data.name, data.split])
        raise ValueError(
            f"{path}: not a whole copy of {data.name} ({data.split}). Images of each class are {data.counts}, "
            f"published are {published}. {advice}"
        )
    checksums = [e.sha256 for e in editions]
    if None not in checksums and _checksum(data) not in checksums:
        raise ValueError(
            f"{path}: pixels or labels of {data.name} ({data.split}) differ from the published ones, by their "
            f"checksum. The copy is damaged or changed. {advice}"
        )


def _checksum(data: Dataset) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(data.inputs).data)
    digest.update(data.labels.to(torch.uint8).numpy().data)
    return digest.hexdigest()


def _as_asked(data: Dataset, size: int | None, channels: int | None) -> Dataset:
    if channels == 1:
        data = to_grey(data)
    elif channels == 3:
        data = to_rgb(data)
    return data if size is None else resize(data, size)


def _nothing_found(name: str, directory: Path, split: str, candidates: list[Layout]) -> str:
    lines = [f"Found no {name} ({split}) in {directory}. Looked there for one of:"]
    for layout in candidates:
        found = layout.find(directory)
        missing = [file for file in layout.files if file not in found]
        lines.append("  " + ", ".join(layout.files) + (f"  (missing: {', '.join(missing)})" if found else ""))
    return "\n".join(lines)
