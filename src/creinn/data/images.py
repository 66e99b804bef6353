"""Images in a folder or zip archive, with or without one folder per class; in two of them, as intervals.

In: paths. Out: bytes ``(N, channels, height, width)``; see :mod:`creinn.data.decoding`. Hidden files, ``__MACOSX`` and
files that are not images by their suffix are skipped.
"""

import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from creinn.data.dataset import Dataset
from creinn.data.decoding import (
    SUFFIXES,
    Bytes,
    DecodeStats,
    Images,
    Size,
    check_common_scale,
    decode_all,
    format_size,
)
from creinn.interval import Interval
from creinn.numerics import list_names

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
    """Read images sorted into one folder per class; deeper folders belong to their class.

    Pixels are bytes. 16-bit images are scaled from [0, 65535], float images from [0, 1] or, if they
    exceed it, from their own minimum and maximum; a warning says so. Class folders without images
    are left out with a warning.

    Args:
        path: A folder, or a zip archive, with one folder per class in it.
        size: Side in pixels to which images are stretched (bilinear, antialiased); by default they must agree already.
        channels: 3 for RGB, 1 for grey.
        classes: Names and order of the classes; by default the folders found, sorted.
        name: Name of the data set; by default that of the folder.
        split: Part of the data set that this is.

    Raises:
        FileNotFoundError: If there is no such folder or file.
        ValueError: If there is no class folder with images, a class is unknown, or an image is
            damaged or of another size.
    """
    path = Path(path)
    with open_tree(path) as tree:
        pixels, labels, order = read_classes(tree, size, channels, classes)
    return Dataset(name or path.stem, torch.from_numpy(pixels), labels, order, split)


