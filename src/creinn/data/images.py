"""Images in folders or zip archives, read at once or in batches.

Hidden files, ``__MACOSX`` and files without an image suffix are skipped.
"""

import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from creinn.data.dataset import Dataset
from creinn.data.decoding import SUFFIXES, Bytes, DecodeStats, Size, decode_all
from creinn.interval import Interval
from creinn.numerics import list_names, pluralize

_SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing"}


def image_folder(
    path: str | Path,
    *,
    size: int | None = None,
    channels: int = 3,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    split: str = "",
) -> Dataset:
    """Read images as bytes from one folder per class.

    16-bit images are scaled from [0, 65535] and floating point images from
    [0, 1], or from their minimum and maximum if they exceed this range.
    Both cause a warning, like an empty class folder.

    Args:
        path: Folder or zip archive with one folder per class.
        size: Side of the resized images. By default all must have one
            size.
        channels: 3 for RGB, 1 for grey.
        classes: Class names in order. By default the sorted folder names.
        name: Name of the data set. By default that of the folder.
        split: Part of the data set.

    Raises:
        FileNotFoundError: If the folder or file does not exist.
        ValueError: If there is no image, if a class is unknown, or if an
            image is damaged or has another size.
    """
    path = Path(path)
    with open_tree(path) as tree:
        pixels, labels, order = read_classes(tree, size, channels, classes)
    return Dataset(name or path.stem, torch.from_numpy(pixels), labels, order, split)


