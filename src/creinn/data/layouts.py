"""Where known data sets may lie below a folder, and how each of these layouts is read.

For each data set there are the authors' own files, the same unpacked or nested as usual tools leave them, and compact
forms: lossless WebP sheets of 32 x 32 tiles with labels in ``.npz``, and the first 20,000 Fashion-MNIST training
images. In: a name. Out: layouts, each of which finds its files and reads them to images ``(N, channels, height,
width)`` and labels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from creinn.data.batches import read_batches, read_batches_archive
from creinn.data.decoding import tile_sheet
from creinn.data.idx import read_idx
from creinn.data.images import image_folder, is_stray, labels_of, open_tree, read_classes
from creinn.data.mat import read_mat, svhn_labels

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]

CHEST_CLASSES = ("NORMAL", "PNEUMONIA")


@dataclass(frozen=True)
class Layout:
    """One way in which a part of a data set may lie below a folder.

    Args:
        files: Files or folders that must be there, relative to the folder; a final ``[.gz]`` may be missing.
        read: Reads them, given their paths.
        divisible: Whether some of the files make sense without the others.
    """

    files: tuple[str, ...]
    read: Callable[[list[Path]], Arrays]
    divisible: bool = False

    def find(self, directory: Path) -> dict[str, Path]:
        """The files that are there."""
        found = {}
        for file in self.files:
            plain = file.removesuffix("[.gz]")
            spellings = (plain, f"{plain}.gz") if file.endswith("[.gz]") else (plain,)
            path = next((directory / s for s in spellings if (directory / s).exists()), None)
            if path is not None:
                found[file] = path
        return found


def layouts(name: str, split: str, size: int, channels: int) -> list[Layout]:
    """Where the part may lie, the likeliest places first; ``size`` and ``channels`` are for chest X-rays."""
    if name == "cifar10":
        return [layout for base in ("", "cifar10/", "CIFAR10/") for layout in _cifar10(base, split)]
    if name == "svhn":
        return [layout for base in ("", "svhn/", "SVHN/") for layout in _svhn(base, split)]
    if name == "chest-xray":
        bases = ("", "chest_xray/", "chest-xray/")
        found = [layout for base in bases for layout in _chest(base, split, size, channels)]
        return sorted(
            found, key=lambda layout: layout.files[0].endswith("archive.zip")
        )  # a name that says little: last
    if name == "mnist":
        return [_idx(base, "t10k" if split == "test" else "train") for base in ("mnist/", "MNIST/raw/", "MNIST/", "")]
    places = ("fashion_mnist/", "fashion-mnist/", "FashionMNIST/raw/", "")
    prefixes = ("t10k",) if split == "test" else ("train", "train20k")
    return [_idx(base, prefix) for base in places for prefix in prefixes]


def _cifar10(base: str, split: str) -> list[Layout]:
    names = ("test_batch",) if split == "test" else tuple(f"data_batch_{i}" for i in range(1, 6))
    return [
        Layout(tuple(f"{base}cifar-10-batches-py/{name}" for name in names), read_batches, divisible=True),
        Layout((f"{base}cifar-10-python.tar.gz",), lambda paths: read_batches_archive(paths[0], names)),
        Layout(tuple(f"{base}{name}" for name in names), read_batches, divisible=True),
        Layout((*(f"{base}{name}.webp" for name in names), f"{base}labels.npz"), partial(_cifar10_sheets, split=split)),
    ]


def _cifar10_sheets(paths: list[Path], split: str) -> Arrays:
    *sheets, labels_path = paths
    labels = _stored(labels_path, split)
    if len(labels) % len(sheets):
        raise ValueError(
            f"{labels_path} holds {len(labels)} labels, which do not share out among {len(sheets)} sheets."
        )
    images = np.concatenate([tile_sheet(path, len(labels) // len(sheets)) for path in sheets])
    return images, labels.astype(np.int64)


def _svhn(base: str, split: str) -> list[Layout]:
    return [
        Layout((f"{base}{split}_32x32.mat",), lambda paths: read_mat(paths[0])),
        Layout((f"{base}{split}_32x32.webp", f"{base}{split}_labels.npz"), _svhn_sheet),
    ]


def _svhn_sheet(paths: list[Path]) -> Arrays:
    labels = _stored(paths[1], "y")
    return tile_sheet(paths[0], len(labels)), svhn_labels(labels, len(labels), paths[1])


def _stored(path: Path, key: str) -> npt.NDArray[np.uint8]:
    stored = _read_npz(path)
    if key not in stored or stored[key].dtype != np.uint8 or stored[key].ndim != 1:
        raise ValueError(f"{path} must hold labels {key!r} as a vector of bytes; it has the keys {', '.join(stored)}.")
    return stored[key]


def _read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an archive by name; pickled objects are refused."""
    with path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                return {key: archive[key] for key in archive.files}
        except Exception as error:  # a damaged file can raise anything, a lone array has no keys
            raise ValueError(
                f"{path} cannot be read as a NumPy archive: {error}. It is truncated or damaged."
            ) from error


def _chest(base: str, split: str, size: int, channels: int) -> list[Layout]:
    archives = ("chest_xray", "chest-xray-pneumonia", "ChestXRay2017", "chest_xray_224_jpeg", "archive")
    return [
        *(
            Layout(
                tuple(f"{base}{root}{split}/{c}" for c in CHEST_CLASSES),
                partial(_chest_folder, size=size, channels=channels),
            )
            for root in ("chest_xray/", "")
        ),
        *(
            Layout((f"{base}{archive}.zip",), partial(_chest_archive, split=split, size=size, channels=channels))
            for archive in archives
        ),
    ]


def _chest_folder(paths: list[Path], size: int, channels: int) -> Arrays:
    data = image_folder(paths[0].parent, size=size, channels=channels, classes=CHEST_CLASSES)
    return np.asarray(data.inputs), data.labels.numpy()


def _chest_archive(paths: list[Path], split: str, size: int, channels: int) -> Arrays:
    with open_tree(paths[0]) as (names, read):
        ends = [f"{split}/{c}/" for c in CHEST_CLASSES]
        whole = [f"/{name}" for name in names if not is_stray(name)]
        roots = [{name[: name.index(f"/{end}")] for name in whole if f"/{end}" in name} for end in ends]
        if not (common := roots[0] & roots[1]):
            raise ValueError(f"{paths[0]} holds no {ends[0]} with {ends[1]} beside it.")
        prefix = f"{min(common, key=len)}/{split}/"[1:]  # the archive may hold the whole tree twice, once deeper
        inside = [name.removeprefix(prefix) for name in names if name.startswith(prefix) and name != prefix]
        images, order = read_classes(
            inside, lambda name: read(prefix + name), f"{paths[0]}/{prefix}", size, channels, CHEST_CLASSES
        )
    return images.pixels, labels_of(images.files, order).numpy()


def _idx(base: str, prefix: str) -> Layout:
    return Layout((f"{base}{prefix}-images-idx3-ubyte[.gz]", f"{base}{prefix}-labels-idx1-ubyte[.gz]"), _read_idx_pair)


def _read_idx_pair(paths: list[Path]) -> Arrays:
    images, labels = read_idx(paths[0]), read_idx(paths[1])
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise ValueError(
            f"{paths[0]} and {paths[1]} must hold images and as many labels, but have shapes {images.shape} and "
            f"{labels.shape}."
        )
    return images[:, None].copy(), labels.astype(np.int64)
