"""The data of the explorer in ``creinn evaluate --report``.

A part of the rows is read again as text or as pixels. If the model supports intervals, the rows are
also predicted with other widths. For points these are increasing widths. For intervals these are
parts and multiples of the measured widths.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from creinn.cli.options import ModelOptions
from creinn.cli.sources import IMAGES, stream_rows, takes_intervals
from creinn.data.columns import Number
from creinn.data.encoder import TableEncoder
from creinn.data.features import Missing
from creinn.data.table import Table
from creinn.evaluation.checks import as_numpy
from creinn.interval import Interval, cat
from creinn.report.explorer import Samples, choose_samples
from creinn.report.tables import NO_VALUE

MOST_COLUMNS = 60  # the number of columns of a table that are shown
DEVIATIONS = (
    0.0,
    0.1,
    0.2,
    0.5,
    1.0,
)  # the widths of the numbers in a table, in standard deviations of the training table
BRIGHTNESS = (
    0.0,
    0.02,
    0.05,
    0.1,
    0.2,
)  # widths of pixels, from 0 to 1
TIMES = (0.0, 0.5, 1.0, 1.5, 2.0)  # factors of the measured width


@dataclass(eq=False)
class _Read:
    """A part of the rows, as they are read."""

    x: Any = None  # the inputs of the network: a tensor or an interval
    names: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    cells: list[list[str]] = field(default_factory=list)
    complete: list[bool] = field(
        default_factory=list
    )  # whether all cells that are used by the model are present
    missing: Missing | None = None  # of a table


def explored(
    model: Any,
    options: ModelOptions,
    prediction: Any,
    labels: Tensor | None,
    room: int,
    outside: bool | None,
) -> list[Samples]:
    """Return at most ``room`` samples of the data in ``options``.

    ``prediction`` and ``labels`` are for all rows. Samples with missing values are separate,
    because they have no widths.
    """
    chosen = torch.from_numpy(choose_samples(prediction.total, room))
    read = _read(model, options, chosen.numpy())
    is_complete, found = torch.tensor(read.complete), []
    for part in (is_complete, ~is_complete):
        at = part.nonzero().flatten()
        if len(at) == 0:
            continue
        own = prediction[chosen[at]]
        samples = Samples(
            options.source,
            own,
            [read.names[i] for i in at.tolist()],
            rows=len(prediction),
            labels=None if labels is None else labels[chosen[at]],
            outside=outside,
            columns=read.columns,
            cells=[read.cells[i] for i in at.tolist()] if read.cells else (),
            images=() if read.cells else _pixels(read.x[at], model.preprocessing),
        )
        has_widths = part is is_complete and takes_intervals(model)
        batch_size = options.batch_size or IMAGES
        found.append(
            replace(samples, widths=_widths(model, read, at, own, batch_size))
            if has_widths
            else samples
        )
    return found


def _read(model: Any, options: ModelOptions, chosen: Any) -> _Read:
    """Read the data again up to the last of the rows ``chosen``, which must be sorted."""
    before, parts, found = 0, [], _Read()
    for rows in stream_rows(options, model.preprocessing, whole=False):
        here = chosen[(chosen >= before) & (chosen < before + len(rows.x))] - before
        if len(here):
            parts.append(rows.x[torch.from_numpy(here)])
            tables = [replace(table, frame=table.frame.iloc[here]) for table in rows.tables]
            if tables:
                used = [
                    column.name for column in TableEncoder.from_json(model.preprocessing).columns
                ]
                found.complete += (
                    ~pd.concat([tables[0].cells(c).isna() for c in used], axis=1).any(axis=1)
                ).tolist()
                found.columns, found.missing = tables[0].columns[:MOST_COLUMNS], rows.missing
                found.cells += _cells(tables, found.columns)
                found.names += [f"row {before + i + 1}" for i in here]
            else:
                found.complete += [True] * len(here)
                found.names += [str(rows.names["file"][i]) for i in here]
        before += len(rows.x)
        if before > chosen[-1]:
            break
    found.x = cat(parts) if isinstance(parts[0], Interval) else torch.cat(parts)
    return found


def _cells(tables: Sequence[Table], columns: Sequence[str]) -> list[list[str]]:
    """Return the cells of a table as text, or of two tables as ranges if they differ."""
    frames = [table.frame[columns].astype(object) for table in (tables[0], tables[-1])]
    first, last = (frame.where(frame.notna(), NO_VALUE).to_numpy().tolist() for frame in frames)
    pairs = [zip(*rows, strict=True) for rows in zip(first, last, strict=True)]
    return [[f"{a}" if a == b else f"{a} to {b}" for a, b in row] for row in pairs]


def _pixels(x: Any, preprocessing: dict[str, Any]) -> Any:
    """Return the images in [0, 1] of the inputs, or of the centers of intervals."""
    mean, std = (np.array(preprocessing[name])[:, None, None] for name in ("mean", "std"))
    return (as_numpy(x.center if isinstance(x, Interval) else x) * std + mean).clip(0, 1)


def _widths(model: Any, read: _Read, at: Tensor, own: Any, batch_size: int) -> dict[str, Any]:
    """Return the predictions by the name of the width, including ``own``."""
    x, preprocessing = read.x[at], model.preprocessing
    is_measured = isinstance(x, Interval)
    if read.missing is not None:
        base, unit = (
            x if is_measured else read.missing.intervals(x),
            _is_number(preprocessing, read.missing),
        )
        steps, said, low, high = (
            DEVIATIONS,
            "standard deviations",
            *torch.tensor([-torch.inf, torch.inf]),
        )
    else:
        mean, std = (torch.tensor(preprocessing[name])[:, None, None] for name in ("mean", "std"))
        base, unit = x if is_measured else Interval.point(x), 1 / std
        steps, said, low, high = (
            BRIGHTNESS,
            "of the range from black to white",
            -mean / std,
            (1 - mean) / std,
        )
    if is_measured:
        steps, said = TIMES, "times the measured width"
    found = {}
    for step in steps:
        radius = step * base.radius if is_measured else base.radius + step / 2 * unit
        wide = Interval.from_center_radius(base.center, radius).map_monotone(
            lambda bound: bound.maximum(low).minimum(high)
        )
        is_own = step == (1 if is_measured else 0)
        found[f"{step:g} {said}"] = own if is_own else model.predict(wide, batch_size).to("cpu")
    return found


def _is_number(preprocessing: dict[str, Any], missing: Missing) -> Tensor:
    """Return 1 for features that are numbers, and 0 for categories and dates."""
    columns = TableEncoder.from_json(preprocessing).columns
    kinds = [float(isinstance(column, Number)) for column in columns for _ in range(column.width)]
    return torch.tensor(kinds + [0.0] * len(missing.marked))
