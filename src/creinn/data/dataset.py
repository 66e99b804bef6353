"""Labelled data, stratified splits, and memory maps of arrays."""

import os
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.lib import format as npy
from torch import Tensor

from creinn.data.features import Missing
from creinn.interval import Interval


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels for :func:`creinn.fit` or a ``DataLoader``.

    Raises:
        TypeError: If the dtype of inputs or labels is wrong.
        ValueError: If shapes differ, or a label is not a class.
    """

    name: str  # for example "cifar10"
    inputs: Any  # uint8 images (N, channels, height, width), floating rows, or LazyImages
    labels: Tensor  # int64, (N,)
    classes: Sequence[str] = ()
    split: str = ""  # "train", "val" or "test"
    missing: Missing | None = None  # values for missing cells
    distributions: Tensor | None = None  # of the labels (N, K)
    notes: Sequence[str] = ()  # decisions of the reader
    unreadable: Sequence[str] = ()  # one message per unreadable file
    preprocessing: dict[str, Any] = field(default_factory=dict)  # of new rows

    def __post_init__(self) -> None:
        inputs, labels, count = self.inputs, self.labels, len(self.classes)
        if isinstance(inputs, Tensor | Interval):
            dtype, shape = inputs.dtype, tuple(inputs.shape)
            if dtype != torch.uint8 and not dtype.is_floating_point:
                raise TypeError(f"Inputs must be uint8 or floating, got {dtype}.")
            if dtype == torch.uint8 and len(shape) != 4:
                raise ValueError(f"Images must be (N, channels, height, width), got {shape}.")
        if labels.dtype != torch.int64:
            raise TypeError(f"Labels must be int64, got {labels.dtype}. Use labels.long().")
        if labels.ndim != 1 or len(inputs) != len(labels):
            found = f"inputs {tuple(inputs.shape)} and labels {tuple(labels.shape)}"
            raise ValueError(f"Expected one label per input, got {found}.")
        for at in ((labels < 0) | (labels >= count)).nonzero()[:, 0].tolist():
            expected = f"Labels of {count} classes must lie in 0 .. {count - 1}"
            raise ValueError(f"{expected}, but label {at} is {int(labels[at])}.")

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        return self.inputs[index], self.labels[index]

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of samples of each class."""
        return tuple(torch.bincount(self.labels, minlength=len(self.classes)).tolist())

    @property
    def title(self) -> str:
        """Name and split."""
        return f"{self.name} ({self.split})" if self.split else self.name

    @property
    def is_interval(self) -> bool:
        """Whether the inputs are intervals."""
        return isinstance(self.inputs, Interval) or getattr(self.inputs, "is_interval", False)

    def take(self, index: Tensor) -> "Dataset":
        """Select samples."""
        x, q = self.inputs, self.distributions
        x = x[index] if isinstance(x, Tensor | Interval) else x.take(index)
        q = None if q is None else q[index]
        return replace(self, inputs=x, labels=self.labels[index], distributions=q)

    def to_fit(self) -> Any:
        """Return the inputs and the targets."""
        x = self.inputs
        if not isinstance(x, Tensor | Interval):
            return x
        if self.missing is not None and isinstance(x, Tensor):
            x = self.missing.fill(x)
        return x, self.labels if self.distributions is None else self.distributions

    def scaled(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, "n c h w"]:
        """Return the images in [0, 1]."""
        if isinstance(self.inputs, Interval) or self.inputs.dtype != torch.uint8:
            found = f"{self.title} are {self.inputs.dtype}"
            raise TypeError(f"Only uint8 images can be scaled, but {found}.")
        return self.inputs.to(dtype) / 255


def subset(dataset: Dataset, n: int, seed: int) -> Dataset:
    """Draw ``n`` samples stratified by class, without replacement, in order.

    Raises:
        ValueError: If ``n`` is not between 1 and the number of samples.
    """
    if not 1 <= n <= len(dataset):
        raise ValueError(f"Cannot draw {n} samples from {len(dataset)} of {dataset.title}.")
    return dataset.take(_stratified(dataset.labels, n, np.random.default_rng(seed)))


def split(dataset: Dataset, fractions: float | Sequence[float], seed: int) -> tuple[Dataset, ...]:
    """Divide the samples into parts, stratified by class.

    One fraction ``f`` means ``(f, 1 - f)``.

    Raises:
        ValueError: If the fractions are not positive or do not sum to 1,
            or if a part is empty.
    """
    parts = (fractions, 1 - fractions) if isinstance(fractions, int | float) else tuple(fractions)
    if not parts or min(parts) <= 0 or abs(sum(parts) - 1) > 1e-6:
        raise ValueError(f"Fractions must be positive and sum to 1, but are {parts}.")
    n = len(dataset)
    sizes = np.diff(np.round(np.cumsum((0, *parts)) * n).astype(int))
    if sizes.min() == 0:
        found = f"{dataset.title} has only {n} samples"
        raise ValueError(f"{found}: part {sizes.argmin()} of {parts} is empty.")
    rng = np.random.default_rng(seed)
    rest, indices = torch.arange(n), []
    for size in sizes[:-1].tolist():
        drawn = _stratified(dataset.labels[rest], size, rng)
        indices.append(rest[drawn])
        rest = rest[~torch.isin(torch.arange(len(rest)), drawn)]
    return tuple(dataset.take(index) for index in [*indices, rest])


def _stratified(labels: Tensor, n: int, rng: np.random.Generator) -> Tensor:
    """Draw ``n`` sorted indices; the largest remainders are rounded up."""
    order = rng.permutation(len(labels))
    _, place, counts = np.unique(labels.cpu().numpy(), return_inverse=True, return_counts=True)
    share, remainder = np.divmod(counts * n, len(labels))
    share[np.argsort(-remainder, kind="stable")[: n - share.sum()]] += 1
    chosen = [order[place[order] == k][:most] for k, most in enumerate(share)]
    return torch.from_numpy(np.sort(np.concatenate(chosen)))


def open_arrays(path: str | Path) -> dict[str, np.memmap]:
    """Open the arrays of an ``.npz`` file as read-only memory maps.

    For a ``.npy`` file, use ``numpy.load(path, mmap_mode="r")``.

    Raises:
        ValueError: If an array is compressed or contains objects, or the
            file is damaged.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "data.npz"
        >>> np.savez(path, x=np.arange(3.0))
        >>> open_arrays(path)["x"][1:]
        memmap([1., 2.])
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        return {m.filename.removesuffix(".npy"): _map(path, m) for m in members}
    except (ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be mapped: {error}. Use numpy.savez.") from error


def _map(path: str | Path, member: zipfile.ZipInfo) -> np.memmap:
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename} is compressed")
    with open(path, "rb") as file:
        file.seek(member.header_offset + 26)
        file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)  # name and extra field
        is_first = npy.read_magic(file) == (1, 0)
        read = npy.read_array_header_1_0 if is_first else npy.read_array_header_2_0
        shape, in_columns, dtype = read(file)
        if dtype.hasobject:
            raise ValueError(f"{member.filename} contains Python objects")
        return np.memmap(file, dtype, "r", file.tell(), shape, "F" if in_columns else "C")
