"""Image files: one, or folders and zip archives with one folder per class.

In: paths. Out: bytes ``(N, channels, height, width)``; see :mod:`creinn.data.decoding`. Hidden files, ``__MACOSX`` and
files that are not images by their suffix are skipped.
"""

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import torch

from creinn.data.dataset import Dataset
from creinn.data.decoding import SUFFIXES, Images, decode_all, listed

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
        images, order = read_classes(names, read, str(path), size, channels, classes)
    labels = labels_of(images.files, order)
    return Dataset(name or path.stem, torch.from_numpy(images.pixels), labels, order, split)


def read_classes(
    names: Sequence[str],
    read: Callable[[str], bytes],
    where: str,
    size: int | None,
    channels: int,
    classes: Sequence[str] | None,
) -> tuple[Images, tuple[str, ...]]:
    """Images, sorted by class, and class names of the files of :func:`open_tree`; arguments as of :func:`image_folder`.

    Raises:
        ValueError: As :func:`image_folder`.
    """
    found = class_files(names, where)
    order = class_order(found, classes, where)
    files = [file for folder in order for file in found.get(folder, [])]
    return decode_all(files, read, where, size, channels), order


@contextmanager
def open_tree(path: Path) -> Iterator[tuple[list[str], Callable[[str], bytes]]]:
    """Sorted names of the files (and folders, with a final slash) of a folder or zip archive, and how to read a file.

    An image is a tree of one file.

    Raises:
        FileNotFoundError: If there is no such path.
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
    if is_image(path.name):
        yield [path.name], lambda _: path.read_bytes()
        return
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{path} is not a whole zip archive: {error}. It is truncated or damaged.") from error
    with archive:
        yield sorted(archive.namelist()), archive.read


def is_stray(name: str) -> bool:
    """Whether a file or folder is none of the data: hidden, or left behind by macOS."""
    return any(part.startswith(".") or part == "__MACOSX" for part in PurePosixPath(name).parts)


def is_image(name: str) -> bool:
    """Whether a file is an image by its suffix."""
    return name.lower().endswith(SUFFIXES)


def image_files(names: Sequence[str]) -> list[str]:
    """The images among the files of :func:`open_tree`."""
    return [name for name in names if is_image(name) and not is_stray(name)]


def other_files(names: Sequence[str], where: str) -> list[str]:
    """A note on files of :func:`open_tree` that are no images; none if there are none."""
    others = [name for name in names if not (is_image(name) or is_stray(name) or name.endswith("/"))]
    return [f"{where}: {listed(others, 'file')} left out, being no image by the suffix"] if others else []


def labels_of(files: Iterable[str], order: Sequence[str]) -> torch.Tensor:
    """Numbers of the classes of files: of the first folders of their names."""
    return torch.tensor([order.index(PurePosixPath(file).parts[0]) for file in files], dtype=torch.int64)


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
        if is_image(name) and len(parts) == 1:
            raise ValueError(f"{where}: {name} is in no class folder. Put each image into the folder of its class.")
        if is_image(name) or name.endswith("/"):
            found.setdefault(parts[0], [])
        if is_image(name):
            found[parts[0]].append(name)
    if not found:
        raise ValueError(f"{where} has no folders of images in it. One folder per class is needed.")
    if set(map(str.lower, found)) <= _SPLITS:
        raise ValueError(f"{where} is divided into {', '.join(sorted(found))}: choose one of these folders.")
    for folder, files in found.items():
        if not files:
            raise ValueError(f"{where}: the class folder {folder!r} holds no image ({', '.join(SUFFIXES)}).")
    return found
