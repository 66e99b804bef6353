"""Figures of results: numbers in, plotly figures out, one per panel; knows no model.

Accuracy-rejection curves, score histograms, training curves, uncertainty under shift, calibration, matrices in
colours; and credal sets in the triangle of three probabilities, as in the paper's figure of reachable bounds.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from creinn.credal.credal_set import CredalSet
from creinn.evaluation import AccuracyRejection, Reliability
from creinn.evaluation.checks import as_numpy, as_scores
from creinn.report.page import Figure, Side, go
from creinn.report.tables import Spread
from creinn.report.theme import FAINT, PALETTE, color, render, require

Numbers = npt.NDArray[np.float64]

MOST_POINTS = 500  # of a curve; longer ones are thinned evenly, both ends kept
MOST_NUMBERS = 12  # classes of a confusion matrix with the counts written into it

_TEMPLATE = go.layout.Template(json.loads(render("figure.json")))


def figure(title: str = "", height: int = 320, **layout: Any) -> Figure:
    """An empty figure in the common style; further options are those of plotly's layout."""
    return Figure(layout={"template": _TEMPLATE, "height": height, "title_text": title, **layout})


def rejection_curves(curves: Mapping[str, Mapping[str, AccuracyRejection]]) -> Side:
    """Accuracy of the kept samples against the share rejected: a panel per measure, a line per model.

    Curves are by model, then by measure: ``curves["CreINN"]["epistemic"]``. A model may lack a measure.

    Raises:
        ValueError: If there are no curves.
    """
    require(curves, "curves")
    complete_first = sorted(
        curves.values(), key=len, reverse=True
    )  # so that a model without a measure moves no panel
    measures = list(
        dict.fromkeys(measure for by_measure in complete_first for measure in by_measure)
    )
    require(measures, "the mapping of measures of every model in curves")
    every = [curve.accuracy for by_measure in curves.values() for curve in by_measure.values()]
    x_axis = {"title_text": "rejected", "tickformat": ".0%", "range": [0, 1]}
    y_axis = {"title_text": "accuracy of the kept", "range": _accuracy_range(np.concatenate(every))}
    drawings = []
    for measure in measures:
        drawing = figure(measure, xaxis=x_axis, yaxis=y_axis)
        for number, (model, by_measure) in enumerate(curves.items()):
            if measure in by_measure:
                curve = by_measure[measure]
                points = len(curve.rejection)
                kept = np.unique(
                    np.linspace(0, points - 1, min(points, MOST_POINTS)).round().astype(np.intp)
                )
                x, y = np.asarray(curve.rejection)[kept], np.asarray(curve.accuracy)[kept]
                drawing.add_trace(
                    _line(model, x, y, color(number), "%{x:.0%} rejected: accuracy %{y:.4f}")
                )
        drawings.append(drawing)
    return Side(drawings)


def score_histograms(
    scores: Mapping[str, Mapping[str, Any]], x_title: str = "uncertainty (bits)", bins: int = 40
) -> Side:
    """How scores are distributed over groups of samples: a panel per model, a histogram per group.

    Scores, one per sample, are by model, then by group: ``scores["CreINN"]["in distribution"]``. Each bar is the share
    of its group; the groups of a panel have common bins from the least score to the greatest.

    Raises:
        ValueError: If there are no scores, or one is NaN or infinite.
    """
    require(scores, "scores")
    groups = list(dict.fromkeys(group for by_group in scores.values() for group in by_group))
    y_axis = {"title_text": "share of samples", "tickformat": ".0%"}
    drawings = []
    for model, by_group in scores.items():
        require(by_group, f"scores[{model!r}]")
        values = {
            group: as_scores(value, f"scores[{model!r}][{group!r}]")
            for group, value in by_group.items()
        }
        edges = np.histogram_bin_edges(np.concatenate(list(values.values())), bins)
        drawing = figure(
            model, barmode="overlay", bargap=0, xaxis={"title_text": x_title}, yaxis=y_axis
        )
        for group, value in values.items():
            share = np.histogram(value, edges)[0] / len(value)
            drawing.add_trace(
                _bars(edges, share, color(groups.index(group)), "%{x:.3f}: %{y:.1%}", name=group)
            )
        drawings.append(drawing)
    return Side(drawings)


