"""Decoded images: names of files and how to read them in, bytes ``(N, channels, height, width)`` out.

Images are turned as their EXIF data say, and what is transparent in them lies on white. Pillow is needed.
"""

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from creinn.data.numerals import counted, listed, shortened

Bytes = npt.NDArray[np.uint8]
Size = (
    int | Sequence[int] | None
)  # side of a square; height and width; or that of the files, which must agree

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_EIGHT_BIT = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"}


@dataclass(frozen=True)
class Images:
    """Decoded files."""

    pixels: Bytes  # (N, channels, height, width)
    files: list[str]  # what each is called
    notes: list[str]  # on what was changed or left out
    unreadable: list[str]  # why a file was left out, one message for each


@dataclass
class Met:
    """What was met in decoding files of a folder, some after others: to be said in sum."""

    sizes: Counter[str] = field(default_factory=Counter)
    transparent: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)  # why, by file
    first: tuple[str, tuple[int, ...]] | None = (
        None  # the first image and its shape, which all must have
    )

    def check_any(self, where: str) -> None:
        """Refuse a folder of which no image could be read."""
        if self.first is None:
            files = counted(len(self.unreadable), "file")
            why = next(iter(self.unreadable.values()))
            raise ValueError(f"{where}: no image can be read, {files} in all. {why}")

    def notes(self, where: str) -> list[str]:
        """What was changed or left out."""
        notes = []
        size_now = by(self.first[1][1:]) if self.first else ""
        sizes = Counter({size: count for size, count in self.sizes.items() if size != size_now})
        if sizes:
            shown = shortened([f"{n} of {name}" for name, n in sizes.most_common()])
            notes.append(
                f"{where}: {counted(sizes.total(), 'image')} stretched to {size_now} pixels: {shown}"
            )
        if self.transparent:
            notes.append(
                f"{where}: {counted(self.transparent, 'image')} with transparency laid on white"
            )
        if self.unreadable:
            notes.append(
                f"{where}: {listed(sorted(self.unreadable), 'file')} left out, being unreadable"
            )
        return notes


def decode_all(
    files: Sequence[str],
    read: Callable[[str], bytes],
    where: str,
    size: Size,
    channels: int,
    strict: bool = True,
    met: Met | None = None,
) -> Images:
    """Decode files on all cores; without ``strict`` those that cannot be read are left out, unless none can.

    With what was ``met`` in the files before, which is changed, notes are on all of them, and none need be readable.
    """
    if channels not in (1, 3):
        raise ValueError(f"Images can be read in 1 (grey) or 3 (RGB) channels, not {channels}.")
    sides = (size, size) if isinstance(size, int) else size
    if sides is not None and min(sides) < 1:
        raise ValueError(f"Image size must be at least 1, but is {size}.")
    if not files:
        raise ValueError(f"{where} holds no images ({', '.join(SUFFIXES)}).")

    def one(file: str) -> tuple[Bytes, str, bool] | ValueError:
        try:
            return _decode(read(file), sides, channels)
        except (ImportError, MemoryError):
            raise
        except Exception as error:  # Pillow and zipfile raise errors of many kinds on damaged files
            reason = (
                re.sub(r"\s*<_io\.BytesIO[^>]*>", "", f"{error}").strip(". ")
                or type(error).__name__
            )
            what = f"{where}: {file} cannot be read as an image: {reason}"
            return ValueError(f"{what}. Is it damaged, or of another kind?")

    found_before, met = met, met or Met()
    pixels = np.empty((0, channels, 1, 1), np.uint8)
    kept: list[str] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for file, found in zip(files, pool.map(one, files), strict=True):
            if isinstance(found, ValueError):
                if strict:
                    raise found
                met.unreadable[file] = f"{found}"
                continue
            picture, own_size, is_transparent = found
            met.first = met.first or (file, picture.shape)
            if picture.shape != met.first[1]:
                sizes_differ = (
                    f"{file} has {own_size} pixels, but {met.first[0]} has {by(met.first[1][1:])}"
                )
                raise ValueError(f"{where}: {sizes_differ}. Give a size to stretch all images to.")
            if not kept:
                pixels = np.empty((len(files), *picture.shape), np.uint8)
            pixels[len(kept)] = picture
            kept.append(file)
            met.transparent += is_transparent
            met.sizes[own_size] += 1
    if found_before is None:
        met.check_any(where)
    return Images(pixels[: len(kept)], kept, met.notes(where), list(met.unreadable.values()))


def _decode(raw: bytes, sides: Sequence[int] | None, channels: int) -> tuple[Bytes, str, bool]:
    """Pixels, what size the file has, and whether anything in it is transparent."""
    image_module = pillow()
    from PIL import ImageOps

    with image_module.open(io.BytesIO(raw)) as image:
        if image.mode not in _EIGHT_BIT:
            raise ValueError(
                f"it has pixels of mode {image.mode}, not 8 bits per channel. Convert the file first"
            )
        picture: Any = ImageOps.exif_transpose(image)
        is_transparent = False
        if "A" in picture.mode or "transparency" in picture.info:
            picture = picture.convert("RGBA")
            is_transparent = picture.getchannel("A").getextrema()[0] < 255
            picture = image_module.alpha_composite(
                image_module.new("RGBA", picture.size, "white"), picture
            )
        picture = picture.convert("L" if channels == 1 else "RGB")
    size = by((picture.height, picture.width))
    if sides is not None:
        picture = picture.resize((sides[1], sides[0]), image_module.Resampling.BILINEAR)
    pixels = np.asarray(picture)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1), size, is_transparent


def by(sides: Sequence[int]) -> str:
    """Height and width as they are usually said: width first."""
    return f"{sides[1]} x {sides[0]}"


def pillow() -> Any:
    """Pillow's module of images; if it is not installed, the error says how it is."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            'Images are read with Pillow. Install it: pip install "creinn[images]"'
        ) from error
    return Image
