"""Images in folders or zip archives, read at once or on demand.

Labelled images are in one folder per class. Two folders with the same file names are the bounds of
intervals. Hidden files, ``__MACOSX`` and files without a suffix of an image are skipped.
"""

import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import get_worker_info

from creinn.data.dataset import Dataset
from creinn.data.decoding import SUFFIXES, Bytes, DecodeStats, Size, decode_all
from creinn.data.transforms import PerChannel, normalize
from creinn.interval import Interval
from creinn.numerics import list_names, pluralize

KEPT = 2**30
"""The number of bytes of decoded images that are kept in memory by default."""
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
    """Read images in one folder per class.

    The pixels are bytes. 16-bit images are scaled from [0, 65535]. Floating point images are scaled
    from [0, 1], or from their minimum and maximum if they exceed it. There is a warning for these
    images, and for a class folder without images.

    Args:
        path: Folder or zip archive with one folder per class.
        size: Side in pixels to which images are resized. By default all images must have one size.
        channels: 3 for RGB, 1 for grey.
        classes: Names and order of the classes. By default the sorted names of the folders.
        name: Name of the data set. By default the name of the folder.
        split: Part of the data set.

    Raises:
        FileNotFoundError: If the folder or file does not exist.
        ValueError: If there is no class folder with images, if a class is unknown, or if an image
            is damaged or has another size.
    """
    path = Path(path)
    with open_tree(path) as tree:
        pixels, labels, order = read_classes(tree, size, channels, classes)
    return Dataset(name or path.stem, torch.from_numpy(pixels), labels, order, split)


