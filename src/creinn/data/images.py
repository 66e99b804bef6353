"""Image files: folders or zip archives with one folder per class, and sheets of equal tiles.

In: paths. Out: bytes ``(N, channels, height, width)``. Hidden files, ``__MACOSX`` and files that are not images by
their suffix are skipped. Pillow is needed: ``pip install "creinn[images]"``.
"""

import io
import os
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from creinn.data.dataset import Dataset

Bytes = npt.NDArray[np.uint8]

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_EIGHT_BIT = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"}
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
    """Read images sorted into one folder per class.

    Args:
        path: A folder, or a zip archive, with one folder per class in it; deeper folders belong to their class.
        size: Side in pixels to which images are stretched (bilinear, antialiased); by default they must agree already.
        channels: 3 for RGB, 1 for grey.
        classes: Names and order of the classes; by default the folders found, sorted.
        name: Name of the data set; by default that of the folder.
        split: Part of the data set that this is.

    Raises:
        FileNotFoundError: If there is no such folder or file.
        ValueError: If there are no class folders, one is empty or not among ``classes``, or an image is damaged or of
            another size.
    """
    path = Path(path)
    with open_tree(path) as (names, read):
        images, labels, order = read_classes(names, read, str(path), size, channels, classes)
    return Dataset(name or path.stem, torch.from_numpy(images), torch.from_numpy(labels), order, split)


def read_classes(
    names: Sequence[str],
    read: Callable[[str], bytes],
    where: str,
    size: int | None,
    channels: int,
    classes: Sequence[str] | None,
) -> tuple[Bytes, npt.NDArray[np.int64], tuple[str, ...]]:
    """Images, labels and class names of the files of :func:`open_tree`; arguments as of :func:`image_folder`.

    Raises:
        ValueError: As :func:`image_folder`.
    """
    found = class_files(names, where)
    order = class_order(found, classes, where)
    pairs = [(file, k) for k, folder in enumerate(order) for file in found.get(folder, [])]
    images = decode_all([file for file, _ in pairs], read, where, size, channels)
    return images, np.array([k for _, k in pairs], np.int64), order


@contextmanager
def open_tree(path: Path) -> Iterator[tuple[list[str], Callable[[str], bytes]]]:
    """Sorted names of the files (and folders, with a final slash) of a folder or zip archive, and how to read a file.

    Raises:
        FileNotFoundError: If there is neither.
        ValueError: If the archive is damaged.
    """
    if path.is_dir():
        names = []
        for folder, folders, files in os.walk(path, followlinks=True):
            inside = Path(folder).relative_to(path)
            names += [(inside / file).as_posix() for file in files] + [f"{(inside / f).as_posix()}/" for f in folders]
        yield sorted(names), lambda name: (path / name).read_bytes()
        return
    if not path.is_file():
        raise FileNotFoundError(f"{path} is neither a folder nor a zip archive.")
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{path} is not a whole zip archive: {error}. It is truncated or damaged.") from error
    with archive:
        yield sorted(archive.namelist()), archive.read


def is_stray(name: str) -> bool:
    """Whether a file or folder is none of the data: hidden, or left behind by macOS."""
    return any(part.startswith(".") or part == "__MACOSX" for part in PurePosixPath(name).parts)


def image_files(names: Sequence[str]) -> list[str]:
    """The images among the files of :func:`open_tree`."""
    return [name for name in names if name.lower().endswith(SUFFIXES) and not is_stray(name)]


def class_order(found: Iterable[str], classes: Sequence[str] | None, where: str) -> tuple[str, ...]:
    """Names of the classes in order: those given, or else the folders found, sorted.

    Raises:
        ValueError: If a folder is none of the classes given.
    """
    order = tuple(sorted(found) if classes is None else classes)
    for folder in found:
        if folder not in order:
            raise ValueError(f"{where} has a folder {folder!r}, which is none of the classes {', '.join(order)}.")
    return order


def class_files(names: Sequence[str], where: str) -> dict[str, list[str]]:
    """Image files by class, the first folder of their name.

    Raises:
        ValueError: If there are no class folders, one holds no image, or an image is in none.
    """
    found: dict[str, list[str]] = {}
    for name in names:
        if is_stray(name):
            continue
        parts = PurePosixPath(name).parts
        is_image = name.lower().endswith(SUFFIXES)
        if is_image and len(parts) == 1:
            raise ValueError(f"{where}: {name} is in no class folder. Put each image into the folder of its class.")
        if is_image or name.endswith("/"):
            found.setdefault(parts[0], [])
        if is_image:
            found[parts[0]].append(name)
    if not found:
        raise ValueError(f"{where} has no folders of images in it. One folder per class is needed.")
    if set(map(str.lower, found)) <= _SPLITS:
        raise ValueError(f"{where} is divided into {', '.join(sorted(found))}: choose one of these folders.")
    for folder, files in found.items():
        if not files:
            raise ValueError(f"{where}: the class folder {folder!r} holds no image ({', '.join(SUFFIXES)}).")
    return found


def decode_all(
    files: Sequence[str], read: Callable[[str], bytes], where: str, size: int | None, channels: int
) -> Bytes:
    """Decode files into one array ``(N, channels, height, width)``, on all cores.

    Raises:
        ValueError: If there are none, or one is damaged or, without a ``size``, differs in size from the first.
    """
    if channels not in (1, 3):
        raise ValueError(f"Images can be read in 1 (grey) or 3 (RGB) channels, not {channels}.")
    if size is not None and size < 1:
        raise ValueError(f"Image size must be at least 1, but is {size}.")
    if not files:
        raise ValueError(f"{where} holds no images.")

    def one(file: str) -> Bytes:
        try:
            raw = read(file)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise ValueError(f"{where}: {file} is truncated or damaged: {error}.") from error
        return _decode(raw, f"{where}: {file}", size, channels)

    first = one(files[0])
    images = np.empty((len(files), *first.shape), np.uint8)
    images[0] = first
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for i, image in enumerate(pool.map(one, files[1:]), start=1):
            if image.shape != first.shape:
                raise ValueError(
                    f"{where}: {files[i]} has {image.shape[2]} x {image.shape[1]} pixels, but {files[0]} has "
                    f"{first.shape[2]} x {first.shape[1]}. Give a size to stretch all images to."
                )
            images[i] = image
    return images


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


def _decode(raw: bytes, where: str, size: int | None, channels: int) -> Bytes:
    image_module = _pillow()
    try:
        with image_module.open(io.BytesIO(raw)) as image:
            mode = image.mode
            if mode in _EIGHT_BIT:
                opaque = image.convert("RGBA") if mode in ("P", "PA") else image
                picture = opaque.convert("L" if channels == 1 else "RGB")
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as error:
        raise ValueError(f"{where} cannot be read as an image: {error}. The file is truncated or damaged.") from error
    if mode not in _EIGHT_BIT:
        raise ValueError(f"{where} has pixels of mode {mode}, not 8 bits per channel. Convert the file first.")
    if size is not None:
        picture = picture.resize((size, size), image_module.Resampling.BILINEAR)
    pixels = np.asarray(picture)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


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
