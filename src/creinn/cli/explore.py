"""The samples of the explorer in ``creinn evaluate --report``.

The chosen rows are read again. If the model supports intervals, they are
also predicted with other widths, which are multiples of the measured
widths, if any.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from creinn.classifier.base import takes_intervals
from creinn.cli.sources import Part
from creinn.data.columns import Number
from creinn.data.encoder import TableEncoder
from creinn.data.features import Missing
from creinn.data.table import Table
from creinn.evaluation.arrays import as_numpy
from creinn.interval import Interval, cat
from creinn.report.explorer import Samples, choose_samples
from creinn.report.tables import NO_VALUE

MOST_COLUMNS = 60  # of a table
DEVIATIONS = (0.0, 0.1, 0.2, 0.5, 1.0)  # widths in standard deviations
BRIGHTNESS = (0.0, 0.02, 0.05, 0.1, 0.2)  # widths of pixels in [0, 1]
FACTORS = (0.0, 0.5, 1.0, 1.5, 2.0)  # of measured widths


@dataclass(frozen=True)
class Predicted:
    """Data with their predictions."""

    name: str
    parts: Iterable[Part]
    prediction: Any  # of all rows
    labels: Tensor | None = None


class _Rows(NamedTuple):
    x: Any
    names: list[str]
    is_complete: Tensor  # no missing cells
    columns: list[str]
    cells: list[list[str]]
    missing: Missing | None  # of a table


def explorer_samples(
    model: Any, data: Predicted, most: int, outside: bool | None
) -> Iterator[Samples]:
    """Yield at most ``most`` samples of the data, in one or two groups.

    Samples with missing values are separate, because they have no widths.
    See :class:`creinn.report.Samples` for ``outside``.
    """
    chosen = choose_samples(data.prediction.total, most)
    rows = _read(model, data.parts, chosen)
    indices = torch.from_numpy(chosen)
    for is_complete in (True, False):
        at = (rows.is_complete == is_complete).nonzero().flatten()
        if not len(at):
            continue
        own = data.prediction[indices[at]]
        has_widths = is_complete and takes_intervals(model)
        yield Samples(
            data.name,
            own,
            [rows.names[i] for i in at],
            rows=len(data.prediction),
            labels=None if data.labels is None else data.labels[indices[at]],
            outside=outside,
            columns=rows.columns,
            cells=[rows.cells[i] for i in at] if rows.cells else (),
            images=() if rows.cells else _pixels(rows.x[at], model.preprocessing),
            widths=_widths(model, rows, at, own) if has_widths else {},
        )


def _read(model: Any, parts: Iterable[Part], chosen: Any) -> _Rows:
    """Read the chosen rows, in order."""
    x: list[Any] = []
    names, cells, columns = list[str](), list[list[str]](), list[str]()
    is_complete, missing, before = list[bool](), None, 0
    for data in parts:
        here = chosen[(chosen >= before) & (chosen < before + len(data))] - before
        before += len(data)
        if not len(here):
            continue
        x.append(data.inputs[torch.from_numpy(here)])
        if data.tables:
            tables = [replace(table, frame=table.frame.iloc[here]) for table in data.tables]
            used = TableEncoder.from_json(model.preprocessing).columns
            present = [tables[0].cells(column.name).notna() for column in used]
            is_complete += pd.concat(present, axis=1).all(axis=1).tolist()
            columns, missing = list(tables[0].frame)[:MOST_COLUMNS], data.missing
            cells += _cells(tables, columns)
            names += [f"row {row}" for row in np.asarray(data.ids["row"])[here]]
        else:
            is_complete += [True] * len(here)
            names += [str(data.ids["file"][i]) for i in here]
        if before > chosen[-1]:
            break
    inputs = cat(x) if isinstance(x[0], Interval) else torch.cat(x)
    return _Rows(inputs, names, torch.tensor(is_complete), columns, cells, missing)


def _cells(tables: Sequence[Table], columns: Sequence[str]) -> list[list[str]]:
    frames = [table.frame[columns].astype(object) for table in (tables[0], tables[-1])]
    first, last = (frame.where(frame.notna(), NO_VALUE).to_numpy().tolist() for frame in frames)
    pairs = [zip(*rows, strict=True) for rows in zip(first, last, strict=True)]
    return [[f"{a}" if a == b else f"{a} to {b}" for a, b in row] for row in pairs]


def _pixels(x: Any, preprocessing: dict[str, Any]) -> Any:
    mean, std = (np.array(preprocessing[name])[:, None, None] for name in ("mean", "std"))
    return (as_numpy(x.center if isinstance(x, Interval) else x) * std + mean).clip(0, 1)


def _widths(model: Any, rows: _Rows, at: Tensor, own: Any) -> dict[str, Any]:
    """Return the predictions by width."""
    x, preprocessing = rows.x[at], model.preprocessing
    is_measured = isinstance(x, Interval)
    if rows.missing is not None:
        base = x if is_measured else rows.missing.intervals(x)
        columns = TableEncoder.from_json(preprocessing).columns
        kinds = [float(isinstance(one, Number)) for one in columns for _ in range(one.width)]
        unit = torch.tensor(kinds + [0.0] * len(rows.missing.marked))  # 0 for categories and dates
        low, high = torch.tensor([-torch.inf, torch.inf])
        steps, name = DEVIATIONS, "standard deviations"
    else:
        base = x if is_measured else Interval.point(x)
        mean, std = (torch.tensor(preprocessing[n])[:, None, None] for n in ("mean", "std"))
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
