"""Plotly figures of evaluations and credal sets."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from creinn.credal.credal_set import CredalSet
from creinn.credal.plot import outline
from creinn.evaluation import AccuracyRejection, Reliability
from creinn.evaluation.arrays import Numbers, as_numbers, as_numpy
from creinn.report.page import Side
from creinn.report.theme import FAINT, PALETTE, color, plotly, render, require, translucent

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

CURVE_POINTS = 500  # of a curve
MOST_NUMBERS = 12  # classes of a confusion matrix with counts


@cache
def _template() -> Any:
    return plotly().layout.Template(json.loads(render("figure.json")))


def figure(title: str = "", height: int = 320, **layout: Any) -> "Figure":
    """Create an empty figure with layout options."""
    options = {"template": _template(), "height": height, "title_text": title, **layout}
    return plotly().Figure(layout=options)


def rejection_curves(curves: Mapping[str, Mapping[str, AccuracyRejection]]) -> Side:
    """Draw the accuracy-rejection curves ``curves[model][measure]``.

    There is a panel for each measure and a line for each model.
    """
    complete_first = sorted(curves.values(), key=len, reverse=True)  # the order of panels
    measures = dict.fromkeys(name for by_measure in complete_first for name in by_measure)
    require(measures, "the dictionary of curves")
    every = [curve.accuracy for by_measure in curves.values() for curve in by_measure.values()]
    x_axis = {"title": "rejected", "tickformat": ".0%", "range": [0, 1]}
    y_axis = {"title": "accuracy of the kept", "range": _accuracy_range(np.concatenate(every))}
    hover = "%{x:.0%} rejected: accuracy %{y:.4f}"
    drawings = []
    for measure in measures:
        drawing = figure(measure, xaxis=x_axis, yaxis=y_axis)
        for number, (model, by_measure) in enumerate(curves.items()):
            if measure in by_measure:
                x, y = thin(by_measure[measure], CURVE_POINTS)
                _line(drawing, model, x, y, color(number), hover)
        drawings.append(drawing)
    return Side(drawings)


def thin(curve: AccuracyRejection, most: int) -> AccuracyRejection:
    """Return at most ``most`` points of a curve."""
    count = len(curve.rejection)
    kept = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.intp))
    return AccuracyRejection(*(np.asarray(values)[kept] for values in curve))


def score_histograms(
    scores: Mapping[str, Mapping[str, Any]], x_title: str = "uncertainty (bits)", bins: int = 40
) -> Side:
    """Draw histograms of ``scores[model][group]``, with a panel for each model.

    All groups of a model have the same bins.
    """
    require(scores, "scores")
    groups = list(dict.fromkeys(group for by_group in scores.values() for group in by_group))
    y_axis = {"title": "share of samples", "tickformat": ".0%"}
    layout: dict[str, Any] = {"xaxis_title": x_title, "yaxis": y_axis, "bargap": 0}
    drawings = []
    for model, by_group in scores.items():
        require(by_group, f"scores[{model!r}]")
        values = {group: as_numbers(of, f"{model}, {group}", 1) for group, of in by_group.items()}
        edges = np.histogram_bin_edges(np.concatenate(list(values.values())), bins)
        drawing = figure(model, barmode="overlay", **layout)
        for group, value in values.items():
            share = np.histogram(value, edges)[0] / len(value)
            shade = color(groups.index(group))
            _bars(drawing, edges, share, shade, "%{x:.3f}: %{y:.1%}", name=group)
        drawings.append(drawing)
    return Side(drawings)


def training_curves(
    histories: Mapping[str, Sequence[Mapping[str, float | None]]],
    colors: Mapping[str, str] | None = None,
) -> Side:
    """Draw training curves, with dashed lines for validation.

    Args:
        histories: Rows of :class:`creinn.training.History` for each model.
        colors: Colors of the models.
    """
    drawings = []
    for measure in ("loss", "accuracy", "width"):
        drawing = figure(measure, xaxis_title="epoch", yaxis_rangemode="nonnegative")
        for number, (model, rows) in enumerate(histories.items()):
            shade = (colors or {}).get(model, color(number))
            for key, dash in ((measure, "solid"), (f"val_{measure}", "dash")):
                points = [(row["epoch"], row[key]) for row in rows if row.get(key) is not None]
                if points:
                    x, y = zip(*points, strict=True)
                    _line(drawing, model, x, y, shade, f"{key} %{{y:.4f}}", dash)
        if not drawing.data:
            continue
        if measure == "accuracy":
            accuracies = np.concatenate([trace.y for trace in drawing.data])
            drawing.update_yaxes(range=_accuracy_range(accuracies))
        if any(trace.line.dash == "dash" for trace in drawing.data):
            _explain(drawing, "dashed: validation", [None])
        drawings.append(drawing)
    require(drawings, "each of the columns loss, accuracy and width")
    return Side(drawings)


def reliability_chart(found: Reliability) -> Side:
    """Draw the accuracy and the share of samples by confidence."""
    x_axis = {"title": "probability of the predicted class", "range": [0, 1]}
    percent = {"tickformat": ".0%"}
    data, rows = np.stack([found.rows, found.confidence], 1), "%{customdata[0]} samples"
    hover = f"probability %{{customdata[1]:.3f}}, accuracy %{{y:.3f}}, {rows}<extra></extra>"
    accuracy = figure("accuracy in the bin", xaxis=x_axis, yaxis=percent | {"range": [0, 1]})
    _bars(accuracy, found.edges, found.accuracy, color(0), hover, customdata=data)
    _explain(accuracy, "dashed: accuracy equals probability", [0, 1])
    share = figure("share of samples", xaxis=x_axis, yaxis=percent)
    heights, hover = found.rows / found.rows.sum(), f"%{{y:.1%}}, {rows}<extra></extra>"
    _bars(share, found.edges, heights, color(1), hover, customdata=data)
    return Side([accuracy, share])


def coverage_chart(curve: Sequence[Mapping[str, float]]) -> Side:
    """Draw the empirical coverage and the mean set size by nominal coverage.

    Points have ``nominal``, ``coverage``, ``low``, ``high`` and
    ``mean_size``.
    """
    points = {name: np.array(values) for name, values in pd.DataFrame(curve).items()}
    nominal, coverage = points["nominal"], points["coverage"]
    above, below = points["high"] - coverage, coverage - points["low"]
    x_axis = {"title": "nominal coverage", "tickformat": ".0%"}
    empirical = figure("empirical coverage", xaxis=x_axis, yaxis_tickformat=".0%")
    errors = {"array": above, "arrayminus": below, "thickness": 1, "color": FAINT}
    hover = "coverage %{y:.4f}"
    _line(empirical, "empirical", nominal, coverage, color(0), hover, error_y=errors)
    _explain(empirical, "dashed: nominal", [nominal.min(), 1.0])
    sizes = figure("mean size of the sets", xaxis=x_axis, yaxis_rangemode="tozero")
    _line(sizes, "classes", nominal, points["mean_size"], color(1), "%{y:.3f} classes")
    return Side([empirical, sizes])


def heat_map(
    matrix: Any, x_title: str = "input", y_title: str = "output", label: str = "radius"
) -> "Figure":
    """Draw a matrix, for example the radii of a linear layer."""
    values = as_numpy(matrix)
    rows, columns = values.shape
    height = np.clip(120 + 480 * rows / columns, 320, 700)
    bar = {"title_text": label, "thickness": 10, "outlinewidth": 0}
    hover = f"{y_title} %{{y}}, {x_title} %{{x}}: %{{z:.4g}}<extra></extra>"
    low = min(0.0, float(values.min()))
    return _matrix(values, (x_title, y_title), height, hover, zmin=low, colorbar=bar)


def confusion_map(counts: Any, names: Sequence[str]) -> "Figure":
    """Draw :func:`creinn.evaluation.confusion`, colored by share of the row."""
    matrix = as_numpy(counts)
    if matrix.shape != (len(names), len(names)):
        raise ValueError(f"{len(names)} names, but shape {matrix.shape}.")
    shares, titles = (
        matrix / matrix.sum(1, keepdims=True).clip(1),
        ("predicted class", "true class"),
    )
    height = np.clip(120 + 36 * len(names), 280, 700)
    hover = "%{text} of true class %{y} predicted as %{x}: %{z:.1%}<extra></extra>"
    template = "%{text}" if len(names) <= MOST_NUMBERS else None
    style = {"text": matrix, "texttemplate": template, "zmin": 0, "zmax": 1, "showscale": False}
    drawing = _matrix(shares, titles, height, hover, opacity=0.7, **style)  # readable numbers
    short = [name if len(name) <= 14 else f"{name[:13]}…" for name in names]
    ticks = {"tickvals": list(range(len(names))), "ticktext": short}
    return drawing.update_xaxes(ticks).update_yaxes(ticks)


def simplex(
    credal_set: CredalSet,
    names: Sequence[str],
    given: tuple[Any, Any] | None = None,
    height: int = 400,
) -> "Figure":
    """Draw a credal set of three classes in a triangle, as in the paper.

    Args:
        credal_set: The credal set; see :func:`coarsen`.
        names: Names of the classes.
        given: Bounds that are not reachable, drawn as dotted lines.
        height: Height in pixels.
    """
    if credal_set.shape != (3,) or len(names) != 3:
        found = f"shape {tuple(credal_set.shape)} and {len(names)} names"
        raise ValueError(f"Expected one set of three classes, got {found}. Use coarsen.")
    axes = {f"{axis}axis": {"title": name} for axis, name in zip("abc", names, strict=True)}
    margin = {"l": 60, "r": 60, "t": 40, "b": 45}
    drawing = figure(height=height, ternary={"sum": 1, **axes}, margin=margin)
    if given is not None:
        _add_bounds(drawing, "bounds as given", given, FAINT, "dot")
    bounds, shade = (credal_set.lower, credal_set.upper), PALETTE[0]
    _add_bounds(drawing, "reachable bounds", bounds, shade, "dash")
    polygon = as_numpy(outline(*bounds))
    closed = np.concatenate([polygon, polygon[:1]])
    style = {"line": {"color": shade, "width": 2}, "fillcolor": translucent(shade, 0.25)}
    _add(drawing, "credal set", closed, mode="lines+markers", fill="toself", **style)
    diamond = {"color": PALETTE[1], "size": 10, "symbol": "diamond"}
    point = credal_set.intersection[None]
    _add(drawing, "intersection probability", point, mode="markers", marker=diamond)
    return drawing


def coarsen(credal_set: CredalSet, first: int, second: int) -> CredalSet:
    r"""Merge all classes except two into a third class.

    This is exact: the sum over the merged classes attains all values in
    :math:`[\sum \underline q_j, \sum \overline q_j]` that fit
    :math:`\sum q = 1`.

    Example:
        >>> coarsen(CredalSet([0.1, 0.2, 0.1, 0.1], [0.5, 0.6, 0.2, 0.2]), 0, 1)
        CredalSet([0.1, 0.5], [0.2, 0.6], [0.2, 0.4])
    """
    shape, classes = tuple(credal_set.shape), set(range(credal_set.num_classes))
    if len(shape) != 1 or len(classes & {first, second}) != 2:
        found = f"shape {shape}, {first} and {second}"
        raise ValueError(f"Expected one set and two different classes, got {found}.")
    rest = sorted(classes - {first, second})
    bounds = credal_set.lower, credal_set.upper
    low, high = (torch.stack([x[first], x[second], x[rest].sum()]) for x in bounds)
    return CredalSet(low, high.clamp_max(1))


def _line(
    drawing: "Figure",
    name: str,
    x: Any,
    y: Any,
    shade: str,
    hover: str | None,
    dash: str = "solid",
    **options: Any,
) -> None:
    line = {"color": shade, "width": 2, "dash": dash}
    options |= {"mode": "lines", "line": line, "hovertemplate": hover}
    drawing.add_scatter(x=x, y=y, name=name, **options)


def _explain(drawing: "Figure", name: str, x: list[Any]) -> None:
    """Draw a dashed diagonal."""
    _line(drawing, name, x, x, FAINT, None, "dash", hoverinfo="skip")


def _bars(
    drawing: "Figure", edges: Numbers, y: Numbers, shade: str, hover: str, **options: Any
) -> None:
    marker = {"color": translucent(shade, 0.45), "line": {"color": shade, "width": 0.5}}
    middle, width = (edges[:-1] + edges[1:]) / 2, np.diff(edges)
    drawing.add_bar(x=middle, y=y, width=width, marker=marker, hovertemplate=hover, **options)


def _matrix(
    z: Any, titles: tuple[str, str], height: float, hover: str, opacity: float = 1, **options: Any
) -> "Figure":
    x_axis, y_axis = ({"title": title, "showgrid": False} for title in titles)
    drawing = figure(height=int(height), xaxis=x_axis, yaxis=y_axis | {"autorange": "reversed"})
    scale = [[end, translucent(PALETTE[0], end * opacity)] for end in (0, 1)]
    return drawing.add_heatmap(z=z, colorscale=scale, hovertemplate=hover, **options)


def _accuracy_range(values: Numbers) -> list[float]:
    high = float(values.max())
    low = max(0.0, min(float(values.min()), high - 0.2))
    high = max(high, low + 0.2)
    space = 0.04 * (high - low)
    return [low - space, high + space]


def _add(drawing: "Figure", name: str, points: Any, **options: Any) -> None:
    """Draw points ``(n, 3)``; NaN interrupts the line."""
    a, b, c = as_numpy(points).T
    options["hovertemplate"] = "%{a:.3f}, %{b:.3f}, %{c:.3f}"
    drawing.add_scatterternary(a=a, b=b, c=c, name=name, **options)


def _add_bounds(drawing: "Figure", name: str, bounds: Any, color: str, dash: str) -> None:
    """Draw the lines ``q_k = bound`` across the triangle."""
    rows: list[Numbers] = []
    for k, ends in enumerate(zip(*map(as_numpy, bounds), strict=True)):
        for bound in np.clip(ends, 0, 1):
            points = np.insert((1 - bound) * np.eye(2), k, bound, axis=1)  # another class is 0
            rows += [*points, np.full(3, np.nan)]
    line = {"color": color, "width": 1, "dash": dash}
    _add(drawing, name, np.array(rows), mode="lines", line=line, connectgaps=False)
