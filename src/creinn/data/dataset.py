"""A labelled data set in memory: what every reader gives; stratified, seeded draws from it; grey and resized copies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from creinn.interval import Interval


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs with labels; a ``torch.utils.data.DataLoader`` takes it as it is.

    Raises:
        TypeError: If the inputs or labels are of the wrong dtype.
        ValueError: If shapes or lengths do not fit, or a label is no class.
    """

    name: str  # what the data are, for example "cifar10"
    inputs: (
        Tensor | Interval
    )  # images of bytes (N, channels, height, width); or floating inputs, one per row
    labels: Tensor  # class of each input, int64, (N,)
    classes: tuple[str, ...]  # their names
    split: str = (
        ""  # which part of the whole: "train", "val" or "test"; empty if there are no parts
    )

    def __post_init__(self) -> None:
        inputs, labels = self.inputs, self.labels
        if inputs.dtype != torch.uint8 and not inputs.dtype.is_floating_point:
            raise TypeError(f"Inputs must be bytes (uint8) or floating, but are {inputs.dtype}.")
        if inputs.dtype == torch.uint8 and inputs.ndim != 4:
            raise ValueError(
                f"Images must have shape (N, channels, height, width), but have {tuple(inputs.shape)}."
            )
        if labels.dtype != torch.int64:
            raise TypeError(
                f"Labels must be int64, but are {labels.dtype}. Convert them with labels.long()."
            )
        if labels.ndim != 1 or inputs.ndim == 0 or len(inputs) != len(labels):
            shapes = f"inputs have shape {tuple(inputs.shape)} and labels {tuple(labels.shape)}"
            raise ValueError(f"There must be one label per input, but {shapes}.")
        count = len(self.classes)
        for at in ((labels < 0) | (labels >= count)).nonzero().flatten().tolist():
            found = f"label {at} is {int(labels[at])}"
            raise ValueError(
                f"Labels must lie in 0 .. {count - 1} for {count} classes, but {found}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor | Interval, Tensor]:
        return self.inputs[index], self.labels[index]

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of samples of each class."""
        return tuple(torch.bincount(self.labels, minlength=len(self.classes)).tolist())

    def take(self, index: Tensor) -> "Dataset":
        """The samples at ``index``, in its order."""
        return replace(self, inputs=self.inputs[index], labels=self.labels[index])

    def scaled(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, "n c h w"]:
        """Images as numbers in [0, 1]; inputs that are no images of bytes are refused."""
        return _bytes(self).to(dtype) / 255


def subset(dataset: Dataset, n: int, seed: int) -> Dataset:
    """Draw ``n`` samples without replacement, each class in proportion to its size, to within one; in their order.

    Raises:
        ValueError: If ``n`` is less than 1 or more than there are.
    """
    if not 1 <= n <= len(dataset):
        raise ValueError(f"Cannot draw {n} samples from the {len(dataset)} of {_title(dataset)}.")
    return dataset.take(_stratified(dataset.labels, n, np.random.default_rng(seed)))


def split(dataset: Dataset, fractions: float | Sequence[float], seed: int) -> tuple[Dataset, ...]:
    """Divide into parts that share no sample and leave none out, each class in proportion.

    The parts have ``round(fraction * N)`` samples, to within one; one fraction ``f`` stands for ``(f, 1 - f)``.

    Raises:
        ValueError: If fractions are not positive or do not sum to 1, or a part would be empty.
    """
    parts = (fractions, 1 - fractions) if isinstance(fractions, int | float) else tuple(fractions)
    if not parts or min(parts) <= 0 or abs(sum(parts) - 1) > 1e-6:
        raise ValueError(f"Fractions must be positive and sum to 1, but are {parts}.")
    n = len(dataset)
    sizes = np.diff([0, *(round(sum(parts[: i + 1]) * n) for i in range(len(parts)))])
    if sizes.min() == 0:
        raise ValueError(
            f"{_title(dataset)} has only {n} samples: part {sizes.argmin()} of {parts} is empty."
        )
    rng = np.random.default_rng(seed)
    rest, indices = torch.arange(n), []
    for size in sizes[:-1]:
        drawn = _stratified(dataset.labels[rest], int(size), rng)
        indices.append(rest[drawn])
        rest = torch.from_numpy(np.delete(rest.numpy(), drawn.numpy()))
    return tuple(dataset.take(index) for index in [*indices, rest])


def to_grey(dataset: Dataset, size: int | None = None) -> Dataset:
    """Images in one channel of grey, and resized if asked; luma weights are those of ITU-R 601, rounded as in Pillow.

    Raises:
        TypeError: If the inputs are not images of bytes.
        ValueError: If there are neither one nor three channels.
    """
    images = _bytes(dataset, "grey")
    if images.shape[1] == 3:
        red, green, blue = images.int().unbind(1)
        images = (
            ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).to(torch.uint8).unsqueeze(1)
        )
    grey = replace(dataset, inputs=images)
    return grey if size is None else resize(grey, size)


def to_rgb(dataset: Dataset) -> Dataset:
    """Images in three channels; a grey one is repeated. What :func:`to_grey` refuses is refused here too."""
    return replace(dataset, inputs=_bytes(dataset, "RGB").expand(-1, 3, -1, -1).contiguous())


def resize(dataset: Dataset, size: int) -> Dataset:
    """Images of ``size`` by ``size`` pixels: bilinear with antialiasing; the aspect ratio is not kept.

    Raises:
        TypeError: If the inputs are not images of bytes.
        ValueError: If ``size`` is less than 1.
    """
    images = _bytes(dataset)
    if size < 1:
        raise ValueError(f"Image size must be at least 1, but is {size}.")
    if images.shape[2:] == (size, size):
        return dataset
    parts = [
        interpolate(part.float(), (size, size), mode="bilinear", antialias=True)
        for part in images.split(4096)
    ]
    return replace(
        dataset, inputs=torch.cat([part.round().clamp(0, 255).to(torch.uint8) for part in parts])
    )


def _bytes(dataset: Dataset, colours: str = "") -> Tensor:
    """The images, if these are such; of one or three channels, if they are to be made of other ``colours``."""
    images, title = dataset.inputs, _title(dataset)
    if isinstance(images, Interval) or images.dtype != torch.uint8:
        raise TypeError(
            f"Only images of bytes can be changed so, but the inputs of {title} are {images.dtype}."
        )
    if colours and images.shape[1] not in (1, 3):
        raise ValueError(
            f"Only images of 1 or 3 channels can be made {colours}; {title} has {images.shape[1]}."
        )
    return images


def _stratified(labels: Tensor, n: int, rng: np.random.Generator) -> Tensor:
    """Sorted indices of ``n`` of the labels: largest remainders decide how many of each class."""
    order = rng.permutation(len(labels))
    _, place, counts = np.unique(labels.cpu().numpy(), return_inverse=True, return_counts=True)
    share, remainder = np.divmod(counts * n, len(labels))
    share[np.argsort(-remainder, kind="stable")[: n - share.sum()]] += 1
    chosen = [order[place[order] == k][:most] for k, most in enumerate(share)]
    return torch.from_numpy(np.sort(np.concatenate(chosen)))


def _title(dataset: Dataset) -> str:
    return f"{dataset.name} ({dataset.split})" if dataset.split else dataset.name
