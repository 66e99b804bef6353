"""Labelled data: images, tables, intervals and missing values.

``dataset`` contains labelled data in memory, and ``transforms`` functions of image batches. Images
are read by ``decoding``, ``images`` and ``lazy_images``. Tables are read by ``reading`` as a
``table``, and converted to numbers by ``columns`` and ``encoder``. ``features`` scales numbers and
fills missing values.
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
