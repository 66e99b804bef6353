"""Figures of results: numbers in, plotly figures out, one per panel; knows no model.

Accuracy-rejection curves, score histograms, training curves, the radii of a layer, and how uncertainty grows under
shift. Credal sets are drawn by :mod:`creinn.report.ternary`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from creinn.evaluation import AccuracyRejection
from creinn.evaluation.checks import as_numpy, as_scores
from creinn.report.page import Side
from creinn.report.tables import Spread
from creinn.report.theme import FAINT, PALETTE, Figure, color, explained, figure, go, require, translucent

MOST_POINTS = 500
"""Longest curve that is drawn in full; longer ones are thinned evenly, both ends kept."""


def rejection_curves(curves: Mapping[str, Mapping[str, AccuracyRejection]]) -> Side:
    """Accuracy of the kept samples against the share rejected: a panel per measure, a line per model.

    Args:
        curves: By model, then by measure, for example ``curves["CreINN"]["epistemic"]``. A model may lack a measure.

    Raises:
        ValueError: If there are no curves.
    """
    require(curves, "curves")
    complete_first = sorted(curves.values(), key=len, reverse=True)  # so that a model without a measure moves no panel
    measures = list(dict.fromkeys(measure for by_measure in complete_first for measure in by_measure))
    require(measures, "the mapping of measures of every model in curves")
    every = [curve.accuracy for by_measure in curves.values() for curve in by_measure.values()]
    common = _accuracy_range(np.concatenate(every))
    drawings = []
    for measure in measures:
        drawing = figure(measure)
        for number, (model, by_measure) in enumerate(curves.items()):
            if measure not in by_measure:
                continue
            curve = by_measure[measure]
            kept = _thinned(len(curve.rejection))
            drawing.add_trace(
                go.Scatter(
                    x=np.asarray(curve.rejection)[kept],
                    y=np.asarray(curve.accuracy)[kept],
                    name=model,
                    mode="lines",
                    line={"color": color(number), "width": 2},
                    hovertemplate="%{x:.0%} rejected: accuracy %{y:.4f}",
                )
            )
        drawing.update_xaxes(title_text="rejected", tickformat=".0%", range=[0, 1])
        drawing.update_yaxes(title_text="accuracy of the kept", range=common)
        drawings.append(drawing)
    return Side(drawings)


def score_histograms(
    scores: Mapping[str, Mapping[str, Any]], x_title: str = "uncertainty (bits)", bins: int = 40
) -> Side:
    """How scores are distributed over groups of samples: a panel per model, a histogram per group.

    Each bar is the share of its group; the groups of a panel have common bins from the least score to the greatest.

    Args:
        scores: By model, then by group, for example ``scores["CreINN"]["in distribution"]``; one score per sample.
        x_title: What the scores are.
        bins: Number of bins.

    Raises:
        ValueError: If there are no scores, or one is NaN or infinite.
    """
    require(scores, "scores")
    groups = list(dict.fromkeys(group for by_group in scores.values() for group in by_group))
    drawings = []
    for model, by_group in scores.items():
        require(by_group, f"scores[{model!r}]")
        values = {group: as_scores(value, f"scores[{model!r}][{group!r}]") for group, value in by_group.items()}
        edges = _edges(np.concatenate(list(values.values())), bins)
        drawing = figure(model)
        drawing.update_layout(barmode="overlay", bargap=0)
        for group, value in values.items():
            shade = color(groups.index(group))
            drawing.add_trace(
                go.Bar(
                    x=(edges[:-1] + edges[1:]) / 2,
                    y=np.histogram(value, edges)[0] / len(value),
                    width=np.diff(edges),
                    name=group,
                    marker={"color": translucent(shade, 0.45), "line": {"color": shade, "width": 0.5}},
                    hovertemplate="%{x:.3f}: %{y:.1%}",
                )
            )
        drawing.update_xaxes(title_text=x_title)
        drawing.update_yaxes(title_text="share of samples", tickformat=".0%")
        drawings.append(drawing)
    return Side(drawings)


def training_curves(
    histories: Mapping[str, Sequence[Mapping[str, float | None]]],
    measures: Sequence[str] = ("loss", "accuracy", "width"),
    colors: Mapping[str, str] | None = None,
) -> Side:
    """What happened in training: a panel per measure, a line per model; validation is dashed, and the legend says so.

    Args:
        histories: By model, the rows of a :class:`creinn.training.History`.
        measures: Columns of the rows; each is drawn with its ``val_`` counterpart. Columns without any number are left
            out.
        colors: Colours by model, where they must agree with another figure.

    Raises:
        ValueError: If there are no rows, or no row has a number for any of ``measures``.
    """
    require(histories, "histories")
    filled = {key for rows in histories.values() for row in rows for key, value in row.items() if value is not None}
    shown = [measure for measure in measures if {measure, f"val_{measure}"} & filled]
    require(shown, f"the list of columns with numbers, of {', '.join(measures)},")
    drawings = []
    for measure in shown:
        drawing = figure(measure)
        for number, (model, rows) in enumerate(histories.items()):
            shade = (colors or {}).get(model, color(number))
            for key, dash in ((measure, "solid"), (f"val_{measure}", "dash")):
                points = [(row["epoch"], row[key]) for row in rows if row.get(key) is not None]
                if points:
                    x, y = zip(*points, strict=True)
                    line = {"color": shade, "width": 2, "dash": dash}
                    hover = f"{key} %{{y:.4f}}"
                    drawing.add_trace(go.Scatter(x=x, y=y, name=model, mode="lines", line=line, hovertemplate=hover))
        if f"val_{measure}" in filled:
            drawing.add_trace(explained("dashed: validation", "dash"))
        drawing.update_xaxes(title_text="epoch")
        drawing.update_yaxes(rangemode="nonnegative")
        if measure == "accuracy":
            lines = [trace.y for trace in drawing.data if trace.y[0] is not None]
            drawing.update_yaxes(range=_accuracy_range(np.concatenate(lines)))
        drawings.append(drawing)
    return Side(drawings)


def heat_map(matrix: Any, x_title: str = "input", y_title: str = "output", label: str = "radius") -> Figure:
    """A matrix in colours, for example the radii of a linear layer ``(outputs, inputs)``; the first row is on top.

    Raises:
        ValueError: If it is not a matrix, or is empty.
    """
    values = as_numpy(matrix)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"A heat map needs a matrix with entries, but the shape is {values.shape}.")
    height = int(min(700, max(320, 120 + 480 * values.shape[0] / values.shape[1])))
    drawing = figure(height=height)
    drawing.add_trace(
        go.Heatmap(
            z=values,
            colorscale=[[0.0, translucent(PALETTE[0], 0)], [1.0, PALETTE[0]]],
            zmin=min(0.0, float(values.min())),
            colorbar={"title": {"text": label}, "thickness": 10, "outlinewidth": 0},
            hovertemplate=f"{y_title} %{{y}}, {x_title} %{{x}}: %{{z:.4g}}<extra></extra>",
        )
    )
    drawing.update_xaxes(title_text=x_title, showgrid=False)
    drawing.update_yaxes(title_text=y_title, showgrid=False, autorange="reversed")
    return drawing


def increase_chart(values: Mapping[str, Mapping[str, float | Spread]]) -> Figure:
    """Uncertainty under growing shift: bars per model, a place on the axis per shift, standard deviations as whiskers.

    Args:
        values: By model, then by shift in the order of drawing, for example ``values["EU"]["noise [0.12, 0.16]"]``;
            relative to the base, so that 1 is no change.

    Raises:
        ValueError: If there are no values.
    """
    require(values, "values")
    drawing = figure()
    for number, (model, by_shift) in enumerate(values.items()):
        require(by_shift, f"values[{model!r}]")
        spreads = [value if isinstance(value, Spread) else Spread(float(value)) for value in by_shift.values()]
        whiskers = {
            "array": [spread.std or 0.0 for spread in spreads],
            "visible": any(spread.std is not None for spread in spreads),
            "thickness": 1,
            "color": FAINT,
        }
        drawing.add_trace(
            go.Bar(
                x=list(by_shift),
                y=[spread.mean for spread in spreads],
                name=model,
                error_y=whiskers,
                hovertemplate="%{x}: %{y:.3f}",
                marker={"color": color(number)},
            )
        )
    line = {"color": FAINT, "dash": "dot"}
    drawing.add_hline(y=1.0, line=line, annotation_text="no change", annotation_position="top left")
    drawing.update_yaxes(title_text="uncertainty relative to the base")
    return drawing


def _accuracy_range(values: npt.NDArray[np.float64]) -> list[float]:
    """Limits of an axis of accuracies: at least a fifth of [0, 1], with a little space at both ends."""
    low, high = float(values.min()), float(values.max())
    low = max(0.0, min(low, high - 0.2))
    high = max(high, low + 0.2)
    space = 0.04 * (high - low)
    return [low - space, high + space]


def _thinned(count: int) -> npt.NDArray[np.intp]:
    """Indices of at most ``MOST_POINTS`` of ``count`` points, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(np.intp))


def _edges(values: npt.NDArray[np.float64], bins: int) -> npt.NDArray[np.float64]:
    low, high = float(values.min()), float(values.max())
    return np.linspace(low, high, bins + 1) if high > low else np.linspace(low - 0.5, low + 0.5, bins + 1)
