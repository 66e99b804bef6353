"""SVHN as its authors distribute it (format 2, cropped digits): ``train_32x32.mat`` and ``test_32x32.mat``.

In: a path. Out: images ``(N, 3, 32, 32)`` and labels 0 to 9. In the file the item axis is last, and the digit 0 has the
label 10.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.io import loadmat


def read_mat(path: str | Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Read one file of cropped digits.

    Raises:
        ValueError: If the file is damaged, or holds anything but ``X`` of shape (32, 32, 3, N) and ``y`` of 1 to 10.
    """
    try:
        content: dict[str, Any] = loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # a damaged file can raise anything, from zlib.error to struct.error
        raise ValueError(
            f"{path} cannot be read as a MATLAB file: {str(error) or type(error).__name__}. It is truncated or "
            "damaged; "
            f"download it again."
        ) from error
    missing = [key for key in ("X", "y") if key not in content]
    if missing:
        raise ValueError(
            f"{path} holds no variable {missing[0]}: it is truncated or not a file of cropped SVHN digits."
        )
    images, labels = content["X"], content["y"].reshape(-1)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise ValueError(f"{path}: X must be bytes of shape (32, 32, 3, N), but is {images.dtype} of {images.shape}.")
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), svhn_labels(labels, images.shape[3], path)


def svhn_labels(labels: npt.NDArray[Any], n: int, path: str | Path) -> npt.NDArray[np.int64]:
    """Labels 1 to 10 as digits: 10 stands for 0.

    Raises:
        ValueError: If there are not ``n`` of them, or one is not from 1 to 10.
    """
    if len(labels) != n:
        raise ValueError(f"{path} holds {len(labels)} labels for {n} images: it is damaged.")
    wrong = np.flatnonzero(~np.isin(labels, np.arange(1, 11)))
    if wrong.size:
        raise ValueError(f"{path}: label {wrong[0]} is {labels[wrong[0]]}, but SVHN labels run from 1 to 10.")
    return labels.astype(np.int64) % 10
