"""Measured intervals: two image folders, one of lower and one of upper bounds, in; a data set out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from creinn.data.dataset import Dataset
from creinn.data.decoding import Images, Size, decode_all
from creinn.data.images import class_files, class_order, image_files, labels_of, open_tree
from creinn.interval import Interval


def interval_folders(
    lower: str | Path,
    upper: str | Path,
    *,
    size: int | None = None,
    channels: int = 3,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    split: str = "",
) -> Dataset:
    """Read two image folders by class, whose files of the same name are the two bounds of an interval.

    Args:
        lower: Folder or zip archive of lower bounds, one folder per class in it.
        upper: Folder or zip archive of upper bounds, with the same files.
        size: Side in pixels to which images are stretched; by default they must agree already.
        channels: 3 for RGB, 1 for grey.
        classes: Names and order of the classes; by default the folders found, sorted.
        name: Name of the data set; by default that of the folder of lower bounds.
        split: Part of the data set that this is.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: As :func:`read_pair`, or if a folder is none of the classes.
    """
    with open_tree(Path(lower)) as (names, _):
        order = class_order(class_files(names, str(lower)), classes, str(lower))
    inputs, low, _ = read_pair(lower, upper, size, channels)
    return Dataset(name or Path(lower).stem, inputs, labels_of(low.files, order), order, split)


def read_pair(
    lower: str | Path, upper: str | Path, size: Size = None, channels: int = 3, strict: bool = True
) -> tuple[Interval, Images, Images]:
    """The images of two folders or zip archives as one interval; and lower and upper with their common file names.

    Bounds are scaled to [0, 1]. Stretching keeps their order, since all its weights are positive. Lossy formats such as
    JPEG may not keep it.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If a file has no partner, an image cannot be read (with ``strict``; else both of its bounds are left
            out), sizes differ, or bounds are out of order.
    """
    with open_tree(Path(lower)) as (lower_names, read_lower), open_tree(Path(upper)) as (upper_names, read_upper):
        files, partners = image_files(lower_names), image_files(upper_names)
        unmatched = sorted(set(files).symmetric_difference(partners))
        if unmatched:
            has, lacks = (lower, upper) if unmatched[0] in set(files) else (upper, lower)
            raise ValueError(f"{has} has {unmatched[0]}, but {lacks} has not. Both must hold the same file names.")
        found = decode_all(files, read_lower, str(lower), size, channels, strict)
        other = decode_all(files, read_upper, str(upper), size, channels, strict)
    kept = sorted(set(found.files) & set(other.files))
    if not kept:
        raise ValueError(f"{lower} and {upper} have no file of which both bounds can be read.")
    found, other = (replace(side, files=kept, pixels=side.pixels[np.isin(side.files, kept)]) for side in (found, other))
    low, high = found.pixels, other.pixels
    if low.shape != high.shape:
        raise ValueError(
            f"{lower} has images of {low.shape[3]} x {low.shape[2]} pixels, but {upper} of {high.shape[3]} x "
            f"{high.shape[2]}. Give a size to stretch all images to."
        )
    if (low > high).any():
        at = np.argwhere(low > high)[0]
        raise ValueError(
            f"Bounds are out of order in {kept[at[0]]}: at channel {at[1]}, row {at[2]}, column {at[3]} the lower "
            f"one is {low[tuple(at)]}, the upper one {high[tuple(at)]}. Were the folders swapped, or stored as JPEG?"
        )
    return Interval(*(torch.from_numpy(bound).float() / 255 for bound in (low, high))), found, other
