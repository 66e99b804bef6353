"""Files in, labelled inputs out: readers of the real formats, splits, interval data, missing values.

In reading order: ``dataset``; ``decoding``, ``images`` (folders), ``formats``, ``catalogue`` (data sets by name);
``transforms`` (of batches); of tables ``numerals``, ``table``, ``columns``, ``encoder``; ``missing`` (unknown numbers).
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
