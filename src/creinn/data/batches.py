"""CIFAR-10 as its authors distribute it: ``cifar-10-batches-py``, loose or as ``cifar-10-python.tar.gz``.

In: paths of batches. Out: images ``(N, 3, 32, 32)`` and labels. A batch is a Python pickle of a dictionary with
``data``, bytes ``(N, 3072)``, and ``labels``. A pickle is a program; here it may build plain Python values and NumPy
arrays, and nothing else: every other name it asks for is refused before anything runs.
"""

import io
import pickle
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]

_FOLDER = "cifar-10-batches-py"
_PIXELS = 3 * 32 * 32


def read_batches(paths: Sequence[Path]) -> Arrays:
    """Read batch files and join them in the given order.

    Raises:
        ValueError: If a file is damaged, is no batch, or asks for code to be run.
    """
    return _join([_batch(path.read_bytes(), str(path)) for path in paths])


def read_batches_archive(path: Path, names: Sequence[str]) -> Arrays:
    """Read the named batches from ``cifar-10-python.tar.gz`` without unpacking it to disk.

    Raises:
        ValueError: If the archive or a batch is damaged, or a batch is missing or asks for code to be run.
    """
    wanted = {f"{_FOLDER}/{name}": name for name in names}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name in wanted and member.isfile() else None
                if file is not None:
                    found[wanted[member.name]] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is truncated or damaged: {error}. Download it again.") from error
    for name in names:
        if name not in found:
            raise ValueError(
                f"{path} holds no {_FOLDER}/{name}: it is truncated or another archive. Download it again."
            )
    return _join([_batch(found[name], f"{path}, {_FOLDER}/{name}") for name in names])


def _join(parts: list[Arrays]) -> Arrays:
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def _batch(raw: bytes, where: str) -> Arrays:
    try:
        content = _Unpickler(io.BytesIO(raw), encoding="latin1").load()
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(
            f"{where} cannot be read as a CIFAR-10 batch: {str(error) or type(error).__name__}. "
            f"It is truncated, damaged or not from the authors; download it again."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{where} is not a CIFAR-10 batch: it holds a {type(content).__name__}, not a dictionary.")
    fields = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in content.items()}
    data, labels = fields.get("data"), fields.get("labels")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _PIXELS:
        raise ValueError(
            f"{where} is not a CIFAR-10 batch: 'data' must be bytes of shape (N, {_PIXELS}), not {_kind(data)}."
        )
    if not isinstance(labels, list) or len(labels) != len(data):
        raise ValueError(
            f"{where} is not a CIFAR-10 batch: 'labels' must be a list of {len(data)}, not {_kind(labels)}."
        )
    wrong = next((i for i, y in enumerate(labels) if type(y) is not int or not 0 <= y < 10), None)
    if wrong is not None:
        raise ValueError(
            f"{where} is not a CIFAR-10 batch: label {wrong} is {labels[wrong]!r}, not a class from 0 to 9."
        )
    return data.reshape(-1, 3, 32, 32), np.array(labels, np.int64)


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__


class _Unpickler(pickle.Unpickler):
    """Builds plain values and NumPy arrays only."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name == "ndarray":
            return np.ndarray
        if module == "numpy" and name == "dtype":
            # The flags in old pickles say nothing about plain types, and new NumPy refuses them. The function is a new
            # one each time, so that no pickle can alter a lasting one.
            return lambda code, *flags: np.dtype(code, align=False, copy=True)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a batch of images does not need")
