"""Measured intervals: two image folders, one of lower and one of upper bounds, in; intervals out."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from creinn.data.decoding import Images, Size, decode_all
from creinn.data.images import image_files, open_tree
from creinn.interval import Interval


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
