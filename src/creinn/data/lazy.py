"""A folder of images that is read when needed: one image per item, for a DataLoader and its workers."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from creinn.data.decoding import decode_all
from creinn.data.images import labels_of, open_tree


class LazyImages(Dataset[tuple[Tensor, int]]):
    """Images sorted into one folder per class; item ``i`` is decoded when it is asked for.

    Items are pairs of an image ``(channels, height, width)`` in [0, 1] and the number of its class.

    Args:
        path: A folder with one folder per class in it; an archive must be unpacked first.
        size: Side in pixels to which images are stretched, as :func:`creinn.data.image_folder` does.
        channels: 3 for RGB, 1 for grey.
        classes: Names and order of the classes; by default the folders found, sorted.

    Raises:
        ValueError: If the path is no folder, or a class folder is missing, empty or unknown; of an item, if its image
            is damaged.
    """

    def __init__(self, path: str | Path, *, size: int, channels: int = 3, classes: Sequence[str] | None = None) -> None:
        self.path, self.size, self.channels = Path(path), size, channels
        if not self.path.is_dir():
            raise ValueError(f"{path} is no folder. Images are read one by one from folders alone; unpack archives.")
        with open_tree(self.path) as tree:
            self.classes = tree.classes(classes)
            self.files = tree.images
        self.labels = labels_of(self.files, self.classes)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file = self.files[index]
        found = decode_all(
            [file], lambda name: (self.path / name).read_bytes(), str(self.path), self.size, self.channels
        )
        return torch.from_numpy(found.pixels[0]).float() / 255, int(self.labels[index])

    def _read(self, file: str) -> bytes:
        return (self.path / file).read_bytes()
