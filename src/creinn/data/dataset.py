"""Labelled data in memory, stratified splits, and memory maps of arrays."""

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.lib import format as npy
from torch import Tensor
from torch.nn.functional import interpolate

from creinn.interval import Interval


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels, which can be used in a ``torch.utils.data.DataLoader``.

    Raises:
        TypeError: If the inputs or the labels have the wrong dtype.
        ValueError: If the shapes or lengths do not fit, or if a label is not a class.
    """

    name: str  # for example "cifar10"
    inputs: Tensor | Interval  # uint8 images (N, channels, height, width), or floating point rows
    labels: Tensor  # the class of each input, int64, (N,)
    classes: tuple[str, ...]  # the names of the classes
    split: str = ""  # the part of the data: "train", "val" or "test"

    def __post_init__(self) -> None:
        inputs, labels = self.inputs, self.labels
        if inputs.dtype != torch.uint8 and not inputs.dtype.is_floating_point:
            raise TypeError(f"Inputs must be bytes (uint8) or floating, but are {inputs.dtype}.")
        if inputs.dtype == torch.uint8 and inputs.ndim != 4:
            found = f"but have {tuple(inputs.shape)}"
            raise ValueError(f"Images must have shape (N, channels, height, width), {found}.")
        if labels.dtype != torch.int64:
            found = f"Labels must be int64, but are {labels.dtype}"
            raise TypeError(f"{found}. Convert them with labels.long().")
        if labels.ndim != 1 or inputs.ndim == 0 or len(inputs) != len(labels):
            shapes = f"inputs have shape {tuple(inputs.shape)} and labels {tuple(labels.shape)}"
            raise ValueError(f"There must be one label per input, but {shapes}.")
        count = len(self.classes)
        for at in ((labels < 0) | (labels >= count)).nonzero().flatten().tolist():
            found = f"label {at} is {int(labels[at])}"
            expected = f"Labels must lie in 0 .. {count - 1} for {count} classes"
            raise ValueError(f"{expected}, but {found}.")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor | Interval, Tensor]:
        return self.inputs[index], self.labels[index]

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of samples of each class."""
        return tuple(torch.bincount(self.labels, minlength=len(self.classes)).tolist())

    @property
    def title(self) -> str:
        """The name and the split, for messages."""
        return f"{self.name} ({self.split})" if self.split else self.name

    def take(self, index: Tensor) -> "Dataset":
        """Return the samples at the given indices."""
        return replace(self, inputs=self.inputs[index], labels=self.labels[index])

    def scaled(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, "n c h w"]:
        """Return the images as numbers in [0, 1]."""
        return _images(self).to(dtype) / 255


def subset(dataset: Dataset, n: int, seed: int) -> Dataset:
    """Draw ``n`` samples without replacement, stratified by class, in their order.

    Raises:
        ValueError: If ``n`` is less than 1 or more than the number of samples.
    """
    if not 1 <= n <= len(dataset):
        raise ValueError(f"Cannot draw {n} samples from the {len(dataset)} of {dataset.title}.")
    return dataset.take(_stratified(dataset.labels, n, np.random.default_rng(seed)))


def split(dataset: Dataset, fractions: float | Sequence[float], seed: int) -> tuple[Dataset, ...]:
    """Divide the samples into parts, stratified by class.

    The number of samples in a part is ``round(fraction * N)`` or differs by one. The fraction ``f``
    is the same as ``(f, 1 - f)``.

    Raises:
        ValueError: If the fractions are not positive or do not sum to 1, or if a part is empty.
    """
    parts = (fractions, 1 - fractions) if isinstance(fractions, int | float) else tuple(fractions)
    if not parts or min(parts) <= 0 or abs(sum(parts) - 1) > 1e-6:
        raise ValueError(f"Fractions must be positive and sum to 1, but are {parts}.")
    n = len(dataset)
    sizes = np.diff([0, *(round(sum(parts[: i + 1]) * n) for i in range(len(parts)))])
    if sizes.min() == 0:
        found = f"part {sizes.argmin()} of {parts} is empty"
        raise ValueError(f"{dataset.title} has only {n} samples: {found}.")
    rng = np.random.default_rng(seed)
    rest, indices = torch.arange(n), []
    for size in sizes[:-1]:
        drawn = _stratified(dataset.labels[rest], int(size), rng)
        indices.append(rest[drawn])
        rest = torch.from_numpy(np.delete(rest.numpy(), drawn.numpy()))
    return tuple(dataset.take(index) for index in [*indices, rest])


def to_grey(dataset: Dataset, size: int | None = None) -> Dataset:
    """Convert images to one grey channel and optionally resize them.

    The conversion is that of Pillow (ITU-R 601).

    Raises:
        TypeError: If the inputs are not uint8 images.
        ValueError: If the images do not have one or three channels.
    """
    images = _images(dataset, "grey")
    if images.shape[1] == 3:
        red, green, blue = images.int().unbind(1)
        luma = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
        images = luma.to(torch.uint8).unsqueeze(1)
    grey = replace(dataset, inputs=images)
    return grey if size is None else resize(grey, size)