def training_curves(
    histories: Mapping[str, Sequence[Mapping[str, float | None]]],
    measures: Sequence[str] = ("loss", "accuracy", "width"),
    colors: Mapping[str, str] | None = None,
) -> Side:
    """What happened in training: a panel per measure, a line per model; validation is dashed, and the legend says so.

    Histories are the rows of :class:`creinn.training.History` by model. Measures are columns of them, each drawn with
    its ``val_`` counterpart; those without numbers are left out. Give colours that must agree with another figure.

    Raises:
        ValueError: If there are no rows, or no row has a number for any of ``measures``.
    """
    require(histories, "histories")
    filled = {
        key
        for rows in histories.values()
        for row in rows
        for key, value in row.items()
        if value is not None
    }
    shown = [measure for measure in measures if {measure, f"val_{measure}"} & filled]
    require(shown, f"the list of columns with numbers, of {', '.join(measures)},")
    drawings = []
    for measure in shown:
        drawing = figure(measure, xaxis={"title_text": "epoch"}, yaxis={"rangemode": "nonnegative"})
        for number, (model, rows) in enumerate(histories.items()):
            shade = (colors or {}).get(model, color(number))
            for key, dash in ((measure, "solid"), (f"val_{measure}", "dash")):
                points = [(row["epoch"], row[key]) for row in rows if row.get(key) is not None]
                if points:
                    x, y = zip(*points, strict=True)
                    drawing.add_trace(_line(model, x, y, shade, f"{key} %{{y:.4f}}", dash))
        if measure == "accuracy":
            drawing.update_yaxes(
                range=_accuracy_range(np.concatenate([trace.y for trace in drawing.data]))
            )
        if f"val_{measure}" in filled:
            drawing.add_trace(_explanation("dashed: validation", [None]))
        drawings.append(drawing)
    return Side(drawings)


def increase_chart(values: Mapping[str, Mapping[str, float | Spread]]) -> Figure:
    """Uncertainty under growing shift: bars per model, a place on the axis per shift, standard deviations as whiskers.

    Values are by model, then by shift in the order of drawing: ``values["EU"]["noise [0.12, 0.16]"]``. They are
    relative to the base, so that 1 is no change.

    Raises:
        ValueError: If there are no values.
    """
    require(values, "values")
    drawing = figure(yaxis={"title_text": "uncertainty relative to the base"})
    for number, (model, by_shift) in enumerate(values.items()):
        require(by_shift, f"values[{model!r}]")
        spreads = (
            value if isinstance(value, Spread) else Spread(float(value))
            for value in by_shift.values()
        )
        means, deviations = zip(*spreads, strict=True)
        whiskers = {
            "array": [std or 0.0 for std in deviations],
            "visible": any(std is not None for std in deviations),
        }
        look = {
            "error_y": {**whiskers, "thickness": 1, "color": FAINT},
            "marker": {"color": color(number)},
        }
        drawing.add_bar(
            x=list(by_shift), y=means, name=model, hovertemplate="%{x}: %{y:.3f}", **look
        )
    said = {"annotation_text": "no change", "annotation_position": "top left"}
    return drawing.add_hline(y=1.0, line={"color": FAINT, "dash": "dot"}, **said)


def reliability_chart(found: Reliability) -> Side:
    """Accuracy against the probability of the predicted class, bin by bin, and the share of samples in each bin."""
    x_axis = {"title_text": "probability of the predicted class", "range": [0, 1]}
    known = {"customdata": np.stack([found.rows, found.confidence], 1)}
    right = figure(
        "accuracy in the bin", xaxis=x_axis, yaxis={"tickformat": ".0%", "range": [0, 1]}
    )
    hover = "probability %{customdata[1]:.3f}, accuracy %{y:.3f}, %{customdata[0]} samples<extra></extra>"
    right.add_trace(_bars(found.edges, found.accuracy, color(0), hover, **known))
    right.add_trace(_explanation("dashed: accuracy equals probability", [0, 1]))
    share = figure("share of samples", xaxis=x_axis, yaxis={"tickformat": ".0%"})
    hover = "%{y:.1%}, %{customdata[0]} samples<extra></extra>"
    share.add_trace(_bars(found.edges, found.rows / found.rows.sum(), color(1), hover, **known))
    return Side([right, share])


def coverage_chart(curve: Sequence[Mapping[str, float]]) -> Side:
    """Coverage found against coverage asked for, with its binomial interval; and the mean size of the sets.

    Each point of the curve has ``asked``, ``coverage``, ``low``, ``high`` and ``mean_size``.

    Raises:
        ValueError: If there are no points.
    """
    require(curve, "the curve")
    asked, found, low, high, size = (
        np.array([point[name] for point in curve])
        for name in ("asked", "coverage", "low", "high", "mean_size")
    )
    x_axis = {"title_text": "coverage asked for", "tickformat": ".0%"}
    right = figure("coverage found", xaxis=x_axis, yaxis={"tickformat": ".0%"})
    whiskers = {
        "array": high - found,
        "arrayminus": found - low,
        "symmetric": False,
        "thickness": 1,
        "color": FAINT,
    }
    right.add_trace(_line("found", asked, found, color(0), "found %{y:.4f}", error_y=whiskers))
    right.add_trace(_explanation("dashed: as asked for", [asked.min(), 1.0]))
    sizes = figure("mean size of the sets", xaxis=x_axis, yaxis={"rangemode": "tozero"})
    sizes.add_trace(_line("classes", asked, size, color(1), "%{y:.3f} classes"))
    return Side([right, sizes])


