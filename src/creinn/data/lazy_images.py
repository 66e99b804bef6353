"""Images in folders or zip archives, decoded on demand."""

import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from creinn.data.decoding import Bytes, DecodeStats, decode_all
from creinn.data.images import labels_of, open_tree
from creinn.data.transforms import PerChannel, normalize
from creinn.interval import Interval

KEPT = 2**30
"""Default number of bytes of decoded images in memory."""


class LazyImages(Dataset[tuple[Any, int]]):
    """Images in one folder per class, decoded on demand.

    Items are images ``(channels, height, width)`` in [0, 1] and their
    class indices. The first images that are decoded are kept in memory.

    Args:
        path: Folder or zip archive with one folder per class.
        size: Side, or height and width, of the resized images in pixels.
        channels: 3 for RGB, 1 for grey.
        classes: Class names in order. By default the sorted folder names.
        upper: Folder of the upper bounds, with the same file names.
        files: Image paths below ``path``. By default all images.
        keep: Bytes of decoded images in memory, except in workers of a
            DataLoader.
        crop: Fraction of the largest central rectangle of the right aspect
            ratio. By default the whole image is stretched.

    Raises:
        FileNotFoundError: If the folder or file does not exist.
        ValueError: If there is no image, if a class is unknown, or if an
            image is damaged.
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
        crop: float | None = None,
    ) -> None:
        self.paths = [Path(path)] if upper is None else [Path(path), Path(upper)]
        self.size, self.channels = (size, size) if isinstance(size, int) else tuple(size), channels
        self.crop = crop
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
        """``(N, channels, height, width)``."""
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
        """Select images; decoded ones are shared."""
        files = [self.files[row] for row in index.tolist()]
        return self._with(files=files, labels=self.labels[index])

    def normalized(self, mean: PerChannel, std: PerChannel) -> "LazyImages":
        """See :func:`creinn.data.normalize`."""
        return self._with(mean=mean, std=std)

    def digest(self) -> str:
        """Checksum of file names, labels and preprocessing, not of pixels."""
        about = (self.files, self.labels.tolist(), self.shape, self.crop, self.mean, self.std)
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
        """Bytes ``(N, 1 or 2, channels, height, width)``."""
        found = {file: self._kept[file] for file in files if file in self._kept}
        if new := [file for file in files if file not in found]:
            options = (self.size, self.channels, True, self.is_interval, self.crop)
            sides = [
                decode_all(new, self._reader(path), DecodeStats(str(path)), *options)[0]
                for path in self.paths
            ]
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