def to_rgb(dataset: Dataset) -> Dataset:
    """Convert images to three channels. The errors are those of :func:`to_grey`."""
    return replace(dataset, inputs=_images(dataset, "RGB").expand(-1, 3, -1, -1).contiguous())


def resize(dataset: Dataset, size: int) -> Dataset:
    """Resize images to ``size`` by ``size`` pixels.

    The interpolation is bilinear with antialiasing.

    Raises:
        TypeError: If the inputs are not uint8 images.
        ValueError: If ``size`` is less than 1.
    """
    images = _images(dataset)
    if size < 1:
        raise ValueError(f"Image size must be at least 1, but is {size}.")
    if images.shape[2:] == (size, size):
        return dataset
    resized = []
    for part in images.split(4096):
        pixels = interpolate(part.float(), (size, size), mode="bilinear", antialias=True)
        resized.append(pixels.round().clamp(0, 255).to(torch.uint8))
    return replace(dataset, inputs=torch.cat(resized))


def _images(dataset: Dataset, mode: str = "") -> Tensor:
    """Return the images, which must have one or three channels for a ``mode``."""
    images = dataset.inputs
    if isinstance(images, Interval) or images.dtype != torch.uint8:
        found = f"the inputs of {dataset.title} are {images.dtype}"
        raise TypeError(f"This function needs uint8 images, but {found}.")
    if mode and images.shape[1] not in (1, 3):
        found = f"{dataset.title} has {images.shape[1]}"
        raise ValueError(f"Only images of 1 or 3 channels can be converted to {mode}; {found}.")
    return images


def _stratified(labels: Tensor, n: int, rng: np.random.Generator) -> Tensor:
    """Return sorted indices of ``n`` labels, with the largest remainders rounded up."""
    order = rng.permutation(len(labels))
    _, place, counts = np.unique(labels.cpu().numpy(), return_inverse=True, return_counts=True)
    share, remainder = np.divmod(counts * n, len(labels))
    share[np.argsort(-remainder, kind="stable")[: n - share.sum()]] += 1
    chosen = [order[place[order] == k][:most] for k, most in enumerate(share)]
    return torch.from_numpy(np.sort(np.concatenate(chosen)))


_READERS: dict[tuple[int, int], Callable[[Any], tuple[Any, bool, Any]]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}
_ZIP_HEADER = 30  # bytes before the name; the last four are the lengths of name and extra field


def open_arrays(path: str | Path) -> dict[str, np.memmap]:
    """Open the arrays of a ``.npz`` or ``.npy`` file as read-only memory maps.

    The keys of the result are the names of the arrays. :func:`creinn.fit`, ``fit_distance`` and
    ``predict`` read such arrays in batches. The name of the array in a ``.npy`` file is that of the
    file, without the suffix.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If an array is compressed or has objects, or if the file is damaged.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "data.npz"
        >>> np.savez(path, x=np.arange(6.0).reshape(2, 3), y=np.array([0, 1]))
        >>> arrays = open_arrays(path)
        >>> arrays["x"][1], arrays["y"].shape
        (memmap([3., 4., 5.]), (2,))
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    with open(path, "rb") as file:
        if path.suffix == ".npy":
            return {path.stem: _memory_map(path, path.name, file, 0)}
        try:
            archive = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            found = f"{path} is not a whole .npz file: {error}"
            raise ValueError(f"{found}. It is truncated or damaged.") from error
        arrays = {}
        with archive:
            for info in archive.infolist():
                name = info.filename
                if info.compress_type != zipfile.ZIP_STORED:
                    advice = "Write it with numpy.savez instead of numpy.savez_compressed"
                    raise ValueError(f"{name} in {path} is compressed. {advice}.")
                file.seek(info.header_offset)
                header = file.read(_ZIP_HEADER)
                lengths = np.frombuffer(header[-4:], "<u2").tolist()
                start = info.header_offset + len(header) + sum(lengths)
                key = name.removesuffix(".npy")
                arrays[key] = _memory_map(path, name, archive.open(info), start)
        return arrays


def _memory_map(path: Path, name: str, stream: Any, start: int) -> np.memmap:
    """Map the array in ``stream``, which starts at ``start`` in the file."""
    try:
        shape, in_columns, dtype = _READERS[npy.read_magic(stream)](stream)
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        return np.memmap(path, dtype, "r", start + stream.tell(), shape, "F" if in_columns else "C")
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        found = f"{name} in {path} cannot be mapped as an array of numbers: {error}"
        raise ValueError(f"{found}.") from error