@dataclass(frozen=True)
class Tree:
    """The files of a folder or zip archive. A single image is also a tree."""

    where: str  # the name in messages
    names: Sequence[str]  # the sorted files, and folders with a final slash
    read: Callable[[str], bytes]  # returns the content of a file

    @property
    def images(self) -> list[str]:
        """The files that are images."""
        return list(filter(is_image, self.names))

    @property
    def notes(self) -> list[str]:
        """A note on files that are not images, if there are any."""
        others = [name for name in self.names if not (is_image(name) or name.endswith("/"))]
        found = f"{self.where}: {list_names(others, 'file')} left out, being no image by the suffix"
        return [found] if others else []

    def classes(self, expected: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the class names: ``expected``, or the folders that contain images.

        Folders without images give a warning.
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
            found = f"a folder {folder!r}, which is none of the classes {', '.join(order)}"
            raise ValueError(f"{where} has {found}.")
        folders = {_class(name) for name in self.names if name.endswith("/")}
        if empty := sorted(folders - filled):
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
            found = f"{path} is not a whole zip archive: {error}"
            raise ValueError(f"{found}. It is truncated or damaged.") from error
        with archive:
            yield Tree(where, sorted(filter(_is_data, archive.namelist())), archive.read)


def is_tree(path: Path) -> bool:
    """Return whether a path is a folder, an image, or a zip archive of images."""
    if path.suffix.lower() == ".zip" and path.is_file():
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            return any(map(is_image, archive.namelist()))
    return path.is_dir() or is_image(path.name)


def is_image(name: str) -> bool:
    """Return whether a file has a suffix of an image."""
    return name.lower().endswith(SUFFIXES)


def _is_data(name: str) -> bool:
    """Return whether a file or folder is not the root, hidden, or written by macOS."""
    parts = PurePosixPath(name).parts
    return len(parts) > 0 and not any(part.startswith(".") or part == "__MACOSX" for part in parts)


def read_classes(
    tree: Tree, size: Size, channels: int, classes: Sequence[str] | None = None
) -> tuple[Bytes, Tensor, tuple[str, ...]]:
    """Return the images by class, their labels and the classes.

    See :func:`image_folder`.
    """
    order = tree.classes(classes)
    files = sorted(tree.images, key=lambda file: order.index(_class(file)))
    stats = DecodeStats(tree.where)
    pixels, _ = decode_all(files, tree.read, stats, size, channels)
    for change, count in stats.changes.items():
        if "scaled" in change:
            warnings.warn(f"{tree.where}: {pluralize(count, 'image')} {change}", stacklevel=3)
    return pixels, labels_of(files, order), order


def labels_of(files: Sequence[str], order: Sequence[str]) -> Tensor:
    """Return the indices of the classes of files."""
    return torch.tensor([order.index(_class(file)) for file in files], dtype=torch.int64)


def _class(name: str) -> str:
    return PurePosixPath(name).parts[0]


def read_images(
    paths: Sequence[str | Path],
    size: Size = None,
    channels: int = 3,
    strict: bool = True,
    count: int | None = None,
) -> Iterator[tuple[Tensor | Interval, list[str], list[DecodeStats]]]:
    """Yield images in [0, 1], their files and statistics, ``count`` or all at once.

    Two paths are folders or zip archives of lower and upper bounds. Resizing keeps the order of the
    bounds, but a lossy format such as JPEG may not. The statistics are for all images that have
    been read. If ``strict`` is false, an unreadable image is left out of both bounds.
    """
    with ExitStack() as stack:
        trees = [stack.enter_context(open_tree(Path(path))) for path in paths]
        files, stats = trees[0].images, [DecodeStats(tree.where) for tree in trees]
        for name in sorted(set(files).symmetric_difference(trees[-1].images)):
            has, lacks = paths if name in files else reversed(paths)
            found = f"{has} has {name}, but {lacks} has not"
            raise ValueError(f"{found}. Both must hold the same file names.")
        step, total = count or max(1, len(files)), 0
        for start in range(0, max(1, len(files)), step):
            batch, sides = files[start : start + step], []
            for tree, side in zip(trees, stats, strict=True):
                options = (size, channels, strict, len(trees) == 2)
                sides.append(decode_all(batch, tree.read, side, *options))
            kept = sorted(set.intersection(*(set(names) for _, names in sides)))
            total += len(kept)
            pixels = [side[np.isin(names, kept)] for side, names in sides]
            _check_order(pixels[0], pixels[-1], kept)
            bounds = [torch.from_numpy(side).float() / 255 for side in pixels]
            bounds = bounds if kept else bounds[:1] * len(bounds)
            yield (Interval(*bounds) if len(bounds) == 2 else bounds[0]), kept, stats
        for side in stats:
            side.check_any()
        if total == 0:
            raise ValueError(f"{paths[0]} and {paths[-1]} have no image that can be read in both.")


def _check_order(low: Bytes, high: Bytes, files: Sequence[str]) -> None:
    """Raise a ``ValueError`` if two bounds have different sizes or the wrong order."""
    if not files:
        return
    if low.shape != high.shape:
        found = f"{files[0]}: the bounds have the shapes {low.shape[1:]} and {high.shape[1:]}"
        raise ValueError(f"{found}. Give a size to stretch all images to.")
    for at in map(tuple, np.argwhere(low > high)):
        place = f"in {files[at[0]]}: at channel {at[1]}, row {at[2]}, column {at[3]}"
        found = f"Bounds are out of order {place} the lower is {low[at]}, the upper {high[at]}"
        raise ValueError(f"{found}. Were the folders swapped, or stored as JPEG?")


class LazyImages(TorchDataset[tuple[Any, int]]):
    """Images in one folder per class, which are decoded on demand.

    Items are pairs of an image ``(channels, height, width)`` in [0, 1] and its class index. The
    first decoded images are kept in memory as bytes, so that small folders are decoded once.

    Args:
        path: Folder or zip archive with one folder per class.
        size: Side in pixels, or height and width, to which images are resized.
        channels: 3 for RGB, 1 for grey.
        classes: Names and order of the classes. By default the sorted names of the folders.
        upper: Folder or zip archive of upper bounds with the same file names. Items are then
            intervals.
        files: Paths of the images below ``path``. By default all images.
        keep: Bytes of decoded images that are kept in memory, but not by workers of a DataLoader.

    Raises:
        FileNotFoundError: If the folder or file does not exist.
        ValueError: If there is no class folder with images or a class is unknown, or, for an item,
            if its image is damaged.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        size: int | Sequence[int],
        channels: int = 3,
        classes: Sequence[str] | None = None,
        upper: str | Path | None = None,
        files: Sequence[str] | None = None,
        keep: int = KEPT,
    ) -> None:
        self.paths = [Path(path)] if upper is None else [Path(path), Path(upper)]
        self.size, self.channels = (size, size) if isinstance(size, int) else tuple(size), channels
        if files is None or classes is None:
            with open_tree(self.paths[0]) as tree:
                classes = tree.classes(classes)
                files = tree.images if files is None else files
        self.files, self.classes = list(files), tuple(classes)
        self.labels = labels_of(files, classes)
        self.mean: PerChannel = 0.0
        self.std: PerChannel = 1.0
        self._room = keep // prod((len(self.paths), *self.shape[1:]))  # in images
        self._kept: dict[str, Bytes] = {}
        self._archives: dict[tuple[int, Path], zipfile.ZipFile] = {}  # by process

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape ``(N, channels, height, width)``."""
        return len(self.files), self.channels, *self.size

    @property
    def is_interval(self) -> bool:
        """Whether items are intervals."""
        return len(self.paths) == 2

    @property
    def fits(self) -> bool:
        """Whether all images can be kept in memory."""
        return len(self.files) <= self._room

    def take(self, index: Tensor) -> "LazyImages":
        """Return the images with these indices, in the order of the indices.

        The images in memory are shared.
        """
        files = [self.files[row] for row in index.tolist()]
        return self._with(files=files, labels=self.labels[index])

    def normalized(self, mean: PerChannel, std: PerChannel) -> "LazyImages":
        """Return normalized images; see :func:`creinn.data.normalize`."""
        return self._with(mean=mean, std=std)

    def digest(self) -> str:
        """Return a short text that identifies the images."""
        about = (self.files, self.labels.tolist(), self.shape, self.mean, self.std)
        return f"checksum {zlib.crc32(repr(about).encode()):08x}"

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.__getitems__([index])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Any, int]]:  # called by DataLoader
        pixels = torch.from_numpy(self._pixels([self.files[row] for row in rows]))
        sides = (pixels.float() / 255).unbind(1)
        x = normalize(Interval(*sides) if self.is_interval else sides[0], self.mean, self.std)
        return [(x[at], int(self.labels[row])) for at, row in enumerate(rows)]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kept": {}, "_archives": {}}

    def _with(self, **changes: Any) -> "LazyImages":
        other = object.__new__(type(self))
        other.__dict__ = vars(self) | changes
        return other

    def _pixels(self, files: Sequence[str]) -> Bytes:
        """Return bytes ``(N, 1 or 2, channels, height, width)``.

        Images that are not in memory are decoded.
        """
        found = {file: self._kept[file] for file in files if file in self._kept}
        if new := [file for file in files if file not in found]:
            sides = []
            for path in self.paths:
                options = (self.size, self.channels, True, self.is_interval)
                stats = DecodeStats(str(path))
                sides.append(decode_all(new, self._reader(path), stats, *options)[0])
            found.update(zip(new, np.stack(sides, 1), strict=True))
            room = 0 if get_worker_info() else self._room - len(self._kept)
            self._kept.update((file, found[file].copy()) for file in new[: max(0, room)])
        return np.stack([found[file] for file in files])

    def _reader(self, path: Path) -> Callable[[str], bytes]:
        if path.is_dir():
            return lambda file: (path / file).read_bytes()
        key = (os.getpid(), path)
        if key not in self._archives:
            self._archives[key] = zipfile.ZipFile(path)
        return self._archives[key].read
