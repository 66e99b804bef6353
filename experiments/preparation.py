"""Sampling, storage, division, shifts and normalisation of images."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from creinn import data
from creinn.classifier.base import Inputs
from creinn.data import Dataset
from creinn.interval import Interval
from experiments import datasets
from experiments.conversions import brightness, noise
from experiments.definition import Experiment, Images, Shift, Training
from experiments.plan import Identity
from experiments.store import read_arrays, write_arrays


@dataclass(frozen=True)
class Prepared:
    """A set of images on disk."""

    name: str
    digest: str
    path: Path
    shape: tuple[int, ...]

    def read(self) -> Dataset:
        """Read the images."""
        arrays = read_arrays(self.path)
        images, labels = (torch.from_numpy(arrays[name]) for name in ("images", "labels"))
        return Dataset(self.name, images, labels, tuple(arrays["classes"].tolist()))


@dataclass(frozen=True)
class Sources:
    """All sets of images of an experiment."""

    train: Prepared
    test: Prepared
    ood: tuple[Prepared, ...]

    @property
    def identities(self) -> list[Identity]:
        """Identities for the keys of tasks."""
        return [(source.name, source.digest) for source in (self.train, self.test, *self.ood)]


def prepare_all(
    experiment: Experiment, directory: Path, folder: Path, complete: bool = True
) -> Sources:
    """Store copies of all images of an experiment in ``folder``.

    Raises:
        FileNotFoundError: If a data set is missing.
        ValueError: If a data set is damaged, too small, not complete although
            ``complete`` is set, or does not fit.
    """
    training = experiment.images if experiment.conditions else experiment.test
    train, test, *ood = (
        prepare(images, directory, folder, complete)
        for images in (training, experiment.test, *experiment.ood)
    )
    for source in (test, *ood):
        if source.shape[1:] != train.shape[1:]:
            trained_on = f"those of {train.name}, on which networks are trained, {train.shape[1:]}"
            raise ValueError(
                f"Images of {source.name} have shape {source.shape[1:]}, but {trained_on}."
            )
    return Sources(train, test, tuple(ood))


def prepare(images: Images, directory: Path, folder: Path, complete: bool = True) -> Prepared:
    """Draw from a set of images and store the result."""
    shape = {"size": images.size, "channels": images.channels}
    found = datasets.load(images.name, directory, images.split, complete=complete, **shape)
    if images.classes is not None:
        found = _only(found, images.classes)
    if images.count is not None:
        found = data.subset(found, images.count, images.seed)
    if images.shuffled:
        found = found.take(
            torch.from_numpy(np.random.default_rng(images.seed).permutation(len(found)))
        )
    pixels, labels = np.asarray(found.inputs), found.labels.numpy()
    content = hashlib.sha256(repr(pixels.shape).encode())
    content.update(np.ascontiguousarray(pixels).data)
    content.update(labels.astype("<i8").data)
    digest = content.hexdigest()[:16]
    path = folder / f"{images.name}-{images.split}-{digest}.npz"
    if not path.is_file():
        write_arrays(path, {"images": pixels, "labels": labels, "classes": np.array(found.classes)})
    return Prepared(images.name, digest, path, tuple(pixels.shape))


def _only(found: Dataset, classes: tuple[int, ...]) -> Dataset:
    """Return the images of some classes, which are renumbered."""
    chosen = torch.tensor(sorted(classes))
    kept = found.take(torch.isin(found.labels, chosen).nonzero().squeeze(1))
    names = tuple(found.classes[number] for number in chosen.tolist())
    return replace(kept, labels=torch.searchsorted(chosen, kept.labels), classes=names)


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation by channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, x: Inputs) -> Inputs:
        """Normalise images in [0, 1]."""
        return data.normalize(x, self.mean, self.std)


@dataclass(frozen=True)
class CropFlip:
    """Random crop and flip of normalised images with a black border."""

    normalise: Normalisation
    flip: bool

    def __call__(self, x: Inputs, generator: torch.Generator) -> Inputs:
        """Augment a batch."""
        black: Any = self.normalise(
            torch.zeros(1, x.shape[1], 1, 1, dtype=x.dtype, device=x.device)
        )
        augment: Callable[[Any, torch.Generator], Any] = data.RandomCropFlip(flip=self.flip)
        return augment(x - black, generator) + black


def divide(images: Dataset, training: Training) -> tuple[Dataset, ...]:
    """Divide the images into training and validation part."""
    return data.split(images, 1 - training.validation, training.split_seed)


def normalisation(experiment: Experiment, train: Dataset) -> Normalisation:
    """Return the normalisation of the experiment or of the training images."""
    if experiment.mean is not None and experiment.std is not None:
        return Normalisation(experiment.mean, experiment.std)
    pixels = np.asarray(train.inputs)
    counts = np.stack(
        [np.bincount(pixels[:, c].reshape(-1), minlength=256) for c in range(pixels.shape[1])]
    )
    levels = np.arange(256) / 255
    mean = counts @ levels / counts.sum(1)
    std = np.sqrt(counts @ levels**2 / counts.sum(1) - mean**2).clip(1e-6)
    return Normalisation(tuple(mean.tolist()), tuple(std.tolist()))


def network_inputs(images: Dataset, shift: Shift | None, normalise: Normalisation) -> Inputs:
    """Return normalised images, as an interval if there is a shift."""
    x = images.scaled()
    return normalise(x if shift is None else shifted(x, shift))


def shifted(x: Tensor, shift: Shift) -> Interval:
    """Convert images in [0, 1] to interval images."""
    return {"noise": noise, "brightness": brightness}[shift.kind](x, shift.low, shift.high)
