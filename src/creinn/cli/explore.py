"""The samples of the explorer in ``creinn evaluate --report``.

A part of the rows is read again as text or as pixels. If the model supports intervals, the rows are
also predicted with other widths. For points these are increasing widths. For intervals these are
parts and multiples of the measured widths.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from creinn.data.columns import Number
from creinn.data.encoder import TableEncoder
from creinn.data.features import Missing
from creinn.data.table import Table
from creinn.evaluation.checks import as_numpy
from creinn.interval import Interval, cat
from creinn.report.explorer import Samples, choose_samples
from creinn.report.tables import NO_VALUE

if TYPE_CHECKING:
    from creinn.cli.sources import PreparedData

MOST_COLUMNS = 60  # of a table that are shown
DEVIATIONS = (0.0, 0.1, 0.2, 0.5, 1.0)  # widths in standard deviations of the training table
BRIGHTNESS = (0.0, 0.02, 0.05, 0.1, 0.2)  # widths of pixels, from 0 to 1
FACTORS = (0.0, 0.5, 1.0, 1.5, 2.0)  # of the measured widths


@dataclass(frozen=True)
class Predicted:
    """Data with their predictions.

    Attributes:
        name: The name of the data.
        parts: The data in parts, to read the chosen rows again.
        prediction: The predictions of all rows.
        labels: The true classes of all rows, if they are known.
    """

    name: str
    parts: "Iterable[PreparedData]"
    prediction: Any
    labels: Tensor | None = None


class _Rows(NamedTuple):
    """Rows of the data: the inputs of the network, and how they are shown."""

    x: Any
    names: list[str]
    is_complete: Tensor  # whether all cells that are used by the model are present
    columns: list[str]
    cells: list[list[str]]
    missing: Missing | None  # of a table


def explorer_samples(
    model: Any, data: Predicted, most: int, outside: bool | None, intervals: bool
) -> Iterator[Samples]:
    """Yield at most ``most`` samples of the data, in one or two groups.

    Samples with missing values are separate, because they have no widths.

    Args:
        model: The model.
        data: The data with the predictions.
        most: The maximum number of samples.
        outside: Whether the data are out of distribution, or ``None`` if this is unknown.
        intervals: Whether the inputs of the model can be intervals.
    """
    chosen = choose_samples(data.prediction.total, most)
    rows = _read(model, data.parts, chosen)
    indices = torch.from_numpy(chosen)
    for is_complete in (True, False):
        at = (rows.is_complete == is_complete).nonzero().flatten()
        if len(at) == 0:
            continue
        own = data.prediction[indices[at]]
        yield Samples(
            data.name,
            own,
            [rows.names[i] for i in at.tolist()],
            rows=len(data.prediction),
            labels=None if data.labels is None else data.labels[indices[at]],
            outside=outside,
            columns=rows.columns,
            cells=[rows.cells[i] for i in at.tolist()] if rows.cells else (),
            images=() if rows.cells else _pixels(rows.x[at], model.preprocessing),
            widths=_widths(model, rows, at, own) if intervals and is_complete else {},
        )


def _read(model: Any, parts: "Iterable[PreparedData]", chosen: Any) -> _Rows:
    """Read the chosen rows, which must be sorted."""
    x: list[Any] = []
    names, cells, columns = list[str](), list[list[str]](), list[str]()
    is_complete, missing, before = [], None, 0
    for data in parts:
        here = chosen[(chosen >= before) & (chosen < before + len(data))] - before
        before += len(data)
        if len(here):
            x.append(data.inputs[torch.from_numpy(here)])
            tables = [replace(table, frame=table.frame.iloc[here]) for table in data.tables]
            if tables:
                encoder = TableEncoder.from_json(model.preprocessing)
                used = [tables[0].cells(column.name).notna() for column in encoder.columns]
                is_complete.append(pd.concat(used, axis=1).all(axis=1).to_numpy())
                columns, missing = tables[0].columns[:MOST_COLUMNS], data.missing
                cells += _cells(tables, columns)
                names += [f"row {row}" for row in np.asarray(data.ids["row"])[here]]
            else:
                is_complete.append(np.ones(len(here), dtype=bool))
                names += [str(data.ids["file"][i]) for i in here]
        if before > chosen[-1]:
            break
    inputs = cat(x) if isinstance(x[0], Interval) else torch.cat(x)
    complete = torch.from_numpy(np.concatenate(is_complete))
    return _Rows(inputs, names, complete, columns, cells, missing)


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


def _widths(model: Any, rows: _Rows, at: Tensor, own: Any) -> dict[str, Any]:
    """Return the predictions by the name of the width, including ``own``."""
    x = rows.x[at]
    is_measured = isinstance(x, Interval)
    if rows.missing is not None:
        base = x if is_measured else rows.missing.intervals(x)
        unit = _is_number(model.preprocessing, rows.missing)
        low, high = torch.tensor([-torch.inf, torch.inf])
        steps, name = DEVIATIONS, "standard deviations"
    else:
        shape = (-1, 1, 1)
        mean, std = (torch.tensor(model.preprocessing[n]).reshape(shape) for n in ("mean", "std"))
        base = x if is_measured else Interval.point(x)
        unit, low, high = 1 / std, -mean / std, (1 - mean) / std
        steps, name = BRIGHTNESS, "of the range from black to white"
    if is_measured:
        steps, name = FACTORS, "times the measured width"
    found = {}
    for step in steps:
        radius = step * base.radius if is_measured else base.radius + step / 2 * unit
        wide = Interval.from_center_radius(base.center, radius)
        wide = Interval(wide.lower.clamp(low, high), wide.upper.clamp(low, high))
        is_own = step == (1 if is_measured else 0)
        found[f"{step:g} {name}"] = own if is_own else model.predict(wide).to("cpu")
    return found


def _is_number(preprocessing: dict[str, Any], missing: Missing) -> Tensor:
    """Return 1 for features that are numbers, and 0 for categories and dates."""
    columns = TableEncoder.from_json(preprocessing).columns
    kinds = [float(isinstance(column, Number)) for column in columns for _ in range(column.width)]
    return torch.tensor(kinds + [0.0] * len(missing.marked))
