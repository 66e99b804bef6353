"""Labelled data: images, tables, intervals and missing values.

``decoding``, ``images`` and ``lazy_images`` read images, and
``transforms`` contains functions of them. ``reading`` reads a ``table``,
which is converted to numbers by ``columns``, ``encoder`` and ``features``.
"""

from creinn.data.dataset import Dataset, open_arrays, split, subset
from creinn.data.images import image_folder
from creinn.data.lazy_images import LazyImages
from creinn.data.transforms import RandomCropFlip, normalize

__all__ = [
    "Dataset",
    "LazyImages",
    "RandomCropFlip",
    "image_folder",
    "normalize",
    "open_arrays",
    "split",
    "subset",
]