def heat_map(
    matrix: Any, x_title: str = "input", y_title: str = "output", label: str = "radius"
) -> Figure:
    """A matrix in colours, for example the radii of a linear layer ``(outputs, inputs)``; the first row is on top.

    Raises:
        ValueError: If it is not a matrix, or is empty.
    """
    values = as_numpy(matrix)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(
            f"A heat map needs a matrix with entries, but the shape is {values.shape}."
        )
    return _matrix(
        values,
        (x_title, y_title),
        height=np.clip(120 + 480 * values.shape[0] / values.shape[1], 320, 700),
        zmin=min(0.0, float(values.min())),
        colorbar={"title": {"text": label}, "thickness": 10, "outlinewidth": 0},
        hovertemplate=f"{y_title} %{{y}}, {x_title} %{{x}}: %{{z:.4g}}<extra></extra>",
    )


def confusion_map(counts: Any, names: Sequence[str]) -> Figure:
    """A confusion matrix in colours, true classes in rows; the colour is the share of the row.

    Counts are those of :func:`creinn.evaluation.confusion`, of shape ``(K, K)``.

    Raises:
        ValueError: If the shape does not fit the names.
    """
    matrix = as_numpy(counts)
    if matrix.shape != (len(names), len(names)):
        raise ValueError(
            f"{len(names)} classes need a square matrix of counts, but the shape is {matrix.shape}."
        )
    drawing = _matrix(
        matrix / matrix.sum(1, keepdims=True).clip(1),
        ("predicted class", "true class"),
        height=np.clip(120 + 36 * len(names), 280, 700),
        strongest=0.7,  # the numbers stay legible
        text=matrix,
        texttemplate="%{text}" if len(names) <= MOST_NUMBERS else None,
        zmin=0,
        zmax=1,
        showscale=False,
        hovertemplate="%{text} of true class %{y} predicted as %{x}: %{z:.1%}<extra></extra>",
    )
    short = [name if len(name) <= 14 else f"{name[:13]}…" for name in names]
    places = {"tickvals": list(range(len(names))), "ticktext": short}
    return drawing.update_xaxes(places).update_yaxes(places)


def simplex(
    credal_set: CredalSet,
    names: Sequence[str],
    given: tuple[Any, Any] | None = None,
    height: int = 400,
) -> Figure:
    """Draw one credal set of three classes in a triangle whose corners have ``names``.

    Dotted lines show bounds as ``given``, before they were made reachable. Merge further classes by :func:`coarsen`.

    Raises:
        ValueError: If it is not one set of three classes, or there are not three names.
    """
    shape = tuple(credal_set.lower.shape)
    if shape != (3,) or len(names) != 3:
        found = f"the bounds have shape {shape} and there are {len(names)} names"
        advice = "Pick one row, and merge classes with coarsen()."
        raise ValueError(f"The simplex shows one set of three named classes, but {found}. {advice}")
    axes = {f"{axis}axis": {"title_text": name} for axis, name in zip("abc", names, strict=True)}
    drawing = figure(
        height=height, ternary={"sum": 1, **axes}, margin={"l": 60, "r": 60, "t": 40, "b": 45}
    )

    def add(name: str, points: Numbers, mode: str, **options: Any) -> None:
        """A trace through ``points`` of shape ``(n, 3)``; a row of NaN breaks the line."""
        a, b, c = (
            [None if np.isnan(value) else float(value) for value in column] for column in points.T
        )
        hover = "%{a:.3f}, %{b:.3f}, %{c:.3f}"
        drawing.add_scatterternary(
            a=a, b=b, c=c, name=name, mode=mode, hovertemplate=hover, **options
        )

    if given is not None:
        line = {"color": FAINT, "width": 1, "dash": "dot"}
        add("bounds as given", _bound_lines(*given), "lines", line=line, connectgaps=False)
    line = {"color": PALETTE[0], "width": 1, "dash": "dash"}
    add(
        "reachable bounds",
        _bound_lines(credal_set.lower, credal_set.upper),
        "lines",
        line=line,
        connectgaps=False,
    )
    line = {"color": PALETTE[0], "width": 2}
    fill = {"fill": "toself", "fillcolor": _translucent(PALETTE[0], 0.25), "marker": {"size": 5}}
    add("credal set", _outline(as_numpy(credal_set.vertices())), "lines+markers", line=line, **fill)
    diamond = {
        "color": PALETTE[1],
        "size": 10,
        "symbol": "diamond",
        "line": {"color": "white", "width": 1},
    }
    add(
        "intersection probability",
        as_numpy(credal_set.intersection)[None],
        "markers",
        marker=diamond,
    )
    return drawing