@dataclass(frozen=True)
class Tree:
    """Files of a folder or zip archive; an image is a tree of one file."""

    where: str  # what to call it
    names: Sequence[str]  # sorted, of files, and of folders with a final slash; all are data
    read: Callable[[str], bytes]  # gives the content of a file

    @property
    def images(self) -> list[str]:
        """The files that are images."""
        return list(filter(is_image, self.names))

    @property
    def notes(self) -> list[str]:
        """A note on files that are no images; none if there are none."""
        others = [name for name in self.names if not (is_image(name) or name.endswith("/"))]
        return (
            [f"{self.where}: {list_names(others, 'file')} left out, being no image by the suffix"]
            if others
            else []
        )

    def below(self, parent: str, folders: Sequence[str]) -> "Tree":
        """What is below a ``parent`` that holds these folders, the least deep one; refuses none."""

        def roots(end: str) -> set[str]:
            found = (re.match(rf"((?:.*?/)?){re.escape(end)}", name) for name in self.names)
            return {match[1] for match in found if match}

        ends = [f"{parent}/{folder}/" for folder in folders]
        if not (common := set.intersection(*map(roots, ends))):
            raise ValueError(f"{self.where} holds no {' with '.join(ends)} beside it.")
        prefix = f"{min(common, key=len)}{parent}/"
        inside = [
            name.removeprefix(prefix)
            for name in self.names
            if name.startswith(prefix) and name != prefix
        ]
        return Tree(f"{self.where}/{prefix}", inside, lambda name: self.read(prefix + name))

    def classes(self, expected: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the names of the classes: those expected, or the folders that hold images.

        Warns of folders without images. Raises ``ValueError`` if there is no image, an image
        belongs to no folder, or a folder belongs to no expected class.
        """
        where, images = self.where, self.images
        for name in images:
            if len(PurePosixPath(name).parts) == 1:
                advice = "Put each image into the folder of its class."
                raise ValueError(f"{where}: {name} is in no class folder. {advice}")
        filled = set(map(_class, images))
        if not filled:
            needs = f"One folder per class, with images ({', '.join(SUFFIXES)}), is needed."
            raise ValueError(f"{where} has no folders of images in it. {needs}")
        if set(map(str.lower, filled)) <= _SPLITS:
            parts = ", ".join(sorted(filled))
            raise ValueError(f"{where} is divided into {parts}: choose one of these folders.")
        order = tuple(sorted(filled) if expected is None else expected)
        for folder in sorted(filled.difference(order)):
            known = ", ".join(order)
            raise ValueError(
                f"{where} has a folder {folder!r}, which is none of the classes {known}."
            )
        folders = {_class(name) for name in self.names if name.endswith("/")}
        if empty := sorted(folders - filled):
            names = ", ".join(map(repr, empty))
            warnings.warn(f"{where}: class folders without images: {names}", stacklevel=2)
        return order


@contextmanager
def open_tree(path: Path) -> Iterator[Tree]:
    """The files of a folder or zip archive, or one image; a damaged archive is refused."""
    where = str(path)
    if path.is_dir():
        names = []
        for folder, folders, files in os.walk(path, followlinks=True):
            inside = Path(folder).relative_to(path)
            names += [(inside / file).as_posix() for file in files] + [
                f"{(inside / f).as_posix()}/" for f in folders
            ]
        yield Tree(where, sorted(filter(_is_data, names)), lambda name: (path / name).read_bytes())
    elif not path.is_file():
        raise FileNotFoundError(f"{path} is neither a folder nor a zip archive.")
    elif is_image(path.name):
        yield Tree(where, [path.name], lambda _: path.read_bytes())
    else:
        try:
            archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise ValueError(
                f"{path} is not a whole zip archive: {error}. It is truncated or damaged."
            ) from error
        with archive:
            yield Tree(where, sorted(filter(_is_data, archive.namelist())), archive.read)


def is_image(name: str) -> bool:
    """Whether a file is an image by its suffix."""
    return name.lower().endswith(SUFFIXES)


def _is_data(name: str) -> bool:
    """Whether a file or folder is none of these: the root, hidden, left behind by macOS."""
    parts = PurePosixPath(name).parts
    return len(parts) > 0 and not any(part.startswith(".") or part == "__MACOSX" for part in parts)


def read_classes(
    tree: Tree, size: Size, channels: int, classes: Sequence[str] | None = None
) -> tuple[Bytes, Tensor, tuple[str, ...]]:
    """Read images sorted by class, their labels and the names of the classes.

    See :func:`image_folder` for arguments and errors.
    """
    order = tree.classes(classes)
    files = sorted(tree.images, key=lambda file: order.index(_class(file)))
    stats = DecodeStats()
    pixels = decode_all(files, tree.read, tree.where, size, channels, stats=stats).pixels
    for note in stats.scaling_notes(tree.where):
        warnings.warn(note, stacklevel=3)
    return pixels, labels_of(files, order), order


def labels_of(files: Sequence[str], order: Sequence[str]) -> Tensor:
    """Numbers of the classes of files."""
    return torch.tensor([order.index(_class(file)) for file in files], dtype=torch.int64)


def _class(name: str) -> str:
    return PurePosixPath(name).parts[0]


def read_images(
    tree: Tree, size: Size, channels: int, strict: bool, count: int | None = None
) -> Iterator[tuple[Tensor, Images]]:
    """Images in [0, 1], ``count`` or all at once, without classes; notes are on all so far. Refuses if none is read."""
    stats = DecodeStats()
    for files in _parts(tree.images, count):
        images = decode_all(files, tree.read, tree.where, size, channels, strict, stats)
        yield _scaled(images), images
    stats.check_any(tree.where)


def read_pairs(
    lower: str | Path,
    upper: str | Path,
    size: Size = None,
    channels: int = 3,
    strict: bool = True,
    count: int | None = None,
) -> Iterator[tuple[Interval, Images, Images]]:
    """Images of two folders or zip archives as intervals in [0, 1], and both with their common file names.

    Stretching keeps the order of bounds, since all its weights are positive; lossy formats such as JPEG may not, and
    are refused then. Without ``strict`` an image that cannot be read is left out, with its partner. Those come
    ``count`` or all at once, with notes on all so far.
    """
    with open_tree(Path(lower)) as below, open_tree(Path(upper)) as above:
        trees, stats, some = (below, above), (DecodeStats(), DecodeStats()), False
        if unmatched := sorted(set(below.images).symmetric_difference(above.images)):
            has, lacks = (lower, upper) if unmatched[0] in below.images else (upper, lower)
            raise ValueError(
                f"{has} has {unmatched[0]}, but {lacks} has not. Both must hold the same file names."
            )
        for files in _parts(below.images, count):
            sides = [
                decode_all(files, tree.read, tree.where, size, channels, strict, so_far)
                for tree, so_far in zip(trees, stats, strict=True)
            ]
            for tree, side in zip(trees, sides, strict=True):
                check_common_scale(side, tree.where)
            kept = sorted(set(sides[0].files) & set(sides[1].files))
            low, high = (
                replace(side, files=kept, pixels=side.pixels[np.isin(side.files, kept)])
                for side in sides
            )
            if kept:
                _check_pair(low, high, lower, upper)
                some = True
            yield (
                Interval(_scaled(low), _scaled(high)) if kept else Interval.point(_scaled(low)),
                low,
                high,
            )
        for tree, so_far in zip(trees, stats, strict=True):
            so_far.check_any(tree.where)
        if not some:
            raise ValueError(f"{lower} and {upper} have no file of which both bounds can be read.")


def _check_pair(lower: Images, upper: Images, low_path: str | Path, high_path: str | Path) -> None:
    """Refuse pixels of other sizes, or out of order."""
    low, high = lower.pixels, upper.pixels
    if low.shape != high.shape:
        sizes = [format_size(side.shape[2:]) for side in (low, high)]
        found = f"{low_path} has images of {sizes[0]} pixels, but {high_path} of {sizes[1]}"
        raise ValueError(f"{found}. Give a size to stretch all images to.")
    for at in map(tuple, np.argwhere(low > high)):
        place = f"in {lower.files[at[0]]}: at channel {at[1]}, row {at[2]}, column {at[3]}"
        found = f"the lower one is {low[at]}, the upper one {high[at]}"
        raise ValueError(
            f"Bounds are out of order {place} {found}. Were the folders swapped, or stored as JPEG?"
        )


def _parts(files: Sequence[str], count: int | None) -> Iterator[Sequence[str]]:
    """So many at once, or all; if there are none, these."""
    step = count or max(1, len(files))
    return (files[at : at + step] for at in range(0, max(1, len(files)), step))


def _scaled(images: Images) -> Tensor:
    return torch.from_numpy(images.pixels).float() / 255
