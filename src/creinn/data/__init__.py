"""Readers of the real formats, splits, and interval data."""

from creinn.data.augment import RandomCropFlip
from creinn.data.catalogue import NAMES, available, load
from creinn.data.dataset import Dataset, resize, split, subset, to_grey, to_rgb
from creinn.data.images import image_folder
from creinn.data.intervals import brightness, noise, normalize

__all__ = [
    "NAMES",
    "Dataset",
    "RandomCropFlip",
    "available",
    "brightness",
    "image_folder",
    "load",
    "noise",
    "normalize",
    "resize",
    "split",
    "subset",
    "to_grey",
    "to_rgb",
]
