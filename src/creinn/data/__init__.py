"""Labelled data: images, tables, intervals and missing values.

``dataset`` contains labelled data in memory, and ``transforms`` functions of image batches. Images
are read by ``decoding``, ``images`` and ``lazy``, and memory maps by ``arrays``. Tables are read by
``reading`` as a ``table``, and converted to numbers by ``columns`` and ``encoder``. Missing values
are filled by ``missing``.
"""

from creinn.data.arrays import open_arrays
from creinn.data.dataset import Dataset, resize, split, subset, to_grey, to_rgb
from creinn.data.images import image_folder
from creinn.data.lazy import LazyImages
from creinn.data.transforms import RandomCropFlip, brightness, noise, normalize

__all__ = [
    "Dataset",
    "LazyImages",
    "RandomCropFlip",
    "brightness",
    "image_folder",
    "noise",
    "normalize",
    "open_arrays",
    "resize",
    "split",
    "subset",
    "to_grey",
    "to_rgb",
]
