"""Plotly figures for the results of an evaluation."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from creinn.evaluation import AccuracyRejection, Reliability
from creinn.evaluation.checks import Numbers, as_numbers, as_numpy
from creinn.report.page import Side
from creinn.report.theme import FAINT, PALETTE, color, plotly, render, require, translucent

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_POINTS = 500  # number of points of a curve; longer curves are thinned
MOST_NUMBERS = 12  # number of classes up to which a confusion matrix shows the counts


@cache
def _template() -> Any:
    return plotly().layout.Template(json.loads(render("figure.json")))


def figure(title: str = "", height: int = 320, **layout: Any) -> "Figure":
    """Create an empty figure in the common style; ``layout`` has the options of plotly."""
    options = {"template": _template(), "height": height, "title_text": title, **layout}
    return plotly().Figure(layout=options)


def rejection_curves(curves: Mapping[str, Mapping[str, AccuracyRejection]]) -> Side:
    """Draw accuracy-rejection curves, with a panel for each measure and a line for each model.

    Args:
        curves: The curves of each model for each measure, such as
            ``curves["CreINN"]["epistemic"]``. Not every model needs all of the measures.

    Raises:
        ValueError: If there are no curves.
    """
    complete_first = sorted(curves.values(), key=len, reverse=True)  # defines the order of panels
    measures = dict.fromkeys(name for by_measure in complete_first for name in by_measure)
    require(measures, "the dictionary of curves")
    every = [curve.accuracy for by_measure in curves.values() for curve in by_measure.values()]
    x_axis = {"title_text": "rejected", "tickformat": ".0%", "range": [0, 1]}
    y_axis = {"title_text": "accuracy of the kept", "range": _accuracy_range(np.concatenate(every))}
    drawings = []
    for measure in measures:
        drawing = figure(measure, xaxis=x_axis, yaxis=y_axis)
        for number, (model, by_measure) in enumerate(curves.items()):
            if measure in by_measure:
                x, y = thin(by_measure[measure], MOST_POINTS)
                hover = "%{x:.0%} rejected: accuracy %{y:.4f}"
                drawing.add_trace(_line(model, x, y, color(number), hover))
        drawings.append(drawing)
    return Side(drawings)


def thin(curve: AccuracyRejection, most: int) -> AccuracyRejection:
    """Return at most ``most`` points of a curve, with both of its ends."""
    count = len(curve.rejection)
    kept = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.intp))
    return AccuracyRejection(*(np.asarray(values)[kept] for values in curve))


def score_histograms(
    scores: Mapping[str, Mapping[str, Any]], x_title: str = "uncertainty (bits)", bins: int = 40
) -> Side:
    """Draw histograms of scores, with a panel for each model and the same bins for all groups.

    Args:
        scores: The scores of each model for each group of samples, such as
            ``scores["CreINN"]["in distribution"]``.
        x_title: The title of the horizontal axis.
        bins: The number of bins.

    Raises:
        ValueError: If there are no scores, or if a score is not finite.
    """
    require(scores, "scores")
    groups = list(dict.fromkeys(group for by_group in scores.values() for group in by_group))
    x_axis = {"title_text": x_title}
    y_axis = {"title_text": "share of samples", "tickformat": ".0%"}
    drawings = []
    for model, by_group in scores.items():
        require(by_group, f"scores[{model!r}]")
        values = {group: as_numbers(of, f"{model}, {group}", 1) for group, of in by_group.items()}
        edges = np.histogram_bin_edges(np.concatenate(list(values.values())), bins)
        drawing = figure(model, barmode="overlay", bargap=0, xaxis=x_axis, yaxis=y_axis)
        for group, value in values.items():
            share = np.histogram(value, edges)[0] / len(value)
            shade, hover = color(groups.index(group)), "%{x:.3f}: %{y:.1%}"
            drawing.add_trace(_bars(edges, share, shade, hover, name=group))
        drawings.append(drawing)
    return Side(drawings)


def training_curves(
    histories: Mapping[str, Sequence[Mapping[str, float | None]]],
    measures: Sequence[str] = ("loss", "accuracy", "width"),
    colors: Mapping[str, str] | None = None,
) -> Side:
    """Draw training curves, with a panel for each measure and a line for each model.

    The values of the validation data are drawn as dashed lines.

    Args:
        histories: The rows of :class:`creinn.training.History` for each model.
        measures: The columns to draw, each with its ``val_`` counterpart. Columns without values
            are ignored.
        colors: The colors of the models, if they have to match another figure.

    Raises:
        ValueError: If all of the columns are empty.
    """
    drawings = []
    for measure in measures:
        drawing = figure(measure, xaxis={"title_text": "epoch"}, yaxis={"rangemode": "nonnegative"})
        for number, (model, rows) in enumerate(histories.items()):
            shade = (colors or {}).get(model, color(number))
            for key, dash in ((measure, "solid"), (f"val_{measure}", "dash")):
                points = [(row["epoch"], row[key]) for row in rows if row.get(key) is not None]
                if points:
                    x, y = zip(*points, strict=True)
                    drawing.add_trace(_line(model, x, y, shade, f"{key} %{{y:.4f}}", dash))
        if not drawing.data:
            continue
        if measure == "accuracy":
            accuracies = np.concatenate([trace.y for trace in drawing.data])
            drawing.update_yaxes(range=_accuracy_range(accuracies))
        if any(trace.line.dash == "dash" for trace in drawing.data):
            drawing.add_trace(_explanation("dashed: validation", [None]))
        drawings.append(drawing)
    require(drawings, f"each of the columns {', '.join(measures)}")
    return Side(drawings)


def reliability_chart(found: Reliability) -> Side:
    """Draw the accuracy and the share of samples in each bin of the confidence."""
    x_axis = {"title_text": "probability of the predicted class", "range": [0, 1]}
    data = {"customdata": np.stack([found.rows, found.confidence], 1)}
    y_axis = {"tickformat": ".0%", "range": [0, 1]}
    accuracy = figure("accuracy in the bin", xaxis=x_axis, yaxis=y_axis)
    rows = "%{customdata[0]} samples<extra></extra>"
    hover = f"probability %{{customdata[1]:.3f}}, accuracy %{{y:.3f}}, {rows}"
    accuracy.add_trace(_bars(found.edges, found.accuracy, color(0), hover, **data))
    accuracy.add_trace(_explanation("dashed: accuracy equals probability", [0, 1]))
    share = figure("share of samples", xaxis=x_axis, yaxis={"tickformat": ".0%"})
    heights = found.rows / found.rows.sum()
    share.add_trace(_bars(found.edges, heights, color(1), f"%{{y:.1%}}, {rows}", **data))
    return Side([accuracy, share])


def coverage_chart(curve: Sequence[Mapping[str, float]]) -> Side:
    """Draw the empirical coverage and the mean set size for each nominal coverage.

    Args:
        curve: The points, each with the keys ``nominal``, ``coverage``, ``low``, ``high`` and
            ``mean_size``.
    """
    names = ("nominal", "coverage", "low", "high", "mean_size")
    nominal, found, low, high, size = (np.array([point[name] for point in curve]) for name in names)
    x_axis = {"title_text": "nominal coverage", "tickformat": ".0%"}
    empirical = figure("empirical coverage", xaxis=x_axis, yaxis={"tickformat": ".0%"})
    errors = {"array": high - found, "arrayminus": found - low, "symmetric": False}
    errors |= {"thickness": 1, "color": FAINT}
    hover = "coverage %{y:.4f}"
    empirical.add_trace(_line("empirical", nominal, found, color(0), hover, error_y=errors))
    empirical.add_trace(_explanation("dashed: nominal", [nominal.min(), 1.0]))
    sizes = figure("mean size of the sets", xaxis=x_axis, yaxis={"rangemode": "tozero"})
    sizes.add_trace(_line("classes", nominal, size, color(1), "%{y:.3f} classes"))
    return Side([empirical, sizes])


def heat_map(
    matrix: Any, x_title: str = "input", y_title: str = "output", label: str = "radius"
) -> "Figure":
    """Draw a non-empty matrix as a heat map, for example the radii of a linear layer."""
    values = as_numpy(matrix)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"The heat map needs a non-empty matrix, got shape {values.shape}.")
    return _matrix(
        values,
        (x_title, y_title),
        height=np.clip(120 + 480 * values.shape[0] / values.shape[1], 320, 700),
        zmin=min(0.0, float(values.min())),
        colorbar={"title": {"text": label}, "thickness": 10, "outlinewidth": 0},
        hovertemplate=f"{y_title} %{{y}}, {x_title} %{{x}}: %{{z:.4g}}<extra></extra>",
    )


def confusion_map(counts: Any, names: Sequence[str]) -> "Figure":
    """Draw a confusion matrix, where the color is the share of the row.

    Args:
        counts: The counts of shape ``(K, K)`` from :func:`creinn.evaluation.confusion`.
        names: The names of the classes.
    """
    matrix = as_numpy(counts)
    if matrix.shape != (len(names), len(names)):
        raise ValueError(f"The counts for {len(names)} names have shape {matrix.shape}.")
    drawing = _matrix(
        matrix / matrix.sum(1, keepdims=True).clip(1),
        ("predicted class", "true class"),
        height=np.clip(120 + 36 * len(names), 280, 700),
        opacity=0.7,  # the numbers have to be readable
        text=matrix,
        texttemplate="%{text}" if len(names) <= MOST_NUMBERS else None,
        zmin=0,
        zmax=1,
        showscale=False,
        hovertemplate="%{text} of true class %{y} predicted as %{x}: %{z:.1%}<extra></extra>",
    )
    short = [name if len(name) <= 14 else f"{name[:13]}…" for name in names]
    ticks = {"tickvals": list(range(len(names))), "ticktext": short}
    return drawing.update_xaxes(ticks).update_yaxes(ticks)


def _line(
    name: str, x: Any, y: Any, shade: str, hover: str | None, dash: str = "solid", **options: Any
) -> Any:
    line = {"color": shade, "width": 2, "dash": dash}
    return plotly().Scatter(
        x=x, y=y, name=name, mode="lines", line=line, hovertemplate=hover, **options
    )


def _explanation(name: str, x: list[Any]) -> Any:
    """Return a grey dashed line through ``(x, x)`` with an entry in the legend."""
    return _line(name, x, x, FAINT, None, "dash", hoverinfo="skip")


def _bars(edges: Numbers, y: Numbers, shade: str, hover: str, **options: Any) -> Any:
    """Return bars between the edges."""
    marker = {"color": translucent(shade, 0.45), "line": {"color": shade, "width": 0.5}}
    middle, width = (edges[:-1] + edges[1:]) / 2, np.diff(edges)
    return plotly().Bar(x=middle, y=y, width=width, marker=marker, hovertemplate=hover, **options)


def _matrix(
    z: Any, titles: tuple[str, str], height: float, opacity: float = 1, **options: Any
) -> "Figure":
    """Draw a heat map with the first row at the top."""
    x_axis, y_axis = ({"title_text": title, "showgrid": False} for title in titles)
    drawing = figure(height=int(height), xaxis=x_axis, yaxis=y_axis | {"autorange": "reversed"})
    scale = [[end, translucent(PALETTE[0], end * opacity)] for end in (0, 1)]
    return drawing.add_heatmap(z=z, colorscale=scale, **options)


def _accuracy_range(values: Numbers) -> list[float]:
    """Return the limits of an axis of accuracies, which is at least 0.2 wide."""
    low, high = float(values.min()), float(values.max())
    low = max(0.0, min(low, high - 0.2))
    high = max(high, low + 0.2)
    space = 0.04 * (high - low)
    return [low - space, high + space]
