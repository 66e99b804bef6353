"""Readers of the real formats, splits, and interval data."""

from creinn.data.augment import RandomCropFlip
from creinn.data.catalogue import NAMES, available, load
from creinn.data.dataset import Dataset, resize, split, subset, to_grey, to_rgb
from creinn.data.images import image_folder
from creinn.data.intervals import brightness, noise, normalize
from creinn.data.npz import npz
from creinn.data.pairs import interval_folders

__all__ = [
    "NAMES",
    "Dataset",
    "RandomCropFlip",
    "available",
    "brightness",
    "image_folder",
    "interval_folders",
    "load",
    "noise",
    "normalize",
    "npz",
    "resize",
    "split",
    "subset",
    "to_grey",
    "to_rgb",
]
