"""Images and labels in a NumPy archive: a ``.npz`` path in, a :class:`~creinn.data.dataset.Dataset` out.

Keys are ``x`` and ``y``, or ``images`` and ``labels``; for a part of the data ``x_train`` and ``y_train``, or
``train_images`` and ``train_labels``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from creinn.data.dataset import Dataset


def npz(
    path: str | Path,
    split: str = "",
    *,
    channels: Literal["last", "first"] = "last",
    classes: Sequence[str] | None = None,
    name: str | None = None,
) -> Dataset:
    """Read images and labels from a NumPy archive; pickled objects in it are refused.

    Args:
        path: The archive.
        split: Part of the data, as in the keys; empty for keys without a part.
        channels: Whether images are ``(N, H, W, C)``, ``"last"``, or ``(N, C, H, W)``, ``"first"``; ``(N, H, W)`` is
            grey in both.
        classes: Names of the classes; by default the numbers from 0 to the largest label.
        name: Name of the data set; by default that of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is damaged, has no such keys, or the arrays are not images of bytes and integer labels.
    """
    path = Path(path)
    stored = read_npz(path)
    pairs = (
        [(f"x_{split}", f"y_{split}"), (f"{split}_images", f"{split}_labels")]
        if split
        else [("x", "y"), ("images", "labels")]
    )
    keys = next((pair for pair in pairs if all(key in stored for key in pair)), None)
    if keys is None:
        looked = " or ".join(" and ".join(pair) for pair in pairs)
        raise ValueError(f"{path} has the keys {', '.join(stored) or '(none)'}; looked for {looked}.")
    images, labels = (
        _images(stored[keys[0]], channels, f"{path}, {keys[0]}"),
        _labels(stored[keys[1]], f"{path}, {keys[1]}"),
    )
    if classes is None:
        classes = [str(k) for k in range(int(labels.max(initial=-1)) + 1)]
    return Dataset(name or path.stem, torch.from_numpy(images), torch.from_numpy(labels), tuple(classes), split)


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an archive by name.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is damaged or holds pickled objects.
    """
    with path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                return {key: archive[key] for key in archive.files}
        except Exception as error:  # a damaged file can raise anything, a lone array has no keys
            raise ValueError(
                f"{path} cannot be read as a NumPy archive: {error}. It is truncated or damaged."
            ) from error


def _images(images: npt.NDArray[Any], channels: str, where: str) -> npt.NDArray[np.uint8]:
    if images.dtype != np.uint8:
        raise ValueError(f"{where} must be bytes (uint8) from 0 to 255, but is {images.dtype}.")
    if channels not in ("last", "first"):
        raise ValueError(f"channels must be 'last' or 'first', but is {channels!r}.")
    axis = 3 if channels == "last" else 1
    if images.ndim == 3:
        images = np.expand_dims(images, axis)
    if images.ndim != 4 or images.shape[axis] not in (1, 3):
        raise ValueError(
            f"{where} has shape {images.shape}: 1 or 3 channels are looked for on axis {axis}, as "
            f"channels={channels!r} says."
        )
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2) if channels == "last" else images)


def _labels(labels: npt.NDArray[Any], where: str) -> npt.NDArray[np.int64]:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise ValueError(
            f"{where} must be whole numbers, one per image, but is {labels.dtype} of shape {labels.shape}."
        )
    return labels.astype(np.int64)
