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

from creinn.numerics import list_names, pluralize, shorten_list

Bytes = npt.NDArray[np.uint8]
Size = int | Sequence[int] | None  # the side of a square, height and width, or as in the files

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_OWN = "their own minimum and maximum"


@dataclass
class DecodeStats:
    """Statistics of the decoded files of a folder."""

    where: str  # the name of the folder in messages
    first: str = ""  # the first image that was read
    shape: tuple[int, ...] = ()  # its shape
    sizes: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    unreadable: dict[str, str] = field(default_factory=dict)  # messages by file

    def add(self, file: str, picture: "_Picture") -> None:
        """Count a decoded image, and check its size."""
        if not self.first:
            self.first, self.shape = file, picture.pixels.shape
        if picture.pixels.shape != self.shape:
            found = f"{self.where}: {file} has {picture.size} pixels, but {self.first} has"
            raise ValueError(
                f"{found} {format_size(self.shape[1:])}. Give a size to stretch all images to."
            )
        self.sizes[picture.size] += 1
        self.changes.update(picture.changes)

    def check_any(self) -> None:
        """Raise a ``ValueError`` if no image of the folder was read."""
        if not self.first:
            files = pluralize(len(self.unreadable), "file")
            why = next(iter(self.unreadable.values()))
            raise ValueError(f"{self.where}: no image can be read, {files} in all. {why}")

    def notes(self) -> list[str]:
        """Return notes on changed and omitted images."""
        size = format_size(self.shape[1:]) if self.first else ""
        others = Counter({name: n for name, n in self.sizes.items() if name != size})
        changes = dict(self.changes)
        if others:
            shown = shorten_list([f"{n} of {name}" for name, n in others.most_common()])
            changes[f"stretched to {size} pixels: {shown}"] = others.total()
        notes = [f"{pluralize(count, 'image')} {change}" for change, count in changes.items()]
        if self.unreadable:
            notes.append(
                f"{list_names(sorted(self.unreadable), 'file')} left out, being unreadable"
            )
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
    """Decode files in parallel and update ``stats``.

    Returns the pixels ``(N, channels, height, width)`` and the files in their order. If ``strict``
    is false, unreadable files are omitted. A bound cannot be scaled by its own range. With
    ``crop``, images are not stretched to the size: the result is this fraction of the largest
    rectangle in the center of the image.
    """
    where = stats.where
    if channels not in (1, 3):
        raise ValueError(f"Images can be read in 1 (grey) or 3 (RGB) channels, not {channels}.")
    sides = (size, size) if isinstance(size, int) else size
    if sides is not None and min(sides) < 1:
        raise ValueError(f"Image size must be at least 1, but is {size}.")
    if not files:
        raise ValueError(f"{where} holds no images ({', '.join(SUFFIXES)}).")

    def decode(file: str) -> "_Picture | ValueError":
        try:
            return _decode(read(file), sides, channels, is_bound, crop)
        except (ImportError, MemoryError):
            raise
        except Exception as error:  # Pillow and zipfile raise errors of many kinds on damaged files
            reason = re.sub(r"\s*<_io\.BytesIO[^>]*>", "", f"{error}").strip(". ")
            found = f"cannot be read as an image: {reason or type(error).__name__}"
            return ValueError(f"{where}: {file} {found}. Is it damaged, or of another kind?")

    pixels: list[Bytes] = []
    kept: list[str] = []
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
    image_module = pillow()
    from PIL import ImageOps

    with image_module.open(io.BytesIO(raw)) as image:
        if sides is not None and crop is not None:  # decodes large JPEG files at a lower resolution
            image.draft(None, (round(2 * max(sides) / crop),) * 2)
        picture: Any = ImageOps.exif_transpose(image)
        changes = []
        if picture.mode.startswith(("I", "F")):
            levels, scaled_from = _to_bytes(np.asarray(picture))
            if is_bound and scaled_from == _OWN:
                raise ValueError("its own range would scale it differently from the other bound")
            changes.append(f"with wide pixels scaled from {scaled_from}")
            picture = image_module.fromarray(levels)
        elif "A" in picture.mode or "transparency" in picture.info:
            picture = picture.convert("RGBA")
            if picture.getchannel("A").getextrema()[0] < 255:
                changes.append("with transparency laid on white")
            white = image_module.new("RGBA", picture.size, "white")
            picture = image_module.alpha_composite(white, picture)
        picture = picture.convert("L" if channels == 1 else "RGB")
    size = format_size((picture.height, picture.width))
    if sides is not None and crop is None:
        picture = picture.resize((sides[1], sides[0]), image_module.Resampling.BILINEAR)
    elif sides is not None and crop is not None:
        options = {"method": image_module.Resampling.BICUBIC, "bleed": (1 - crop) / 2}
        picture, size = ImageOps.fit(picture, (sides[1], sides[0]), **options), format_size(sides)
    pixels = np.asarray(picture)
    pixels = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
    return _Picture(pixels, size, changes)


def _to_bytes(values: npt.NDArray[Any]) -> tuple[Bytes, str]:
    """Return pixels scaled to bytes, and the name of the range.

    The range is that of 16-bit integers, [0, 1] for floating point pixels, or the range of the
    values if they exceed it.
    """
    low, high = float(values.min()), float(values.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError("it has pixels that are not finite numbers")
    limit, name = (1.0, "[0, 1]") if values.dtype.kind == "f" else (65535.0, "[0, 65535]")
    if low >= 0 and high <= limit:
        start, width = 0.0, limit
    else:
        start, width, name = low, high - low or 1.0, _OWN
    return ((values.astype(np.float64) - start) * (255 / width)).round().astype(np.uint8), name


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
