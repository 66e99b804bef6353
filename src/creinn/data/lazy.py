"""Images in folders or zip archives that are read when needed: a batch at a time, for training larger than memory."""

import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from creinn.data.decoding import Bytes, check_common_scale, decode_all
from creinn.data.images import labels_of, open_tree
from creinn.data.transforms import PerChannel, normalize
from creinn.interval import Interval

KEPT = 2**30  # bytes of decoded images that stay in memory
_LEVELS = 511  # of the centre of two bytes


class LazyImages(Dataset[tuple[Any, int]]):
    """Images sorted into one folder per class; item ``i`` is decoded when it is asked for.

    Items are pairs of an image ``(channels, height, width)`` in [0, 1] and the number of its class. The first ones that
    are asked for stay in memory as bytes, as far as there is room, so that small folders are decoded once.

    Args:
        path: A folder, or a zip archive, with one folder per class in it.
        size: Side in pixels to which images are stretched, as :func:`creinn.data.image_folder` does; or height and
            width.
        channels: 3 for RGB, 1 for grey.
        classes: Names and order of the classes; by default the folders found, sorted.
        upper: Another one with the same file names: items are then intervals between the image there, which must not
            be the darker one anywhere, and that below ``path``.
        files: Which of the files, as paths below ``path``; by default all images.
        keep: Bytes of decoded images that may stay in memory; nothing does in workers of a DataLoader.

    Raises:
        FileNotFoundError: If there is no such folder or file.
        ValueError: If there is no class folder with images or a class is unknown; for an item, if
            its image is damaged.
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
        self.files, self.classes, self.labels = (
            list(files),
            tuple(classes),
            labels_of(files, classes),
        )
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
        """Whether all of the images may stay in memory."""
        return len(self.files) <= self._room

    def take(self, index: Tensor) -> "LazyImages":
        """The images at ``index``, in its order; what is kept in memory is shared."""
        return self._with(
            files=[self.files[row] for row in index.tolist()], labels=self.labels[index]
        )

    def normalized(self, mean: PerChannel, std: PerChannel) -> "LazyImages":
        """The images with ``mean`` subtracted, then divided by ``std``: see :func:`creinn.data.normalize`."""
        return self._with(mean=mean, std=std)

    def digest(self) -> str:
        """A short text that other images are unlikely to share, if ``mean`` and ``std`` are theirs."""
        about = (self.files, self.labels.tolist(), self.shape, self.mean, self.std)
        return f"checksum {zlib.crc32(repr(about).encode()):08x}"

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.__getitems__([index])[0]

    def __getitems__(
        self, rows: Sequence[int]
    ) -> list[tuple[Any, int]]:  # what a DataLoader asks for
        bounds = (
            torch.from_numpy(self._pixels([self.files[row] for row in rows])).float() / 255
        ).unbind(1)
        images = normalize(
            Interval(*bounds) if self.is_interval else bounds[0], self.mean, self.std
        )
        return [(images[at], int(self.labels[row])) for at, row in enumerate(rows)]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kept": {}, "_archives": {}}

    def _with(self, **changes: Any) -> "LazyImages":
        other = object.__new__(type(self))
        vars(other).update(vars(self) | changes)
        return other

    def _pixels(self, files: Sequence[str]) -> Bytes:
        """Bytes ``(N, 1 or 2, channels, height, width)``, decoded on all cores if they are not there yet."""
        found = {file: self._kept[file] for file in files if file in self._kept}
        if new := [file for file in files if file not in found]:
            sides = []
            for at in self.paths:
                side = decode_all(new, self._reader(at), str(at), self.size, self.channels)
                if self.is_interval:
                    check_common_scale(side, str(at))
                sides.append(side.pixels)
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


class ChannelStats:
    """Mean and deviation of each channel of images of bytes, which come in parts: exact, whatever their number."""

    def __init__(self) -> None:
        self._counts = torch.zeros(
            1, _LEVELS, dtype=torch.int64
        )  # (channels, levels) when the first images came

    def add(self, x: Tensor | Interval) -> None:
        """Count the pixels of images in [0, 1]; of intervals their centres."""
        center = x.center if isinstance(x, Interval) else x
        levels = (center * (_LEVELS - 1)).round().long().transpose(0, 1).flatten(1)
        self._counts = self._counts + torch.stack(
            [torch.bincount(channel, minlength=_LEVELS) for channel in levels]
        )

    def mean_and_std(self) -> tuple[list[float], list[float]]:
        """Both for each channel; the deviation of a channel of one colour is 1.

        Example:
            >>> colours = ChannelStats()
            >>> colours.add(torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 2))
            >>> colours.mean_and_std()
            ([0.5], [0.5])
        """
        means, deviations = [], []
        for counts in self._counts.tolist():
            n, first, second = (
                sum(count * level**power for level, count in enumerate(counts))
                for power in range(3)
            )
            means.append(first / n / (_LEVELS - 1))
            deviations.append(sqrt(n * second - first**2) / n / (_LEVELS - 1) or 1.0)
        return means, deviations
