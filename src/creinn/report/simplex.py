"""Credal sets of three classes in the probability simplex, as in the paper."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from creinn.credal.credal_set import CredalSet
from creinn.evaluation.checks import Numbers, as_numpy
from creinn.report.figures import figure
from creinn.report.theme import FAINT, PALETTE, translucent

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def simplex(
    credal_set: CredalSet,
    names: Sequence[str],
    given: tuple[Any, Any] | None = None,
    height: int = 400,
) -> "Figure":
    """Draw a credal set of three classes in a triangle.

    Args:
        credal_set: One credal set with three classes. Use :func:`coarsen` to merge other classes.
        names: The names of the classes, which are drawn at the corners.
        given: Lower and upper bounds before they were made reachable, drawn as dotted lines.
        height: The height of the figure in pixels.
    """
    shape = tuple(credal_set.lower.shape)
    if shape != (3,) or len(names) != 3:
        raise ValueError(
            f"Expected one set of three classes and three names, got shape {shape} and "
            f"{len(names)} names. Use coarsen() to merge classes."
        )
    axes = {f"{axis}axis": {"title_text": name} for axis, name in zip("abc", names, strict=True)}
    margin = {"l": 60, "r": 60, "t": 40, "b": 45}
    drawing = figure(height=height, ternary={"sum": 1, **axes}, margin=margin)
    if given is not None:
        _add_bounds(drawing, "bounds as given", *given, color=FAINT, dash="dot")
    bounds = credal_set.lower, credal_set.upper
    _add_bounds(drawing, "reachable bounds", *bounds, color=PALETTE[0], dash="dash")
    _add(
        drawing,
        "credal set",
        _outline(as_numpy(credal_set.vertices())),
        mode="lines+markers",
        line={"color": PALETTE[0], "width": 2},
        marker={"size": 5},
        fill="toself",
        fillcolor=translucent(PALETTE[0], 0.25),
    )
    line = {"color": "white", "width": 1}
    diamond = {"color": PALETTE[1], "size": 10, "symbol": "diamond", "line": line}
    point = as_numpy(credal_set.intersection)[None]
    _add(drawing, "intersection probability", point, mode="markers", marker=diamond)
    return drawing


def coarsen(credal_set: CredalSet, first: int, second: int) -> CredalSet:
    r"""Merge all classes except two into a third class.

    The result is exact. For a set of probability intervals, the sum over a group of classes is in
    :math:`[\sum \underline q_j, \sum \overline q_j]`, and every value that is compatible with
    :math:`\sum q = 1` is attained.

    Args:
        credal_set: One credal set with at least three classes.
        first: The first class of the result.
        second: The second class of the result, which must be different.

    Example:
        >>> s = CredalSet([0.1, 0.2, 0.1, 0.1], [0.5, 0.6, 0.2, 0.2])
        >>> coarsen(s, 0, 1)
        CredalSet([0.1, 0.5], [0.2, 0.6], [0.2, 0.4])
    """
    lower, upper = credal_set.lower, credal_set.upper
    if lower.ndim != 1 or len(lower) < 3:
        raise ValueError(f"Expected one set of at least three classes, got {tuple(lower.shape)}.")
    rest = [index for index in range(len(lower)) if index not in (first, second)]
    if len(rest) != len(lower) - 2:
        raise ValueError(
            f"Expected two different classes in [0, {len(lower)}), got {first} and {second}."
        )

    def merged(bound: Tensor) -> Tensor:
        return torch.stack([bound[first], bound[second], bound[rest].sum()])

    return CredalSet(merged(lower), merged(upper).clamp_max(1))


def _add(drawing: "Figure", name: str, points: Numbers, **options: Any) -> None:
    """Add a trace with points of shape ``(n, 3)``; a row of NaN interrupts the line."""
    a, b, c = ([None if np.isnan(x) else float(x) for x in column] for column in points.T)
    hover = "%{a:.3f}, %{b:.3f}, %{c:.3f}"
    drawing.add_scatterternary(a=a, b=b, c=c, name=name, hovertemplate=hover, **options)


def _add_bounds(
    drawing: "Figure", name: str, lower: Any, upper: Any, color: str, dash: str
) -> None:
    """Add the lines ``q_k = bound`` across the triangle."""
    rows: list[Numbers] = []
    for k, bounds in enumerate(zip(as_numpy(lower), as_numpy(upper), strict=True)):
        for bound in np.clip(bounds, 0, 1):
            ends = np.insert((1 - bound) * np.eye(2), k, bound, axis=1)  # another class is 0
            rows += [*ends, np.full(3, np.nan)]
    line = {"color": color, "width": 1, "dash": dash}
    _add(drawing, name, np.array(rows), mode="lines", line=line, connectgaps=False)


def _outline(vertices: Numbers) -> Numbers:
    """Return the vertices of a convex polygon in the order of a closed outline."""
    x, y = vertices[:, 1] - vertices[:, 2], vertices[:, 0] * np.sqrt(3)  # equilateral triangle
    around = vertices[np.argsort(np.arctan2(y - y.mean(), x - x.mean()), kind="stable")]
    return np.concatenate([around, around[:1]])
