"""Files in, labelled inputs out: readers of the real formats, splits, interval data, missing values.

In reading order: ``dataset``; ``decoding``, ``images`` (folders, pairs of them), ``formats`` and ``catalogue`` (data
sets by name); ``transforms`` (of batches: intervals, crops); of tables ``numerals``, ``table`` (a file as texts),
``columns`` and ``encoder`` (texts to numbers); ``missing`` (unknown numbers).
"""

from creinn.data.catalogue import NAMES, available, load
from creinn.data.dataset import Dataset, resize, split, subset, to_grey, to_rgb
from creinn.data.images import image_folder
from creinn.data.transforms import RandomCropFlip, brightness, noise, normalize

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
