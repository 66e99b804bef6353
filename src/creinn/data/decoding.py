"""Decoder of image files to bytes ``(N, channels, height, width)``.

Requires Pillow. The EXIF orientation is applied, and transparent pixels become white.
"""

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from creinn.numerics import list_names, pluralize, shorten_list

Bytes = npt.NDArray[np.uint8]
Size = int | Sequence[int] | None  # the side of a square, height and width, or as in the files

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_SIXTEEN_BIT, _UNIT, _OWN = "[0, 65535]", "[0, 1]", "their own minimum and maximum"


@dataclass(frozen=True)
class Images:
    """The decoded files and the notes."""

    pixels: Bytes  # (N, channels, height, width)
    files: list[str]  # the name of each image
    notes: list[str]  # on changed and omitted files
    unreadable: list[str]  # a message for each unreadable file
    own_range: list[str]  # the files that are scaled by their minimum and maximum

    def scaled(self) -> Tensor:
        """Return the images as numbers in [0, 1]."""
        return torch.from_numpy(self.pixels).float() / 255


@dataclass
class DecodeStats:
    """Statistics of the decoded files of a folder."""

    sizes: Counter[str] = field(default_factory=Counter)
    transparent: int = 0
    scaled: Counter[str] = field(default_factory=Counter)  # images by the range of the values
    largest: float = 0.0  # the largest value of a 16-bit pixel
    own_range: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)  # messages by file
    first: tuple[str, tuple[int, ...]] | None = None  # the first image and its shape

    def add(self, file: str, picture: "_Picture") -> None:
        """Count a decoded image."""
        self.first = self.first or (file, picture.pixels.shape)
        self.sizes[picture.size] += 1
        self.transparent += picture.is_transparent
        if picture.value_range:
            self.scaled[picture.value_range] += 1
        if picture.value_range == _SIXTEEN_BIT:
            self.largest = max(self.largest, picture.largest)
        if picture.value_range == _OWN:
            self.own_range.append(file)

    def check_any(self, where: str) -> None:
        """Raise a ``ValueError`` if no image of the folder was read."""
        if self.first is None:
            files = pluralize(len(self.unreadable), "file")
            why = next(iter(self.unreadable.values()))
            raise ValueError(f"{where}: no image can be read, {files} in all. {why}")

    def scaling_notes(self, where: str) -> list[str]:
        """Return notes on images with more than 8 bits per channel."""
        notes = []
        for value_range, count in self.scaled.items():
            seen = f"; the largest value is {self.largest:g}" if value_range == _SIXTEEN_BIT else ""
            images = pluralize(count, "image")
            notes.append(f"{where}: {images} with wide pixels scaled from {value_range}{seen}")
        return notes

    def notes(self, where: str) -> list[str]:
        """Return notes on changed and omitted images."""
        notes = []
        size_now = format_size(self.first[1][1:]) if self.first else ""
        if sizes := Counter({size: n for size, n in self.sizes.items() if size != size_now}):
            shown = shorten_list([f"{n} of {name}" for name, n in sizes.most_common()])
            images = pluralize(sizes.total(), "image")
            notes.append(f"{where}: {images} stretched to {size_now} pixels: {shown}")
        if self.transparent:
            images = pluralize(self.transparent, "image")
            notes.append(f"{where}: {images} with transparency laid on white")
        notes += self.scaling_notes(where)
        if self.unreadable:
            files = list_names(sorted(self.unreadable), "file")
            notes.append(f"{where}: {files} left out, being unreadable")
        return notes


