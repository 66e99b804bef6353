"""Measured intervals: two tables or two image folders, one of lower and one of upper bounds, in; a data set out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
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


def interval_tables(
    lower: str | Path, upper: str | Path, target: str, *, name: str | None = None, dtype: torch.dtype = torch.float32
) -> Dataset:
    """Read two CSV tables of the same columns and rows, the two bounds of intervals, with the class in one column.

    Args:
        lower: Table of lower bounds, with the column ``target``.
        upper: Table of upper bounds; if it has the column ``target`` too, the classes must agree.
        target: Column of class names; all others must hold numbers.
        name: Name of the data set; by default that of the table of lower bounds.
        dtype: Of the bounds.

    Raises:
        ValueError: If a table has no such column, tables do not fit each other, a value is missing or no number, or
            bounds are out of order.
    """
    low, high = pd.read_csv(lower), pd.read_csv(upper)
    if target not in low:
        raise ValueError(f"{lower} has no column {target!r}; its columns are {', '.join(map(str, low.columns))}.")
    if len(low) != len(high):
        raise ValueError(f"{lower} has {len(low)} rows, but {upper} has {len(high)}.")
    if low[target].isna().any():
        raise ValueError(
            f"{lower} has no class in row {int(np.flatnonzero(low[target].isna())[0])}, column {target!r}."
        )
    classes = low.pop(target).astype(str)
    if target in high:
        other = high.pop(target).astype(str)
        if (classes != other).any():
            row = int(np.flatnonzero(classes != other)[0])
            raise ValueError(f"Row {row} is of class {classes[row]!r} in {lower}, but {other[row]!r} in {upper}.")
    unmatched = [*(c for c in low if c not in high), *(c for c in high if c not in low)]
    if unmatched:
        has, lacks = (lower, upper) if unmatched[0] in low else (upper, lower)
        raise ValueError(f"{has} has a column {unmatched[0]!r}, but {lacks} has not.")
    bounds = [_numbers(low, lower), _numbers(high[low.columns], upper)]
    if (bounds[0] > bounds[1]).any():
        row, column = (int(i) for i in np.argwhere(bounds[0] > bounds[1])[0])
        raise ValueError(
            f"Bounds are out of order in row {row}, column {low.columns[column]!r}: the lower one is "
            f"{bounds[0][row, column]:g}, the upper one {bounds[1][row, column]:g}. Were the tables swapped?"
        )
    names, labels = np.unique(classes.to_numpy(dtype=object), return_inverse=True)
    inputs = Interval(*(torch.as_tensor(bound).to(dtype) for bound in bounds))
    return Dataset(name or Path(lower).stem, inputs, torch.from_numpy(labels.astype(np.int64)), tuple(names))


def _numbers(table: pd.DataFrame, path: str | Path) -> np.ndarray:
    for column in table:
        if not pd.api.types.is_numeric_dtype(table[column]):
            raise ValueError(f"{path}: column {column!r} does not hold numbers.")
    values = table.to_numpy(dtype=np.float64, copy=True)
    if not np.isfinite(values).all():
        row, column_at = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ValueError(f"{path}: row {row}, column {table.columns[column_at]!r} is missing or infinite.")
    return values
