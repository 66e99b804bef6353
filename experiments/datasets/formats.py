"""Readers of the file formats of published data sets, and of compact copies.

The formats are IDX (MNIST, Fashion-MNIST), pickled batches (CIFAR-10), MATLAB (SVHN), and sheets of
tiles with labels
in ``.npz``. Damaged files raise a ``ValueError`` that names the file.
"""

import gzip
import io
import math
import pickle
import struct
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.io import loadmat

from creinn.data.decoding import Bytes, pillow

Arrays = tuple[Bytes, npt.NDArray[np.int64]]

_TILE = 32


@contextmanager
def _reading(where: str | Path, kind: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # damaged files raise various errors
        reason = str(error) or type(error).__name__
        advice = "It is truncated or damaged, or not from the authors; download it again."
        raise ValueError(f"{where} cannot be read as {kind}: {reason}. {advice}") from error


def read_idx_pair(of_images: Path, of_labels: Path) -> Arrays:
    """Read an IDX file of grey images and an IDX file of their labels."""
    images, labels = read_idx(of_images), read_idx(of_labels)
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        shapes = f"{images.shape} and {labels.shape}"
        raise ValueError(
            f"{of_images} and {of_labels} must have equal lengths, got the shapes {shapes}."
        )
    return images[:, None].copy(), labels.astype(np.int64)


def read_idx(path: Path) -> Bytes:
    """Read an IDX file of unsigned bytes, also if it is compressed with gzip.

    A file contains two zero bytes, a type code, the number of dimensions, the dimensions as
    big-endian 32-bit numbers, and
    the values.
    """
    raw = path.read_bytes()
    with _reading(path, "an IDX file"):
        raw = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    magic = raw[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise ValueError(
            f"{path} is not an IDX file: it starts with {magic!r}, not with two zero bytes."
        )
    if magic[2] != 0x08:
        raise ValueError(
            f"{path} has IDX values of type 0x{magic[2]:02x}; expected unsigned bytes, 0x08."
        )
    start = 4 + 4 * magic[3]
    if len(raw) < start:
        raise ValueError(f"{path} is truncated: it ends inside its header. Download it again.")
    shape = struct.unpack_from(f">{magic[3]}I", raw, 4)
    expected, found = math.prod(shape), len(raw) - start
    if found != expected:
        promise = f"its header {shape} promises {expected} values"
        follow = f"only {found} follow" if found < expected else "more follow"
        raise ValueError(f"{path} is truncated or damaged: {promise}, but {follow}.")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def read_batches(*paths: Path) -> Arrays:
    """Read CIFAR-10 batches and join them in the given order.

    A batch is a pickled dictionary with ``data``, bytes ``(N, 3072)``, and ``labels``. Pickles can
    execute code, so names
    other than those of NumPy arrays raise an error before anything is executed.
    """
    return _join(_batch(path.read_bytes(), str(path)) for path in paths)


def read_batches_archive(path: Path, names: Sequence[str]) -> Arrays:
    """Read the named batches from ``cifar-10-python.tar.gz`` without unpacking it to disk."""
    wanted = [f"cifar-10-batches-py/{name}" for name in names]
    found: dict[str, bytes] = {}
    with _reading(path, "an archive"), tarfile.open(path, "r:*") as archive:
        for member in archive:
            if member.name in wanted and (file := archive.extractfile(member)):
                found[member.name] = file.read()
    for name in wanted:
        if name not in found:
            raise ValueError(
                f"{path} holds no {name}: it is truncated or another archive. Download it again."
            )
    return _join(_batch(found[name], f"{path}, {name}") for name in wanted)


def _join(parts: Iterable[Arrays]) -> Arrays:
    images, labels = zip(*parts, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _batch(raw: bytes, where: str) -> Arrays:
    with _reading(where, "a CIFAR-10 batch"):
        content = _Unpickler(io.BytesIO(raw), encoding="latin1").load()
    refusal = f"{where} is not a CIFAR-10 batch:"
    if not isinstance(content, dict):
        raise ValueError(f"{refusal} it holds a {type(content).__name__}, not a dictionary.")
    fields = {
        key.decode("latin1") if isinstance(key, bytes) else key: value
        for key, value in content.items()
    }
    data, labels = fields.get("data"), fields.get("labels")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3072,):
        raise ValueError(f"{refusal} 'data' must be bytes of shape (N, 3072), not {_kind(data)}.")
    if not isinstance(labels, list) or len(labels) != len(data):
        raise ValueError(f"{refusal} 'labels' must be a list of {len(data)}, not {_kind(labels)}.")
    for i, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < 10:
            raise ValueError(f"{refusal} label {i} is {label!r}, not a class from 0 to 9.")
    return data.reshape(-1, 3, 32, 32), np.array(labels, np.int64)


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__


class _Unpickler(pickle.Unpickler):
    """Unpickler that builds plain values and NumPy arrays only."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name == "ndarray":
            return np.ndarray
        if module == "numpy" and name == "dtype":
            # New NumPy versions reject the flags of old pickles. The function is new each time,
            # so that no pickle can change it for others.
            return lambda code, *flags: np.dtype(code, align=False, copy=True)
        raise pickle.UnpicklingError(
            f"it asks for {module}.{name}, which a batch of images does not need"
        )


def read_mat(path: Path) -> Arrays:
    """Read the cropped digits of SVHN: ``X`` of shape (32, 32, 3, N) and ``y`` of 1 to 10 for 0."""
    with _reading(path, "a MATLAB file"):
        content: dict[str, Any] = loadmat(path, variable_names=["X", "y"])
    for key in ("X", "y"):
        if key not in content:
            raise ValueError(
                f"{path} has no variable {key}: it is truncated or not a file of cropped digits."
            )
    images, labels = content["X"], content["y"].reshape(-1)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise ValueError(
            f"{path}: X must be bytes of shape (32, 32, 3, N), got {images.dtype} {images.shape}."
        )
    if len(labels) != images.shape[3]:
        raise ValueError(
            f"{path} holds {len(labels)} labels for {images.shape[3]} images: it is damaged."
        )
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), _svhn_digits(labels, path)


def _svhn_digits(labels: npt.NDArray[Any], path: Path) -> npt.NDArray[np.int64]:
    for at in np.flatnonzero(~np.isin(labels, np.arange(1, 11))):
        raise ValueError(f"{path}: label {at} is {labels[at]}, but SVHN labels run from 1 to 10.")
    return labels.astype(np.int64) % 10


def read_sheets(*paths: Path, key: str, svhn: bool = False) -> Arrays:
    """Read sheets of tiles and the labels, which are stored by a key in the last file."""
    *sheets, path = paths
    with _reading(path, "a NumPy archive"):
        stored = dict(np.load(io.BytesIO(path.read_bytes()), allow_pickle=False))
    labels = stored.get(key)
    if labels is None or labels.dtype != np.uint8 or labels.ndim != 1:
        raise ValueError(
            f"{path} must have labels {key!r} as a vector of bytes; found {', '.join(stored)}."
        )
    if len(labels) % len(sheets):
        raise ValueError(
            f"{path} holds {len(labels)} labels, which do not share out among {len(sheets)} sheets."
        )
    images = np.concatenate([read_sheet(sheet, len(labels) // len(sheets)) for sheet in sheets])
    return images, _svhn_digits(labels, path) if svhn else labels.astype(np.int64)


def read_sheet(path: Path, n: int) -> Bytes:
    """Read the first ``n`` tiles of 32 x 32 pixels of an RGB image, row by row."""
    image_module = pillow()
    with _reading(path, "an image"), image_module.open(path) as image:
        sheet = np.asarray(image.convert("RGB"))
    height, width, _ = sheet.shape
    rows, columns = height // _TILE, width // _TILE
    if height % _TILE or width % _TILE or rows * columns < n:
        raise ValueError(
            f"{path} has {width} x {height} pixels; {n} tiles of side {_TILE} do not fit."
        )
    tiles = sheet.reshape(rows, _TILE, columns, _TILE, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(rows * columns, 3, _TILE, _TILE)[:n])