def coarsen(credal_set: CredalSet, first: int, second: int) -> CredalSet:
    r"""The set of ``(q_first, q_second, everything else together)``, exactly.

    For a set of probability intervals the sums over a group of classes fill
    :math:`[\sum \underline q_j, \sum \overline q_j]` as far as :math:`\sum q = 1` lets them, so that the image under
    merging classes is again a set of probability intervals; nothing is lost or added.

    Raises:
        ValueError: If the bounds are not a vector of at least three classes, or the classes are not two different ones.

    Example:
        >>> s = CredalSet(torch.tensor([0.1, 0.2, 0.1, 0.1]), torch.tensor([0.5, 0.6, 0.2, 0.2]))
        >>> coarsen(s, 0, 1).lower, coarsen(s, 0, 1).upper
        (tensor([0.1000, 0.2000, 0.2000]), tensor([0.5000, 0.6000, 0.4000]))
    """
    lower, upper = credal_set.lower, credal_set.upper
    if lower.ndim != 1 or len(lower) < 3:
        raise ValueError(
            f"Expected one set of at least three classes, but the bounds have shape {tuple(lower.shape)}."
        )
    if first == second or not (0 <= first < len(lower) and 0 <= second < len(lower)):
        last = len(lower) - 1
        raise ValueError(
            f"The classes must be two different ones of 0 .. {last}, but are {first} and {second}."
        )
    rest = [index for index in range(len(lower)) if index not in (first, second)]

    def merged(bound: Tensor) -> Tensor:
        return torch.stack([bound[first], bound[second], bound[rest].sum()])

    return CredalSet(merged(lower), merged(upper).clamp_max(1))


def _line(
    name: str, x: Any, y: Any, shade: str, hover: str | None, dash: str = "solid", **options: Any
) -> go.Scatter:
    line = {"color": shade, "width": 2, "dash": dash}
    return go.Scatter(x=x, y=y, name=name, mode="lines", line=line, hovertemplate=hover, **options)


def _explanation(name: str, x: list[Any]) -> go.Scatter:
    """What dashed lines mean, for the legend: a grey one through ``(x, x)``."""
    return _line(name, x, x, FAINT, None, "dash", hoverinfo="skip")


def _bars(edges: Numbers, y: Numbers, shade: str, hover: str, **options: Any) -> go.Bar:
    """Bars from edge to edge."""
    marker = {"color": _translucent(shade, 0.45), "line": {"color": shade, "width": 0.5}}
    middle = (edges[:-1] + edges[1:]) / 2
    return go.Bar(
        x=middle, y=y, width=np.diff(edges), marker=marker, hovertemplate=hover, **options
    )


def _translucent(shade: str, opacity: float) -> str:
    return f"rgba{(*bytes.fromhex(shade[1:]), opacity)}"


def _matrix(
    z: Any, titles: tuple[str, str], height: float, strongest: float = 1, **options: Any
) -> Figure:
    """A heat map whose first row is on top."""
    x_axis, y_axis = ({"title_text": title, "showgrid": False} for title in titles)
    drawing = figure(height=int(height), xaxis=x_axis, yaxis=y_axis | {"autorange": "reversed"})
    scale = [[end, _translucent(PALETTE[0], end * strongest)] for end in (0, 1)]
    return drawing.add_heatmap(z=z, colorscale=scale, **options)


def _accuracy_range(values: Numbers) -> list[float]:
    """Limits of an axis of accuracies: at least a fifth of [0, 1], with a little space at both ends."""
    low, high = float(values.min()), float(values.max())
    low = max(0.0, min(low, high - 0.2))
    high = max(high, low + 0.2)
    space = 0.04 * (high - low)
    return [low - space, high + space]


def _bound_lines(lower: Any, upper: Any) -> Numbers:
    """Ends of the lines ``q_k = bound`` across the triangle, with a NaN row after each; class by class."""
    rows = []
    for k, bounds in enumerate(zip(as_numpy(lower), as_numpy(upper), strict=True)):
        for bound in np.clip(bounds, 0, 1):
            ends = np.insert(
                (1 - bound) * np.eye(2), k, bound, axis=1
            )  # either of the other two is 0
            rows += [*ends, np.full(3, np.nan)]
    return np.array(rows)


def _outline(vertices: Numbers) -> Numbers:
    """Vertices of a convex polygon in the order of its outline, the first again at the end."""
    x, y = vertices[:, 1] - vertices[:, 2], vertices[:, 0] * np.sqrt(3)  # an equilateral triangle
    around = vertices[np.argsort(np.arctan2(y - y.mean(), x - x.mean()), kind="stable")]
    return np.concatenate([around, around[:1]])
