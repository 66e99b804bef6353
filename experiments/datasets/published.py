"""Published data sets by name.

``published.json`` lists the classes of each data set, the directories to search, the files of each
part with their
reader in ``formats``, and the number of images of each class. If pixels do not depend on a decoder,
it also contains
the SHA-256 of pixels and labels.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from creinn.data.dataset import Dataset
from creinn.data.images import Tree, open_tree, read_classes
from experiments.conversions import resize, to_grey, to_rgb
from experiments.datasets import formats

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
    """Find a published data set in a directory, read it and check that it is complete.

    Args:
        name: ``"cifar10"``, ``"svhn"``, ``"chest-xray"``, ``"mnist"`` or ``"fashion-mnist"``.
        directory: Directory to search.
        split: ``"train"`` or ``"test"``, and ``"val"`` for chest X-rays.
        size: Side in pixels to which images are resized. The default is 224 for chest X-rays, and
            no change for others.
        channels: 1 for grey and 3 for RGB. The default is 1 for chest X-rays, and no change for
            others.
        complete: Whether to require the published number of images of each class and the checksum.

    Raises:
        FileNotFoundError: If the data set is missing; the message lists the expected files.
        ValueError: If the data set or the split is unknown, a file is damaged, or the copy is not
            complete.
    """
    directory = Path(directory)
    if name not in NAMES:
        raise ValueError(f"There is no data set {name!r}. Known are {', '.join(NAMES)}.")
    parts = _KNOWN[name]["parts"]
    if split not in parts:
        advice = "A validation set can be divided off with creinn.data.split."
        raise ValueError(f"{name} has the parts {', '.join(parts)}, not {split!r}. {advice}")
    if channels not in (None, 1, 3):
        raise ValueError(f"Images can be read in 1 (grey) or 3 (RGB) channels, not {channels}.")
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} is not a folder, so {name} cannot be in it.")
    looked_for = [f"Found no {name} ({split}) in {directory}. Looked there for one of:"]
    for layout in _layouts(name, split):
        files, found = layout["files"], _find(layout["files"], directory)
        missing = [file for file in files if file not in found]
        if not missing or (
            found and layout["reader"] == "read_batches" and not complete
        ):  # these do not need a pair
            paths = list(found.values())
            if name == "chest-xray":
                arrays = _read_chest(paths, split, size or 224, channels or 1)
            else:
                arrays = getattr(formats, layout["reader"])(*paths, **layout.get("options", {}))
            images, labels = map(torch.from_numpy, arrays)
            data = Dataset(name, images, labels, tuple(_KNOWN[name]["classes"]), split)
            if complete:
                _check_whole(data, paths[0])
            if channels is not None:
                data = to_grey(data) if channels == 1 else to_rgb(data)
            return data if size is None else resize(data, size)
        looked_for.append(
            "  " + ", ".join(files) + (f"  (missing: {', '.join(missing)})" if found else "")
        )
    raise FileNotFoundError("\n".join(looked_for))


def available(directory: str | Path) -> dict[str, tuple[str, ...]]:
    """List the data sets in a directory and their splits by their file names."""
    found: dict[str, tuple[str, ...]] = {}
    for name in NAMES:
        for split in _KNOWN[name]["parts"]:
            places = (layout["files"] for layout in _layouts(name, split))
            if any(len(_find(files, Path(directory))) == len(files) for files in places):
                found[name] = (*found.get(name, ()), split)
    return found


def _check_whole(data: Dataset, path: Path) -> None:
    title, advice = f"{data.name} ({data.split})", "Pass complete=False to read it all the same."
    published = _KNOWN[data.name]["parts"][data.split]["editions"]
    editions = {tuple(edition["counts"]): edition.get("sha256") for edition in published}
    if data.counts not in editions:
        expected = " or ".join(map(str, editions))
        counts = f"Images per class: {data.counts}, expected {expected}"
        raise ValueError(f"{path}: not a whole copy of {title}. {counts}. {advice}")
    digest = hashlib.sha256(np.ascontiguousarray(data.inputs).data)
    digest.update(data.labels.to(torch.uint8).numpy().data)
    if editions[data.counts] not in (None, digest.hexdigest()):
        found = f"pixels or labels of {title} differ from the published ones, by their checksum"
        raise ValueError(f"{path}: {found}. The copy is damaged or changed. {advice}")


def _layouts(name: str, split: str) -> list[dict[str, Any]]:
    """Return the possible layouts of the files, the most likely first."""
    ways = product(_KNOWN[name]["places"], _KNOWN[name]["parts"][split]["layouts"])
    found = [
        {**layout, "files": [place + file for file in layout["files"]]} for place, layout in ways
    ]
    return sorted(found, key=lambda layout: layout["files"][0].endswith("archive.zip"))


def _find(files: list[str], directory: Path) -> dict[str, Path]:
    """Return the existing files."""
    found = {}
    for file in files:
        for ending in (".gz", ""):  # prefer the uncompressed file
            path = directory / file.replace("[.gz]", ending)
            if path.exists():
                found[file] = path
    return found


def _read_chest(paths: list[Path], split: str, size: int, channels: int) -> formats.Arrays:
    """Read two class directories, or an archive that contains them."""
    classes = _KNOWN["chest-xray"]["classes"]
    with open_tree(paths[0] if len(paths) == 1 else paths[0].parent) as tree:
        if len(paths) == 1:  # an archive, which may hold the whole tree twice, once deeper
            tree = _below(tree, split, classes)
        pixels, labels, _ = read_classes(tree, size, channels, classes)
    return pixels, labels.numpy()


def _below(tree: Tree, parent: str, folders: Sequence[str]) -> Tree:
    """Return the files below the least deep ``parent`` that contains these folders."""

    def roots(end: str) -> set[str]:
        found = (re.match(rf"((?:.*?/)?){re.escape(end)}", name) for name in tree.names)
        return {match[1] for match in found if match}

    ends = [f"{parent}/{folder}/" for folder in folders]
    if not (common := set.intersection(*map(roots, ends))):
        raise ValueError(f"{tree.where} holds no {' with '.join(ends)} beside it.")
    prefix = f"{min(common, key=len)}{parent}/"
    below = [name for name in tree.names if name.startswith(prefix) and name != prefix]
    names = [name.removeprefix(prefix) for name in below]
    return Tree(f"{tree.where}/{prefix}", names, lambda name: tree.read(prefix + name))
