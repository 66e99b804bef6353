"""Files in, labelled inputs out: readers of the real formats, splits, interval data, missing values.

In reading order: ``dataset``; ``decoding``, ``images`` (folders), ``lazy`` (folders read when needed), ``arrays``
(memory maps); ``transforms`` (of batches); of tables ``numerals``,
``table``, ``parquet``, ``reading``, ``scaling``, ``columns``, ``encoder``; ``missing`` (unknown numbers).
"""

from creinn.data.arrays import open_arrays
from creinn.data.dataset import Dataset, resize, split, subset, to_grey, to_rgb
from creinn.data.images import image_folder
from creinn.data.lazy import LazyImages
from creinn.data.transforms import RandomCropFlip, brightness, noise, normalize

__all__ = [  # noqa: RUF022 (in the order of the files)
    "Dataset", "resize", "split", "subset", "to_grey", "to_rgb", "image_folder", "LazyImages",
    "open_arrays", "RandomCropFlip", "brightness", "noise", "normalize",
]  # fmt: skip
