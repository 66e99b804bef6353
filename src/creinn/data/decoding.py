"""Decoded images: files, all at once, and sheets of equal tiles.

In: names of files and how to read them. Out: bytes ``(N, channels, height, width)``. Images are turned as their EXIF
data say, and what is transparent in them lies on white. Pillow is needed: ``pip install "creinn[images]"``.
"""

import io
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from creinn.data.tables.columns import counted

Bytes = npt.NDArray[np.uint8]
Size = int | Sequence[int] | None  # side of a square; height and width; or that of the files, which must agree

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_EIGHT_BIT = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"}
_SHOWN = 10  # names in a note


@dataclass(frozen=True)
class Images:
    """Decoded files.

    Args:
        pixels: Bytes ``(N, channels, height, width)``.
        files: What each is called.
        notes: What was changed or left out.
        unreadable: Why files were left out, one message for each.
    """

    pixels: Bytes
    files: list[str]
    notes: list[str]
    unreadable: list[str]


def decode_all(
    files: Sequence[str], read: Callable[[str], bytes], where: str, size: Size, channels: int, strict: bool = True
) -> Images:
    """Decode files on all cores; without ``strict`` those that cannot be read are left out.

    Raises:
        ValueError: If there are none, or one (with ``strict``) or all cannot be read, or one differs in size from the
            first, without a ``size``.
    """
    if channels not in (1, 3):
        raise ValueError(f"Images can be read in 1 (grey) or 3 (RGB) channels, not {channels}.")
    sides = (size, size) if isinstance(size, int) else size
    if sides is not None and min(sides) < 1:
        raise ValueError(f"Image size must be at least 1, but is {size}.")
    if not files:
        raise ValueError(f"{where} holds no images ({', '.join(SUFFIXES)}).")

    def one(file: str) -> _Picture | ValueError:
        try:
            return _decode(read(file), sides, channels)
        except (ImportError, MemoryError):
            raise
        except Exception as error:  # Pillow and zipfile raise errors of many kinds on damaged files
            reason = re.sub(r"\s*<_io\.BytesIO[^>]*>", "", f"{error}").strip(". ") or type(error).__name__
            failure = ValueError(
                f"{where}: {file} cannot be read as an image: {reason}. Is it damaged, or of another kind?"
            )
            if strict:
                raise failure from error
            return failure

    pixels = np.empty(0, np.uint8)
    kept: list[str] = []
    unreadable: list[str] = []
    stretched: Counter[str] = Counter()
    transparent = 0
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for file, found in zip(files, pool.map(one, files), strict=True):
            if isinstance(found, ValueError):
                unreadable.append(f"{found}")
                continue
            if not kept:
                pixels = np.empty((len(files), *found.pixels.shape), np.uint8)
            if found.pixels.shape != pixels.shape[1:]:
                raise ValueError(
                    f"{where}: {file} has {found.size} pixels, but {kept[0]} has {_by(pixels.shape[2:])}. Give a size "
                    f"to stretch all images to."
                )
            pixels[len(kept)] = found.pixels
            kept.append(file)
            transparent += found.is_transparent
            if found.size != _by(pixels.shape[2:]):
                stretched[found.size] += 1
    if not kept:
        raise ValueError(f"{where}: no image can be read, {counted(len(files), 'file')} in all. {unreadable[0]}")
    notes = []
    if count := stretched.total():
        sizes = [f"{n} of {name}" for name, n in stretched.most_common()]
        sizes = sizes if len(sizes) <= _SHOWN else [*sizes[:_SHOWN], "..."]
        notes.append(
            f"{where}: {counted(count, 'image')} stretched to {_by(pixels.shape[2:])} pixels: {', '.join(sizes)}"
        )
    if transparent:
        notes.append(f"{where}: {counted(transparent, 'image')} with transparency laid on white")
    if unreadable:
        lost = sorted(set(files) - set(kept))
        notes.append(f"{where}: {listed(lost, 'file')} left out, being unreadable")
    return Images(pixels[: len(kept)], kept, notes, unreadable)


def listed(names: Sequence[str], noun: str) -> str:
    """How many, and the first names."""
    more = ["..."] if len(names) > _SHOWN else []
    return f"{counted(len(names), noun)} ({', '.join([*names[:_SHOWN], *more])})"


def tile_sheet(path: str | Path, n: int, tile: int = 32) -> Bytes:
    """The first ``n`` tiles, row by row, of one large RGB image: ``(n, 3, tile, tile)``.

    Raises:
        ValueError: If the sheet is damaged, its sides are no multiples of ``tile``, or it has fewer than ``n`` tiles.
    """
    image_module = _pillow()
    try:
        with _pixel_limit(2 * n * tile * tile), image_module.open(path) as image:
            sheet = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
        raise ValueError(f"{path} cannot be read as an image: {error}. It is truncated or damaged.") from error
    height, width, _ = sheet.shape
    rows, columns = height // tile, width // tile
    if height % tile or width % tile or rows * columns < n:
        raise ValueError(f"{path} has {width} x {height} pixels, which do not hold {n} tiles of {tile} x {tile}.")
    tiles = sheet.reshape(rows, tile, columns, tile, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(rows * columns, 3, tile, tile)[:n])


@dataclass(frozen=True)
class _Picture:
    pixels: Bytes
    size: str  # of the file
    is_transparent: bool


def _decode(raw: bytes, sides: Sequence[int] | None, channels: int) -> _Picture:
    image_module = _pillow()
    from PIL import ImageOps

    with image_module.open(io.BytesIO(raw)) as image:
        if image.mode not in _EIGHT_BIT:
            raise ValueError(f"it has pixels of mode {image.mode}, not 8 bits per channel. Convert the file first")
        picture: Any = ImageOps.exif_transpose(image)
        is_transparent = False
        if "A" in picture.mode or "transparency" in picture.info:
            picture = picture.convert("RGBA")
            is_transparent = picture.getchannel("A").getextrema()[0] < 255
            picture = image_module.alpha_composite(image_module.new("RGBA", picture.size, "white"), picture)
        picture = picture.convert("L" if channels == 1 else "RGB")
    size = _by(picture.size[::-1])
    if sides is not None:
        picture = picture.resize((sides[1], sides[0]), image_module.Resampling.BILINEAR)
    pixels = np.asarray(picture)
    return _Picture(pixels[None] if channels == 1 else pixels.transpose(2, 0, 1), size, is_transparent)


def _by(sides: Sequence[int]) -> str:
    """Height and width as they are usually said: width first."""
    return f"{sides[1]} x {sides[0]}"


_limit_lock = threading.Lock()


@contextmanager
def _pixel_limit(pixels: int) -> Iterator[None]:
    """Let Pillow open an image of ``pixels``, and no decompression bomb; its own limit is put back afterwards."""
    image_module = _pillow()
    with _limit_lock:
        before = image_module.MAX_IMAGE_PIXELS
        if before is not None and before < pixels:
            image_module.MAX_IMAGE_PIXELS = pixels
        try:
            yield
        finally:
            image_module.MAX_IMAGE_PIXELS = before


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('Images are read with Pillow. Install it: pip install "creinn[images]"') from error
    return Image