@dataclass(frozen=True)
class Tree:
    """Files of a folder or zip archive, or a single image."""

    where: str  # path
    names: Sequence[str]  # sorted files, and folders with a final slash
    read: Callable[[str], bytes]

    @property
    def images(self) -> list[str]:
        """Files that are images."""
        return list(filter(is_image, self.names))

    @property
    def notes(self) -> list[str]:
        """A note on other files."""
        others = [name for name in self.names if not (is_image(name) or name.endswith("/"))]
        found = f"{self.where}: {list_names(others, 'file')} left out, being no image by the suffix"
        return [found] if others else []

    def classes(self, expected: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the expected classes, or the folders with images."""
        where, images = self.where, self.images
        for name in images:
            if len(PurePosixPath(name).parts) == 1:
                raise ValueError(f"{where}: {name} is not in a class folder.")
        filled = sorted(set(map(_class, images)))
        if not filled:
            raise ValueError(
                f"{where} needs one folder of images ({', '.join(SUFFIXES)}) per class."
            )
        if _SPLITS.issuperset(map(str.lower, filled)):
            raise ValueError(f"{where} is divided into {', '.join(filled)}. Choose one.")
        order = tuple(filled if expected is None else expected)
        for name in filled:
            if name not in order:
                found = f"a folder {name!r}, none of the classes {', '.join(order)}"
                raise ValueError(f"{where} has {found}.")
        folders = {_class(name) for name in self.names if name.endswith("/")}
        if empty := sorted(folders.difference(filled)):
            names = ", ".join(map(repr, empty))
            warnings.warn(f"{where}: class folders without images: {names}", stacklevel=2)
        return order


@contextmanager
def open_tree(path: Path) -> Iterator[Tree]:
    """Open a folder, a zip archive or an image."""
    where = str(path)
    if path.is_dir():
        names = []
        for folder, folders, files in os.walk(path, followlinks=True):
            inside = Path(folder).relative_to(path)
            names += [(inside / file).as_posix() for file in files]
            names += [f"{(inside / name).as_posix()}/" for name in folders]
        yield Tree(where, sorted(filter(_is_data, names)), lambda name: (path / name).read_bytes())
    elif not path.is_file():
        raise FileNotFoundError(f"{path} is neither a folder nor a zip archive.")
    elif is_image(path.name):
        yield Tree(where, [path.name], lambda _: path.read_bytes())
    else:
        try:
            archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise ValueError(f"{path} is not a complete zip archive: {error}.") from error
        with archive:
            yield Tree(where, sorted(filter(_is_data, archive.namelist())), archive.read)


def is_tree(path: Path) -> bool:
    """Return whether a path contains images."""
    if path.suffix.lower() == ".zip" and path.is_file():
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            return any(map(is_image, archive.namelist()))
    return path.is_dir() or is_image(path.name)


def is_image(name: str) -> bool:
    """Return whether a file is an image."""
    return name.lower().endswith(SUFFIXES)


def _is_data(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not any(p.startswith(".") or p == "__MACOSX" for p in parts)


def read_classes(
    tree: Tree, size: Size, channels: int, classes: Sequence[str] | None = None
) -> tuple[Bytes, Tensor, tuple[str, ...]]:
    """Return the images, labels and classes."""
    order = tree.classes(classes)
    files = sorted(tree.images, key=lambda file: order.index(_class(file)))
    stats = DecodeStats(tree.where)
    pixels, _ = decode_all(files, tree.read, stats, size, channels)
    for change, count in stats.changes.items():
        if "scaled" in change:
            warnings.warn(f"{tree.where}: {pluralize(count, 'image')} {change}", stacklevel=3)
    return pixels, labels_of(files, order), order


def labels_of(files: Sequence[str], order: Sequence[str]) -> Tensor:
    """Return the index of the class of each file."""
    return torch.tensor([order.index(_class(file)) for file in files], dtype=torch.int64)


def _class(name: str) -> str:
    return PurePosixPath(name).parts[0]


def read_images(
    paths: Sequence[str | Path],
    size: Size = None,
    channels: int = 3,
    strict: bool = True,
    count: int | None = None,
    crop: float | None = None,
) -> Iterator[tuple[Tensor | Interval, list[str], list[DecodeStats]]]:
    """Yield ``count`` or all images in [0, 1], their files and statistics.

    Two paths are lower and upper bounds with the same file names. Their
    order is kept without ``crop``. If ``strict`` is false, an unreadable
    image is left out of both bounds.
    """
    with ExitStack() as stack:
        trees = [stack.enter_context(open_tree(Path(path))) for path in paths]
        files, stats = trees[0].images, [DecodeStats(tree.where) for tree in trees]
        for name in sorted(set(files).symmetric_difference(trees[-1].images)):
            has, lacks = paths if name in files else reversed(paths)
            raise ValueError(f"{name} is in {has}, but not in {lacks}.")
        step, total = count or max(1, len(files)), 0
        options = (size, channels, strict, len(trees) == 2, crop)
        for start in range(0, max(1, len(files)), step):
            batch, sources = files[start : start + step], zip(trees, stats, strict=True)
            sides = [decode_all(batch, tree.read, side, *options) for tree, side in sources]
            kept = sorted(set(sides[0][1]).intersection(sides[-1][1]))
            total += len(kept)
            pixels = [side[np.isin(names, kept)] for side, names in sides]
            if kept:
                _check_order(pixels[0], pixels[-1], kept)
            bounds = [torch.from_numpy(side).float() / 255 for side in pixels]
            bounds = bounds if kept else bounds[:1] * len(bounds)
            yield (Interval(*bounds) if len(bounds) == 2 else bounds[0]), kept, stats
        if total == 0:
            where = " and ".join(tree.where for tree in trees)
            why = next(message for side in stats for message in side.unreadable.values())
            found = f"no image can be read, {pluralize(len(files), 'file')} in all"
            raise ValueError(f"{where}: {found}. {why}")


def _check_order(low: Bytes, high: Bytes, files: Sequence[str]) -> None:
    if low.shape != high.shape:
        found = f"the bounds have shapes {low.shape[1:]} and {high.shape[1:]}"
        raise ValueError(f"{files[0]}: {found}. Give a size for all images.")
    for row in np.flatnonzero((low > high).any((1, 2, 3))).tolist():
        advice = "Were the folders swapped, or stored as JPEG?"
        raise ValueError(f"{files[row]}: a lower bound exceeds its upper bound. {advice}")
