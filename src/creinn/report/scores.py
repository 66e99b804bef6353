"""Figures of how good probabilities are: calibration, and which classes are taken for which; numbers in."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from creinn.evaluation import Reliability
from creinn.evaluation.checks import as_numpy
from creinn.report.page import Side
from creinn.report.theme import PALETTE, Figure, color, explained, figure, go, translucent

MOST_NUMBERS = 12
"""Most classes for which the counts are written into the picture of a confusion matrix."""


def reliability_chart(found: Reliability) -> Side:
    """Accuracy against the probability of the predicted class, bin by bin, and the share of samples in each bin."""
    middle, width = (found.edges[:-1] + found.edges[1:]) / 2, np.diff(found.edges)
    share = found.rows / found.rows.sum()
    seen = (
        ("accuracy in the bin", found.accuracy, "probability %{customdata[1]:.3f}, accuracy %{y:.3f}"),
        ("share of samples", share, "%{y:.1%}"),
    )
    drawings = []
    for number, (title, y, hover) in enumerate(seen):
        drawing = figure(title)
        drawing.add_trace(
            go.Bar(
                x=middle,
                y=y,
                width=width,
                customdata=np.stack([found.rows, found.confidence], 1),
                marker={"color": translucent(color(number), 0.45), "line": {"color": color(number), "width": 0.5}},
                hovertemplate=f"{hover}, %{{customdata[0]}} samples<extra></extra>",
            )
        )
        drawing.update_xaxes(title_text="probability of the predicted class", range=[0, 1])
        drawing.update_yaxes(tickformat=".0%")
        drawings.append(drawing)
    drawings[0].add_trace(explained("dashed: accuracy equals probability", "dash", (0, 1)))
    drawings[0].update_yaxes(range=[0, 1])
    return Side(drawings)


def confusion_map(counts: Any, names: Sequence[str]) -> Figure:
    """A confusion matrix in colours, true classes in rows; the colour is the share of the row.

    Args:
        counts: Counts, shape ``(K, K)``, as :func:`creinn.evaluation.confusion` gives.
        names: Names of the classes.

    Raises:
        ValueError: If the shape does not fit the names.
    """
    matrix = as_numpy(counts)
    if matrix.shape != (len(names), len(names)):
        raise ValueError(f"{len(names)} classes need a square matrix of counts, but the shape is {matrix.shape}.")
    drawing = figure(height=int(min(700, max(280, 120 + 36 * len(names)))))
    drawing.add_trace(
        go.Heatmap(
            z=matrix / matrix.sum(1, keepdims=True).clip(1),
            text=matrix,
            texttemplate="%{text}" if len(names) <= MOST_NUMBERS else None,
            colorscale=[[0.0, translucent(PALETTE[0], 0)], [1.0, translucent(PALETTE[0], 0.7)]],  # numbers stay legible
            zmin=0,
            zmax=1,
            showscale=False,
            hovertemplate="%{text} of true class %{y} predicted as %{x}: %{z:.1%}<extra></extra>",
        )
    )
    places = {"tickvals": list(range(len(names))), "ticktext": [_short(name) for name in names], "showgrid": False}
    drawing.update_xaxes(title_text="predicted class", **places)
    drawing.update_yaxes(title_text="true class", autorange="reversed", **places)
    return drawing


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:13]}…"