def decode_all(
    files: Sequence[str],
    read: Callable[[str], bytes],
    where: str,
    size: Size,
    channels: int,
    strict: bool = True,
    stats: DecodeStats | None = None,
) -> Images:
    """Decode files in parallel, in their order.

    If ``strict`` is false, unreadable files are omitted. If the statistics ``stats`` of other
    files are given, they are updated, and all the new files can be unreadable.

    Raises:
        ValueError: If an image is damaged or has another size, or if there are no files.
    """
    if channels not in (1, 3):
        raise ValueError(f"Images can be read in 1 (grey) or 3 (RGB) channels, not {channels}.")
    sides = (size, size) if isinstance(size, int) else size
    if sides is not None and min(sides) < 1:
        raise ValueError(f"Image size must be at least 1, but is {size}.")
    if not files:
        raise ValueError(f"{where} holds no images ({', '.join(SUFFIXES)}).")

    def decode(file: str) -> "_Picture | ValueError":
        try:
            return _decode(read(file), sides, channels)
        except (ImportError, MemoryError):
            raise
        except Exception as error:  # Pillow and zipfile raise errors of many kinds on damaged files
            reason = re.sub(r"\s*<_io\.BytesIO[^>]*>", "", f"{error}").strip(". ")
            found = f"cannot be read as an image: {reason or type(error).__name__}"
            return ValueError(f"{where}: {file} {found}. Is it damaged, or of another kind?")

    is_last, stats = stats is None, stats or DecodeStats()
    pixels = np.empty((0, channels, 1, 1), np.uint8)
    kept: list[str] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for file, picture in zip(files, pool.map(decode, files), strict=True):
            if isinstance(picture, ValueError):
                if strict:
                    raise picture
                stats.unreadable[file] = f"{picture}"
                continue
            stats.add(file, picture)
            assert stats.first is not None
            first, shape = stats.first
            if picture.pixels.shape != shape:
                found = f"{file} has {picture.size} pixels, but {first} has"
                found = f"{where}: {found} {format_size(shape[1:])}"
                raise ValueError(f"{found}. Give a size to stretch all images to.")
            if not kept:
                pixels = np.empty((len(files), *shape), np.uint8)
            pixels[len(kept)] = picture.pixels
            kept.append(file)
    if is_last:
        stats.check_any(where)
    unreadable = list(stats.unreadable.values())
    return Images(pixels[: len(kept)], kept, stats.notes(where), unreadable, stats.own_range)


def check_common_scale(images: Images, where: str) -> None:
    """Raise a ``ValueError`` if a bound of an interval is scaled by its own range."""
    for file in images.own_range:
        found = f"{where}: {file} has values outside [0, 1] and would be scaled by its own range"
        raise ValueError(f"{found}, but both bounds of an interval need the same scale.")


class _Picture(NamedTuple):
    pixels: Bytes  # (channels, height, width)
    size: str  # in the file
    is_transparent: bool  # whether a pixel is transparent
    value_range: str  # the range that was scaled to bytes; empty for 8-bit images
    largest: float


def _decode(raw: bytes, sides: Sequence[int] | None, channels: int) -> _Picture:
    image_module = pillow()
    from PIL import ImageOps

    with image_module.open(io.BytesIO(raw)) as image:
        picture: Any = ImageOps.exif_transpose(image)
        is_transparent, value_range, largest = False, "", 0.0
        if picture.mode.startswith(("I", "F")):
            levels, value_range, largest = _to_bytes(np.asarray(picture))
            picture = image_module.fromarray(levels)
        elif "A" in picture.mode or "transparency" in picture.info:
            picture = picture.convert("RGBA")
            is_transparent = picture.getchannel("A").getextrema()[0] < 255
            white = image_module.new("RGBA", picture.size, "white")
            picture = image_module.alpha_composite(white, picture)
        picture = picture.convert("L" if channels == 1 else "RGB")
    size = format_size((picture.height, picture.width))
    if sides is not None:
        picture = picture.resize((sides[1], sides[0]), image_module.Resampling.BILINEAR)
    pixels = np.asarray(picture)
    pixels = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
    return _Picture(pixels, size, is_transparent, value_range, largest)


def _to_bytes(values: npt.NDArray[Any]) -> tuple[Bytes, str, float]:
    """Return pixels scaled to bytes, the name of their range and their maximum.

    The range is that of 16-bit integers, [0, 1] for floating point pixels, or the range of the
    values if they exceed it.
    """
    low, high = float(values.min()), float(values.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError("it has pixels that are not finite numbers")
    is_float = values.dtype.kind == "f"
    limit = 1.0 if is_float else 65535.0
    if low >= 0 and high <= limit:
        name, start, width = _UNIT if is_float else _SIXTEEN_BIT, 0.0, limit
    else:
        name, start, width = _OWN, low, high - low or 1.0
    levels = (values.astype(np.float64) - start) * (255 / width)
    return levels.round().astype(np.uint8), name, high


def format_size(sides: Sequence[int]) -> str:
    """Return the height and the width as text, with the width first."""
    return f"{sides[1]} x {sides[0]}"


def pillow() -> Any:
    """Return the module ``PIL.Image``; the error says how to install it."""
    try:
        from PIL import Image
    except ImportError as error:
        advice = 'Images are read with Pillow. Install it: pip install "creinn[images]"'
        raise ImportError(advice) from error
    return Image
