"""Decoder of image files as bytes ``(N, channels, height, width)``.

It applies the EXIF orientation, and draws transparent images on white.
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

from creinn.numerics import list_names, pluralize, shorten_list

Bytes = npt.NDArray[np.uint8]
Size = int | Sequence[int] | None  # side of a square, height and width, or unchanged

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_OWN = "their own minimum and maximum"


@dataclass
class DecodeStats:
    """Statistics of the decoded files of a folder."""

    where: str  # name of the folder
    first: str = ""  # first decoded image
    shape: tuple[int, ...] = ()  # its shape
    sizes: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    unreadable: dict[str, str] = field(default_factory=dict)  # messages by file

    def add(self, file: str, picture: "_Picture") -> None:
        """Count a decoded image and check its size."""
        if not self.first:
            self.first, self.shape = file, picture.pixels.shape
        if picture.pixels.shape != self.shape:
            found = f"{file} has {picture.size} pixels, but {self.first} has"
            expected = format_size(self.shape[1:])
            raise ValueError(f"{self.where}: {found} {expected}. Give a size for all images.")
        self.sizes[picture.size] += 1
        self.changes.update(picture.changes)

    def notes(self) -> list[str]:
        """Notes on changed and omitted images."""
        changes, size = dict(self.changes), format_size(self.shape[1:]) if self.first else ""
        if others := [(name, n) for name, n in self.sizes.most_common() if name != size]:
            shown = shorten_list([f"{n} of {name}" for name, n in others])
            changes[f"stretched to {size} pixels: {shown}"] = sum(n for _, n in others)
        notes = [f"{pluralize(count, 'image')} {change}" for change, count in changes.items()]
        if self.unreadable:
            files = list_names(sorted(self.unreadable), "file")
            notes.append(f"{files} left out, being unreadable")
        return [f"{self.where}: {note}" for note in notes]


def decode_all(
    files: Sequence[str],
    read: Callable[[str], bytes],
    stats: DecodeStats,
    size: Size,
    channels: int,
    strict: bool = True,
    is_bound: bool = False,
    crop: float | None = None,
) -> tuple[Bytes, list[str]]:
    """Decode files in parallel, and return the pixels and the decoded files.

    If ``strict`` is false, unreadable files are omitted. ``crop`` is as in
    :class:`creinn.data.LazyImages`. A bound is not scaled from its own
    range.
    """
    where = stats.where
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 or 3, got {channels}.")
    sides = (size, size) if isinstance(size, int) else size
    if sides is not None and min(sides) < 1:
        raise ValueError(f"size must be at least 1, got {size}.")
    if not files:
        raise ValueError(f"{where} has no images ({', '.join(SUFFIXES)}).")

    def decode(file: str) -> "_Picture | ValueError":
        try:
            return _decode(read(file), sides, channels, is_bound, crop)
        except (ImportError, MemoryError):
            raise
        except Exception as error:  # of any type
            reason = re.sub(r"\s*<_io\.BytesIO[^>]*>", "", f"{error}").strip(". ")
            found = f"cannot be read as an image: {reason or type(error).__name__}"
            return ValueError(f"{where}: {file} {found}. Is it damaged?")

    pixels, kept = list[Bytes](), list[str]()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for file, picture in zip(files, pool.map(decode, files), strict=True):
            if isinstance(picture, ValueError):
                if strict:
                    raise picture
                stats.unreadable[file] = f"{picture}"
                continue
            stats.add(file, picture)
            pixels.append(picture.pixels)
            kept.append(file)
    return np.stack(pixels) if pixels else np.empty((0, channels, 1, 1), np.uint8), kept


class _Picture(NamedTuple):
    pixels: Bytes  # (channels, height, width)
    size: str  # in the file, or of the crop
    changes: list[str]


def _decode(
    raw: bytes, sides: Sequence[int] | None, channels: int, is_bound: bool, crop: float | None
) -> _Picture:
    Image = pillow()
    from PIL import ImageOps

    with Image.open(io.BytesIO(raw)) as image:
        if sides is not None and crop is not None:  # a lower resolution of large JPEG files
            image.draft(None, (round(2 * max(sides) / crop),) * 2)
        picture: Any = ImageOps.exif_transpose(image)
        changes = []
        if picture.mode.startswith(("I", "F")):
            levels, limits = _to_bytes(np.asarray(picture))
            if is_bound and limits == _OWN:
                raise ValueError("bounds cannot be scaled by their own range")
            changes.append(f"with wide pixels scaled from {limits}")
            picture = Image.fromarray(levels)
        elif "A" in picture.mode or "transparency" in picture.info:
            picture = picture.convert("RGBA")
            if picture.getchannel("A").getextrema()[0] < 255:
                changes.append("with transparency laid on white")
            white = Image.new("RGBA", picture.size, "white")
            picture = Image.alpha_composite(white, picture)
        picture = picture.convert("L" if channels == 1 else "RGB")
    size = format_size((picture.height, picture.width))
    if sides is not None:
        shape, filters = (sides[1], sides[0]), Image.Resampling
        if crop is None:
            picture = picture.resize(shape, filters.BILINEAR)
        else:
            picture = ImageOps.fit(picture, shape, filters.BICUBIC, bleed=(1 - crop) / 2)
            size = format_size(sides)
    pixels = np.asarray(picture)
    pixels = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
    return _Picture(pixels, size, changes)


def _to_bytes(values: npt.NDArray[Any]) -> tuple[Bytes, str]:
    """Return pixels as bytes, and the name of their range."""
    low, high = float(values.min()), float(values.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError("pixels are not finite")
    limit, name = (1.0, "[0, 1]") if values.dtype.kind == "f" else (65535.0, "[0, 65535]")
    start = 0.0
    if low < 0 or high > limit:
        start, limit, name = low, high - low or 1.0, _OWN
    return ((values.astype(np.float64) - start) * (255 / limit)).round().astype(np.uint8), name


def format_size(sides: Sequence[int]) -> str:
    """Return height and width as ``width x height``."""
    return f"{sides[1]} x {sides[0]}"


def pillow() -> Any:
    """Import ``PIL.Image``."""
    try:
        from PIL import Image
    except ImportError as error:
        advice = 'Images require Pillow: pip install "creinn[images]"'
        raise ImportError(advice) from error
    return Image
